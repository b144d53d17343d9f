//! Writes the bytes of a snapshot, and tracks the style that the terminal has after them.

use crate::cell::{COLOUR, Cell, ExtendedStyle, Style};
use crate::line::ScreenLine;
use crate::model::Model;
use crate::sgr;
use std::io::Write;

/// The bytes of a snapshot, and the style of the terminal after them.
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

    /// Writes a control sequence with one number and a final byte; a number of 1 is omitted.
    pub(crate) fn csi(&mut self, number: usize, last: u8) {
        self.raw(b"\x1b[");
        if number != 1 {
            let _ = write!(self.out, "{number}");
        }
        self.out.push(last);
    }

    /// Moves the cursor to a column and a row, counted from 0.
    pub(crate) fn move_cursor(&mut self, x: usize, y: usize) {
        let _ = write!(self.out, "\x1b[{};{}H", y + 1, x + 1);
    }

    /// Sets the style of the terminal.
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

    /// Sets the default background, so that lines that scroll in are empty.
    pub(crate) fn default_background(&mut self) {
        if self.style.bg & COLOUR != 0 {
            self.style(Style::default());
        }
    }

    /// Writes a sequence, so that combining marks that follow do not join the character before it.
    pub(crate) fn end_cluster(&mut self) {
        sgr::write(&mut self.out, self.style, &self.extended);
    }

    /// Writes one cell: its character, or a space. The cursor moves by the width of the cell.
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

    /// Writes the cells of a line from `from` on; the row must be empty there. Returns the column
    /// behind the last cell that is not empty, which is where the cursor is, or `cols`.
    pub(crate) fn cells(&mut self, line: &ScreenLine, from: usize, cols: usize) -> usize {
        let blanks = styled_blanks_from(line, cols);
        if blanks < cols {
            self.end(line, cols);
            self.csi(from + 1, b'G');
        }
        let cells = line.cells();
        let mut x = from;
        while let Some(cell) = cells.get(x).copied().filter(|_| x < blanks) {
            if is_erased(cell) {
                let count = cells[x..].iter().take_while(|next| **next == cell).count();
                self.erased(cell.style, x, count, cols);
                x += count;
                continue;
            }
            let width = cell.width().max(1);
            // A lone half of a wide character cannot be drawn.
            if x + width > cols || !cell.has_content() {
                self.styled_blank(cell.style, x, blanks);
                x += 1;
                continue;
            }
            self.cell(cell);
            x += width;
            if x < cols && cell.char().is_some_and(is_doubtful) {
                self.csi(x + 1, b'G');
            }
        }
        x.max(if blanks < cols { cols } else { 0 })
    }

    /// Draws an empty cell with a style that an erase cannot give it: writes a wide character and
    /// overwrites half of it.
    fn styled_blank(&mut self, style: Style, x: usize, end: usize) {
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

    /// Draws the last cell of a row, and the styled blanks before it (see [`styled_blanks_from`]).
    /// The cursor stays in the row.
    pub(crate) fn end(&mut self, line: &ScreenLine, cols: usize) {
        let from = styled_blanks_from(line, cols);
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
        // The cell before them was overwritten.
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

    /// Erases cells in a style, and moves the cursor behind them.
    fn erased(&mut self, style: Style, x: usize, count: usize, cols: usize) {
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

/// A wide character, half of which is then overwritten.
const WIDE: &[u8] = "\u{6f22}".as_bytes();

/// Whether an erase leaves such a cell.
pub(crate) fn is_erased(cell: Cell) -> bool {
    !cell.has_content() && cell.width() == 1 && cell.style == cell.style.erased()
}

/// The column where the styled blanks at the end of a row begin: empty cells with a style that an
/// erase cannot give them. Column 0 never counts, because it cannot be drawn beside others. `cols`
/// when there are none.
fn styled_blanks_from(line: &ScreenLine, cols: usize) -> usize {
    let is_second = |x: usize| line.get(x).width() == 0 && line.get(x - 1).width() == 2;
    let is_emptied =
        |x: &usize| !line.get(*x).has_content() && !is_erased(line.get(*x)) && !is_second(*x);
    cols - (1..cols).rev().take_while(is_emptied).count()
}

/// Whether terminals disagree about the width of a character.
const fn is_doubtful(c: char) -> bool {
    matches!(c, '\u{200d}' | '\u{231a}'..='\u{27ff}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}
