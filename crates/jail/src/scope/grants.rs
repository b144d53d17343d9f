//! The paths of the workspace that a session was granted: checked from outside, and copied out of
//! the workspace inside.

use crate::child::StepError;
use crate::kernel::mount::{attributes, clone_tree};
use crate::kernel::rooted::{chown, file_type, open_beneath};
use isolet_wire::launcher::{Grant, Scope};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The name of the step that checks a grant; its index follows.
const GRANT_STEP: &str = "grant ";

/// A copy of the mount from a granted path on.
pub(super) struct GrantedTree {
    pub(super) tree: OwnedFd,
    pub(super) is_directory: bool,
}

/// Checks every grant as the session will find it, and creates those for writing that do not exist,
/// as the tenant's root, whose id is `root_id`. From outside, so that nothing needs to be started
/// for this answer.
pub(super) fn check_grants(
    request: &Scope,
    workspace: BorrowedFd<'_>,
    root_id: u32,
) -> Result<(), StepError> {
    for (index, grant) in request.grants.iter().enumerate() {
        let found = match open_beneath(workspace, &grant.path, OFlags::empty()) {
            Err(Errno::NOENT) if grant.write => create_beneath(workspace, &grant.path, root_id),
            found => found,
        };
        match found.and_then(|found| grantable_type(found.as_fd())) {
            Err(errno) if !may_be_absent(request, grant, errno) => {
                return Err(grant_error(index, errno));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Creates a directory with its parents.
fn create_beneath(workspace: BorrowedFd<'_>, path: &str, owner_id: u32) -> Result<OwnedFd, Errno> {
    let mut parent = open_beneath(workspace, "", OFlags::DIRECTORY)?;
    for name in path.split('/') {
        let next = match open_beneath(parent.as_fd(), name, OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                let created = open_beneath(parent.as_fd(), name, OFlags::DIRECTORY)?;
                chown(created.as_fd(), owner_id, owner_id)?;
                created
            }
            opened => opened?,
        };
        parent = next;
    }
    Ok(parent)
}

/// Copies every granted tree out of the workspace; `None` for one that may be, and is, absent.
pub(super) fn copy_grants(request: &Scope) -> Result<Vec<Option<GrantedTree>>, StepError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let workspace = rustix::fs::open("/workspace", flags, Mode::empty())
        .map_err(|errno| StepError::new("workspace", errno))?;
    let mut trees = Vec::with_capacity(request.grants.len());
    for (index, grant) in request.grants.iter().enumerate() {
        let tree = match copy_grant(workspace.as_fd(), grant) {
            Err(errno) if may_be_absent(request, grant, errno) => None,
            copied => Some(copied.map_err(|errno| grant_error(index, errno))?),
        };
        trees.push(tree);
    }
    Ok(trees)
}

fn copy_grant(workspace: BorrowedFd<'_>, grant: &Grant) -> Result<GrantedTree, Errno> {
    let found = open_beneath(workspace, &grant.path, OFlags::empty())?;
    let file_type = grantable_type(found.as_fd())?;
    let tree = clone_tree(found.as_fd(), Path::new(""), true)?;
    let read_only = if grant.write { 0 } else { attributes::RDONLY };
    let flags = read_only | attributes::NOSUID | attributes::NODEV;
    attributes::set_attributes(tree.as_fd(), flags, true)?;
    Ok(GrantedTree { tree, is_directory: file_type == FileType::Directory })
}

/// The step by which the server learns which grant was refused.
fn grant_error(index: usize, errno: Errno) -> StepError {
    StepError::new(format!("{GRANT_STEP}{index}"), errno)
}

/// In the server: the index of the grant that a failed step refused.
pub(crate) fn refused_grant(step: &str) -> Option<usize> {
    step.strip_prefix(GRANT_STEP)?.parse().ok()
}

/// Whether a grant is left out when opening it failed with `errno`.
fn may_be_absent(request: &Scope, grant: &Grant, errno: Errno) -> bool {
    let absent = matches!(errno, Errno::NOENT | Errno::LOOP | Errno::NOTDIR);
    absent && !grant.write && !request.strict
}

/// Directories and regular files may be granted.
fn grantable_type(file: BorrowedFd<'_>) -> Result<FileType, Errno> {
    match file_type(file)? {
        granted @ (FileType::Directory | FileType::RegularFile) => Ok(granted),
        FileType::Symlink => Err(Errno::LOOP),
        _ => Err(Errno::OPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_reads_which_grant_was_refused() {
        assert_eq!(refused_grant(&grant_error(3, Errno::NOENT).step), Some(3));
        assert_eq!(refused_grant("group of the scope"), None);
    }
}
