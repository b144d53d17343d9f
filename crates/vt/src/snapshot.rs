//! Writes a model as bytes: a terminal of the same size that reads them has the same state,
//! whatever its state was before. Live output may follow at once.
//!
//! Order: a full reset; names and colours; the primary screen with what went out at its top; the
//! alternate screen, if one is shown; then what belongs to neither. Lines that ran over into the
//! next are written so that they do so again. Nothing in it asks, rings, or touches a clipboard.
//!
//! A snapshot ends with the incomplete sequence that [`crate::scan`] holds, and draws the last
//! character last, because a repeat or a combining mark may need it. Where terminals disagree:
//!
//! - Characters of doubtful width, emoji above all, are followed by the column that the model
//!   counts.
//! - Bytes that are not UTF-8 are left out, also within sequences, as in xterm.js; other terminals
//!   show a replacement character.
//! - On the alternate screen an empty cell in front of the waiting cursor becomes a space, unless
//!   its whole row is empty.

use crate::buffer::{Buffer, Charsets, Tabs};
use crate::cell::{COLOUR, Style};
use crate::line::ScreenLine;
use crate::model::Model;
use crate::modes::{KeyModes, Mouse};
use crate::osc::SPECIAL;
use crate::pen::{Pen, is_erased};
use std::io::Write;

/// The snapshot of a model.
pub(crate) fn draw(model: &Model) -> Vec<u8> {
    let mut pen = Pen::new(model);
    pen.raw(b"\x1bc");
    if model.modes.synchronized_output {
        // The terminal shows an incomplete frame once the live output completes it.
        pen.raw(b"\x1b[?2026h");
    }
    titles_and_colours(&mut pen);
    if model.alternate.is_none() && !model.keys[1].stack.is_empty() {
        // The alternate screen has keyboard modes of its own, also while it is hidden.
        pen.raw(b"\x1b[?1047h");
        keys(&mut pen, &model.keys[1]);
        pen.raw(b"\x1b[?1047l");
    }
    screen(&mut pen, &model.primary);
    if let Some(alternate) = model.alternate.as_deref() {
        keys(&mut pen, &model.keys[1]);
        // The saved cursor, which programs get back when they leave the alternate screen.
        saved(&mut pen, &model.primary);
        pen.raw(b"\x1b[?1049h");
        pen.style(Style::default());
        reset_charsets(&mut pen, model.primary.saved.charsets);
        pen.raw(b"\x1b[2J\x1b[H");
        let reset = (model.primary.top, model.primary.bottom) != (0, model.primary.rows - 1);
        if reset {
            pen.raw(b"\x1b[r");
        }
        screen(&mut pen, alternate);
    }
    let shown = model.alternate.as_deref().unwrap_or(&model.primary);
    if shown.saved != Buffer::new(shown.cols, shown.rows, false, Style::default()).saved {
        saved(&mut pen, shown);
        pen.raw(b"\x1b7");
        reset_charsets(&mut pen, shown.saved.charsets);
    }
    rest(&mut pen, shown);
    pen.out
}

/// Writes the colours, the title stack and the title.
fn titles_and_colours(pen: &mut Pen<'_>) {
    pen.raw(b"\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\");
    for (index, [r, g, b]) in &pen.model.colours {
        let _ = match index.checked_sub(SPECIAL) {
            None => write!(pen.out, "\x1b]4;{index};rgb:{r:02x}/{g:02x}/{b:02x}\x1b\\"),
            Some(special) => {
                write!(pen.out, "\x1b]{};rgb:{r:02x}/{g:02x}/{b:02x}\x1b\\", 10 + special)
            }
        };
    }
    for title in &pen.model.titles {
        let _ = write!(pen.out, "\x1b]2;{title}\x1b\\\x1b[22;2t");
    }
    let _ = write!(pen.out, "\x1b]2;{}\x1b\\", pen.model.title);
}

/// Writes lines, scroll region and tab stops. The position of the cursor is undefined after that.
fn screen<'a>(pen: &mut Pen<'a>, buffer: &'a Buffer) {
    let base = buffer.history_len();
    let used = buffer.lines.iter().rposition(|line| !line.cells().is_empty() || line.wrapped);
    let count = if base > 0 { buffer.lines.len() } else { used.map_or(0, |last| last + 1) };
    // Where the first line continues one that is gone, the lines are drawn from the last row up.
    let first = base == 0 && buffer.lines[0].wrapped;
    let count = if first { buffer.rows } else { count };
    let mut lines = Lines { pen, cols: buffer.cols, rows: buffer.rows, hole: None };
    if first {
        lines.pen.move_cursor(buffer.cols - 1, buffer.rows - 1);
        lines.pen.style(Style::default());
        lines.pen.raw(b" ");
    }
    for index in 0..count {
        let next = buffer.lines.get(index + 1).filter(|next| next.wrapped && index + 1 < count);
        let wrapped = (first || index > 0) && buffer.lines[index].wrapped;
        lines.line(&buffer.lines[index], wrapped, next);
        if next.is_none() && index + 1 < count {
            lines.pen.default_background();
            lines.pen.raw(b"\r\n");
        }
    }
    pen.style(Style::default());
    if first {
        pen.raw(b"\x1b[3J");
    }
    if (buffer.top, buffer.bottom) != (0, buffer.rows - 1) {
        let _ = write!(pen.out, "\x1b[{};{}r", buffer.top + 1, buffer.bottom + 1);
    }
    if !buffer.tabs.is_same(&Tabs::default(), buffer.cols) {
        tabs(pen, buffer);
    }
}

