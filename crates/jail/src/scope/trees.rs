//! The second stage of the grants, in the first child: copies the mount below each opened grant.

use super::grants::OpenedGrant;
use crate::kernel::mount::{attributes, clone_tree};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A detached copy of the mount from a granted path on, read-only unless writing was granted.
pub(super) struct GrantedTree {
    /// The granted path, below the workspace.
    pub(super) path: String,
    pub(super) tree: OwnedFd,
    pub(super) is_directory: bool,
}

/// Copies the trees, in the order of the grants. The process must be in the mount namespace that
/// they were opened in.
pub(super) fn copy_trees(grants: Vec<OpenedGrant>) -> Result<Vec<GrantedTree>, Errno> {
    grants.into_iter().map(copy_tree).collect()
}

fn copy_tree(grant: OpenedGrant) -> Result<GrantedTree, Errno> {
    let tree = clone_tree(grant.file.as_fd(), Path::new(""), true)?;
    let read_only = if grant.write { 0 } else { attributes::RDONLY };
    let flags = read_only | attributes::NOSUID | attributes::NODEV;
    attributes::set_attributes(tree.as_fd(), flags, true)?;
    Ok(GrantedTree { path: grant.path, tree, is_directory: grant.is_directory })
}
