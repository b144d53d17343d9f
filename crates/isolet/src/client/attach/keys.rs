//! The detach keys, recognised in typed input.
//!
//! Programs can make a terminal encode keys differently (the Kitty keyboard protocol, xterm's
//! `modifyOtherKeys`). A key matches in each encoding; otherwise nobody could detach from such a program.

use std::fmt;

/// One key: its character without Ctrl, and whether Ctrl is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DetachKey {
    base: u8,
    ctrl: bool,
}

impl DetachKey {
    fn parse(text: &str) -> Option<Self> {
        let (base, ctrl) = match text.strip_prefix("ctrl-") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let &[base] = base.as_bytes() else { return None };
        let known = match ctrl {
            true => matches!(base, b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_'),
            false => base.is_ascii_graphic(),
        };
        known.then_some(Self { base, ctrl })
    }

    /// The byte that a terminal sends for the key in the legacy encoding.
    fn byte(self) -> u8 {
        if self.ctrl { self.base & 0x1f } else { self.base }
    }

    /// The length of the key's encoding at the beginning of `input`, if `input` begins with it.
    fn found(self, input: &[u8]) -> Option<usize> {
        if input.first() == Some(&self.byte()) && self.byte() != 0x1b {
            return Some(1);
        }
        let spelled = Spelled::read(input)?;
        let ctrl = spelled.modifiers & 4 != 0;
        let same = spelled.code == u32::from(self.base) && ctrl == self.ctrl;
        (same && !spelled.release).then_some(spelled.length)
    }
}

/// A key encoded as a sequence: `CSI code ; modifiers : event u`, or `CSI 27 ; modifiers ; code ~`.
struct Spelled {
    length: usize,
    code: u32,
    modifiers: u32,
    release: bool,
}

impl Spelled {
    fn read(input: &[u8]) -> Option<Self> {
        let inner = input.strip_prefix(b"\x1b[")?;
        let end = inner.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))?;
        let text = std::str::from_utf8(&inner[..end]).ok()?;
        let mut fields = text.split(';').map(|field| {
            let mut parts = field.split(':').map(|part| part.parse().unwrap_or(0));
            (parts.next().unwrap_or(0_u32), parts.next().unwrap_or(0))
        });
        let first = fields.next()?;
        let second = fields.next().unwrap_or((1, 0));
        let (code, modifiers) = match inner[end] {
            b'u' => (first.0, second.0),
            b'~' if first.0 == 27 => (fields.next()?.0, second.0),
            _ => return None,
        };
        let modifiers = modifiers.saturating_sub(1);
        Some(Self { length: end + 3, code, modifiers, release: second.1 == 3 })
    }
}

/// A sequence of keys in the notation of `docker`: `ctrl-p,ctrl-q`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DetachKeys(Vec<DetachKey>);

impl DetachKeys {
    /// Parses `ctrl-x` and single characters, separated by commas. `none` disables the keys.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let keys: Option<Vec<DetachKey>> = text.split(',').map(DetachKey::parse).collect();
        let keys = keys.filter(|keys| keys.len() <= 8);
        keys.map(Self).ok_or_else(|| {
            "keys are like ctrl-p,ctrl-q: ctrl- and one of a-z @ [ \\ ] ^ _, or a single character, \
             at most 8; or none"
                .to_owned()
        })
    }
}

impl fmt::Display for DetachKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.0.iter().enumerate() {
            let ctrl = if key.ctrl { "Ctrl-" } else { "" };
            let space = if at > 0 { " " } else { "" };
            write!(f, "{space}{ctrl}{}", char::from(key.base))?;
        }
        Ok(())
    }
}

/// Recognises a key sequence in typed input. Holds back input that may be the beginning of the sequence.
#[derive(Debug)]
pub(super) struct KeyWatch {
    keys: DetachKeys,
    at: usize,
    held: Vec<u8>,
}

impl KeyWatch {
    /// A matcher for this sequence.
    pub(super) fn new(keys: DetachKeys) -> Self {
        Self { keys, at: 0, held: Vec::new() }
    }

