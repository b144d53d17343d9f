//! The user's terminal: in raw mode while this client is attached, and restored
//! afterwards, also after a panic.

use super::alternate_screen::AlternateScreen;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{Stdin, Stdout};

/// How long the end waits for a terminal that accepts no output.
const TAKES: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Resets the modes that a program may have left on: attributes, character sets, margins, keys, wrapping,
/// the cursor's shape, mouse, focus and paste reports. The cursor does not move.
const PLAIN: &str = "\x1b[0m\x1b(B\x1b)B\x0f\x1b7\x1b[r\x1b8\x1b[?1l\x1b>\x1b[?66l\x1b[4l\x1b[20l\x1b[?5l\
                     \x1b[?7h\x1b[?12l\x1b[?25h\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\
                     \x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?1004l\x1b[?2004l\x1b[?2026l\x1b[?2031l\
                     \x1b[>4;0m\x1b[=0;1u\x1b[0 q";
/// Returns to the main screen and its cursor position.
const MAIN: &str = "\x1b[?1049l";
/// The same on the main screen, where nothing must change: tmux moves the cursor to where the last program
/// has left the second screen, so the position is saved before and restored after.
const STAY_ON_MAIN: &str = "\x1b7\x1b[?1049l\x1b8";
/// Clears the screen, moves the cursor to the corner, and sets a tab stop every eight columns.
const CLEAR: &str = "\x1b[?6l\x1b[?5W\x1b[H\x1b[2J";
/// Saves and restores the title of the window.
const KEEP_TITLE: &str = "\x1b[22;0t";
const OLD_TITLE: &str = "\x1b[23;0t";
/// Restores the colours of the user's terminal.
const COLOURS: &str = "\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\";

/// A terminal in raw mode. Dropping it restores all modes, also in a panic.
pub(super) struct Tty {
    before: Termios,
    stdin: Stdin,
    stdout: Stdout,
    drawn: bool,
    alternate: AlternateScreen,
}

impl Tty {
    /// Switches the terminal to raw mode.
    ///
    /// # Errors
    /// When standard input is not a terminal.
    pub(super) fn raw() -> Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).context("cannot read the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).context("cannot set the terminal")?;
        Ok(Self {
            before,
            stdin,
            stdout: std::io::stdout(),
            drawn: false,
            alternate: AlternateScreen::default(),
        })
    }

    /// Written before the first byte of a terminal: scrolls the current lines into the scrollback
    /// and clears the screen, because the terminal in the sandbox also began with an empty screen.
    pub(super) fn begin(&mut self) -> String {
        self.drawn = true;
        let rows = usize::from(size().1);
        format!("{KEEP_TITLE}{PLAIN}{}{CLEAR}", "\r\n".repeat(rows))
    }

    /// Notes which screen the output of the terminal selects.
    pub(super) fn watch(&mut self, output: &[u8]) {
        self.alternate.read(output);
    }

    /// Replaces a full reset, which would erase the user's own lines.
    pub(super) fn soft_reset() -> String {
        format!("{PLAIN}{MAIN}{PLAIN}{CLEAR}")
    }

    /// Writes a status line at the bottom of the screen. The screen must be redrawn later.
    pub(super) fn line(text: &str) -> String {
        let (cols, rows) = size();
        let text: String = text.chars().take(usize::from(cols)).collect();
        // CAN aborts an incomplete escape sequence.
        format!("\x18\x1b7\x1b[{rows};1H\x1b[0;7m{text}\x1b[0m\x1b[K\x1b8")
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        if self.drawn {
            // CAN aborts an incomplete escape sequence.
            let main = if self.alternate.is_active() { MAIN } else { STAY_ON_MAIN };
            let last = format!("\x18{PLAIN}{main}{PLAIN}{COLOURS}{OLD_TITLE}");
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
