//! Finds escape sequences in output, without interpreting them. It follows the state machine of the
//! VT500, as xterm.js does, with one difference: it handles only complete sequences, and scans an
//! incomplete one again when more output has come.

use std::ops::Range;

/// The longest operating system command or device control string that is interpreted, in bytes.
const STRING_BYTES_MAX: usize = 8 * 1024;
/// The longest other sequence, in bytes.
const SEQUENCE_BYTES_MAX: usize = 1024;

pub(crate) const ESC: u8 = 0x1b;
pub(crate) const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
/// First byte of an 8-bit control character (C1) in UTF-8.
const C1: u8 = 0xc2;

/// The kind of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequenceKind {
    /// `ESC`, intermediates, a final byte.
    Escape,
    /// Control sequence: parameters, intermediates, a final byte.
    Csi,
    /// Operating system command: text.
    Osc,
    /// Device control: text.
    Dcs,
    /// A string that is ignored: SOS, PM, APC.
    Ignored,
}

impl SequenceKind {
    /// The beginning of a sequence of this kind that has no effect, whatever follows. It stands for a
    /// sequence that grew too long.
    pub(crate) const fn inert_prefix(self) -> &'static [u8] {
        match self {
            Self::Escape => b"\x1b",
            Self::Csi => b"\x1b[0<",
            Self::Osc => b"\x1b]999;",
            Self::Dcs => b"\x1bP0{",
            Self::Ignored => b"\x1b^",
        }
    }

    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Self::Osc | Self::Dcs | Self::Ignored)
    }
}

/// What some bytes begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// A whole sequence.
    Complete {
        kind: SequenceKind,
        /// What stands between its introduction and its end; for [`SequenceKind::Escape`] and
        /// [`SequenceKind::Csi`] with the final byte.
        body: Range<usize>,
        /// Where the next thing begins.
        end: usize,
    },
    /// A sequence that was aborted. Only the controls in its first bytes take effect.
    Aborted { end: usize, controls: usize },
    /// More is needed.
    Incomplete(SequenceKind),
    /// More is needed, but the sequence is too long already.
    TooLong(SequenceKind),
}

