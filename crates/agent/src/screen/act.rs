//! What control and escape sequences do to a [`Model`].

use super::buffer::Charsets;
use super::cell::{Cell, PROTECTED, Rare, Style};
use super::csi::Csi;
use super::line::Line;
use super::model::Model;
use super::sgr;

impl Model {
    /// Does what a control sequence says. What is not known does nothing.
    pub(super) fn csi(&mut self, csi: &Csi) {
        match (csi.mark, csi.middle, csi.last) {
            (0, 0, b'm') => self.attributes(csi),
            (0, 0, b'A'..=b'H' | b'`' | b'a' | b'd' | b'e' | b'f' | b'I' | b'Z') => {
                self.travel(csi)
            }
            (0 | b'?', 0, b'J') => self.erase_display(csi.number(0), csi.mark == b'?'),
            (0 | b'?', 0, b'K') => self.erase_line(csi.number(0), csi.mark == b'?'),
            (0, 0, b'@' | b'P' | b'X') => self.shift(csi.last, csi.count(0)),
            (0, 0, b'L' | b'M') => self.lines(csi.last, csi.count(0)),
            (0, 0, b'S' | b'T') => self.roll(csi.last, csi.count(0)),
            (0, b' ', b'@' | b'A') | (0, b'\'', b'}' | b'~') => self.columns(csi),
            (0, 0, b'b') => self.repeat(csi.count(0)),
            (0, 0, b'g') => self.clear_tabs(csi.number(0)),
            (0, 0, b'h' | b'l') => self.switch_plain(csi),
            (b'?', 0, b'h' | b'l') => {
                csi.groups().for_each(|mode| self.switch(mode as u16, csi.last == b'h'))
            }
            (0, 0, b'r') => self.region(csi.number(0), csi.number(1)),
            (0, 0, b's') => self.save(),
            (0, 0, b'u') => self.restore(),
            (0, 0, b't') => self.window(csi.number(0), csi.number(1)),
            (0, b'!', b'p') => self.soft_reset(),
            (0, b' ', b'q') => self.modes.shape(csi.number(0)),
            (0, b'"', b'q') => self.protect(csi.number(0)),
            (b'>', 0, b'u') => self.keys[0].push(csi.number(0) as u8 & 31),
            (b'<', 0, b'u') => self.keys[0].pop(csi.count(0)),
            (b'=', 0, b'u') => self.keys[0].set(csi.number(0) as u8 & 31, csi.count(1)),
            (b'>', 0, b'm') => self.other_keys(csi),
            _ => {}
        }
    }

    fn attributes(&mut self, csi: &Csi) {
        let mut rare = self.rare();
        let before = rare.line;
        sgr::apply(csi, &mut self.style, &mut rare.line);
        if rare.line != before {
            self.set_rare(rare);
        }
    }

    /// Moves the cursor, within the region where it is in it.
    fn travel(&mut self, csi: &Csi) {
        let count = csi.count(0);
        let origin = self.modes.origin;
        if matches!(csi.last, b'I' | b'Z') {
            return self.tabs(csi.last, count);
        }
        if !matches!(csi.last, b'H' | b'f' | b'G' | b'`' | b'd') {
            self.restrict(0);
        }
        let buffer = self.shown();
        let start = if origin { buffer.top } else { 0 };
        match csi.last {
            b'A' | b'F' if buffer.y >= buffer.top => buffer.y -= count.min(buffer.y - buffer.top),
            b'A' | b'F' => buffer.y = buffer.y.saturating_sub(count),
            b'B' | b'E' if buffer.y <= buffer.bottom => {
                buffer.y += count.min(buffer.bottom - buffer.y)
            }
            b'B' | b'E' | b'e' => buffer.y += count,
            b'C' | b'a' => buffer.x += count,
            b'D' => buffer.x = buffer.x.saturating_sub(count),
            b'G' | b'`' => buffer.x = count - 1,
            b'd' => buffer.y = start + count - 1,
            _ => (buffer.x, buffer.y) = (csi.count(1) - 1, start + count - 1),
        }
        if matches!(csi.last, b'E' | b'F') {
            buffer.x = 0;
        }
        self.restrict(0);
    }

    fn tabs(&mut self, which: u8, count: usize) {
        let buffer = self.shown();
        if buffer.x >= buffer.cols {
            return;
        }
        for _ in 0..count.min(buffer.cols) {
            buffer.x = if which == b'I' {
                buffer.stop_after(buffer.x)
            } else {
                buffer.stop_before(buffer.x)
            };
        }
    }

