//! Changes the size of a screen: rows move between screen and history, and on the primary screen
//! wrapped text is reflowed. The result must equal that of xterm.js, because attached clients
//! reflow their own screens.

use crate::buffer::Buffer;
use crate::cell::Cell;
use crate::line::ScreenLine;
use std::collections::VecDeque;

impl Buffer {
    /// Changes the size to `cols` by `rows`.
    pub(crate) fn resize(&mut self, cols: usize, rows: usize) {
        let mut base = self.history_len();
        if rows > self.rows {
            self.grow(rows, &mut base);
        } else {
            self.shrink(rows, &mut base);
        }
        let over = base.saturating_sub(self.history_max(cols));
        self.lines.drain(..over);
        base -= over;
        self.saved.line = self.saved.line.saturating_sub(over);
        self.x = self.x.min(cols - 1);
        self.y = self.y.min(rows - 1);
        self.saved.x = self.saved.x.min(cols - 1);
        (self.top, self.bottom) = (0, rows - 1);
        if self.has_history() && cols != self.cols {
            self.reflow(cols, rows, &mut base);
        }
        if cols < self.cols {
            self.lines.iter_mut().for_each(|line| line.truncate_to(cols));
        }
        self.tabs.resize(self.cols, cols);
        (self.cols, self.rows) = (cols, rows);
        // The screen always has all of its rows.
        while self.lines.len() < rows {
            self.lines.push_back(ScreenLine::default());
        }
        let most = self.history_max(cols) + rows;
        let over = self.lines.len().saturating_sub(most);
        self.lines.drain(..over);
    }

    fn grow(&mut self, rows: usize, base: &mut usize) {
        let mut down = 0;
        for _ in self.rows..rows {
            if self.lines.len() >= rows + *base {
                continue;
            }
            if *base > 0 && self.lines.len() <= *base + self.y + down + 1 {
                *base -= 1;
                down += 1;
            } else {
                self.lines.push_back(ScreenLine::default());
            }
        }
        self.y = (self.y + down).min(rows - 1);
    }

    fn shrink(&mut self, rows: usize, base: &mut usize) {
        for _ in rows..self.rows {
            if self.lines.len() <= rows + *base {
                continue;
            }
            if self.lines.len() > *base + self.y + 1 {
                self.lines.pop_back();
            } else {
                *base += 1;
            }
        }
    }

    /// Reflows wrapped lines, except those that the cursor is in: their program redraws them.
    fn reflow(&mut self, cols: usize, rows: usize, base: &mut usize) {
        if cols > self.cols { self.widen(cols, rows, base) } else { self.narrow(cols, rows, base) }
    }

    /// Joins wrapped lines for a greater width.
    fn widen(&mut self, cols: usize, rows: usize, base: &mut usize) {
        let cursor = *base + self.y;
        let before = self.lines.len();
        let mut start = 0;
        for group in logical_lines(std::mem::take(&mut self.lines)) {
            let count = group.len();
            let here = (start..start + count).contains(&cursor);
            self.lines.extend(if here || count == 1 {
                group
            } else {
                wider(group, self.cols, cols)
            });
            start += count;
        }
        let gone = before - self.lines.len();
        for _ in 0..gone {
            if *base > 0 {
                *base -= 1;
                continue;
            }
            self.y = self.y.saturating_sub(1);
            if self.lines.len() < rows {
                self.lines.push_back(ScreenLine::default());
            }
        }
        self.saved.line = self.saved.line.saturating_sub(gone);
    }

    /// Splits lines for a smaller width, from the last one up. Each added line moves the cursor, so
    /// its line is looked up each time.
    fn narrow(&mut self, cols: usize, rows: usize, base: &mut usize) {
        let most = self.history_max(cols) + rows;
        let mut room = ReflowLines { rows, most, length: self.lines.len(), fresh: 0 };
        // Lines to insert, and the index that they are inserted at; the highest index first.
        let mut fresh: Vec<(usize, Vec<ScreenLine>)> = Vec::new();
        let mut end = self.lines.len();
        while end > 0 {
            let last = end - 1;
            let line = &self.lines[last];
            if !line.wrapped && line.text_len() <= cols {
                end = last;
                continue;
            }
            let first = (0..=last).rev().find(|y| !self.lines[*y].wrapped).unwrap_or(0);
            let behind = end;
            end = first;
            if (first..behind).contains(&(*base + self.y)) {
                continue;
            }
            let group: Vec<ScreenLine> =
                (first..behind).map(|y| std::mem::take(&mut self.lines[y])).collect();
            let had = group.len();
            let mut laid = narrower(group, self.cols, cols);
            let more = laid.split_off(had.min(laid.len()));
            let added = more.len();
            laid.into_iter().enumerate().for_each(|(index, line)| self.lines[first + index] = line);
            if added > 0 {
                room.fresh += added;
                fresh.push((behind, more));
            }
            self.make_room(added, &mut room, base);
            self.saved.line = (self.saved.line + added).min(*base + rows - 1);
        }
        // Lines that were replaced are reflowed too, as in xterm.js.
        self.lines.truncate(room.length);
        let mut lines = VecDeque::with_capacity(room.length + room.fresh);
        let mut fresh = fresh.into_iter().rev().peekable();
        for (index, line) in std::mem::take(&mut self.lines).into_iter().enumerate() {
            while let Some((_, more)) = fresh.next_if(|(behind, _)| *behind <= index) {
                lines.extend(more);
            }
            lines.push_back(line);
        }
        lines.extend(fresh.flat_map(|(_, more)| more));
        lines.drain(..lines.len().saturating_sub(most));
        self.lines = lines;
    }

