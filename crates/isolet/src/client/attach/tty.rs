//! The terminal that this program was started at: raw while somebody is attached, and as it was
//! on every way out.

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};
use std::io::{Stdin, Stdout};

/// How long a terminal that takes nothing is waited for at the end.
const TAKES: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// What a program may have left switched: attributes, character sets, margins, keys, wrapping,
/// the cursor's look, mouse, focus and paste reports. The cursor stays where it is.
const PLAIN: &str = "\x1b[0m\x1b(B\x1b)B\x0f\x1b7\x1b[r\x1b8\x1b[?1l\x1b>\x1b[?66l\x1b[4l\x1b[20l\x1b[?5l\
                     \x1b[?7h\x1b[?12l\x1b[?25h\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\
                     \x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?1004l\x1b[?2004l\x1b[?2026l\x1b[?2031l\
                     \x1b[>4;0m\x1b[=0;1u\x1b[0 q";
/// Back to the main screen, to where the cursor was there. On the main screen already: nothing,
/// because the place is the one kept a moment ago.
const MAIN: &str = "\x1b7\x1b[?1049l";
/// An empty screen, counted from its corner, with a tab stop every eight columns.
const CLEAR: &str = "\x1b[?6l\x1b[?5W\x1b[H\x1b[2J";
/// The window's title, put aside and taken back.
const KEEP_TITLE: &str = "\x1b[22;0t";
const OLD_TITLE: &str = "\x1b[23;0t";
/// The colours of the user's own terminal.
const COLOURS: &str = "\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\";

/// A terminal in raw mode. Dropping it, in a panic too, puts everything back.
pub(super) struct Tty {
    before: Termios,
    stdin: Stdin,
    stdout: Stdout,
    drawn: bool,
}

impl Tty {
    /// Makes it raw.
    ///
    /// # Errors
    /// When standard input is no terminal.
    pub(super) fn raw() -> Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).context("cannot read the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).context("cannot set the terminal")?;
        Ok(Self { before, stdin, stdout: std::io::stdout(), drawn: false })
    }

    /// What goes before the first byte of a terminal: what stood on the screen moves up into what
    /// can be scrolled back to, and the screen is empty, as the one inside was at its beginning.
    pub(super) fn begin(&mut self) -> String {
        self.drawn = true;
        let rows = usize::from(size().1);
        format!("{KEEP_TITLE}{PLAIN}{}{CLEAR}", "\r\n".repeat(rows))
    }

    /// What stands in place of a full reset, which would take the user's own lines with it.
    pub(super) fn anew() -> String {
        format!("{PLAIN}{MAIN}{PLAIN}{CLEAR}")
    }

    /// A line at the bottom of the screen, which must be drawn anew after it.
    pub(super) fn line(text: &str) -> String {
        let (cols, rows) = size();
        let text: String = text.chars().take(usize::from(cols)).collect();
        // CAN ends a sequence that was cut in the middle.
        format!("\x18\x1b7\x1b[{rows};1H\x1b[0;7m{text}\x1b[0m\x1b[K\x1b8")
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        if self.drawn {
            // Sequences cut in the middle end with CAN.
            let last = format!("\x18{PLAIN}{MAIN}{PLAIN}{COLOURS}{OLD_TITLE}");
            let mut ready = [PollFd::new(&self.stdout, PollFlags::OUT)];
            if poll(&mut ready, Some(&TAKES)).is_ok_and(|count| count > 0) {
                let _ = rustix::io::write(&self.stdout, last.as_bytes());
            }
        }
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}

/// Columns and rows of the window.
pub(super) fn size() -> (u16, u16) {
    let size = tcgetwinsize(std::io::stdout()).ok();
    size.map(|size| (size.ws_col, size.ws_row))
        .filter(|(cols, rows)| *cols > 0 && *rows > 0)
        .unwrap_or((80, 24))
}
