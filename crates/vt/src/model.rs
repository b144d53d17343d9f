//! The state of a terminal: two screens, modes, titles, colours. Text, control characters and
//! sequences have the same effect as in xterm.js.

use crate::buffer::{Buffer, Charsets, SavedCursor};
use crate::cell::{Cell, ExtendedStyle, InternTable, Style};
use crate::line::ScreenLine;
use crate::modes::{KeyModes, Modes};
use crate::width;
use isolet_wire::terminal::Size;
use std::collections::{BTreeMap, HashSet};

/// The most titles that a program may push.
const TITLES_MAX: usize = 16;
/// The longest title, in bytes.
const TITLE_BYTES_MAX: usize = 256;
/// The most combining marks on one character; more are ignored.
const MARKS_MAX: usize = 4;

/// The state of a terminal; see the module.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) primary: Buffer,
    /// The alternate screen, while it is shown.
    pub(crate) alternate: Option<Box<Buffer>>,
    pub(crate) style: Style,
    pub(crate) charsets: Charsets,
    pub(crate) modes: Modes,
    /// Keyboard modes of the screen that is shown, and of the one that is not.
    pub(crate) keys: [KeyModes; 2],
    pub(crate) title: String,
    pub(crate) titles: Vec<String>,
    /// Colours that were set, by number; 256 to 258 are text, background and cursor.
    pub(crate) colours: BTreeMap<u16, [u8; 3]>,
    pub(crate) extended_styles: InternTable<ExtendedStyle>,
    pub(crate) clusters: InternTable<String>,
    /// Whether the last output was a character, which combining marks may join and `REP` may
    /// repeat.
    cluster_open: bool,
}

impl Model {
    pub(crate) fn new(size: Size) -> Self {
        let cols = usize::from(size.cols).max(2);
        let rows = usize::from(size.rows).max(1);
        Self {
            primary: Buffer::new(cols, rows, true, Style::default()),
            alternate: None,
            style: Style::default(),
            charsets: Charsets::default(),
            modes: Modes::default(),
            keys: Default::default(),
            title: String::new(),
            titles: Vec::new(),
            colours: BTreeMap::new(),
            extended_styles: InternTable::new(|extended: &ExtendedStyle| {
                extended.link.as_ref().map_or(16, |link| 64 + link.0.len() + link.1.len())
            }),
            clusters: InternTable::new(|text: &String| 32 + text.len()),
            cluster_open: false,
        }
    }

    /// The screen that is shown.
    pub(crate) fn shown(&mut self) -> &mut Buffer {
        self.alternate.as_deref_mut().unwrap_or(&mut self.primary)
    }

    /// The style of erased cells.
    pub(crate) const fn erased(&self) -> Style {
        self.style.erased()
    }

    /// Writes text and executes control characters; `bytes` contain no escape sequence.
    pub(crate) fn text(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some(first) = rest.first() {
            let plain =
                rest.iter().position(|byte| !(0x20..0x7f).contains(byte)).unwrap_or(rest.len());
            let used = match *first {
                0x20..0x7f => {
                    self.put_ascii(&rest[..plain]);
                    plain
                }
                0x80.. => {
                    let end = rest.iter().position(|byte| *byte < 0x80).unwrap_or(rest.len());
                    self.put_utf8(&rest[..end]);
                    end
                }
                0x7f => 1,
                control => {
                    self.control(control);
                    1
                }
            };
            rest = &rest[used..];
        }
    }

