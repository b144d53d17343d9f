//! What this program says on its own streams: a reader that has gone is no fault, and nothing panics.

use anyhow::Result;
use std::{
    fmt,
    io::{ErrorKind, IsTerminal, Write},
};

/// What a program ends with when nobody reads it any more: 128 and SIGPIPE.
pub(crate) const UNREAD: u8 = 141;

/// Nobody reads what is written; the end is to be quiet.
#[derive(Debug)]
pub(crate) struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output")
    }
}

impl std::error::Error for Unread {}

/// Writes bytes to standard output (or error), at once.
///
/// # Errors
/// [`Unread`] when its reader has gone.
pub(crate) fn write(out: bool, bytes: &[u8]) -> Result<()> {
    let done = if out {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush())
    } else {
        std::io::stderr().lock().write_all(bytes)
    };
    done.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Unread.into(),
        _ => anyhow::Error::new(error).context("cannot write the output"),
    })
}

/// A line of this program's own, to standard error. It may go unread.
pub(crate) fn say(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "isolet: {text}");
}

/// Text of a stranger, fit for a terminal: nothing in it steers the terminal, ends the line, or turns
/// the direction of what follows.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{FFFD}' } else { c }).collect()
}

/// Whether a character says in which direction others stand, or where a line ends.
fn turns(c: char) -> bool {
    matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Whether what goes to this stream may be coloured: a terminal that can, and a person who has not
/// said `NO_COLOR`.
pub(crate) fn coloured(stream: &impl IsTerminal) -> bool {
    let no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    stream.is_terminal() && !no && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_text_neither_steers_a_terminal_nor_turns_what_follows() {
        assert_eq!(
            plain("\x1b[31m\u{9b}m\n\u{202e}gnp.exe\u{2066}"),
            "\u{FFFD}[31m\u{FFFD}m\u{FFFD}\u{FFFD}gnp.exe\u{FFFD}"
        );
        assert_eq!(plain("~/שלום/é漢🦀"), "~/שלום/é漢🦀");
    }
}
