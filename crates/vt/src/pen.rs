//! Writes to a terminal, knowing which style it has.

use crate::cell::{COLOUR, Cell, ExtendedStyle, Style};
use crate::line::Line;
use crate::model::Model;
use crate::sgr;
use std::io::Write;

/// What is written, and what the terminal's style is behind it.
pub(crate) struct Pen<'a> {
    pub(crate) out: Vec<u8>,
    pub(crate) model: &'a Model,
    style: Style,
    extended: ExtendedStyle,
}

impl<'a> Pen<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        Self {
            out: Vec::with_capacity(8 * 1024),
            model,
            style: Style::default(),
            extended: ExtendedStyle::default(),
        }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// `CSI`, a number, and a last byte; the number is left out where it is 1.
    pub(crate) fn csi(&mut self, number: usize, last: u8) {
        self.raw(b"\x1b[");
        if number != 1 {
            let _ = write!(self.out, "{number}");
        }
        self.out.push(last);
    }

    /// To a place, counted from 0.
    pub(crate) fn go(&mut self, x: usize, y: usize) {
        let _ = write!(self.out, "\x1b[{};{}H", y + 1, x + 1);
    }

    /// The terminal's style is this from here on.
    pub(crate) fn style(&mut self, style: Style) {
        let extended = self
            .model
            .extended_styles
            .get(style.extended())
            .map(|extended| ExtendedStyle::clone(extended))
            .unwrap_or_default();
        let same = self.style.fg == style.fg && self.style.bg == style.bg;
        if !same
            || self.style.underline() != style.underline()
            || self.extended.line != extended.line
        {
            if style == Style::default() {
                self.raw(b"\x1b[m");
            } else {
                sgr::write(&mut self.out, style, &extended);
            }
        }
        if self.extended.link != extended.link {
            let (parameters, address) =
                extended.link.as_deref().map_or(("", ""), |link| (&link.0, &link.1));
            let _ = write!(self.out, "\x1b]8;{parameters};{address}\x1b\\");
        }
        (self.style, self.extended) = (style, extended);
    }

    /// No ground of its own: what scrolls in is empty.
    pub(crate) fn ground(&mut self) {
        if self.style.bg & COLOUR != 0 {
            self.style(Style::default());
        }
    }

    /// Marks that follow do not join the character before.
    pub(crate) fn end_cluster(&mut self) {
        sgr::write(&mut self.out, self.style, &self.extended);
    }

    /// One place of a line: a character, or nothing. Behind it the cursor stands `width` further.
    pub(crate) fn cell(&mut self, cell: Cell) {
        self.style(cell.style);
        let mark = cell.width() == 0;
        if mark {
            self.end_cluster();
        }
        if let Some(text) = cell.cluster().and_then(|number| self.model.clusters.get(number)) {
            self.out.extend_from_slice(text.as_bytes());
        } else {
            let mut utf8 = [0; 4];
            let text = cell.char().unwrap_or(' ').encode_utf8(&mut utf8);
            self.out.extend_from_slice(text.as_bytes());
        }
    }

    /// Cells `from` on of a line, on a row that is empty there. The cursor ends behind the last
    /// one that is not empty, or `cols`.
    pub(crate) fn cells(&mut self, line: &Line, from: usize, cols: usize) -> usize {
        let emptied = emptied(line, cols);
        if emptied < cols {
            self.end(line, cols);
            self.csi(from + 1, b'G');
        }
        let cells = line.cells();
        let mut x = from;
        while let Some(cell) = cells.get(x).copied().filter(|_| x < emptied) {
            if is_erased(cell) {
                let count = cells[x..].iter().take_while(|next| **next == cell).count();
                self.nothing(cell.style, x, count, cols);
                x += count;
                continue;
            }
            let width = cell.width().max(1);
            // Halves of wide characters that stand alone cannot be drawn.
            if x + width > cols || !cell.has_content() {
                self.empty(cell.style, x, emptied);
                x += 1;
                continue;
            }
            self.cell(cell);
            x += width;
            if x < cols && cell.char().is_some_and(is_doubtful) {
                self.csi(x + 1, b'G');
            }
        }
        x.max(if emptied < cols { cols } else { 0 })
    }

    /// An empty place with a style that only text has: half of a wide character is written over.
    fn empty(&mut self, style: Style, x: usize, end: usize) {
        if x + 1 == end {
            return self.cell(Cell::blank(style));
        }
        self.raw(WIDE);
        self.csi(x + 2, b'G');
        self.style(style);
        self.raw(b" ");
        self.csi(x + 2, b'G');
        self.style(Style::default());
        self.raw(b"\x1b[X");
    }

    /// The last place of a row, with such empty ones before it. The cursor is in the row then.
    pub(crate) fn end(&mut self, line: &Line, cols: usize) {
        let from = emptied(line, cols);
        if from == cols {
            self.csi(cols, b'G');
            self.style(line.get(cols - 1).style);
            return self.raw(b"\x1b[X");
        }
        for x in (from..cols).rev() {
            self.csi(x, b'G');
            self.raw(WIDE);
            self.csi(x, b'G');
            self.style(line.get(x).style);
            self.raw(b" ");
        }
        // The place before them was written over.
        let wide = from > 1 && line.get(from - 2).width() == 2;
        let x = from - 1 - usize::from(wide);
        self.csi(x + 1, b'G');
        let cell = line.get(x);
        if is_erased(cell) {
            self.style(cell.style);
            self.raw(b"\x1b[X");
        } else {
            self.cell(cell);
        }
    }

    /// Empty cells on some ground, and over them.
    fn nothing(&mut self, style: Style, x: usize, count: usize, cols: usize) {
        if style != Style::default() {
            self.style(style);
            if x + count == cols && x > 0 {
                self.raw(b"\x1b[K");
            } else {
                self.csi(count, b'X');
            }
        }
        if x + count < cols {
            self.csi(count, b'C');
        }
    }
}

/// Stands where half of it is written over.
const WIDE: &[u8] = "\u{6f22}".as_bytes();

/// What an erase leaves.
pub(crate) fn is_erased(cell: Cell) -> bool {
    !cell.has_content() && cell.width() == 1 && cell.style == cell.style.erased()
}

/// Where the empty places at the end of a row begin that have styles which only text has; not the
/// first of all, which cannot be drawn beside others. `cols` without any.
fn emptied(line: &Line, cols: usize) -> usize {
    let is_second = |x: usize| line.get(x).width() == 0 && line.get(x - 1).width() == 2;
    let is_emptied =
        |x: &usize| !line.get(*x).has_content() && !is_erased(line.get(*x)) && !is_second(*x);
    cols - (1..cols).rev().take_while(is_emptied).count()
}

/// Terminals do not agree on how wide these are.
const fn is_doubtful(c: char) -> bool {
    matches!(c, '\u{200d}' | '\u{231a}'..='\u{27ff}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}
