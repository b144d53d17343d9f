//! Writes to a terminal, knowing which style it has.

use super::cell::{COLOUR, Cell, Rare, Style};
use super::line::Line;
use super::model::Model;
use super::sgr;
use std::io::Write;

/// What is written, and what the terminal's style is behind it.
pub(super) struct Pen<'a> {
    pub(super) out: Vec<u8>,
    pub(super) model: &'a Model,
    style: Style,
    rare: Rare,
}

impl<'a> Pen<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        Self {
            out: Vec::with_capacity(8 * 1024),
            model,
            style: Style::default(),
            rare: Rare::default(),
        }
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// `CSI`, a number, and a last byte; the number is left out where it is 1.
    pub(super) fn csi(&mut self, number: usize, last: u8) {
        self.raw(b"\x1b[");
        if number != 1 {
            let _ = write!(self.out, "{number}");
        }
        self.out.push(last);
    }

    /// To a place, counted from 0.
    pub(super) fn go(&mut self, x: usize, y: usize) {
        let _ = write!(self.out, "\x1b[{};{}H", y + 1, x + 1);
    }

    /// The terminal's style is this from here on.
    pub(super) fn style(&mut self, style: Style) {
        let rare =
            self.model.rares.get(style.rare()).map(|rare| Rare::clone(rare)).unwrap_or_default();
        let same = self.style.fg == style.fg && self.style.bg == style.bg;
        if !same || self.style.underline() != style.underline() || self.rare.line != rare.line {
            if style == Style::default() {
                self.raw(b"\x1b[m");
            } else {
                sgr::write(&mut self.out, style, &rare);
            }
        }
        if self.rare.link != rare.link {
            let (parameters, address) =
                rare.link.as_deref().map_or(("", ""), |link| (&link.0, &link.1));
            let _ = write!(self.out, "\x1b]8;{parameters};{address}\x1b\\");
        }
        (self.style, self.rare) = (style, rare);
    }

    /// No ground of its own: what scrolls in is empty.
    pub(super) fn ground(&mut self) {
        if self.style.bg & COLOUR != 0 {
            self.style(Style::default());
        }
    }

    /// One place of a line: a character, or nothing. Behind it the cursor stands `width` further.
    pub(super) fn cell(&mut self, cell: Cell) {
        self.style(cell.style);
        let mark = cell.width() == 0;
        if mark {
            // It shall not join the character before it.
            sgr::write(&mut self.out, self.style, &self.rare.clone());
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
    pub(super) fn cells(&mut self, line: &Line, from: usize, cols: usize) -> usize {
        let cells = line.cells();
        let mut x = from;
        while let Some(cell) = cells.get(x).copied() {
            let erased = !cell.written() && cell.style == cell.style.erased();
            if erased {
                let count = cells[x..].iter().take_while(|next| **next == cell).count();
                self.nothing(cell.style, x, count, cols);
                x += count;
                continue;
            }
            let width = cell.width().max(1);
            // Halves of wide characters that stand alone cannot be drawn.
            if x + width > cols || (cell.width() == 0 && !cell.written()) {
                self.cell(Cell::blank(cell.style));
                x += 1;
                continue;
            }
            self.cell(cell);
            x += width;
            if x < cols && cell.char().is_some_and(is_doubtful) {
                self.csi(x + 1, b'G');
            }
        }
        x
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

/// Terminals do not agree on how wide these are.
const fn is_doubtful(c: char) -> bool {
    matches!(c, '\u{200d}' | '\u{231a}'..='\u{27ff}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}