    /// Writes UTF-8; invalid bytes are skipped, as in xterm.js.
    fn put_utf8(&mut self, bytes: &[u8]) {
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\u{84}' => self.index(),
                    '\u{85}' => self.next_line(),
                    '\u{88}' => self.set_tab_stop(),
                    '\u{9c}' | '\u{feff}' => continue,
                    '\u{80}'..='\u{9f}' => {}
                    _ => {
                        self.put(c);
                        continue;
                    }
                }
                self.cluster_open = false;
            }
        }
    }

    /// Writes ASCII without control characters, as much as fits on the line at a time: the common
    /// case.
    fn put_ascii(&mut self, text: &[u8]) {
        let draws = matches!(self.charsets.sets[usize::from(self.charsets.active)], b'0' | b'A');
        if draws || self.modes.insert || !self.modes.wrap {
            text.iter().for_each(|byte| self.put(*byte as char));
            return;
        }
        let style = self.style;
        let erased = self.style.erased();
        let buffer = self.alternate.as_deref_mut().unwrap_or(&mut self.primary);
        let mut rest = text;
        while !rest.is_empty() {
            if buffer.x >= buffer.cols {
                wrap(buffer, erased);
            }
            let x = buffer.x;
            let cols = buffer.cols;
            let now = rest.len().min(cols - x);
            let line = buffer.cursor_line();
            if x > 0 && line.get(x - 1).width() == 2 {
                line.set(x - 1, Cell::blank(style));
            }
            line.write(x, &rest[..now], style);
            clear_orphaned_half(line, x + now, cols, style);
            buffer.x += now;
            rest = &rest[now..];
        }
        self.cluster_open = true;
    }

    /// Writes one character, translated by the active character set.
    fn put(&mut self, c: char) {
        let c = match self.charsets.sets[usize::from(self.charsets.active)] {
            b'0' => dec_special_graphics(c),
            b'A' if c == '#' => '£',
            _ => c,
        };
        let width = width::of(c);
        if width == 0 && self.cluster_open && self.shown().x > 0 {
            return self.add_combining_mark(c);
        }
        let style = self.style;
        let modes = self.modes.clone();
        let buffer = self.shown();
        if buffer.x + width > buffer.cols {
            if modes.wrap {
                let from = buffer.x;
                let cols = buffer.cols;
                let line = buffer.cursor_line();
                (from..cols).for_each(|x| line.set(x, Cell::blank(style)));
                wrap(buffer, style.erased());
            } else {
                buffer.x = buffer.cols - 1;
                if width == 2 {
                    self.cluster_open = false;
                    return;
                }
            }
        }
        let x = buffer.x;
        let cols = buffer.cols;
        let line = buffer.cursor_line();
        if x > 0 && line.get(x - 1).width() == 2 {
            line.set(x - 1, Cell::blank(style));
        }
        if modes.insert && x < cols {
            line.insert(x, width, style, cols);
        }
        if x < cols {
            line.set(x, Cell::of(c, width, style));
            if width == 2 {
                line.set(x + 1, Cell::wide_tail(style));
            }
        }
        clear_orphaned_half(line, x + width.max(1), cols, style);
        buffer.x = (x + width.max(1)).min(cols);
        self.cluster_open = width > 0;
    }

    /// Adds a combining mark to the character before it.
    fn add_combining_mark(&mut self, mark: char) {
        if self.clusters.is_due() {
            self.sweep();
        }
        let buffer = self.alternate.as_deref_mut().unwrap_or(&mut self.primary);
        let x = buffer.x - 1;
        let x = if x > 0 && buffer.cursor_line().get(x).width() == 0 { x - 1 } else { x };
        let cell = buffer.cursor_line().get(x);
        let old = cell.cluster().and_then(|number| self.clusters.get(number));
        let text = match (old, cell.char()) {
            (Some(text), _) if text.chars().count() > MARKS_MAX => return,
            (Some(text), _) => format!("{text}{mark}"),
            (None, Some(c)) => format!("{c}{mark}"),
            (None, None) => return buffer.cursor_line().set(x, Cell::of(mark, 1, cell.style)),
        };
        if let Some(number) = self.clusters.number(text) {
            buffer.cursor_line().set(x, cell.with_cluster(number));
        }
    }

    /// Repeats the character that was just written.
    pub(crate) fn repeat(&mut self, count: usize) {
        if !self.cluster_open {
            return;
        }
        let buffer = self.shown();
        let count = count.min(buffer.cols * buffer.rows);
        let x = buffer.x.saturating_sub(1);
        let x = if x > 0 && buffer.cursor_line().get(x).width() == 0 { x - 1 } else { x };
        let cell = buffer.cursor_line().get(x);
        let text = match (cell.char(), cell.cluster()) {
            (Some(c), _) => c.to_string(),
            (None, Some(number)) => {
                self.clusters.get(number).map(|text| text.to_string()).unwrap_or_default()
            }
            _ => return,
        };
        for _ in 0..count {
            text.chars().for_each(|c| self.put(c));
        }
    }

    /// Ends the cluster: combining marks that follow do not join the last character.
    pub(crate) const fn end_cluster(&mut self) {
        self.cluster_open = false;
    }

    /// Whether combining marks that follow join the character before the cursor.
    pub(crate) const fn in_cluster(&self) -> bool {
        self.cluster_open
    }

    /// Executes a control character.
    pub(crate) fn control(&mut self, control: u8) {
        match control {
            0x08 => self.backspace(),
            0x09 => {
                let buffer = self.shown();
                if buffer.x < buffer.cols {
                    buffer.x = buffer.next_tab_stop(buffer.x);
                }
            }
            0x0a..=0x0c => self.line_feed(),
            0x0d => self.shown().x = 0,
            0x0e => self.charsets.active = 1,
            0x0f => self.charsets.active = 0,
            _ => {}
        }
        self.cluster_open = false;
    }

    fn line_feed(&mut self) {
        let erased = self.erased();
        let returns = self.modes.newline;
        let buffer = self.shown();
        if returns {
            buffer.x = 0;
        }
        if buffer.y == buffer.bottom {
            buffer.scroll(erased, false);
        } else if buffer.y + 1 < buffer.rows {
            buffer.y += 1;
            buffer.cursor_line().wrapped = false;
        }
        buffer.x = buffer.x.min(buffer.cols - 1);
    }

    fn backspace(&mut self) {
        let reverse = self.modes.reverse_wrap;
        self.clamp_cursor(usize::from(reverse));
        let buffer = self.shown();
        if buffer.x > 0 {
            buffer.x -= 1;
        } else if reverse
            && buffer.y > buffer.top
            && buffer.y <= buffer.bottom
            && buffer.cursor_line().wrapped
        {
            buffer.cursor_line().wrapped = false;
            buffer.y -= 1;
            buffer.x = buffer.cols - 1;
            let last = buffer.x;
            let cell = buffer.cursor_line().get(last);
            if cell.width() > 0 && !cell.has_content() {
                buffer.x -= 1;
            }
        }
        self.clamp_cursor(0);
    }

    /// Moves the cursor onto the screen, or up to `over` columns behind the last column.
    pub(crate) fn clamp_cursor(&mut self, over: usize) {
        let origin = self.modes.origin;
        let buffer = self.shown();
        buffer.x = buffer.x.min(buffer.cols - 1 + over);
        buffer.y = if origin {
            buffer.y.clamp(buffer.top, buffer.bottom)
        } else {
            buffer.y.min(buffer.rows - 1)
        };
    }

    /// Moves the cursor a row down, or scrolls at the region's last row.
    pub(crate) fn index(&mut self) {
        let erased = self.erased();
        self.clamp_cursor(0);
        let buffer = self.shown();
        if buffer.y == buffer.bottom {
            buffer.scroll(erased, false);
        } else {
            buffer.y = (buffer.y + 1).min(buffer.rows - 1);
        }
        self.clamp_cursor(0);
    }

    /// The beginning of the next row.
    pub(crate) fn next_line(&mut self) {
        self.shown().x = 0;
        self.index();
    }

    /// Sets a tab stop at the cursor.
    pub(crate) fn set_tab_stop(&mut self) {
        let buffer = self.shown();
        // The cursor may be behind the last column, where no stop can be.
        let x = buffer.x.min(buffer.cols - 1);
        buffer.tabs.set(x, true);
    }

    /// Saves the cursor, for [`Model::restore_cursor`].
    pub(crate) fn save_cursor(&mut self) {
        let style = self.style;
        let charsets = self.charsets;
        let buffer = self.shown();
        let line = buffer.history_len() + buffer.y;
        let x = buffer.x.min(buffer.cols - 1);
        buffer.saved = SavedCursor { x, line, style, charsets };
    }

    /// Restores the cursor. An open link continues.
    pub(crate) fn restore_cursor(&mut self) {
        let buffer = self.shown();
        let saved = buffer.saved;
        buffer.x = saved.x;
        buffer.y = saved.line.saturating_sub(buffer.history_len());
        self.charsets = saved.charsets;
        let link = self
            .extended_styles
            .get(self.style.extended())
            .and_then(|extended| extended.link.clone());
        let line =
            self.extended_styles.get(saved.style.extended()).map_or(0, |extended| extended.line);
        self.style = saved.style;
        self.set_extended_style(ExtendedStyle { line, link });
        self.clamp_cursor(0);
    }

    /// The extended part of the current style.
    pub(crate) fn extended_style(&self) -> ExtendedStyle {
        self.extended_styles
            .get(self.style.extended())
            .map(|extended| ExtendedStyle::clone(extended))
            .unwrap_or_default()
    }

    /// Sets the extended part of the current style.
    pub(crate) fn set_extended_style(&mut self, extended: ExtendedStyle) {
        if self.extended_styles.is_due() {
            self.sweep();
        }
        let number = if extended == ExtendedStyle::default() {
            None
        } else {
            self.extended_styles.number(extended)
        };
        self.style = self.style.with_extended(number.unwrap_or(0));
    }

    /// Removes extended styles and clusters that no cell refers to.
    fn sweep(&mut self) {
        let mut used_styles = HashSet::from([self.style.extended()]);
        let mut clusters = HashSet::new();
        for buffer in [Some(&self.primary), self.alternate.as_deref()].into_iter().flatten() {
            used_styles.insert(buffer.saved.style.extended());
            for cell in buffer.lines.iter().flat_map(ScreenLine::cells) {
                used_styles.insert(cell.style.extended());
                clusters.extend(cell.cluster());
            }
        }
        self.extended_styles.sweep(&used_styles);
        self.clusters.sweep(&clusters);
    }

    /// Shows the alternate screen, which is empty.
    pub(crate) fn enter_alternate_screen(&mut self) {
        if self.alternate.is_some() {
            return;
        }
        let from = &self.primary;
        let mut buffer = Buffer::new(from.cols, from.rows, false, self.style.erased());
        (buffer.x, buffer.y) = (from.x, from.y);
        self.alternate = Some(Box::new(buffer));
        self.keys.swap(0, 1);
    }

    /// Shows the primary screen again, with the cursor where it is.
    pub(crate) fn leave_alternate_screen(&mut self) {
        if let Some(buffer) = self.alternate.take() {
            (self.primary.x, self.primary.y) = (buffer.x, buffer.y);
            self.keys.swap(0, 1);
        }
    }

    /// Performs a full reset (RIS). The title stays.
    pub(crate) fn reset(&mut self) {
        let size = Size { cols: self.primary.cols as u16, rows: self.primary.rows as u16 };
        *self = Self { title: std::mem::take(&mut self.title), ..Self::new(size) };
    }

    /// Changes the size, at least to 2 columns by 1 row.
    pub(crate) fn resize(&mut self, size: Size) {
        let cols = usize::from(size.cols).max(2);
        let rows = usize::from(size.rows).max(1);
        let before = self.shown().x;
        self.primary.resize(cols, rows);
        if let Some(buffer) = self.alternate.as_deref_mut() {
            buffer.resize(cols, rows);
        }
        // The last character may be on another line now.
        let style = self.style;
        let buffer = self.shown();
        let cell = buffer.cursor_line().get(before.saturating_sub(1));
        let is_there =
            buffer.x == before && before > 0 && cell.has_content() && cell.style == style;
        self.cluster_open &= is_there;
    }

    /// A title without control characters, truncated to [`TITLE_BYTES_MAX`].
    pub(crate) fn set_title(&mut self, title: &str) {
        self.title.clear();
        for c in title.chars().filter(|c| !c.is_control()) {
            if self.title.len() + c.len_utf8() > TITLE_BYTES_MAX {
                break;
            }
            self.title.push(c);
        }
    }

    /// Pushes the title onto the stack.
    pub(crate) fn push_title(&mut self) {
        if self.titles.len() >= TITLES_MAX {
            self.titles.remove(0);
        }
        self.titles.push(self.title.clone());
    }

    /// Pops a title from the stack.
    pub(crate) fn pop_title(&mut self) {
        if let Some(title) = self.titles.pop() {
            self.title = title;
        }
    }
}