    /// Makes room for `added` lines. While there is no history, they replace lines below the
    /// cursor.
    fn make_room(&mut self, added: usize, room: &mut ReflowLines, base: &mut usize) {
        let before = if *base == 0 && self.y + 1 != room.length { self.y } else { room.length };
        let trimmed = (before + added).saturating_sub(room.most).min(added);
        for _ in trimmed..added {
            if *base > 0 {
                *base += usize::from(*base + room.rows < room.most.min(room.length + room.fresh));
            } else if self.y + 1 < room.rows {
                self.y += 1;
                room.length = room.length.saturating_sub(1);
            } else {
                *base += 1;
            }
        }
    }
}

/// Line counts during a reflow.
struct ReflowLines {
    /// Rows of the screen.
    rows: usize,
    /// The most lines of screen and history.
    most: usize,
    /// Lines from before the reflow that stay, counted from the first.
    length: usize,
    /// Lines that were inserted.
    fresh: usize,
}

/// Groups of lines, each of which continues the one before it.
fn logical_lines(lines: VecDeque<ScreenLine>) -> Vec<Vec<ScreenLine>> {
    let mut groups: Vec<Vec<ScreenLine>> = Vec::new();
    for line in lines {
        match groups.last_mut() {
            Some(group) if line.wrapped => group.push(line),
            _ => groups.push(vec![line]),
        }
    }
    groups
}

/// Reflows a group of several lines to a greater width.
fn wider(group: Vec<ScreenLine>, old: usize, cols: usize) -> Vec<ScreenLine> {
    let mut out = reflowed(&group, old, cols);
    while out.len() > 1 && out.last().is_some_and(|line| line.text_len() == 0) {
        out.pop();
    }
    out
}

/// Reflows a group to a smaller width. Returns at least as many lines as before.
fn narrower(group: Vec<ScreenLine>, old: usize, cols: usize) -> Vec<ScreenLine> {
    let mut out = reflowed(&group, old, cols);
    if out.len() == 1 && out[0].cells().is_empty() {
        return group;
    }
    let had = group.len();
    let first = group[0].wrapped;
    if out.len() <= had {
        // Cells with a background behind the text stay, except one.
        let end = out.last().map_or(0, ScreenLine::text_len);
        let mut last = group.into_iter().nth(out.len() - 1).unwrap_or_default();
        if let Some(line) = out.last_mut() {
            last.copy(line, 0, 0, end);
            if end < cols {
                last.set(end, Cell::default());
            }
            std::mem::swap(line, &mut last);
        }
        out.resize_with(had, ScreenLine::default);
    }
    for (index, line) in out.iter_mut().enumerate() {
        line.wrapped = index > 0 || first;
    }
    out
}

/// Lays out the text of a group at another width.
fn reflowed(group: &[ScreenLine], old: usize, cols: usize) -> Vec<ScreenLine> {
    let mut out = vec![ScreenLine::default()];
    out[0].wrapped = group[0].wrapped;
    let mut x = 0;
    for (index, line) in group.iter().enumerate() {
        let length = wrapped_len(group, index, old);
        let mut at = 0;
        while at < length {
            let width = line.get(at).width().max(1).min(length - at);
            if x + width > cols {
                out.push(ScreenLine::default());
                x = 0;
            }
            let last = out.len() - 1;
            out[last].wrapped |= last > 0;
            out[last].copy(line, at, x, width);
            x += width;
            at += width;
        }
    }
    out
}

/// The columns of a line that belong to its text: all of them where the next line continues it,
/// except a last column that a wide character did not fit into.
fn wrapped_len(group: &[ScreenLine], index: usize, cols: usize) -> usize {
    let Some(next) = group.get(index + 1) else { return group[index].text_len() };
    let last = group[index].get(cols - 1);
    let early = !last.has_content() && last.width() == 1 && next.get(0).width() == 2;
    cols - usize::from(early)
}
