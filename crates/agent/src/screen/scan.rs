//! Finds escape sequences in what a program writes, without saying what they mean. Follows the
//! state machine of the VT500, as xterm.js does, with one difference: it looks only at whole
//! sequences, and one that is not complete yet is looked at again when more has come.

use std::ops::Range;

/// The longest text of an operating system command or device control that is looked at, in bytes.
const STRING_BYTES_MAX: usize = 8 * 1024;
/// The longest other sequence: a longer one is nonsense.
const SEQUENCE_BYTES_MAX: usize = 1024;

pub(super) const ESC: u8 = 0x1b;
pub(super) const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
/// First byte of the controls of eight bits in UTF-8.
const C1: u8 = 0xc2;

/// What a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `ESC`, intermediates, a final byte.
    Escape,
    /// Control sequence: parameters, intermediates, a final byte.
    Csi,
    /// Operating system command: text.
    Osc,
    /// Device control: text.
    Dcs,
    /// Text that nobody reads.
    Other,
}

impl Kind {
    /// The beginning of such a sequence that does nothing however it goes on. Stands for one of
    /// which too much has come to keep it.
    pub(super) const fn idle(self) -> &'static [u8] {
        match self {
            Self::Escape => b"\x1b",
            Self::Csi => b"\x1b[0<",
            Self::Osc => b"\x1b]999;",
            Self::Dcs => b"\x1bP0{",
            Self::Other => b"\x1b^",
        }
    }

    const fn is_text(self) -> bool {
        matches!(self, Self::Osc | Self::Dcs | Self::Other)
    }
}

/// What stands at the beginning of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// A whole sequence.
    Whole {
        kind: Kind,
        /// What stands between its introduction and its end; for [`Kind::Escape`] and
        /// [`Kind::Csi`] with the final byte.
        body: Range<usize>,
        /// Where the next thing begins.
        end: usize,
    },
    /// Something that was broken off: nothing is done.
    Broken { end: usize },
    /// More is needed.
    More(Kind),
    /// More is needed, and so much has come already that it is not kept.
    Flood(Kind),
}

/// Where the next sequence may begin, from `from` on.
pub(super) fn next(bytes: &[u8], from: usize) -> usize {
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
const fn introduces(byte: u8) -> Option<Kind> {
    match byte {
        0x90 => Some(Kind::Dcs),
        0x9b => Some(Kind::Csi),
        0x9d => Some(Kind::Osc),
        0x98 | 0x9e | 0x9f => Some(Kind::Other),
        _ => None,
    }
}

/// Looks at the sequence that begins with the first byte.
pub(super) fn sequence(bytes: &[u8]) -> Found {
    let kind = match (bytes.first(), bytes.get(1)) {
        (Some(&C1), Some(second)) => introduces(*second).unwrap_or(Kind::Other),
        (_, Some(b'[')) => Kind::Csi,
        (_, Some(b']')) => Kind::Osc,
        (_, Some(b'P')) => Kind::Dcs,
        (_, Some(b'X' | b'^' | b'_')) => Kind::Other,
        _ => Kind::Escape,
    };
    match kind {
        Kind::Escape => codes(bytes, 1, kind),
        Kind::Csi => codes(bytes, 2, kind),
        _ => text(bytes, kind),
    }
}

/// An escape or control sequence, whose bytes from `from` on decide.
fn codes(bytes: &[u8], from: usize, kind: Kind) -> Found {
    let last = if kind == Kind::Csi { 0x40..=0x7e } else { 0x30..=0x7e };
    for (index, byte) in bytes.iter().enumerate().skip(from) {
        match *byte {
            ESC => return Found::Broken { end: index },
            C1 if index + 1 == bytes.len() => return Found::More(kind),
            C1 if introduces(bytes[index + 1]).is_some() => return Found::Broken { end: index },
            CAN | SUB | 0x80.. => return Found::Broken { end: index + 1 },
            byte if last.contains(&byte) => {
                return Found::Whole { kind, body: from..index + 1, end: index + 1 };
            }
            _ => {}
        }
    }
    if bytes.len() > SEQUENCE_BYTES_MAX { Found::Flood(kind) } else { Found::More(kind) }
}

/// A sequence with a text of any length.
fn text(bytes: &[u8], kind: Kind) -> Found {
    match end_of(kind, bytes, 2) {
        Some((last, end, true)) => Found::Whole { kind, body: 2..last, end },
        Some((_, end, false)) => Found::Broken { end },
        None if bytes.len() > STRING_BYTES_MAX => Found::Flood(kind),
        None => Found::More(kind),
    }
}

/// Where a sequence of which too much has come ends: what follows begins there.
pub(super) fn resume(kind: Kind, bytes: &[u8]) -> Option<usize> {
    if kind.is_text() {
        return end_of(kind, bytes, 0).map(|(_, end, _)| end);
    }
    let at = bytes.iter().position(|byte| matches!(*byte, ESC | CAN | SUB | 0x40..=0x7e))?;
    Some(if bytes[at] == ESC { at } else { at + 1 })
}

/// Where a text ends, where what follows it begins, and whether it counts. An `ESC` ends it and
/// begins what follows.
fn end_of(kind: Kind, bytes: &[u8], from: usize) -> Option<(usize, usize, bool)> {
    let mut at = from;
    loop {
        at += bytes[at..].iter().position(|byte| matches!(*byte, ESC | BEL | CAN | SUB | C1))?;
        match bytes[at] {
            ESC => return Some((at, at, true)),
            BEL if kind == Kind::Osc => return Some((at, at + 1, true)),
            CAN | SUB => return Some((at, at + 1, false)),
            C1 if bytes.get(at + 1) == Some(&0x9c) => return Some((at, at + 2, true)),
            _ => at += 1,
        }
    }
}

/// How much of some text is whole: it may end within a character.
pub(super) fn whole(text: &[u8]) -> usize {
    let from = text.len().saturating_sub(3);
    let last =
        text[from..].iter().rposition(|byte| *byte >= 0xc0).map_or(text.len(), |at| from + at);
    match std::str::from_utf8(&text[last..]) {
        Err(error) if error.error_len().is_none() => last,
        _ => text.len(),
    }
}
