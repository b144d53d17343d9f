//! Draws a table again and again at the same place of a terminal.

use crate::client::output::write;
use anyhow::Result;
use rustix::termios::tcgetwinsize;
use std::fmt::Write;
use std::io::IsTerminal;

/// Standard output, and how many lines of it show the last table.
pub(super) struct Screen {
    /// Whether the table replaces the last one. Otherwise each follows the one before.
    replaces: bool,
    lines: usize,
}

impl Screen {
    /// Replaces tables only on a terminal that can move its cursor.
    pub(super) fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { replaces: std::io::stdout().is_terminal() && !dumb, lines: 0 }
    }

    /// Draws a table, at most as high and as wide as the window.
    pub(super) fn draw(&mut self, table: &str) -> Result<()> {
        if !self.replaces {
            return write(true, table.as_bytes());
        }
        let size = tcgetwinsize(std::io::stdout()).ok();
        let rows = size.map_or(24, |size| usize::from(size.ws_row)).max(2) - 1;
        let mut drawn = String::new();
        if self.lines > 0 {
            let _ = write!(drawn, "\x1b[{}A\r", self.lines);
        }
        // Without wrapping, a line that is too long takes one row.
        drawn.push_str("\x1b[?7l");
        let all = table.lines().count();
        let shown = if all > rows { rows - 1 } else { all };
        for line in table.lines().take(shown) {
            let _ = writeln!(drawn, "{line}\x1b[K");
        }
        self.lines = shown;
        if all > shown {
            let _ = writeln!(drawn, "… {} more\x1b[K", all - shown);
            self.lines += 1;
        }
        drawn.push_str("\x1b[?7h\x1b[J");
        write(true, drawn.as_bytes())
    }
}
