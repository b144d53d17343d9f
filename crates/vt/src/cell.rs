//! A cell of a screen, in 16 bytes: a character and a style. What few cells have (combining marks,
//! links, underline colours) is interned in an [`InternTable`], and the cell holds its number.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The default colour of the terminal.
pub(crate) const COLOUR_NONE: u32 = 0;
const KIND: u32 = 3 << 24;
const BASIC: u32 = 1 << 24;
const INDEXED: u32 = 2 << 24;
const RGB: u32 = 3 << 24;
/// The bits of a colour, without the flags above them.
pub(crate) const COLOUR: u32 = 0x03ff_ffff;

/// Flags beside the colour of the text.
pub(crate) const INVERSE: u32 = 1 << 26;
pub(crate) const BOLD: u32 = 1 << 27;
pub(crate) const UNDERLINE: u32 = 1 << 28;
pub(crate) const BLINK: u32 = 1 << 29;
pub(crate) const HIDDEN: u32 = 1 << 30;
pub(crate) const STRIKE: u32 = 1 << 31;
/// Flags beside the background colour.
pub(crate) const ITALIC: u32 = 1 << 26;
pub(crate) const DIM: u32 = 1 << 27;
pub(crate) const PROTECTED: u32 = 1 << 28;
pub(crate) const OVERLINE: u32 = 1 << 29;

/// A colour of text or background, unpacked from the bits of a [`Style`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Default,
    Basic(u8),
    Indexed(u8),
    Rgb(u8, u8, u8),
}

impl Colour {
    /// The bits that a [`Style`] holds for it.
    pub(crate) const fn pack(self) -> u32 {
        match self {
            Self::Default => COLOUR_NONE,
            Self::Basic(n) => BASIC | n as u32,
            Self::Indexed(n) => INDEXED | n as u32,
            Self::Rgb(r, g, b) => RGB | (r as u32) << 16 | (g as u32) << 8 | b as u32,
        }
    }

    /// The colour in these bits, ignoring flags.
    pub(crate) const fn unpack(bits: u32) -> Self {
        let high = (bits >> 16) as u8;
        let middle = (bits >> 8) as u8;
        let low = bits as u8;
        match bits & KIND {
            BASIC => Self::Basic(low),
            INDEXED => Self::Indexed(low),
            RGB => Self::Rgb(high, middle, low),
            _ => Self::Default,
        }
    }
}

/// How a cell looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// Text colour, and flags.
    pub(crate) fg: u32,
    /// Background colour, and flags.
    pub(crate) bg: u32,
    /// The kind of underline (0 to 5) in the low three bits, the number of the [`ExtendedStyle`] in
    /// the others.
    pub(crate) more: u32,
}

impl Style {
    /// The style of erased cells: only the background remains.
    pub(crate) const fn erased(self) -> Self {
        Self { fg: 0, bg: self.bg & COLOUR, more: 0 }
    }

    pub(crate) const fn underline(self) -> u32 {
        self.more & 7
    }

    pub(crate) const fn extended(self) -> u32 {
        self.more >> 3
    }

    pub(crate) const fn with_extended(self, number: u32) -> Self {
        Self { more: self.more & 7 | number << 3, ..self }
    }
}

/// The part of a style that few cells have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct ExtendedStyle {
    /// Colour of the underline.
    pub(crate) line: u32,
    /// Parameters and address of a link.
    pub(crate) link: Option<Arc<(String, String)>>,
}

const CHAR: u32 = 0x1f_ffff;
const WIDE: u32 = 1 << 21;
const NARROW: u32 = 2 << 21;
const CLUSTER: u32 = 1 << 23;

/// One cell. All zero is an empty cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: u32,
    pub(crate) style: Style,
}

impl Cell {
    /// An empty cell in some style.
    pub(crate) const fn blank(style: Style) -> Self {
        Self { text: 0, style }
    }

    /// A cell with a character that is `width` columns wide.
    pub(crate) const fn of(c: char, width: usize, style: Style) -> Self {
        let width = match width {
            0 => NARROW,
            1 => 0,
            _ => WIDE,
        };
        Self { text: c as u32 | width, style }
    }

    /// The second cell of a wide character.
    pub(crate) const fn wide_tail(style: Style) -> Self {
        Self { text: NARROW, style }
    }

    /// The same cell with a cluster of characters, by its number.
    pub(crate) const fn with_cluster(self, number: u32) -> Self {
        Self { text: self.text & (WIDE | NARROW) | CLUSTER | number & CHAR, ..self }
    }

    /// Its width in columns: 0 for the second cell of a wide character, and for a lone combining
    /// mark.
    pub(crate) const fn width(self) -> usize {
        if self.text & WIDE != 0 {
            2
        } else if self.text & NARROW != 0 {
            0
        } else {
            1
        }
    }

    /// Whether it holds a character.
    pub(crate) const fn has_content(self) -> bool {
        self.text & (CHAR | CLUSTER) != 0
    }

    /// Its character, when it is a single one.
    pub(crate) fn char(self) -> Option<char> {
        (self.text & CLUSTER == 0)
            .then(|| char::from_u32(self.text & CHAR))
            .flatten()
            .filter(|c| *c != '\0')
    }

    /// The number of its cluster.
    pub(crate) fn cluster(self) -> Option<u32> {
        (self.text & CLUSTER != 0).then_some(self.text & CHAR)
    }
}

/// The most items that a table holds.
const ITEMS_MAX: usize = 16 * 1024;
/// The most bytes of all items of a table together.
const BYTES_MAX: usize = 1024 * 1024;
/// After this many new items, unused ones are swept.
const SWEEP: usize = 4096;

/// Items that cells refer to by number, each stored once. Number 0 is none.
#[derive(Debug)]
pub(crate) struct InternTable<T> {
    items: Vec<Option<Arc<T>>>,
    numbers: HashMap<Arc<T>, u32>,
    free: Vec<u32>,
    bytes: usize,
    since: usize,
    size: fn(&T) -> usize,
}

impl<T: Eq + Hash> InternTable<T> {
    /// `size` gives an item's bytes.
    pub(crate) fn new(size: fn(&T) -> usize) -> Self {
        Self {
            items: vec![None],
            numbers: HashMap::new(),
            free: Vec::new(),
            bytes: 0,
            since: 0,
            size,
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.items.get(number as usize)?.as_ref()
    }

    /// The number of items that the table holds.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether enough items were added to make a sweep worthwhile.
    pub(crate) const fn is_due(&self) -> bool {
        self.since >= SWEEP
    }

    /// The number of an item, which is added if it is new; `None` when the table is full.
    pub(crate) fn number(&mut self, item: T) -> Option<u32> {
        if let Some(number) = self.numbers.get(&item) {
            return Some(*number);
        }
        self.since += 1;
        let bytes = (self.size)(&item);
        if self.numbers.len() >= ITEMS_MAX || self.bytes + bytes > BYTES_MAX {
            return None;
        }
        let item = Arc::new(item);
        let number = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() as u32 - 1
        });
        self.items[number as usize] = Some(item.clone());
        self.numbers.insert(item, number);
        self.bytes += bytes;
        Some(number)
    }

    /// Removes all items but the used ones.
    pub(crate) fn sweep(&mut self, used: &std::collections::HashSet<u32>) {
        self.since = 0;
        for (number, slot) in self.items.iter_mut().enumerate() {
            if used.contains(&(number as u32)) {
                continue;
            }
            if let Some(item) = slot.take() {
                self.bytes -= (self.size)(&item);
                self.numbers.remove(&item);
                self.free.push(number as u32);
            }
        }
    }
}
