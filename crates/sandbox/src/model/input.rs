//! Values from clients: parsed once at the boundary and trusted everywhere else.

mod command;
mod environment;
mod metadata;
mod path;
mod working_directory;

pub use command::{Argv, CommandText, Program};
pub(crate) use environment::check_merged_size;
pub use environment::{Environment, EnvironmentChange};
pub use metadata::Metadata;
pub use path::absolute_path;
pub use working_directory::WorkingDirectory;

/// A client sent an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct BadInput {
    /// Name of the field in the native API.
    pub field: &'static str,
    /// What is wrong, and which values are allowed.
    pub reason: String,
}

impl BadInput {
    fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }
}

fn no_nul(field: &'static str, text: &str) -> Result<(), BadInput> {
    if text.contains('\0') {
        return Err(BadInput::new(field, "must not contain a NUL character"));
    }
    Ok(())
}
