//! Another size for a screen: rows come from and go to the history, and on the primary screen
//! text that ran over into the next line is laid out anew. Follows xterm.js line by line in what
//! comes out, since clients that stay do it themselves.

use super::buffer::Buffer;
use super::line::Line;

impl Buffer {
    /// Makes it `cols` by `rows`.
    pub(super) fn resize(&mut self, cols: usize, rows: usize) {
        let mut base = self.base();
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
        if self.keeps() && cols != self.cols {
            self.reflow(cols, rows, &mut base);
        }
        if cols < self.cols {
            self.lines.iter_mut().for_each(|line| line.cut(cols));
        }
        (self.cols, self.rows) = (cols, rows);
        // Whatever happened: the screen is whole.
        while self.lines.len() < rows {
            self.lines.push_back(Line::default());
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
                self.lines.push_back(Line::default());
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

    /// Lays out anew what ran over, but for the lines that the cursor is in: their program does.
    fn reflow(&mut self, cols: usize, rows: usize, base: &mut usize) {
        let cursor = *base + self.y;
        let old = self.cols;
        let lines = std::mem::take(&mut self.lines);
        let mut groups: Vec<Vec<Line>> = Vec::new();
        for line in lines {
            match groups.last_mut() {
                Some(group) if line.wrapped => group.push(line),
                _ => groups.push(vec![line]),
            }
        }
        let mut start = 0;
        let mut change = 0_isize;
        for group in groups {
            let count = group.len();
            let here = start..start + count;
            let fresh = if here.contains(&cursor) { group } else { laid(group, old, cols) };
            change += fresh.len() as isize - count as isize;
            self.lines.extend(fresh);
            start += count;
        }
        self.settle(rows, base, change);
    }

    /// The cursor stays with its text. While nothing has gone out at the top, new lines take the
    /// place of those below the cursor.
    fn settle(&mut self, rows: usize, base: &mut usize, change: isize) {
        for _ in 0..change {
            if *base == 0 && self.y + 1 < rows {
                self.y += 1;
                self.lines.pop_back();
            } else {
                *base += 1;
            }
        }
        for _ in change..0 {
            if *base == 0 {
                self.y = self.y.saturating_sub(1);
            } else {
                *base -= 1;
            }
        }
        let last = *base + rows - 1;
        self.saved.line = self.saved.line.saturating_add_signed(change).min(last);
    }
}

/// The lines of one text in another width.
fn laid(group: Vec<Line>, old: usize, cols: usize) -> Vec<Line> {
    if group.len() == 1 && group[0].length() <= cols {
        return group;
    }
    let lengths: Vec<usize> = (0..group.len()).map(|index| length(&group, index, old)).collect();
    let first = group[0].wrapped;
    let mut out = vec![Line::default()];
    let mut x = 0;
    for (line, length) in group.iter().zip(lengths) {
        let mut at = 0;
        while at < length {
            let width = line.get(at).width().max(1).min(length - at);
            if x + width > cols {
                out.push(Line::default());
                x = 0;
            }
            let last = out.len() - 1;
            out[last].copy(line, at, x, width);
            x += width;
            at += width;
        }
    }
    for (index, line) in out.iter_mut().enumerate() {
        line.wrapped = index > 0 || first;
    }
    out
}

/// How much of a line counts: all of it where it goes on, but for the place that a wide
/// character did not fit in.
fn length(group: &[Line], index: usize, cols: usize) -> usize {
    let Some(next) = group.get(index + 1) else { return group[index].length() };
    let last = group[index].get(cols - 1);
    let early = !last.written() && last.width() == 1 && next.get(0).width() == 2;
    cols - usize::from(early)
}