    /// Appends input for the program to `typed`. Returns true when the sequence was typed.
    pub(super) fn read(&mut self, mut input: &[u8], typed: &mut Vec<u8>) -> bool {
        while !input.is_empty() {
            let Some(key) = self.keys.0.get(self.at) else { break };
            if let Some(length) = key.found(input) {
                self.held.extend_from_slice(&input[..length]);
                input = &input[length..];
                self.at += 1;
                if self.at == self.keys.0.len() {
                    self.at = 0;
                    self.held = Vec::new();
                    return true;
                }
                continue;
            }
            // The release of a key does not interrupt a sequence.
            if self.at > 0
                && let Some(Spelled { release: true, length, .. }) = Spelled::read(input)
            {
                self.held.extend_from_slice(&input[..length]);
                input = &input[length..];
                continue;
            }
            if self.at > 0 {
                typed.append(&mut self.held);
                self.at = 0;
                continue;
            }
            typed.push(input[0]);
            input = &input[1..];
        }
        typed.extend_from_slice(input);
        false
    }

    /// Whether input is held back.
    pub(super) fn holds(&self) -> bool {
        self.at > 0
    }

    /// Returns the held-back input, which the program gets because the sequence did not continue.
    pub(super) fn release(&mut self, typed: &mut Vec<u8>) {
        typed.append(&mut self.held);
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{DetachKeys, KeyWatch};

    fn watch(keys: &str) -> KeyWatch {
        KeyWatch::new(DetachKeys::parse(keys).expect("keys"))
    }

    fn read(watch: &mut KeyWatch, input: &[u8]) -> (Vec<u8>, bool) {
        let mut typed = Vec::new();
        let left = watch.read(input, &mut typed);
        (typed, left)
    }

    #[test]
    fn a_sequence_is_found_wherever_it_is_cut() {
        for spelled in [
            &b"\x1c\x04"[..],
            b"\x1b[92;5u\x1b[100;5u",
            b"\x1b[92;5:1u\x1b[92;5:3u\x1b[100;69u",
            b"\x1b[27;5;92~\x1b[27;5;100~",
        ] {
            let input = [b"ab", spelled].concat();
            assert_eq!(read(&mut watch("ctrl-\\,ctrl-d"), &input), (b"ab".to_vec(), true));
        }
        let mut cut = watch("ctrl-\\,ctrl-d");
        assert_eq!(read(&mut cut, b"x\x1c"), (b"x".to_vec(), false));
        assert!(cut.holds());
        assert_eq!(read(&mut cut, b"\x04"), (vec![], true));
    }

    #[test]
    fn what_is_not_the_sequence_goes_on_whole() {
        let mut watch = watch("ctrl-p,ctrl-q");
        assert_eq!(read(&mut watch, b"\x10\x10\x1b[A"), (b"\x10\x10\x1b[A".to_vec(), false));
        assert_eq!(read(&mut watch, b"\x1b[112;5u"), (vec![], false));
        let mut typed = Vec::new();
        watch.release(&mut typed);
        assert_eq!((&*typed, watch.holds()), (&b"\x1b[112;5u"[..], false));
        assert_eq!(
            read(&mut watch, b"\x11\x1b[113;5u\x1b"),
            (b"\x11\x1b[113;5u\x1b".to_vec(), false)
        );
    }

    #[test]
    fn none_is_never_typed() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(read(&mut watch("none"), &all), (all.clone(), false));
    }

    #[test]
    fn keys_are_spelled_as_docker_has_them() {
        assert_eq!(DetachKeys::parse("ctrl-\\,d").expect("keys").to_string(), "Ctrl-\\ d");
        for wrong in ["", "ctrl-", "ctrl-1", "ab", "ctrl-a,,b", "a,b,c,d,e,f,g,h,i"] {
            assert!(DetachKeys::parse(wrong).is_err(), "{wrong}");
        }
    }
}
