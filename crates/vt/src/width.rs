//! How many columns a character takes.

use unicode_width::UnicodeWidthChar;

/// 0 for combining marks, 2 for wide characters, 1 for all others.
pub(crate) fn of(c: char) -> usize {
    if c.is_ascii() { 1 } else { c.width().unwrap_or(0) }
}
