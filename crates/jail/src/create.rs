//! Creating a sandbox, in two halves: `parent` in the launcher, `child` in the new namespaces.

mod child;
mod directory;
mod file_ids;
mod layers;
mod new_root;
mod parent;

pub use parent::{create_files, create_sandbox};