/// Draws lines from top to bottom.
struct Lines<'p, 'a> {
    pen: &'p mut Pen<'a>,
    cols: usize,
    rows: usize,
    /// The previous line, if its last cell holds a space that must be removed.
    hole: Option<&'a ScreenLine>,
}

impl<'a> Lines<'_, 'a> {
    /// Draws one line. When it is `wrapped`, the cursor is behind the last column of the line
    /// before; when there is a `next` line that continues it, the cursor is left behind its own
    /// last column.
    fn line(&mut self, line: &'a ScreenLine, wrapped: bool, next: Option<&ScreenLine>) {
        let from = if wrapped { self.wrap_into(line) } else { 0 };
        let end = self.pen.cells(line, from, self.cols);
        let Some(next) = next else { return };
        let last = line.get(self.cols - 1);
        if !last.has_content() && last.width() == 1 {
            // A wide character did not fit here, or the cell was erased later.
            self.pen.csi(self.cols, b'G');
            let wide = next.get(0).width() == 2;
            if !wide {
                self.pen.style(Style::default());
                self.pen.raw(b" ");
            }
            let same = wide && last.style == next.get(0).style;
            self.hole = (self.rows > 1 && !same).then_some(line);
        } else if end < self.cols {
            self.pen.csi(self.cols, b'G');
            self.pen.raw(b" ");
        }
    }

    /// Draws the first cell of a line that continues the one before; returns the column behind it.
    fn wrap_into(&mut self, line: &ScreenLine) -> usize {
        let first = line.get(0);
        let written = first.has_content() && first.width() > 0;
        let ground = if written { first.style.bg & COLOUR } else { 0 };
        let x = if written {
            self.pen.cell(first);
            first.width()
        } else {
            self.pen.style(Style::default());
            self.pen.raw(b" \r\x1b[X");
            0
        };
        if ground != 0 && x < self.cols {
            // The row may have scrolled in with that background.
            self.pen.style(Style::default());
            self.pen.raw(b"\x1b[K");
        }
        if let Some(before) = self.hole.take() {
            self.pen.style(Style::default());
            self.pen.raw(b"\x1b[A");
            self.pen.end(before, self.cols);
            self.pen.raw(b"\x1b[B\r");
            if x > 0 {
                self.pen.csi(x, b'C');
            }
        }
        x
    }
}

fn tabs(pen: &mut Pen<'_>, buffer: &Buffer) {
    let plain = Tabs::default();
    for x in 0..buffer.cols {
        let stop = buffer.tabs.get(x);
        let before = plain.get(x);
        if stop != before {
            pen.csi(x + 1, b'G');
            pen.raw(if stop { b"\x1bH" } else { b"\x1b[g" });
        }
    }
}

/// Sets cursor, style and character sets to those that `ESC 7` saved.
fn saved(pen: &mut Pen<'_>, buffer: &Buffer) {
    let saved = buffer.saved;
    let y = saved.line.saturating_sub(buffer.history_len()).min(buffer.rows - 1);
    place(pen, buffer, saved.x, y, 0);
    pen.style(saved.style);
    charsets(pen, saved.charsets);
}

/// Moves the cursor. It gets behind the last column only by writing there: on the alternate screen,
/// which is cleared when it is left, or, while that is shown, by writing the same character again.
fn place(pen: &mut Pen<'_>, buffer: &Buffer, x: usize, y: usize, top: usize) {
    if x < buffer.cols {
        return pen.move_cursor(x, y - top);
    }
    let line = &buffer.lines[buffer.history_len() + y];
    if !buffer.has_history() {
        rewrite(pen, line, buffer.cols, y - top);
        let first = line.get(0);
        if is_erased(first) && (1..buffer.cols).all(|x| line.get(x) == first) {
            pen.style(first.style);
            pen.raw(b"\x1b[1K");
        }
        return pen.end_cluster();
    }
    pen.raw(b"\x1b[?47h");
    rewrite(pen, line, buffer.cols, y);
    pen.raw(b"\x1b[?47l");
}

