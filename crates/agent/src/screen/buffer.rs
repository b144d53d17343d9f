//! One of the two screens: its lines, those that have gone out at the top, and its cursor.

use super::cell::Style;
use super::line::Line;
use isolet_wire::terminal::COLS_MAX;
use std::collections::VecDeque;

/// Lines that are kept above the screen.
const HISTORY_LINES: usize = 1000;
/// Cells that are kept above the screen: wide terminals keep fewer lines.
const HISTORY_CELLS: usize = 200_000;

/// Where tabs stop, a bit a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tabs([u64; (COLS_MAX as usize).div_ceil(64)]);

impl Default for Tabs {
    fn default() -> Self {
        Self([0x0101_0101_0101_0101; _])
    }
}

impl Tabs {
    pub(super) fn get(&self, x: usize) -> bool {
        self.0.get(x / 64).is_some_and(|word| word >> (x % 64) & 1 == 1)
    }

    pub(super) fn set(&mut self, x: usize, stop: bool) {
        if let Some(word) = self.0.get_mut(x / 64) {
            *word = *word & !(1 << (x % 64)) | u64::from(stop) << (x % 64);
        }
    }

    /// Stops for another width: from the last one on, every eight columns.
    pub(super) fn resize(&mut self, old: usize, cols: usize) {
        let plain = Self::default();
        (old..usize::from(COLS_MAX)).for_each(|x| self.set(x, false));
        let last = (0..=cols).rev().find(|x| self.get(*x)).unwrap_or(0);
        (last..cols).step_by(8).for_each(|x| self.set(x, true));
        (cols..usize::from(COLS_MAX)).for_each(|x| self.set(x, plain.get(x)));
    }

    /// The stops are the same, up to a column.
    pub(super) fn is_same(&self, other: &Self, cols: usize) -> bool {
        (0..cols).all(|x| self.get(x) == other.get(x))
    }

    pub(super) fn clear(&mut self) {
        self.0 = [0; _];
    }
}

/// Which character sets are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Charsets {
    /// Final bytes of the four: `B` is plain, `0` draws lines.
    pub(super) sets: [u8; 4],
    /// Which of them is in force.
    pub(super) level: u8,
}

impl Default for Charsets {
    fn default() -> Self {
        Self { sets: [b'B'; 4], level: 0 }
    }
}

/// What `ESC 7` keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) x: usize,
    /// Counted from the first line that is kept: it moves up with the text.
    pub(super) line: usize,
    pub(super) style: Style,
    pub(super) charsets: Charsets,
}

/// A screen with what went out at its top.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    /// History, then `rows` lines of screen.
    pub(super) lines: VecDeque<Line>,
    pub(super) cols: usize,
    pub(super) rows: usize,
    /// Column of the cursor; `cols` when the next character goes on the next line.
    pub(super) x: usize,
    /// Row of the cursor on the screen.
    pub(super) y: usize,
    /// First row that scrolls.
    pub(super) top: usize,
    /// Last row that scrolls.
    pub(super) bottom: usize,
    pub(super) saved: Saved,
    pub(super) tabs: Tabs,
    keeps: bool,
}

impl Buffer {
    /// An empty screen; `keeps` what goes out at the top.
    pub(super) fn new(cols: usize, rows: usize, keeps: bool, style: Style) -> Self {
        Self {
            lines: (0..rows).map(|_| Line::filled(style, cols)).collect(),
            cols,
            rows,
            x: 0,
            y: 0,
            top: 0,
            bottom: rows - 1,
            saved: Saved::default(),
            tabs: Tabs::default(),
            keeps,
        }
    }

    /// It keeps what goes out at its top.
    pub(super) const fn keeps(&self) -> bool {
        self.keeps
    }

    /// The most lines that are kept above the screen.
    pub(super) fn history_max(&self, cols: usize) -> usize {
        if self.keeps { HISTORY_LINES.min(HISTORY_CELLS / cols) } else { 0 }
    }

    /// Lines above the screen: the place of its first row.
    pub(super) fn base(&self) -> usize {
        self.lines.len() - self.rows
    }

    /// A row of the screen.
    pub(super) fn row(&mut self, y: usize) -> &mut Line {
        let base = self.base();
        &mut self.lines[base + y]
    }

    /// The cursor's row.
    pub(super) fn here(&mut self) -> &mut Line {
        self.row(self.y)
    }

    /// The text goes up by a line within the region; at the screen's top it is kept.
    pub(super) fn scroll(&mut self, style: Style, wrapped: bool) {
        let base = self.base();
        let grows = self.top == 0 && base < self.history_max(self.cols);
        let gone = match self.top {
            0 if grows => None,
            0 => self.lines.pop_front(),
            top => self.lines.remove(base + top),
        };
        let mut line = gone.unwrap_or_default();
        line.fill_all(style, self.cols);
        line.wrapped = wrapped;
        self.lines.insert(base + self.bottom + usize::from(grows), line);
    }

    /// Rows `from` to `last` go up by `count`, and nothing is kept.
    pub(super) fn roll_up(&mut self, from: usize, last: usize, count: usize, style: Style) {
        let base = self.base();
        for _ in 0..count.min(last + 1 - from) {
            let mut line = self.lines.remove(base + from).unwrap_or_default();
            line.fill_all(style, self.cols);
            self.lines.insert(base + last, line);
        }
    }

    /// Rows `from` to `last` go down by `count`.
    pub(super) fn roll_down(&mut self, from: usize, last: usize, count: usize, style: Style) {
        let base = self.base();
        for _ in 0..count.min(last + 1 - from) {
            let mut line = self.lines.remove(base + last).unwrap_or_default();
            line.fill_all(style, self.cols);
            self.lines.insert(base + from, line);
        }
    }

    /// Forgets what went out at the top.
    pub(super) fn forget(&mut self) {
        let base = self.base();
        self.lines.drain(..base);
    }

    /// The next column where tabs stop.
    pub(super) fn stop_after(&self, x: usize) -> usize {
        (x + 1..self.cols).find(|x| self.tabs.get(*x)).unwrap_or(self.cols - 1)
    }

    /// The last column before where tabs stop.
    pub(super) fn stop_before(&self, x: usize) -> usize {
        (0..x.min(self.cols)).rev().find(|x| self.tabs.get(*x)).unwrap_or(0)
    }
}
