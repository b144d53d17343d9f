//! Creating a sandbox, in two halves: `parent` in the launcher, `child` in the new namespaces.

mod child;
mod directory;
mod layers;
mod new_root;
mod parent;

pub(crate) use layers::mount_ids;
pub use parent::create_sandbox;
