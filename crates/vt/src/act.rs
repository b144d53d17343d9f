//! What control and escape sequences do to a [`Model`].

use crate::buffer::Charsets;
use crate::cell::{Cell, ExtendedStyle, PROTECTED, Style};
use crate::csi::Csi;
use crate::line::ScreenLine;
use crate::model::Model;
use crate::sgr;

impl Model {
    /// Executes a control sequence. Unknown ones have no effect.
    pub(crate) fn csi(&mut self, csi: &Csi) {
        match (csi.prefix, csi.intermediate, csi.final_byte) {
            (0, 0, b'm') => self.set_attributes(csi),
            (0, 0, b'A'..=b'H' | b'`' | b'a' | b'd' | b'e' | b'f' | b'I' | b'Z') => {
                self.move_cursor(csi)
            }
            (0 | b'?', 0, b'J') => self.erase_display(csi.param(0), csi.prefix == b'?'),
            (0 | b'?', 0, b'K') => self.erase_line(csi.param(0), csi.prefix == b'?'),
            (0, 0, b'@' | b'P' | b'X') => self.edit_cells(csi.final_byte, csi.count(0)),
            (0, 0, b'L' | b'M') => self.lines(csi.final_byte, csi.count(0)),
            (0, 0, b'S' | b'T') => self.scroll_region(csi.final_byte, csi.count(0)),
            (0, b' ', b'@' | b'A') | (0, b'\'', b'}' | b'~') => self.edit_columns(csi),
            (0, 0, b'b') => self.repeat(csi.count(0)),
            (0, 0, b'g') => self.clear_tab_stops(csi.param(0)),
            (0, 0, b'h' | b'l') => self.set_ansi_mode(csi),
            (b'?', 0, b'h' | b'l') => {
                csi.params().for_each(|mode| self.switch(mode as u16, csi.final_byte == b'h'))
            }
            (0, 0, b'r') => self.set_scroll_region(csi.param(0), csi.param(1)),
            (0, 0, b's') => self.save_cursor(),
            (0, 0, b'u') => self.restore_cursor(),
            (0, 0, b't') => self.window_operation(csi.param(0), csi.param(1)),
            (0, b'!', b'p') => self.soft_reset(),
            (0, b' ', b'q') => self.modes.set_cursor_style(csi.param(0)),
            (0, b'"', b'q') => self.set_protection(csi.param(0)),
            (b'>', 0, b'u') => self.keys[0].push(csi.param(0) as u8 & 31),
            (b'<', 0, b'u') => self.keys[0].pop(csi.count(0)),
            (b'=', 0, b'u') => self.keys[0].set(csi.param(0) as u8 & 31, csi.count(1)),
            (b'>', 0, b'm') => self.other_keys(csi),
            _ => {}
        }
    }

    fn set_attributes(&mut self, csi: &Csi) {
        let mut extended = self.extended_style();
        let before = extended.line;
        sgr::apply(csi, &mut self.style, &mut extended.line);
        if extended.line != before {
            self.set_extended_style(extended);
        }
    }

