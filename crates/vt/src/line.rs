//! A line of cells. Columns behind its last cell are empty, so short lines need little memory.

use crate::cell::{Cell, PROTECTED, Style};
use std::ops::Range;

/// A line, and whether it continues the one before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScreenLine {
    cells: Vec<Cell>,
    /// Whether it continues the line before it, whose text was wrapped.
    pub(crate) wrapped: bool,
}

impl ScreenLine {
    /// An empty line with the background of a style.
    pub(crate) fn filled(style: Style, cols: usize) -> Self {
        let mut line = Self::default();
        line.clear(style, cols);
        line
    }

    /// Clears it, reusing its memory.
    pub(crate) fn clear(&mut self, style: Style, cols: usize) {
        self.cells.clear();
        self.wrapped = false;
        if style != Style::default() {
            self.cells.resize(cols, Cell::blank(style));
        }
    }

    /// The cell at a column.
    pub(crate) fn get(&self, x: usize) -> Cell {
        self.cells.get(x).copied().unwrap_or_default()
    }

    /// Its cells, without trailing empty ones.
    pub(crate) fn cells(&self) -> &[Cell] {
        let empty = self.cells.iter().rev().take_while(|cell| **cell == Cell::default()).count();
        &self.cells[..self.cells.len() - empty]
    }

    pub(crate) fn set(&mut self, x: usize, cell: Cell) {
        if x >= self.cells.len() {
            self.cells.resize(x + 1, Cell::default());
        }
        self.cells[x] = cell;
    }

    /// Writes ASCII characters, one column each.
    pub(crate) fn write(&mut self, x: usize, text: &[u8], style: Style) {
        let fresh = |byte: &u8| Cell::of(*byte as char, 1, style);
        let end = x + text.len();
        if x >= self.cells.len() {
            self.cells.reserve(end - self.cells.len());
            self.cells.resize(x, Cell::default());
            self.cells.extend(text.iter().map(fresh));
            return;
        }
        if end > self.cells.len() {
            self.cells.resize(end, Cell::default());
        }
        for (cell, byte) in self.cells[x..end].iter_mut().zip(text) {
            *cell = fresh(byte);
        }
    }

    /// Removes the cells behind the last column.
    pub(crate) fn truncate_to(&mut self, cols: usize) {
        self.cells.truncate(cols);
    }

    /// The column behind the last cell that has content.
    pub(crate) fn text_len(&self) -> usize {
        let last = self.cells.iter().rposition(|cell| cell.has_content());
        last.map_or(0, |last| last + self.cells[last].width())
    }

    /// Erases a range, and the other halves of wide characters at its ends. With `keep`, protected
    /// cells stay.
    pub(crate) fn erase(&mut self, range: Range<usize>, style: Style, cols: usize, keep: bool) {
        let Range { start, end } = range;
        let protected = |cell: Cell| keep && cell.style.bg & PROTECTED != 0;
        let blank = Cell::blank(style);
        if start > 0 && self.get(start - 1).width() == 2 && !protected(self.get(start - 1)) {
            self.set(start - 1, blank);
        }
        if end > 0 && end < cols && self.get(end - 1).width() == 2 && !protected(self.get(end)) {
            self.set(end, blank);
        }
        if blank == Cell::default() && !keep {
            // The cells behind the last one are empty anyway.
            if end >= self.cells.len() {
                self.cells.truncate(start);
            } else {
                self.cells[start..end].fill(blank);
            }
            return;
        }
        for x in start..end.min(cols) {
            if !protected(self.get(x)) {
                self.set(x, blank);
            }
        }
    }

    /// Inserts empty cells at a column; the cells behind it move to the right.
    pub(crate) fn insert(&mut self, x: usize, count: usize, style: Style, cols: usize) {
        let blank = Cell::blank(style);
        let x = x % cols;
        if x > 0 && self.get(x - 1).width() == 2 {
            self.set(x - 1, blank);
        }
        self.cells.resize(cols, Cell::default());
        let count = count.min(cols - x);
        self.cells.copy_within(x..cols - count, x + count);
        self.cells[x..x + count].fill(blank);
        if self.cells[cols - 1].width() == 2 {
            self.cells[cols - 1] = blank;
        }
    }

    /// Deletes cells; those behind them move to the left.
    pub(crate) fn delete(&mut self, x: usize, count: usize, style: Style, cols: usize) {
        let blank = Cell::blank(style);
        let x = x % cols;
        self.cells.resize(cols, Cell::default());
        let count = count.min(cols - x);
        self.cells.copy_within(x + count.., x);
        self.cells[cols - count..].fill(blank);
        if x > 0 && self.cells[x - 1].width() == 2 {
            self.cells[x - 1] = blank;
        }
        if self.cells[x].width() == 0 && !self.cells[x].has_content() {
            self.cells[x] = blank;
        }
    }

    /// Copies cells of another line.
    pub(crate) fn copy(&mut self, from: &Self, source: usize, to: usize, count: usize) {
        for index in 0..count {
            self.set(to + index, from.get(source + index));
        }
    }
}
