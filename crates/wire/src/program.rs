//! The program that a request starts.

use serde::{Deserialize, Serialize};

/// A program with arguments, or a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Invocation {
    /// Program and arguments; the program is looked up in the environment's `PATH`.
    Argv(Vec<String>),
    /// A command line for `bash -c`.
    Command(String),
}

impl Default for Invocation {
    fn default() -> Self {
        Self::Argv(Vec::new())
    }
}
