//! How many places a character takes.

use unicode_width::UnicodeWidthChar;

/// 0 for marks that stand upon the character before, 2 for wide ones, 1 for all others.
pub(crate) fn of(c: char) -> usize {
    if c.is_ascii() { 1 } else { c.width().unwrap_or(0) }
}
