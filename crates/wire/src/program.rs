//! Which program to start.

use serde::{Deserialize, Serialize};

/// A program by its words, or a text for `bash -c`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Program and arguments; the program is looked up in the environment's `PATH`.
    Argv(Vec<String>),
    /// A command line for `bash -c`.
    Command(String),
}

impl Default for What {
    fn default() -> Self {
        Self::Argv(Vec::new())
    }
}