    fn clear_tabs(&mut self, which: usize) {
        let buffer = self.shown();
        match which {
            0 => buffer.tabs.set(buffer.x, false),
            3 => buffer.tabs.clear(),
            _ => {}
        }
    }

    /// Erases all of a row.
    fn erase_row(&mut self, y: usize, keep: bool) {
        let erased = self.erased();
        let buffer = self.shown();
        let cols = buffer.cols;
        let row = buffer.row(y);
        if keep {
            row.erase(0..cols, erased, cols, true);
            row.wrapped = false;
        } else {
            row.fill_all(erased, cols);
        }
    }

    fn erase_display(&mut self, which: usize, keep: bool) {
        self.restrict(1);
        let erased = self.erased();
        let buffer = self.shown();
        let (x, y, cols, rows) = (buffer.x, buffer.y, buffer.cols, buffer.rows);
        match which {
            0 => {
                buffer.here().erase(x..cols, erased, cols, keep);
                buffer.here().wrapped &= x > 0;
                (y + 1..rows).for_each(|y| self.erase_row(y, keep));
            }
            1 => {
                buffer.here().erase(0..(x + 1).min(cols), erased, cols, keep);
                buffer.here().wrapped = false;
                // Not the next row, as long as there is a history: so xterm.js counts here.
                if let Some(line) = buffer.lines.get_mut(y + 1).filter(|_| x + 1 >= cols) {
                    line.wrapped = false;
                }
                (0..y).for_each(|y| self.erase_row(y, keep));
            }
            2 => (0..rows).for_each(|y| self.erase_row(y, keep)),
            3 => buffer.forget(),
            _ => {}
        }
    }

    fn erase_line(&mut self, which: usize, keep: bool) {
        self.restrict(1);
        let erased = self.erased();
        let buffer = self.shown();
        let (x, cols) = (buffer.x, buffer.cols);
        let row = buffer.here();
        match which {
            0 => {
                row.erase(x..cols, erased, cols, keep);
                row.wrapped &= x > 0;
            }
            1 => row.erase(0..(x + 1).min(cols), erased, cols, keep),
            2 => {
                row.erase(0..cols, erased, cols, keep);
                row.wrapped = false;
            }
            _ => {}
        }
    }

    /// Inserts, deletes or erases characters at the cursor.
    fn shift(&mut self, which: u8, count: usize) {
        self.restrict(0);
        let erased = self.erased();
        let buffer = self.shown();
        let (x, cols) = (buffer.x, buffer.cols);
        let row = buffer.here();
        match which {
            b'@' => row.insert(x, count, erased, cols),
            b'P' => row.delete(x, count, erased, cols),
            _ => row.erase(x..(x + count).min(cols), erased, cols, false),
        }
    }

    /// Inserts or deletes lines at the cursor.
    fn lines(&mut self, which: u8, count: usize) {
        self.restrict(0);
        let erased = self.erased();
        let buffer = self.shown();
        let (y, bottom) = (buffer.y, buffer.bottom);
        if y < buffer.top || y > bottom {
            return;
        }
        if which == b'L' {
            buffer.roll_down(y, bottom, count, erased);
        } else {
            buffer.roll_up(y, bottom, count, erased);
        }
        buffer.x = 0;
    }

    /// Moves the region's text; nothing of it is kept.
    fn roll(&mut self, which: u8, count: usize) {
        let erased = self.erased();
        let buffer = self.shown();
        let (top, bottom) = (buffer.top, buffer.bottom);
        if which == b'S' {
            buffer.roll_up(top, bottom, count, erased);
        } else {
            buffer.roll_down(top, bottom, count, Style::default());
        }
    }

    /// Moves the region's columns.
    fn columns(&mut self, csi: &Csi) {
        let erased = self.erased();
        let buffer = self.shown();
        if buffer.y < buffer.top || buffer.y > buffer.bottom {
            return;
        }
        let (cols, count) = (buffer.cols, csi.count(0));
        let x = if csi.middle == b'\'' { buffer.x } else { 0 };
        for y in buffer.top..=buffer.bottom {
            let row: &mut Line = buffer.row(y);
            if matches!(csi.last, b'A' | b'}') {
                row.insert(x, count, erased, cols);
            } else {
                row.delete(x, count, erased, cols);
            }
            row.wrapped = false;
        }
    }

    fn switch_plain(&mut self, csi: &Csi) {
        let on = csi.last == b'h';
        for mode in csi.groups() {
            match mode {
                4 => self.modes.insert = on,
                20 => self.modes.returns = on,
                _ => {}
            }
        }
    }

