//! What a terminal shows and how it is set: two screens, modes, titles, colours. Does with text,
//! controls and sequences what xterm.js does, so that a client that comes back sees what one that
//! stayed sees.

use super::buffer::{Buffer, Charsets, Saved};
use super::cell::{Cell, Rare, Style, Table};
use super::line::Line;
use super::modes::{Keys, Modes};
use super::width;
use isolet_wire::terminal::Size;
use std::collections::{BTreeMap, HashSet};

/// Titles that a program may put aside.
const TITLES_MAX: usize = 16;
/// The longest title, in bytes.
const TITLE_BYTES_MAX: usize = 256;
/// Marks upon one character; more are not kept.
const MARKS_MAX: usize = 4;

/// The whole state.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) primary: Buffer,
    /// The screen of programs that take all of it, while one does.
    pub(super) alternate: Option<Box<Buffer>>,
    pub(super) style: Style,
    pub(super) charsets: Charsets,
    pub(super) modes: Modes,
    /// Keyboard modes of the screen that is shown, and of the one that is not.
    pub(super) keys: [Keys; 2],
    pub(super) title: String,
    pub(super) titles: Vec<String>,
    /// Colours that were set, by number; 256 and up are text, ground and cursor.
    pub(super) colours: BTreeMap<u16, [u8; 3]>,
    pub(super) rares: Table<Rare>,
    pub(super) clusters: Table<String>,
    /// The last thing was a character, that marks may join and that may be repeated.
    joins: bool,
}

