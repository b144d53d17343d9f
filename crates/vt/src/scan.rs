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
    /// Device control string: text.
    Dcs,
    /// A string that is ignored: SOS, PM, APC.
    Ignored,
}

impl SequenceKind {
    /// The beginning of a sequence of this kind that has no effect, whatever follows. It stands for
    /// a sequence that grew too long.
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

/// The result of scanning bytes that begin with a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScanResult {
    /// A sequence whose end was found.
    Complete {
        kind: SequenceKind,
        /// The bytes between introducer and terminator; for [`SequenceKind::Escape`] and
        /// [`SequenceKind::Csi`] including the final byte.
        body: Range<usize>,
        /// The index behind the sequence.
        end: usize,
    },
    /// A sequence that was aborted. Only the controls in its first bytes take effect.
    Aborted { end: usize, controls: usize },
    /// The sequence may end in bytes that have not come yet.
    Incomplete(SequenceKind),
    /// The sequence has no end yet, and is too long already.
    TooLong(SequenceKind),
}

/// The index, from `from` on, at which the next sequence may begin.
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

/// The kind of sequence that an 8-bit control character begins.
const fn introduces(byte: u8) -> Option<SequenceKind> {
    match byte {
        0x90 => Some(SequenceKind::Dcs),
        0x9b => Some(SequenceKind::Csi),
        0x9d => Some(SequenceKind::Osc),
        0x98 | 0x9e | 0x9f => Some(SequenceKind::Ignored),
        _ => None,
    }
}

/// One unit of a sequence.
enum Unit {
    Ascii(u8),
    /// An 8-bit control character, by its second byte in UTF-8.
    Control(u8),
    /// A character that is neither ASCII nor a control character.
    Other,
    /// Invalid UTF-8, or a byte order mark. Both are ignored.
    Nothing,
}

/// The unit at an index, and its length in bytes; `None` when it is incomplete.
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

/// Scans the sequence that begins with the first byte.
pub(crate) fn sequence(bytes: &[u8]) -> ScanResult {
    let mut at = 2;
    let mut kind = match (bytes.first(), bytes.get(1)) {
        (Some(&C1), Some(second)) => introduces(*second).unwrap_or(SequenceKind::Ignored),
        _ => SequenceKind::Escape,
    };
    if kind == SequenceKind::Escape {
        // Control characters may precede the byte that decides the kind.
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

/// Scans an escape or control sequence, from `from` on.
fn codes(bytes: &[u8], from: usize, kind: SequenceKind) -> ScanResult {
    let last = if kind == SequenceKind::Csi { 0x40..=0x7e } else { 0x30..=0x7e };
    // Whether parameters have begun, whether intermediates have, and whether it is invalid.
    let mut begun = false;
    let mut middle = false;
    let mut senseless = false;
    let mut at = from;
    while let Some((unit, length)) = unit(bytes, at) {
        match unit {
            Unit::Ascii(ESC) | Unit::Control(_) => {
                return ScanResult::Aborted { end: at, controls: at };
            }
            Unit::Ascii(CAN | SUB) => return ScanResult::Aborted { end: at + 1, controls: at },
            Unit::Other if !senseless => {
                return ScanResult::Aborted { end: at + length, controls: at };
            }
            Unit::Ascii(byte) if last.contains(&byte) => {
                return ScanResult::Complete { kind, body: from..at + 1, end: at + 1 };
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
    if bytes.len() > SEQUENCE_BYTES_MAX {
        ScanResult::TooLong(kind)
    } else {
        ScanResult::Incomplete(kind)
    }
}

/// Scans a sequence with a text of any length, from `from` on.
fn text(bytes: &[u8], from: usize, kind: SequenceKind) -> ScanResult {
    match end_of(kind, bytes, from, kind == SequenceKind::Dcs) {
        Some((last, end, true)) => ScanResult::Complete { kind, body: from..last, end },
        Some((_, end, false)) => ScanResult::Aborted { end, controls: from },
        None if bytes.len() > STRING_BYTES_MAX => ScanResult::TooLong(kind),
        None => ScanResult::Incomplete(kind),
    }
}

/// The index behind the end of a sequence that was too long; `None` when it has not ended.
pub(crate) fn resume(kind: SequenceKind, bytes: &[u8]) -> Option<usize> {
    if kind.is_text() {
        return end_of(kind, bytes, 0, false).map(|(_, end, _)| end);
    }
    let at = bytes.iter().position(|byte| matches!(*byte, ESC | CAN | SUB | 0x40..=0x7e))?;
    Some(if bytes[at] == ESC { at } else { at + 1 })
}

/// The end of a text, the index behind its terminator, and whether the text is valid. An `ESC` ends
/// the text and begins the next sequence. With `header`, the parameters of a device control string
/// come first.
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

/// The length of a text without an incomplete character at its end.
pub(crate) fn complete_len(text: &[u8]) -> usize {
    let from = text.len().saturating_sub(3);
    let last =
        text[from..].iter().rposition(|byte| *byte >= 0xc0).map_or(text.len(), |at| from + at);
    match std::str::from_utf8(&text[last..]) {
        Err(error) if error.error_len().is_none() => last,
        _ => text.len(),
    }
}
