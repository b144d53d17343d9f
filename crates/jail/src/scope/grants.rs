//! The first stage of the grants, in the launcher: opens every granted path below the workspace of
//! the running sandbox. No process has to start for a refusal.

use super::scope_error::ScopeError;
use crate::kernel::file_owner::as_owner;
use crate::kernel::rooted::{create_directories, file_type, open_beneath};
use isolet_wire::launcher::Scope;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A granted path, opened with `O_PATH`. From here on its descriptor stands for it: no later stage
/// looks up the path a second time, because others rename and replace files in the same
/// directories.
pub(super) struct OpenedGrant {
    /// The path below the workspace, as in the request.
    pub(super) path: String,
    pub(super) write: bool,
    pub(super) file: OwnedFd,
    pub(super) is_directory: bool,
}

/// Opens the grants of a request, in their order. Directories that are granted for writing and do
/// not exist are created, owned by the tenant's root, whose id is `root_id`. A path that is granted
/// for reading and cannot be found is left out, unless the request is strict.
///
/// # Errors
/// The first grant that is refused: `ENOENT`, `ELOOP` for a link on its path, `ENOTDIR`,
/// `EOPNOTSUPP` for a file that is neither a directory nor a regular file.
pub(super) fn open_grants(
    request: &Scope,
    workspace: BorrowedFd<'_>,
    root_id: u32,
) -> Result<Vec<OpenedGrant>, ScopeError> {
    let mut opened = Vec::with_capacity(request.grants.len());
    for (index, grant) in request.grants.iter().enumerate() {
        let file = match open_beneath(workspace, &grant.path, OFlags::empty()) {
            Err(Errno::NOENT) if grant.write => {
                as_owner(root_id, || create_directories(workspace, &grant.path, root_id))
                    .and_then(|created| created)
            }
            found => found,
        };
        let may_be_absent = !grant.write && !request.strict;
        match file.and_then(|file| Ok((is_directory(file.as_fd())?, file))) {
            Ok((is_directory, file)) => opened.push(OpenedGrant {
                path: grant.path.clone(),
                write: grant.write,
                file,
                is_directory,
            }),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) if may_be_absent => {}
            Err(errno) => return Err(ScopeError::Grant { index, errno }),
        }
    }
    Ok(opened)
}

/// Whether an open file is a directory, or else a regular file: nothing else may be granted.
fn is_directory(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    match file_type(file)? {
        FileType::Directory => Ok(true),
        FileType::RegularFile => Ok(false),
        FileType::Symlink => Err(Errno::LOOP),
        _ => Err(Errno::OPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::launcher::Grant;
    use rustix::fs::{CWD, Mode};

    fn request(paths: &[(&str, bool)], strict: bool) -> Scope {
        let grants =
            paths.iter().map(|(path, write)| Grant { path: (*path).into(), write: *write });
        Scope {
            name: "sandbox".into(),
            slot: 0,
            session: "one".into(),
            grants: grants.collect(),
            memory_mib: 1,
            user: (0, 0),
            strict,
        }
    }

    /// The paths that were opened, or the index and error of the grant that was refused.
    fn open(paths: &[(&str, bool)], strict: bool) -> Result<Vec<String>, (usize, Errno)> {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("docs")).expect("a directory");
        std::os::unix::fs::symlink("docs", directory.path().join("link")).expect("a link");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let workspace = rustix::fs::openat(CWD, directory.path(), flags, Mode::empty());
        let workspace = workspace.expect("the workspace opens");
        let owner = rustix::process::getuid().as_raw();
        match open_grants(&request(paths, strict), workspace.as_fd(), owner) {
            Ok(opened) => Ok(opened.into_iter().map(|grant| grant.path).collect()),
            Err(ScopeError::Grant { index, errno }) => Err((index, errno)),
            Err(ScopeError::Step(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn a_refused_grant_is_named_by_its_index() {
        assert_eq!(open(&[("docs", false), ("gone", false)], true), Err((1, Errno::NOENT)));
        assert_eq!(open(&[("link", true)], false), Err((0, Errno::LOOP)));
    }

    #[test]
    fn an_absent_path_is_created_for_writing_and_left_out_for_reading() {
        let paths = [("docs", false), ("gone", false), ("new/deep", true)];
        assert_eq!(open(&paths, false), Ok(vec!["docs".into(), "new/deep".into()]));
    }
}