/// Wraps the text into the next row.
fn wrap(buffer: &mut Buffer, erased: Style) {
    buffer.x = 0;
    if buffer.y == buffer.bottom {
        buffer.scroll(erased, true);
    } else {
        buffer.y = (buffer.y + 1).min(buffer.rows - 1);
        buffer.cursor_line().wrapped = true;
    }
}

/// Clears the second cell of a wide character whose first was overwritten.
fn clear_orphaned_half(line: &mut ScreenLine, x: usize, cols: usize, style: Style) {
    let cell = line.get(x);
    if x < cols && cell.width() == 0 && !cell.has_content() {
        line.set(x, Cell::blank(style));
    }
}

/// DEC Special Graphics: the character set with box-drawing characters.
const fn dec_special_graphics(c: char) -> char {
    match c {
        '`' => '◆',
        'a' => '▒',
        'b' => '␉',
        'c' => '␌',
        'd' => '␍',
        'e' => '␊',
        'f' => '°',
        'g' => '±',
        'h' => '␤',
        'i' => '␋',
        'j' => '┘',
        'k' => '┐',
        'l' => '┌',
        'm' => '└',
        'n' => '┼',
        'o' => '⎺',
        'p' => '⎻',
        'q' => '─',
        'r' => '⎼',
        's' => '⎽',
        't' => '├',
        'u' => '┤',
        'v' => '┴',
        'w' => '┬',
        'x' => '│',
        'y' => '≤',
        'z' => '≥',
        '{' => 'π',
        '|' => '≠',
        '}' => '£',
        '~' => '·',
        _ => c,
    }
}
