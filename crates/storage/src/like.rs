//! Creates directories that look like others.

use crate::attributes::{copy_extended, set};
use crate::error::CopyError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Creates an empty directory with the owner, the mode, the times and the extended attributes of
/// another one. Blocks.
///
/// # Errors
/// [`CopyError`].
pub fn create_directory_like(model: &Path, directory: &Path) -> Result<(), CopyError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |errno| CopyError::at(b"", errno);
    let model = rustix::fs::open(model, flags, Mode::empty()).map_err(failed)?;
    let created = create(&model, directory, flags).map_err(failed)?;
    copy_extended(b"", model.as_fd(), created.as_fd(), &mut |_| Ok(()))
}

fn create(model: &OwnedFd, directory: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdir(directory, Mode::from_raw_mode(0o700))?;
    let created = rustix::fs::open(directory, flags, Mode::empty())?;
    set(created.as_fd(), &rustix::fs::fstat(model)?)?;
    Ok(created)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::XattrFlags;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    #[test]
    fn it_has_the_attributes_and_none_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        std::fs::create_dir(&model).unwrap();
        std::fs::write(model.join("file"), "").unwrap();
        std::fs::set_permissions(&model, std::fs::Permissions::from_mode(0o1711)).unwrap();
        std::os::unix::fs::chown(&model, Some(1000), Some(1001)).unwrap();
        rustix::fs::setxattr(&model, "user.a", b"1", XattrFlags::empty()).unwrap();
        let like = folder.path().join("like");
        create_directory_like(&model, &like).unwrap();
        let about = std::fs::metadata(&like).unwrap();
        assert_eq!((about.mode() & 0o7777, about.uid(), about.gid()), (0o1711, 1000, 1001));
        let mut value = [0; 8];
        assert_eq!(rustix::fs::getxattr(&like, "user.a", &mut value[..]), Ok(1));
        assert_eq!(std::fs::read_dir(&like).unwrap().count(), 0);
    }
}