    /// Moves the cursor. Within the scroll region it stops at the edges.
    fn move_cursor(&mut self, csi: &Csi) {
        let count = csi.count(0);
        let origin = self.modes.origin;
        if matches!(csi.final_byte, b'I' | b'Z') {
            return self.tabs(csi.final_byte, count);
        }
        if !matches!(csi.final_byte, b'H' | b'f' | b'G' | b'`' | b'd') {
            self.clamp_cursor(0);
        }
        let buffer = self.shown();
        let start = if origin { buffer.top } else { 0 };
        match csi.final_byte {
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
        if matches!(csi.final_byte, b'E' | b'F') {
            buffer.x = 0;
        }
        self.clamp_cursor(0);
    }

    fn tabs(&mut self, target: u8, count: usize) {
        let buffer = self.shown();
        if buffer.x >= buffer.cols {
            return;
        }
        for _ in 0..count.min(buffer.cols) {
            buffer.x = if target == b'I' {
                buffer.next_tab_stop(buffer.x)
            } else {
                buffer.previous_tab_stop(buffer.x)
            };
        }
    }

    fn clear_tab_stops(&mut self, target: usize) {
        let buffer = self.shown();
        match target {
            0 => buffer.tabs.set(buffer.x, false),
            3 => buffer.tabs.clear(),
            _ => {}
        }
    }

    /// Erases a row, which then no longer continues the row before it.
    fn erase_row(&mut self, y: usize, keep: bool) {
        let erased = self.erased();
        let buffer = self.shown();
        let cols = buffer.cols;
        let row = buffer.row(y);
        if keep {
            row.erase(0..cols, erased, cols, true);
            row.wrapped = false;
        } else {
            row.clear(erased, cols);
        }
    }

    fn erase_display(&mut self, target: usize, keep: bool) {
        self.clamp_cursor(1);
        let erased = self.erased();
        let buffer = self.shown();
        let x = buffer.x;
        let y = buffer.y;
        let cols = buffer.cols;
        let rows = buffer.rows;
        match target {
            0 => {
                buffer.cursor_line().erase(x..cols, erased, cols, keep);
                buffer.cursor_line().wrapped &= x > 0;
                (y + 1..rows).for_each(|y| self.erase_row(y, keep));
            }
            1 => {
                buffer.cursor_line().erase(0..(x + 1).min(cols), erased, cols, keep);
                buffer.cursor_line().wrapped = false;
                // The index counts from the first line of history, as in xterm.js: this is the next
                // row only while there is no history.
                if let Some(line) = buffer.lines.get_mut(y + 1).filter(|_| x + 1 >= cols) {
                    line.wrapped = false;
                }
                (0..y).for_each(|y| self.erase_row(y, keep));
            }
            2 => (0..rows).for_each(|y| self.erase_row(y, keep)),
            3 => buffer.clear_history(),
            _ => {}
        }
    }

    fn erase_line(&mut self, target: usize, keep: bool) {
        self.clamp_cursor(1);
        let erased = self.erased();
        let buffer = self.shown();
        let x = buffer.x;
        let cols = buffer.cols;
        let row = buffer.cursor_line();
        match target {
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
    fn edit_cells(&mut self, target: u8, count: usize) {
        self.clamp_cursor(0);
        let erased = self.erased();
        let buffer = self.shown();
        let x = buffer.x;
        let cols = buffer.cols;
        let row = buffer.cursor_line();
        match target {
            b'@' => row.insert(x, count, erased, cols),
            b'P' => row.delete(x, count, erased, cols),
            _ => row.erase(x..(x + count).min(cols), erased, cols, false),
        }
    }

    /// Inserts or deletes lines at the cursor.
    fn lines(&mut self, target: u8, count: usize) {
        self.clamp_cursor(0);
        let erased = self.erased();
        let buffer = self.shown();
        let y = buffer.y;
        let bottom = buffer.bottom;
        if y < buffer.top || y > bottom {
            return;
        }
        if target == b'L' {
            buffer.scroll_down(y, bottom, count, erased);
        } else {
            buffer.scroll_up(y, bottom, count, erased);
        }
        buffer.x = 0;
    }

    /// Scrolls the region without adding to the history.
    fn scroll_region(&mut self, target: u8, count: usize) {
        let erased = self.erased();
        let buffer = self.shown();
        let top = buffer.top;
        let bottom = buffer.bottom;
        if target == b'S' {
            buffer.scroll_up(top, bottom, count, erased);
        } else {
            buffer.scroll_down(top, bottom, count, Style::default());
        }
    }

    /// Inserts or deletes columns in the region.
    fn edit_columns(&mut self, csi: &Csi) {
        let erased = self.erased();
        let buffer = self.shown();
        if buffer.y < buffer.top || buffer.y > buffer.bottom {
            return;
        }
        let cols = buffer.cols;
        let count = csi.count(0);
        let x = if csi.intermediate == b'\'' { buffer.x } else { 0 };
        for y in buffer.top..=buffer.bottom {
            let row: &mut ScreenLine = buffer.row(y);
            if matches!(csi.final_byte, b'A' | b'}') {
                row.insert(x, count, erased, cols);
            } else {
                row.delete(x, count, erased, cols);
            }
            row.wrapped = false;
        }
    }

    fn set_ansi_mode(&mut self, csi: &Csi) {
        let on = csi.final_byte == b'h';
        for mode in csi.params() {
            match mode {
                4 => self.modes.insert = on,
                20 => self.modes.newline = on,
                _ => {}
            }
        }
    }

    /// Sets or resets a private mode.
    fn switch(&mut self, mode: u16, on: bool) {
        match (mode, on) {
            (2, true) => {
                self.charsets = Charsets { active: self.charsets.active, ..Charsets::default() }
            }
            (6, _) => {
                self.modes.origin = on;
                self.home();
            }
            (1048, true) => self.save_cursor(),
            (1048, false) => self.restore_cursor(),
            (47 | 1047, true) => self.enter_alternate_screen(),
            (47 | 1047, false) => self.leave_alternate_screen(),
            (1049, true) => {
                self.save_cursor();
                self.enter_alternate_screen();
            }
            (1049, false) => {
                self.leave_alternate_screen();
                self.restore_cursor();
            }
            _ => self.modes.switch(mode, on),
        }
    }

    fn home(&mut self) {
        let origin = self.modes.origin;
        let buffer = self.shown();
        (buffer.x, buffer.y) = (0, if origin { buffer.top } else { 0 });
    }

    /// Sets the scroll region. Rows are counted from 1; 0 stands for the first or the last row.
    fn set_scroll_region(&mut self, top: usize, bottom: usize) {
        let buffer = self.shown();
        let top = top.max(1);
        let bottom = if bottom == 0 || bottom > buffer.rows { buffer.rows } else { bottom };
        if bottom > top {
            (buffer.top, buffer.bottom) = (top - 1, bottom - 1);
            self.home();
        }
    }

    fn window_operation(&mut self, operation: usize, target: usize) {
        match operation {
            22 if target != 1 => self.push_title(),
            23 if target != 1 => self.pop_title(),
            _ => {}
        }
    }

    fn soft_reset(&mut self) {
        self.modes.soft_reset();
        self.style = Style::default();
        self.charsets = Charsets::default();
        let buffer = self.shown();
        (buffer.top, buffer.bottom) = (0, buffer.rows - 1);
        buffer.saved = Default::default();
        buffer.saved.line = buffer.history_len();
        self.keys[0] = Default::default();
    }

    const fn set_protection(&mut self, how: usize) {
        match how {
            1 => self.style.bg |= PROTECTED,
            0 | 2 => self.style.bg &= !PROTECTED,
            _ => {}
        }
    }

    fn other_keys(&mut self, csi: &Csi) {
        if csi.has_no_params() || csi.param(0) == 4 {
            self.modes.other_keys = csi.param(1).min(2) as u8;
        }
    }

    /// Executes an escape sequence: intermediates and a final byte.
    pub(crate) fn escape(&mut self, body: &[u8]) {
        match body {
            b"7" => self.save_cursor(),
            b"8" => self.restore_cursor(),
            b"D" => self.index(),
            b"E" => self.next_line(),
            b"H" => self.set_tab_stop(),
            b"M" => self.reverse_index(),
            b"c" => self.reset(),
            b"=" => self.modes.keypad = true,
            b">" => self.modes.keypad = false,
            b"n" | b"}" => self.charsets.active = 2,
            b"o" | b"|" => self.charsets.active = 3,
            b"~" => self.charsets.active = 1,
            b"%@" | b"%G" => {
                self.charsets.active = 0;
                self.charsets.sets[0] = b'B';
            }
            b"#8" => self.alignment_test(),
            [target @ (b'(' | b')' | b'*' | b'+' | b'-' | b'.'), set]
                if b"0ABC4567EHKQRYZ=".contains(set) =>
            {
                let index = match target {
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

    /// Moves the cursor a row up, or scrolls down at the region's first row.
    fn reverse_index(&mut self) {
        let erased = self.erased();
        self.clamp_cursor(0);
        let buffer = self.shown();
        let top = buffer.top;
        let bottom = buffer.bottom;
        if buffer.y == top {
            buffer.scroll_down(top, bottom, 1, erased);
        } else {
            buffer.y = buffer.y.saturating_sub(1);
            self.clamp_cursor(0);
        }
    }

    /// Fills the screen with `E` (DECALN).
    fn alignment_test(&mut self) {
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

    /// Begins a link, or ends it.
    pub(crate) fn set_link(&mut self, link: Option<(String, String)>) {
        let extended = self.extended_style();
        self.set_extended_style(ExtendedStyle { link: link.map(Into::into), ..extended });
    }
}