/// Where the next sequence may begin, from `from` on.
pub(crate) fn next(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(step) = bytes[at..].iter().position(|byte| *byte == ESC || *byte == C1) {
        at += step;
        if bytes[at] == ESC || bytes.get(at + 1).is_some_and(|next| introduces(*next).is_some()) {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

/// The controls of eight bits that begin a sequence or are one.
const fn introduces(byte: u8) -> Option<SequenceKind> {
    match byte {
        0x90 => Some(SequenceKind::Dcs),
        0x9b => Some(SequenceKind::Csi),
        0x9d => Some(SequenceKind::Osc),
        0x98 | 0x9e | 0x9f => Some(SequenceKind::Ignored),
        _ => None,
    }
}

/// What stands at one place of a sequence.
enum Unit {
    Ascii(u8),
    /// A control of eight bits, by its second byte.
    Control(u8),
    /// Any other character.
    Other,
    /// Bytes that are no character, and the mark of byte order: they are as if not there.
    Nothing,
}

/// What stands at a place, and how many bytes it takes; `None` when more is needed.
fn unit(bytes: &[u8], at: usize) -> Option<(Unit, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((Unit::Ascii(first), 1));
    }
    let some = &bytes[at..bytes.len().min(at + 4)];
    let valid = match std::str::from_utf8(some) {
        Ok(valid) => valid,
        Err(error) if error.valid_up_to() == 0 => {
            return error.error_len().map(|count| (Unit::Nothing, count));
        }
        Err(error) => std::str::from_utf8(&some[..error.valid_up_to()]).unwrap_or_default(),
    };
    let c = valid.chars().next()?;
    let unit = match c {
        '\u{80}'..='\u{9f}' => Unit::Control(c as u8),
        '\u{feff}' => Unit::Nothing,
        _ => Unit::Other,
    };
    Some((unit, c.len_utf8()))
}

/// Looks at the sequence that begins with the first byte.
pub(crate) fn sequence(bytes: &[u8]) -> Found {
    let mut at = 2;
    let mut kind = match (bytes.first(), bytes.get(1)) {
        (Some(&C1), Some(second)) => introduces(*second).unwrap_or(SequenceKind::Ignored),
        _ => SequenceKind::Escape,
    };
    if kind == SequenceKind::Escape {
        // Controls may stand before what says its kind.
        at = 1;
        while let Some((unit, length)) = unit(bytes, at) {
            match unit {
                Unit::Nothing | Unit::Ascii(0x7f) => at += length,
                Unit::Ascii(byte) if byte < 0x20 && !matches!(byte, ESC | CAN | SUB) => at += 1,
                _ => break,
            }
        }
        kind = match bytes.get(at) {
            Some(b'[') => SequenceKind::Csi,
            Some(b']') => SequenceKind::Osc,
            Some(b'P') => SequenceKind::Dcs,
            Some(b'X' | b'^' | b'_') => SequenceKind::Ignored,
            _ => return codes(bytes, at, SequenceKind::Escape),
        };
        at += 1;
    }
    if kind == SequenceKind::Csi { codes(bytes, at, kind) } else { text(bytes, at, kind) }
}

/// An escape or control sequence, whose bytes from `from` on decide.
fn codes(bytes: &[u8], from: usize, kind: SequenceKind) -> Found {
    let last = if kind == SequenceKind::Csi { 0x40..=0x7e } else { 0x30..=0x7e };
    // Numbers have begun; bytes between them and the last one have; it makes no sense any more.
    let mut begun = false;
    let mut middle = false;
    let mut senseless = false;
    let mut at = from;
    while let Some((unit, length)) = unit(bytes, at) {
        match unit {
            Unit::Ascii(ESC) | Unit::Control(_) => return Found::Aborted { end: at, controls: at },
            Unit::Ascii(CAN | SUB) => return Found::Aborted { end: at + 1, controls: at },
            Unit::Other if !senseless => return Found::Aborted { end: at + length, controls: at },
            Unit::Ascii(byte) if last.contains(&byte) => {
                return Found::Complete { kind, body: from..at + 1, end: at + 1 };
            }
            Unit::Ascii(0x20..=0x2f) => middle = true,
            Unit::Ascii(byte @ 0x30..=0x3f) => {
                senseless |= middle || (begun && byte >= b'<');
                begun = true;
            }
            _ => {}
        }
        at += length;
    }
    if bytes.len() > SEQUENCE_BYTES_MAX { Found::TooLong(kind) } else { Found::Incomplete(kind) }
}

/// A sequence with a text of any length from `from` on.
fn text(bytes: &[u8], from: usize, kind: SequenceKind) -> Found {
    match end_of(kind, bytes, from, kind == SequenceKind::Dcs) {
        Some((last, end, true)) => Found::Complete { kind, body: from..last, end },
        Some((_, end, false)) => Found::Aborted { end, controls: from },
        None if bytes.len() > STRING_BYTES_MAX => Found::TooLong(kind),
        None => Found::Incomplete(kind),
    }
}

/// Where a sequence of which too much has come ends: what follows begins there.
pub(crate) fn resume(kind: SequenceKind, bytes: &[u8]) -> Option<usize> {
    if kind.is_text() {
        return end_of(kind, bytes, 0, false).map(|(_, end, _)| end);
    }
    let at = bytes.iter().position(|byte| matches!(*byte, ESC | CAN | SUB | 0x40..=0x7e))?;
    Some(if bytes[at] == ESC { at } else { at + 1 })
}

/// Where a text ends, where what follows it begins, and whether it counts. An `ESC` ends it and
/// begins what follows. `header`: the numbers before a device control's text are not over.
fn end_of(
    kind: SequenceKind,
    bytes: &[u8],
    from: usize,
    mut header: bool,
) -> Option<(usize, usize, bool)> {
    let special = |byte: &u8| matches!(*byte, ESC | BEL | CAN | SUB | 0x80..);
    let mut at = from;
    loop {
        if !header {
            at += bytes.get(at..)?.iter().position(special)?;
        }
        let (unit, length) = unit(bytes, at)?;
        match unit {
            Unit::Ascii(ESC) => return Some((at, at, true)),
            Unit::Ascii(BEL) if kind == SequenceKind::Osc => return Some((at, at + 1, true)),
            Unit::Ascii(CAN | SUB) => return Some((at, at + 1, false)),
            Unit::Control(0x9c) => return Some((at, at + length, true)),
            Unit::Control(_) => return Some((at, at, false)),
            Unit::Other if header || kind == SequenceKind::Ignored => {
                return Some((at, at + length, false));
            }
            Unit::Ascii(0x40..=0x7e) => header = false,
            _ => {}
        }
        at += length;
    }
}

/// How much of some text is whole: it may end within a character.
pub(crate) fn complete_len(text: &[u8]) -> usize {
    let from = text.len().saturating_sub(3);
    let last =
        text[from..].iter().rposition(|byte| *byte >= 0xc0).map_or(text.len(), |at| from + at);
    match std::str::from_utf8(&text[last..]) {
        Err(error) if error.error_len().is_none() => last,
        _ => text.len(),
    }
}
