//! Paths of the checkout and of what `make clients` has fetched, and a runner for programs.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The root of the checkout.
pub(crate) fn checkout() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("it lies in tests/clients").to_owned()
}

/// Something that `make clients` has fetched, below `target/clients`.
pub(crate) fn fetched(name: &str) -> PathBuf {
    let at = checkout().join("target/clients").join(name);
    let there = at.try_exists().expect("it can be looked up");
    assert!(there, "{} is not there: run `make clients`", at.display());
    at
}

/// Runs a program to its end with empty input.
pub(crate) fn run(command: &mut Command) -> ProgramOutput {
    let output = command.stdin(Stdio::null()).output();
    output.map_or_else(
        |error| panic!("{command:?}: {error}"),
        |output| ProgramOutput::new(command, output),
    )
}

/// A program's output and how it ended.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    /// The program and its arguments.
    pub(crate) who: String,
    /// The exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl ProgramOutput {
    /// Collects the output of a program that has ended.
    pub(crate) fn new(command: &Command, output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let who = format!("{:?} {:?}", command.get_program(), command.get_args());
        Self {
            who,
            code: output.status.code(),
            signal: output.status.signal(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Returns the output when the program ended with 0; panics otherwise.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        let signal = self.signal;
        assert_eq!(self.code, Some(0), "{}: {signal:?}: {}\n{}", self.who, self.out, self.err);
        self
    }
}