/// Writes the character that ends at a column again; the cursor is behind it after that.
fn rewrite(pen: &mut Pen<'_>, line: &ScreenLine, end: usize, y: usize) {
    let x = begin(line, end);
    pen.move_cursor(x, y);
    pen.cell(line.get(x));
}

/// The column at which the character begins that ends at `end`.
fn begin(line: &ScreenLine, end: usize) -> usize {
    let wide = end > 1 && line.get(end - 1).width() == 0 && line.get(end - 2).width() == 2;
    end - 1 - usize::from(wide)
}

fn charsets(pen: &mut Pen<'_>, charsets: Charsets) {
    for (set, which) in charsets.sets.iter().zip(*b"()*+") {
        if *set != b'B' {
            pen.raw(&[0x1b, which, *set]);
        }
    }
    match charsets.active {
        1 => pen.raw(b"\x0e"),
        2 => pen.raw(b"\x1bn"),
        3 => pen.raw(b"\x1bo"),
        _ => {}
    }
}

/// Resets the character sets that differ from the default.
fn reset_charsets(pen: &mut Pen<'_>, were: Charsets) {
    for (set, which) in were.sets.iter().zip(*b"()*+") {
        if *set != b'B' {
            pen.raw(&[0x1b, which, b'B']);
        }
    }
    if were.active != 0 {
        pen.raw(b"\x0f");
    }
}

/// Pushes the keyboard modes of the screen that is shown.
fn keys(pen: &mut Pen<'_>, keys: &KeyModes) {
    for flags in &keys.stack {
        let _ = write!(pen.out, "\x1b[>{flags}u");
    }
}

/// Writes the modes that belong to no screen, and the cursor.
fn rest(pen: &mut Pen<'_>, shown: &Buffer) {
    let model = pen.model;
    let modes = &model.modes;
    keys(pen, &model.keys[0]);
    if modes.origin {
        pen.raw(b"\x1b[?6h");
    }
    let top = if modes.origin { shown.top } else { 0 };
    let line = &shown.lines[shown.history_len() + shown.y];
    let joins = model.in_cluster().then(|| begin(line, shown.x));
    let x = joins.unwrap_or(shown.x);
    let is_outside = modes.origin && !(shown.top..=shown.bottom).contains(&shown.y);
    if is_outside && shown.has_history() && x < shown.cols {
        // Origin mode keeps the cursor inside the region. The alternate screen has a region of its
        // own, and leaving it does not move the cursor.
        pen.raw(b"\x1b[?47h");
        pen.move_cursor(x, shown.y);
        pen.raw(b"\x1b[?47l");
    } else {
        place(pen, shown, x, shown.y, top);
    }
    charsets(pen, model.charsets);
    pen.style(model.style);
    let switches = [
        (modes.cursor_keys, "\x1b[?1h"),
        (modes.keypad, "\x1b="),
        (!modes.wrap, "\x1b[?7l"),
        (modes.reverse_wrap, "\x1b[?45h"),
        (modes.insert, "\x1b[4h"),
        (modes.newline, "\x1b[20h"),
        (modes.cursor_hidden, "\x1b[?25l"),
        (modes.focus_events, "\x1b[?1004h"),
        (modes.bracketed_paste, "\x1b[?2004h"),
        (modes.cursor_blink == Some(true), "\x1b[?12h"),
        (modes.cursor_blink == Some(false), "\x1b[?12l"),
    ];
    switches.iter().filter(|(on, _)| *on).for_each(|(_, text)| pen.raw(text.as_bytes()));
    for (mode, on) in modes.passed_on() {
        let _ = write!(pen.out, "\x1b[?{mode}{}", if on { 'h' } else { 'l' });
    }
    if let Mouse::Mode(mode) = modes.mouse {
        let _ = write!(pen.out, "\x1b[?{mode}h");
    }
    if modes.mouse_encoding > 0 {
        let _ = write!(pen.out, "\x1b[?{}h", modes.mouse_encoding);
    }
    if modes.cursor_shape > 0 {
        let _ = write!(pen.out, "\x1b[{} q", modes.cursor_shape);
    }
    if modes.other_keys > 0 {
        let _ = write!(pen.out, "\x1b[>4;{}m", modes.other_keys);
    }
    if let Some(x) = joins {
        // The live output may add a combining mark to this character, or repeat it.
        if modes.insert {
            pen.csi(shown.x - x, b'P');
        }
        pen.cell(line.get(x));
    }
}
