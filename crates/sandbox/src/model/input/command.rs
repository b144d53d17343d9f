//! Commands: a text for a shell, or a program with its arguments.

use crate::model::input::{BadInput, no_nul};
use isolet_wire::request::Invocation;

/// A command as a user would type it: at most [`CommandText::BYTES_MAX`] bytes without NUL. It may
/// be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandText(String);

impl CommandText {
    /// Maximum length, in bytes.
    pub const BYTES_MAX: usize = 1024 * 1024;

    /// Parses the text of a command from a client.
    ///
    /// # Errors
    /// [`BadInput`] of the field `command`.
    pub fn parse(text: String) -> Result<Self, BadInput> {
        if text.len() > Self::BYTES_MAX {
            let reason = "must be at most 1 MiB; write longer text to a file first";
            return Err(BadInput::new("command", reason));
        }
        no_nul("command", &text)?;
        Ok(Self(text))
    }

    /// The text for the wire.
    #[must_use]
    pub fn into_inner(self) -> String {
        self.0
    }
}

/// A program and its arguments: at least one word, at most [`Argv::BYTES_MAX`] bytes without NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argv(Vec<String>);

impl Argv {
    /// Maximum length of all words, each with its terminating NUL, in bytes.
    pub const BYTES_MAX: usize = CommandText::BYTES_MAX;

    /// Parses a program and its arguments from a client.
    ///
    /// # Errors
    /// [`BadInput`] of the field `argv`.
    pub fn parse(words: Vec<String>) -> Result<Self, BadInput> {
        if words.first().is_none_or(String::is_empty) {
            return Err(BadInput::new("argv", "must begin with the name of the program"));
        }
        let bytes: usize = words.iter().map(|word| word.len() + 1).sum();
        if bytes > Self::BYTES_MAX || words.iter().any(|word| word.contains('\0')) {
            return Err(BadInput::new("argv", "must be at most 1 MiB of words without NUL"));
        }
        Ok(Self(words))
    }
}

/// What a call runs without a session's shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A command line for `bash -c`.
    Command(CommandText),
    /// A program, looked up in the environment's `PATH`, and its arguments.
    Argv(Argv),
}

impl Default for Program {
    fn default() -> Self {
        Self::Command(CommandText::default())
    }
}

impl From<Program> for Invocation {
    fn from(program: Program) -> Self {
        match program {
            Program::Command(CommandText(text)) => Self::Command(text),
            Program::Argv(Argv(words)) => Self::Argv(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_at_most_a_mib_without_nul() {
        let reason = |text: &str| CommandText::parse(text.into()).unwrap_err().to_string();
        let longest = "x".repeat(CommandText::BYTES_MAX);
        assert_eq!(
            reason(&format!("{longest}x")),
            "command: must be at most 1 MiB; write longer text to a file first"
        );
        assert_eq!(reason("a\0b"), "command: must not contain a NUL character");
        assert_eq!(CommandText::parse(longest.clone()).unwrap().into_inner(), longest);
        assert_eq!(CommandText::parse(String::new()), Ok(CommandText::default()));
    }

    #[test]
    fn a_program_begins_with_its_name() {
        let reason = |words: &[&str]| {
            let words = words.iter().map(|&word| word.to_owned()).collect();
            Argv::parse(words).map_err(|error| error.to_string())
        };
        let nameless = Err("argv: must begin with the name of the program".to_owned());
        let unfit = Err("argv: must be at most 1 MiB of words without NUL".to_owned());
        assert_eq!(reason(&[]), nameless);
        assert_eq!(reason(&["", "a"]), nameless);
        assert_eq!(reason(&["a", "b\0"]), unfit);
        assert_eq!(reason(&[&"x".repeat(Argv::BYTES_MAX)]), unfit);
        assert!(reason(&[&"x".repeat(Argv::BYTES_MAX - 1)]).is_ok());
        assert!(reason(&["a", ""]).is_ok());
    }
}