    /// A private mode.
    fn switch(&mut self, mode: u16, on: bool) {
        match (mode, on) {
            (2, true) => {
                self.charsets = Charsets { level: self.charsets.level, ..Charsets::default() }
            }
            (6, _) => {
                self.modes.origin = on;
                self.home();
            }
            (1048, true) => self.save(),
            (1048, false) => self.restore(),
            (47 | 1047, true) => self.enter(),
            (47 | 1047, false) => self.leave(),
            (1049, true) => {
                self.save();
                self.enter();
            }
            (1049, false) => {
                self.leave();
                self.restore();
            }
            _ => self.modes.switch(mode, on),
        }
    }

    fn home(&mut self) {
        let origin = self.modes.origin;
        let buffer = self.shown();
        (buffer.x, buffer.y) = (0, if origin { buffer.top } else { 0 });
    }

    /// The rows that scroll, counted from 1; 0 is the first and the last.
    fn region(&mut self, top: usize, bottom: usize) {
        let buffer = self.shown();
        let top = top.max(1);
        let bottom = if bottom == 0 || bottom > buffer.rows { buffer.rows } else { bottom };
        if bottom > top {
            (buffer.top, buffer.bottom) = (top - 1, bottom - 1);
            self.home();
        }
    }

    fn window(&mut self, what: usize, which: usize) {
        match what {
            22 if which != 1 => self.push_title(),
            23 if which != 1 => self.pop_title(),
            _ => {}
        }
    }

    fn soft_reset(&mut self) {
        self.modes.soften();
        self.style = Style::default();
        self.charsets = Charsets::default();
        let buffer = self.shown();
        (buffer.top, buffer.bottom) = (0, buffer.rows - 1);
        buffer.saved = Default::default();
        buffer.saved.line = buffer.base();
        self.keys[0] = Default::default();
    }

    const fn protect(&mut self, how: usize) {
        match how {
            1 => self.style.bg |= PROTECTED,
            0 | 2 => self.style.bg &= !PROTECTED,
            _ => {}
        }
    }

    fn other_keys(&mut self, csi: &Csi) {
        if csi.is_bare() || csi.number(0) == 4 {
            self.modes.other_keys = csi.number(1).min(2) as u8;
        }
    }

    /// Does what an escape sequence says: intermediates and a final byte.
    pub(super) fn escape(&mut self, body: &[u8]) {
        match body {
            b"7" => self.save(),
            b"8" => self.restore(),
            b"D" => self.index(),
            b"E" => self.next_line(),
            b"H" => self.tab_set(),
            b"M" => self.reverse_index(),
            b"c" => self.reset(),
            b"=" => self.modes.keypad = true,
            b">" => self.modes.keypad = false,
            b"n" | b"}" => self.charsets.level = 2,
            b"o" | b"|" => self.charsets.level = 3,
            b"~" => self.charsets.level = 1,
            b"%@" | b"%G" => {
                self.charsets.level = 0;
                self.charsets.sets[0] = b'B';
            }
            b"#8" => self.align(),
            [which @ (b'(' | b')' | b'*' | b'+' | b'-' | b'.'), set]
                if b"0ABC4567EHKQRYZ=".contains(set) =>
            {
                let index = match which {
                    b'(' => 0,
                    b')' | b'-' => 1,
                    b'*' | b'.' => 2,
                    _ => 3,
                };
                self.charsets.sets[index] = *set;
            }
            _ => {}
        }
    }

    /// A row up; at the region's top the text goes down.
    fn reverse_index(&mut self) {
        let erased = self.erased();
        self.restrict(0);
        let buffer = self.shown();
        let (top, bottom) = (buffer.top, buffer.bottom);
        if buffer.y == top {
            buffer.roll_down(top, bottom, 1, erased);
        } else {
            buffer.y = buffer.y.saturating_sub(1);
            self.restrict(0);
        }
    }

    /// Fills the screen with letters.
    fn align(&mut self) {
        let style = Style { more: self.style.underline(), ..self.style };
        self.home();
        let buffer = self.shown();
        let cols = buffer.cols;
        for y in buffer.y..buffer.rows {
            let row = buffer.row(y);
            row.wrapped = false;
            (0..cols).for_each(|x| row.set(x, Cell::of('E', 1, style)));
        }
        self.home();
    }

    /// A link begins, or ends.
    pub(super) fn link(&mut self, link: Option<(String, String)>) {
        let rare = self.rare();
        self.set_rare(Rare { link: link.map(Into::into), ..rare });
    }
}
