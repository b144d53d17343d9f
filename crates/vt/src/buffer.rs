//! One of the two screens: its lines, its history, and its cursor.

use crate::cell::Style;
use crate::line::ScreenLine;
use isolet_wire::terminal::COLS_MAX;
use std::collections::VecDeque;

/// The most lines of history.
const HISTORY_LINES: usize = 1000;
/// The most cells of history, so wide terminals have fewer lines of it.
const HISTORY_CELLS: usize = 200_000;

/// Tab stops: one bit per column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tabs([u64; (COLS_MAX as usize).div_ceil(64)]);

impl Default for Tabs {
    fn default() -> Self {
        Self([0x0101_0101_0101_0101; _])
    }
}

impl Tabs {
    pub(crate) fn get(&self, x: usize) -> bool {
        self.0.get(x / 64).is_some_and(|word| word >> (x % 64) & 1 == 1)
    }

    pub(crate) fn set(&mut self, x: usize, stop: bool) {
        if let Some(word) = self.0.get_mut(x / 64) {
            *word = *word & !(1 << (x % 64)) | u64::from(stop) << (x % 64);
        }
    }

    /// Adds stops for a new width: one every eight columns after the last stop.
    pub(crate) fn resize(&mut self, old: usize, cols: usize) {
        let plain = Self::default();
        (old..usize::from(COLS_MAX)).for_each(|x| self.set(x, false));
        let last = (0..=cols).rev().find(|x| self.get(*x)).unwrap_or(0);
        (last..cols).step_by(8).for_each(|x| self.set(x, true));
        (cols..usize::from(COLS_MAX)).for_each(|x| self.set(x, plain.get(x)));
    }

    /// Whether the stops up to a column are the same.
    pub(crate) fn is_same(&self, other: &Self, cols: usize) -> bool {
        (0..cols).all(|x| self.get(x) == other.get(x))
    }

    pub(crate) fn clear(&mut self) {
        self.0 = [0; _];
    }
}

/// The character sets that are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charsets {
    /// The final bytes of the sequences that selected the four sets: `B` is ASCII, `0` draws lines.
    pub(crate) sets: [u8; 4],
    /// The index of the active set.
    pub(crate) active: u8,
}

impl Default for Charsets {
    fn default() -> Self {
        Self { sets: [b'B'; 4], active: 0 }
    }
}

/// The cursor as `ESC 7` saves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SavedCursor {
    pub(crate) x: usize,
    /// Counted from the first line of history, so it moves up with the text.
    pub(crate) line: usize,
    pub(crate) style: Style,
    pub(crate) charsets: Charsets,
}

/// A screen with its history.
#[derive(Debug, Clone)]
pub(crate) struct Buffer {
    /// History, then `rows` lines of screen.
    pub(crate) lines: VecDeque<ScreenLine>,
    pub(crate) cols: usize,
    pub(crate) rows: usize,
    /// Column of the cursor; `cols` when the next character goes on the next line.
    pub(crate) x: usize,
    /// Row of the cursor on the screen.
    pub(crate) y: usize,
    /// First row that scrolls.
    pub(crate) top: usize,
    /// Last row that scrolls.
    pub(crate) bottom: usize,
    pub(crate) saved: SavedCursor,
    pub(crate) tabs: Tabs,
    keeps_history: bool,
}

impl Buffer {
    /// An empty screen. With `keeps_history`, lines that scroll out at the top become history.
    pub(crate) fn new(cols: usize, rows: usize, keeps_history: bool, style: Style) -> Self {
        Self {
            lines: (0..rows).map(|_| ScreenLine::filled(style, cols)).collect(),
            cols,
            rows,
            x: 0,
            y: 0,
            top: 0,
            bottom: rows - 1,
            saved: SavedCursor::default(),
            tabs: Tabs::default(),
            keeps_history,
        }
    }

    /// Whether lines that scroll out at the top become history.
    pub(crate) const fn has_history(&self) -> bool {
        self.keeps_history
    }

    /// The most lines of history at this width.
    pub(crate) fn history_max(&self, cols: usize) -> usize {
        if self.keeps_history { HISTORY_LINES.min(HISTORY_CELLS / cols) } else { 0 }
    }

    /// Lines of history, which is also the index of the screen's first row.
    pub(crate) fn history_len(&self) -> usize {
        self.lines.len() - self.rows
    }

    /// A row of the screen.
    pub(crate) fn row(&mut self, y: usize) -> &mut ScreenLine {
        let base = self.history_len();
        &mut self.lines[base + y]
    }

    /// The line that the cursor is in.
    pub(crate) fn cursor_line(&mut self) -> &mut ScreenLine {
        self.row(self.y)
    }

    /// Scrolls the region up by a line; a line that leaves at the screen's top becomes history.
    pub(crate) fn scroll(&mut self, style: Style, wrapped: bool) {
        let base = self.history_len();
        let grows = self.top == 0 && base < self.history_max(self.cols);
        let gone = match self.top {
            0 if grows => None,
            0 => self.lines.pop_front(),
            top => self.lines.remove(base + top),
        };
        let mut line = gone.unwrap_or_default();
        line.clear(style, self.cols);
        line.wrapped = wrapped;
        self.lines.insert(base + self.bottom + usize::from(grows), line);
    }

    /// Moves rows `from` to `last` up by `count`, without adding to the history.
    pub(crate) fn scroll_up(&mut self, from: usize, last: usize, count: usize, style: Style) {
        let base = self.history_len();
        for _ in 0..count.min(last + 1 - from) {
            let mut line = self.lines.remove(base + from).unwrap_or_default();
            line.clear(style, self.cols);
            self.lines.insert(base + last, line);
        }
    }

    /// Moves rows `from` to `last` down by `count`.
    pub(crate) fn scroll_down(&mut self, from: usize, last: usize, count: usize, style: Style) {
        let base = self.history_len();
        for _ in 0..count.min(last + 1 - from) {
            let mut line = self.lines.remove(base + last).unwrap_or_default();
            line.clear(style, self.cols);
            self.lines.insert(base + from, line);
        }
    }

    /// Removes the history; the screen stays.
    pub(crate) fn clear_history(&mut self) {
        let base = self.history_len();
        self.lines.drain(..base);
    }

    /// The column of the next tab stop.
    pub(crate) fn next_tab_stop(&self, x: usize) -> usize {
        (x + 1..self.cols).find(|x| self.tabs.get(*x)).unwrap_or(self.cols - 1)
    }

    /// The column of the tab stop before this one.
    pub(crate) fn previous_tab_stop(&self, x: usize) -> usize {
        (0..x.min(self.cols)).rev().find(|x| self.tabs.get(*x)).unwrap_or(0)
    }
}
