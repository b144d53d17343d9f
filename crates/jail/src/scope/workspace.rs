//! The last stage of the grants, in the third child: a `/workspace` that shows the granted trees
//! and nothing else. What was not granted is not only covered but unmounted, so nothing can uncover
//! it.

use super::trees::GrantedTree;
use crate::kernel::mount::{attach, attach_at, attributes, new_filesystem};
use crate::kernel::rooted::{chown, open_beneath};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The tenant's root as the sandbox's user namespace numbers it.
pub(super) const TENANT_ROOT: u32 = 1;

/// Replaces the workspace by an empty read-only tree, with the granted trees attached to it; by the
/// whole workspace where that was granted.
pub(super) fn mount_grants(mut granted: Vec<GrantedTree>) -> Result<(), Errno> {
    let base = if granted.first().is_some_and(|first| first.path.is_empty()) {
        granted.remove(0).tree
    } else {
        mount_points(&granted)?
    };
    rustix::mount::unmount("/workspace", UnmountFlags::DETACH)?;
    attach(base.as_fd(), Path::new("/workspace"))?;
    for grant in &granted {
        let target = open_beneath(base.as_fd(), &grant.path, OFlags::empty())?;
        attach_at(grant.tree.as_fd(), target.as_fd())?;
    }
    Ok(())
}

/// A read-only tree of directories and empty files to attach the granted trees to. A grant within
/// another one needs none: it is attached to a path of that one.
fn mount_points(granted: &[GrantedTree]) -> Result<OwnedFd, Errno> {
    let root = TENANT_ROOT.to_string();
    let options =
        [("mode", "0755"), ("size", "64k"), ("uid", root.as_str()), ("gid", root.as_str())];
    let tree = new_filesystem("tmpfs", &options, MountAttrFlags::empty())?;
    let paths: BTreeSet<&str> = granted.iter().map(|grant| grant.path.as_str()).collect();
    let mut created = BTreeSet::new();
    for grant in granted.iter().filter(|grant| !is_nested(&grant.path, &paths)) {
        let path = grant.path.as_str();
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let part = &path[..end];
            if !created.insert(part) {
                continue;
            }
            if end == path.len() && !grant.is_directory {
                let mode = Mode::from_raw_mode(0o644);
                rustix::fs::mknodat(&tree, part, FileType::RegularFile, mode, 0)?;
            } else {
                rustix::fs::mkdirat(&tree, part, Mode::from_raw_mode(0o755))?;
            }
            let point = open_beneath(tree.as_fd(), part, OFlags::empty())?;
            chown(point.as_fd(), TENANT_ROOT, TENANT_ROOT)?;
        }
    }
    let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
    attributes::set_attributes(tree.as_fd(), flags, false)?;
    Ok(tree)
}

/// Whether a path lies below another one of `paths`.
fn is_nested(path: &str, paths: &BTreeSet<&str>) -> bool {
    let mut ancestors = path.match_indices('/').map(|(end, _)| &path[..end]);
    ancestors.any(|above| paths.contains(above))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_nested_where_one_above_it_is_there() {
        let paths = BTreeSet::from(["a", "b/c"]);
        assert!(is_nested("a/x", &paths) && is_nested("b/c/d/e", &paths));
        assert!(!is_nested("a", &paths) && !is_nested("ab/x", &paths) && !is_nested("b/d", &paths));
    }
}
