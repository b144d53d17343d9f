//! Reads Dockerfiles: a subset of their instructions, as steps. Anything else is an error with its line.
//!
//! The files that `COPY` and `ADD` name are packed on the machine that has them: [`Context`].

mod context;
mod ignore;
mod lines;
mod plan;
mod words;

pub use context::{Context, ContextError, PackedFiles};
pub use plan::{Plan, PlannedStep, Warning};

use std::collections::BTreeMap;

/// A Dockerfile that cannot be built here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct DockerfileError {
    /// The first line of the instruction, from 1.
    pub line: usize,
    /// What is wrong with which instruction, and what to do.
    pub reason: String,
}

impl DockerfileError {
    fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

/// Reads a Dockerfile. `args` are values for its `ARG` instructions.
///
/// # Errors
/// [`DockerfileError`].
pub fn read(text: &str, args: &BTreeMap<String, String>) -> Result<Plan, DockerfileError> {
    plan::plan(lines::instructions(text)?, args)
}
