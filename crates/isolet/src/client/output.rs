//! Output of this program. A closed pipe is not an error that is reported, and nothing panics.

pub(in crate::client) mod size;

use anyhow::Result;
use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write};

/// Exit code after the reader of the output has gone: 128 and SIGPIPE.
pub(crate) const EXIT_OUTPUT_CLOSED: u8 = 141;

/// The reader of the output has gone; the program ends without a message.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output")
    }
}

impl std::error::Error for OutputClosed {}

/// Writes bytes to standard output (or error), at once.
///
/// # Errors
/// [`OutputClosed`] when its reader has gone.
pub(crate) fn write(out: bool, bytes: &[u8]) -> Result<()> {
    let done = if out {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush())
    } else {
        std::io::stderr().lock().write_all(bytes)
    };
    done.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => OutputClosed.into(),
        _ => anyhow::Error::new(error).context("cannot write the output"),
    })
}

/// Prints a message to standard error, and ignores failures.
pub(crate) fn print_message(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "isolet: {text}");
}

/// Replaces the characters of untrusted text that control a terminal, end the line, or change the
/// direction of what follows.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || is_bidi_control(c) { '\u{FFFD}' } else { c })
        .collect()
}

/// Whether a character changes the text direction or ends a line.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Whether output to this stream may have colours: it is a capable terminal, and `NO_COLOR` is not set.
pub(crate) fn supports_color(stream: &impl IsTerminal) -> bool {
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
            sanitize("\x1b[31m\u{9b}m\n\u{202e}gnp.exe\u{2066}"),
            "\u{FFFD}[31m\u{FFFD}m\u{FFFD}\u{FFFD}gnp.exe\u{FFFD}"
        );
        assert_eq!(sanitize("~/שלום/é漢🦀"), "~/שלום/é漢🦀");
    }
}