impl Model {
    pub(super) fn new(size: Size) -> Self {
        let (cols, rows) = (usize::from(size.cols).max(2), usize::from(size.rows).max(1));
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
            rares: Table::new(|rare: &Rare| {
                rare.link.as_ref().map_or(16, |link| 64 + link.0.len() + link.1.len())
            }),
            clusters: Table::new(|text: &String| 32 + text.len()),
            joins: false,
        }
    }

    /// The screen that is shown.
    pub(super) fn shown(&mut self) -> &mut Buffer {
        self.alternate.as_deref_mut().unwrap_or(&mut self.primary)
    }

    /// What is erased looks like this.
    pub(super) const fn erased(&self) -> Style {
        self.style.erased()
    }

    /// Text and controls, without sequences.
    pub(super) fn text(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some(first) = rest.first() {
            let plain =
                rest.iter().position(|byte| !(0x20..0x7f).contains(byte)).unwrap_or(rest.len());
            let used = match *first {
                0x20..0x7f => {
                    self.plain(&rest[..plain]);
                    plain
                }
                0x80.. => {
                    let end = rest.iter().position(|byte| *byte < 0x80).unwrap_or(rest.len());
                    self.decode(&rest[..end]);
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

    /// Bytes of UTF-8; what is not valid is left out, as xterm.js does.
    fn decode(&mut self, bytes: &[u8]) {
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\u{84}' => self.index(),
                    '\u{85}' => self.next_line(),
                    '\u{88}' => self.tab_set(),
                    '\u{9c}' | '\u{feff}' => continue,
                    '\u{80}'..='\u{9f}' => {}
                    _ => {
                        self.put(c);
                        continue;
                    }
                }
                self.joins = false;
            }
        }
    }

    /// ASCII without controls: the common case, a line's rest at a time.
    fn plain(&mut self, text: &[u8]) {
        let draws = matches!(self.charsets.sets[usize::from(self.charsets.level)], b'0' | b'A');
        if draws || self.modes.insert || !self.modes.wrap {
            text.iter().for_each(|byte| self.put(*byte as char));
            return;
        }
        let (style, erased) = (self.style, self.style.erased());
        let buffer = self.alternate.as_deref_mut().unwrap_or(&mut self.primary);
        let mut rest = text;
        while !rest.is_empty() {
            if buffer.x >= buffer.cols {
                wrap(buffer, erased);
            }
            let (x, cols) = (buffer.x, buffer.cols);
            let now = rest.len().min(cols - x);
            let line = buffer.here();
            if x > 0 && line.get(x - 1).width() == 2 {
                line.set(x - 1, Cell::blank(style));
            }
            line.write(x, &rest[..now], style);
            mend(line, x + now, cols, style);
            buffer.x += now;
            rest = &rest[now..];
        }
        self.joins = true;
    }

    /// One character, of any kind.
    fn put(&mut self, c: char) {
        let c = match self.charsets.sets[usize::from(self.charsets.level)] {
            b'0' => drawn(c),
            b'A' if c == '#' => '£',
            _ => c,
        };
        let width = width::of(c);
        if width == 0 && self.joins && self.shown().x > 0 {
            return self.join(c);
        }
        let (style, modes) = (self.style, self.modes.clone());
        let buffer = self.shown();
        if buffer.x + width > buffer.cols {
            if modes.wrap {
                let (from, cols) = (buffer.x, buffer.cols);
                let line = buffer.here();
                (from..cols).for_each(|x| line.set(x, Cell::blank(style)));
                wrap(buffer, style.erased());
            } else {
                buffer.x = buffer.cols - 1;
                if width == 2 {
                    self.joins = false;
                    return;
                }
            }
        }
        let (x, cols) = (buffer.x, buffer.cols);
        let line = buffer.here();
        if x > 0 && line.get(x - 1).width() == 2 {
            line.set(x - 1, Cell::blank(style));
        }
        if modes.insert && x < cols {
            line.insert(x, width, style, cols);
        }
        if x < cols {
            line.set(x, Cell::of(c, width, style));
            if width == 2 {
                line.set(x + 1, Cell::second(style));
            }
        }
        mend(line, x + width.max(1), cols, style);
        buffer.x = (x + width.max(1)).min(cols);
        self.joins = width > 0;
    }

    /// A mark goes upon the character before it.
    fn join(&mut self, mark: char) {
        if self.clusters.is_due() {
            self.sweep();
        }
        let buffer = self.alternate.as_deref_mut().unwrap_or(&mut self.primary);
        let x = buffer.x - 1;
        let x = if x > 0 && buffer.here().get(x).width() == 0 { x - 1 } else { x };
        let cell = buffer.here().get(x);
        let old = cell.cluster().and_then(|number| self.clusters.get(number));
        let text = match (old, cell.char()) {
            (Some(text), _) if text.chars().count() > MARKS_MAX => return,
            (Some(text), _) => format!("{text}{mark}"),
            (None, Some(c)) => format!("{c}{mark}"),
            (None, None) => return buffer.here().set(x, Cell::of(mark, 1, cell.style)),
        };
        if let Some(number) = self.clusters.number(text) {
            buffer.here().set(x, cell.with_cluster(number));
        }
    }

    /// The character before the cursor again. Only right behind it.
    pub(super) fn repeat(&mut self, count: usize) {
        if !self.joins {
            return;
        }
        let buffer = self.shown();
        let count = count.min(buffer.cols * buffer.rows);
        let x = buffer.x.saturating_sub(1);
        let x = if x > 0 && buffer.here().get(x).width() == 0 { x - 1 } else { x };
        let cell = buffer.here().get(x);
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

    /// A sequence has come: marks do not join what stood before it.
    pub(super) const fn part(&mut self) {
        self.joins = false;
    }

    /// Marks that follow join the character before the cursor, and it can be repeated.
    pub(super) const fn joins(&self) -> bool {
        self.joins
    }

    /// A control character.
    pub(super) fn control(&mut self, control: u8) {
        match control {
            0x08 => self.backspace(),
            0x09 => {
                let buffer = self.shown();
                if buffer.x < buffer.cols {
                    buffer.x = buffer.stop_after(buffer.x);
                }
            }
            0x0a..=0x0c => self.line_feed(),
            0x0d => self.shown().x = 0,
            0x0e => self.charsets.level = 1,
            0x0f => self.charsets.level = 0,
            _ => {}
        }
        self.joins = false;
    }

    fn line_feed(&mut self) {
        let (erased, returns) = (self.erased(), self.modes.returns);
        let buffer = self.shown();
        if returns {
            buffer.x = 0;
        }
        if buffer.y == buffer.bottom {
            buffer.scroll(erased, false);
        } else if buffer.y + 1 < buffer.rows {
            buffer.y += 1;
            buffer.here().wrapped = false;
        }
        buffer.x = buffer.x.min(buffer.cols - 1);
    }

    fn backspace(&mut self) {
        let reverse = self.modes.reverse_wrap;
        self.restrict(usize::from(reverse));
        let buffer = self.shown();
        if buffer.x > 0 {
            buffer.x -= 1;
        } else if reverse
            && buffer.y > buffer.top
            && buffer.y <= buffer.bottom
            && buffer.here().wrapped
        {
            buffer.here().wrapped = false;
            buffer.y -= 1;
            buffer.x = buffer.cols - 1;
            let last = buffer.x;
            let cell = buffer.here().get(last);
            if cell.width() > 0 && !cell.written() {
                buffer.x -= 1;
            }
        }
        self.restrict(0);
    }

    /// Brings the cursor back on the screen: `over` columns behind the last one may stand.
    pub(super) fn restrict(&mut self, over: usize) {
        let origin = self.modes.origin;
        let buffer = self.shown();
        buffer.x = buffer.x.min(buffer.cols - 1 + over);
        buffer.y = if origin {
            buffer.y.clamp(buffer.top, buffer.bottom)
        } else {
            buffer.y.min(buffer.rows - 1)
        };
    }

    /// A row down; at the region's end the text goes up.
    pub(super) fn index(&mut self) {
        let erased = self.erased();
        self.restrict(0);
        let buffer = self.shown();
        if buffer.y == buffer.bottom {
            buffer.scroll(erased, false);
        } else {
            buffer.y = (buffer.y + 1).min(buffer.rows - 1);
        }
        self.restrict(0);
    }

    /// The beginning of the next row.
    pub(super) fn next_line(&mut self) {
        self.shown().x = 0;
        self.index();
    }

    /// Tabs stop here.
    pub(super) fn tab_set(&mut self) {
        let buffer = self.shown();
        // Not behind the last column, where the cursor may wait.
        let x = buffer.x.min(buffer.cols - 1);
        buffer.tabs.set(x, true);
    }

    /// Keeps the cursor, for [`Model::restore`].
    pub(super) fn save(&mut self) {
        let (style, charsets) = (self.style, self.charsets);
        let buffer = self.shown();
        let line = buffer.base() + buffer.y;
        let x = buffer.x.min(buffer.cols - 1);
        buffer.saved = Saved { x, line, style, charsets };
    }

    /// Brings the cursor back. A link goes on.
    pub(super) fn restore(&mut self) {
        let buffer = self.shown();
        let saved = buffer.saved;
        buffer.x = saved.x;
        buffer.y = saved.line.saturating_sub(buffer.base());
        self.charsets = saved.charsets;
        let link = self.rares.get(self.style.rare()).and_then(|rare| rare.link.clone());
        let line = self.rares.get(saved.style.rare()).map_or(0, |rare| rare.line);
        self.style = saved.style;
        self.set_rare(Rare { line, link });
        self.restrict(0);
    }

    /// What the style has beside its flags.
    pub(super) fn rare(&self) -> Rare {
        self.rares.get(self.style.rare()).map(|rare| Rare::clone(rare)).unwrap_or_default()
    }

    /// Gives the style something rare.
    pub(super) fn set_rare(&mut self, rare: Rare) {
        if self.rares.is_due() {
            self.sweep();
        }
        let number = if rare == Rare::default() { None } else { self.rares.number(rare) };
        self.style = self.style.with_rare(number.unwrap_or(0));
    }

    /// Forgets what no cell points at any more.
    fn sweep(&mut self) {
        let mut rares = HashSet::from([self.style.rare()]);
        let mut clusters = HashSet::new();
        for buffer in [Some(&self.primary), self.alternate.as_deref()].into_iter().flatten() {
            rares.insert(buffer.saved.style.rare());
            for cell in buffer.lines.iter().flat_map(Line::cells) {
                rares.insert(cell.style.rare());
                clusters.extend(cell.cluster());
            }
        }
        self.rares.sweep(&rares);
        self.clusters.sweep(&clusters);
    }

    /// Shows the other screen, which is empty.
    pub(super) fn enter(&mut self) {
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
    pub(super) fn leave(&mut self) {
        if let Some(buffer) = self.alternate.take() {
            (self.primary.x, self.primary.y) = (buffer.x, buffer.y);
            self.keys.swap(0, 1);
        }
    }

    /// A full reset. The title stays.
    pub(super) fn reset(&mut self) {
        let size = Size { cols: self.primary.cols as u16, rows: self.primary.rows as u16 };
        *self = Self { title: std::mem::take(&mut self.title), ..Self::new(size) };
    }

    /// Another size.
    pub(super) fn resize(&mut self, size: Size) {
        let (cols, rows) = (usize::from(size.cols).max(2), usize::from(size.rows).max(1));
        let before = self.shown().x;
        self.primary.resize(cols, rows);
        if let Some(buffer) = self.alternate.as_deref_mut() {
            buffer.resize(cols, rows);
        }
        // What the last character was may be elsewhere now.
        let style = self.style;
        let buffer = self.shown();
        let cell = buffer.here().get(before.saturating_sub(1));
        let is_there = buffer.x == before && before > 0 && cell.written() && cell.style == style;
        self.joins &= is_there;
    }

    /// A title, cut, without controls.
    pub(super) fn set_title(&mut self, title: &str) {
        self.title.clear();
        for c in title.chars().filter(|c| !c.is_control()) {
            if self.title.len() + c.len_utf8() > TITLE_BYTES_MAX {
                break;
            }
            self.title.push(c);
        }
    }

    /// Puts the title aside.
    pub(super) fn push_title(&mut self) {
        if self.titles.len() >= TITLES_MAX {
            self.titles.remove(0);
        }
        self.titles.push(self.title.clone());
    }

    /// Takes the last title that was put aside.
    pub(super) fn pop_title(&mut self) {
        if let Some(title) = self.titles.pop() {
            self.title = title;
        }
    }
}

/// The text runs over into the next row.
fn wrap(buffer: &mut Buffer, erased: Style) {
    buffer.x = 0;
    if buffer.y == buffer.bottom {
        buffer.scroll(erased, true);
    } else {
        buffer.y = (buffer.y + 1).min(buffer.rows - 1);
        buffer.here().wrapped = true;
    }
}

/// The second half of a wide character whose first was written over is nothing.
fn mend(line: &mut Line, x: usize, cols: usize, style: Style) {
    let cell = line.get(x);
    if x < cols && cell.width() == 0 && !cell.written() {
        line.set(x, Cell::blank(style));
    }
}

/// The character set that draws lines.
const fn drawn(c: char) -> char {
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
