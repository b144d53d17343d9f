//! One cell of a screen, in 16 bytes: what stands in it and how it looks. Whatever is rare (marks
//! upon a character, links, colours of underlines) stands once in a [`Table`], by its number.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Colour: none of its own.
pub(super) const COLOUR_NONE: u32 = 0;
const KIND: u32 = 3 << 24;
const BASIC: u32 = 1 << 24;
const INDEXED: u32 = 2 << 24;
const RGB: u32 = 3 << 24;
/// The bits of a colour, without the flags above them.
pub(super) const COLOUR: u32 = 0x03ff_ffff;

/// Flags beside the colour of the text.
pub(super) const INVERSE: u32 = 1 << 26;
pub(super) const BOLD: u32 = 1 << 27;
pub(super) const UNDERLINE: u32 = 1 << 28;
pub(super) const BLINK: u32 = 1 << 29;
pub(super) const HIDDEN: u32 = 1 << 30;
pub(super) const STRIKE: u32 = 1 << 31;
/// Flags beside the colour of the ground.
pub(super) const ITALIC: u32 = 1 << 26;
pub(super) const DIM: u32 = 1 << 27;
pub(super) const PROTECTED: u32 = 1 << 28;
pub(super) const OVERLINE: u32 = 1 << 29;

/// A colour, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Default,
    Basic(u8),
    Indexed(u8),
    Rgb(u8, u8, u8),
}

impl Colour {
    /// As it is kept in a [`Style`].
    pub(super) const fn bits(self) -> u32 {
        match self {
            Self::Default => COLOUR_NONE,
            Self::Basic(n) => BASIC | n as u32,
            Self::Indexed(n) => INDEXED | n as u32,
            Self::Rgb(r, g, b) => RGB | (r as u32) << 16 | (g as u32) << 8 | b as u32,
        }
    }

    /// What [`Colour::bits`] said; flags are left aside.
    pub(super) const fn of(bits: u32) -> Self {
        let (high, middle, low) = ((bits >> 16) as u8, (bits >> 8) as u8, bits as u8);
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
pub(super) struct Style {
    /// Colour of the text, and flags.
    pub(super) fg: u32,
    /// Colour of the ground, and flags.
    pub(super) bg: u32,
    /// The line's kind under the text (0 to 5, three bits), and the number of its [`Rare`] above.
    pub(super) more: u32,
}

impl Style {
    /// What is erased keeps the ground alone.
    pub(super) const fn erased(self) -> Self {
        Self { fg: 0, bg: self.bg & COLOUR, more: 0 }
    }

    pub(super) const fn underline(self) -> u32 {
        self.more & 7
    }

    pub(super) const fn rare(self) -> u32 {
        self.more >> 3
    }

    pub(super) const fn with_rare(self, number: u32) -> Self {
        Self { more: self.more & 7 | number << 3, ..self }
    }
}

/// What few cells have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Rare {
    /// Colour of the line under the text.
    pub(super) line: u32,
    /// Parameters and address of a link.
    pub(super) link: Option<Arc<(String, String)>>,
}

const CHAR: u32 = 0x1f_ffff;
const WIDE: u32 = 1 << 21;
const NARROW: u32 = 2 << 21;
const CLUSTER: u32 = 1 << 23;

/// What stands in one place. All zero is an empty one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cell {
    text: u32,
    pub(super) style: Style,
}

impl Cell {
    /// Nothing, in some style.
    pub(super) const fn blank(style: Style) -> Self {
        Self { text: 0, style }
    }

    /// A character that takes `width` places.
    pub(super) const fn of(c: char, width: usize, style: Style) -> Self {
        let width = match width {
            0 => NARROW,
            1 => 0,
            _ => WIDE,
        };
        Self { text: c as u32 | width, style }
    }

    /// The second place of a wide character.
    pub(super) const fn second(style: Style) -> Self {
        Self { text: NARROW, style }
    }

    /// The same place with a cluster of characters, by its number.
    pub(super) const fn with_cluster(self, number: u32) -> Self {
        Self { text: self.text & (WIDE | NARROW) | CLUSTER | number & CHAR, ..self }
    }

    /// Places that it takes: 0 for the second of a wide one, and for a mark that stands alone.
    pub(super) const fn width(self) -> usize {
        if self.text & WIDE != 0 {
            2
        } else if self.text & NARROW != 0 {
            0
        } else {
            1
        }
    }

    /// Something was written here.
    pub(super) const fn written(self) -> bool {
        self.text & (CHAR | CLUSTER) != 0
    }

    /// Its character, when it is a single one.
    pub(super) fn char(self) -> Option<char> {
        (self.text & CLUSTER == 0)
            .then(|| char::from_u32(self.text & CHAR))
            .flatten()
            .filter(|c| *c != '\0')
    }

    /// The number of its cluster.
    pub(super) fn cluster(self) -> Option<u32> {
        (self.text & CLUSTER != 0).then_some(self.text & CHAR)
    }
}

/// The most things that a table holds.
const ITEMS_MAX: usize = 16 * 1024;
/// The most bytes that they have together.
const BYTES_MAX: usize = 1024 * 1024;
/// So many new ones are taken before the ones in use are counted again.
const SWEEP: usize = 4096;

/// Things that cells point at by number, each once. Number 0 is none.
#[derive(Debug)]
pub(super) struct Table<T> {
    items: Vec<Option<Arc<T>>>,
    numbers: HashMap<Arc<T>, u32>,
    free: Vec<u32>,
    bytes: usize,
    since: usize,
    size: fn(&T) -> usize,
}

impl<T: Eq + Hash> Table<T> {
    /// `size` says how many bytes one has.
    pub(super) fn new(size: fn(&T) -> usize) -> Self {
        Self {
            items: vec![None],
            numbers: HashMap::new(),
            free: Vec::new(),
            bytes: 0,
            since: 0,
            size,
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.items.get(number as usize)?.as_ref()
    }

    /// Things in it.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// So many have come that it is worth finding out which are in use.
    pub(super) const fn is_due(&self) -> bool {
        self.since >= SWEEP
    }

    /// The number of a thing; `None` when the table is full.
    pub(super) fn number(&mut self, item: T) -> Option<u32> {
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

    /// Forgets all but the used ones.
    pub(super) fn sweep(&mut self, used: &std::collections::HashSet<u32>) {
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
