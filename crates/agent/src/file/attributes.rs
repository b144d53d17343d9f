//! Extended attributes of files whose names begin with a prefix.

use super::disk::{self, Failure};
use isolet_wire::request::{ATTRIBUTE_PATHS_MAX, ATTRIBUTES_BYTES_MAX, FileAttributes};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::path::Path;

/// All prefixes begin with this: other attributes belong to the kernel and to security modules.
const USER: &str = "user.";
/// Attributes of overlays, which decide what the layers below show.
const OVERLAY: &str = "user.overlay.";
/// Maximum size of all attribute names of a file, in bytes, as in the kernel.
const NAMES_BYTES_MAX: usize = 64 * 1024;

/// Checks a request for attributes.
pub(super) fn check(prefix: &str, paths: usize) -> Result<(), Failure> {
    let is_overlay = prefix.starts_with(OVERLAY) || OVERLAY.starts_with(prefix);
    if !prefix.starts_with(USER) || prefix.contains('\0') || is_overlay {
        return Err(Failure::request("the prefix does not begin with user."));
    }
    if paths > ATTRIBUTE_PATHS_MAX {
        return Err(Failure::request("too many paths"));
    }
    Ok(())
}

/// Reads the attributes of a file. What cannot be read, is not text or exceeds the limit is left
/// out.
pub(super) fn read(path: &[u8], prefix: &str) -> FileAttributes {
    let mut all = FileAttributes::new();
    let mut bytes = 0;
    let Ok(path) = disk::path(path) else { return all };
    for name in names(&path, prefix).unwrap_or_default() {
        let mut value = [0; ATTRIBUTES_BYTES_MAX];
        let Ok(length) = rustix::fs::getxattr(&path, &name, &mut value[..]) else { continue };
        let Ok(value) = std::str::from_utf8(&value[..length]) else { continue };
        let Ok(name) = name.to_str() else { continue };
        bytes += name.len() + value.len();
        if bytes > ATTRIBUTES_BYTES_MAX {
            break;
        }
        all.insert(name[prefix.len()..].to_owned(), value.to_owned());
    }
    all
}

/// Replaces the attributes of a file.
pub(super) fn write(path: &[u8], prefix: &str, wanted: &FileAttributes) -> Result<(), Failure> {
    let sizes = wanted.iter().map(|(name, value)| prefix.len() + name.len() + value.len());
    if sizes.sum::<usize>() > ATTRIBUTES_BYTES_MAX {
        return Err(Failure::request("the attributes are longer than 4096 bytes"));
    }
    let path = disk::path(path)?;
    for name in names(&path, prefix)? {
        let kept = name.to_str().is_ok_and(|name| wanted.contains_key(&name[prefix.len()..]));
        if !kept {
            match rustix::fs::removexattr(&path, &name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    for (name, value) in wanted {
        let name = CString::new(format!("{prefix}{name}"));
        let name = name.map_err(|_| Failure::request("an attribute's name contains NUL"))?;
        rustix::fs::setxattr(&path, &name, value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

/// The names of a file's attributes with this prefix. A file system without attributes has none.
fn names(path: &Path, prefix: &str) -> Result<Vec<CString>, Failure> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let count = match rustix::fs::listxattr(path, &mut names[..]) {
        Ok(count) => count,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let all = names[..count].split_inclusive(|byte| *byte == 0);
    let all = all.filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    Ok(all
        .filter(|name| name.to_bytes().starts_with(prefix.as_bytes()))
        .map(CString::from)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn attributes(all: &[(&str, &str)]) -> FileAttributes {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn attributes_of_a_prefix_are_replaced_and_others_stay() {
        // A temporary file system may have no attributes of users.
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = file.path().as_os_str().as_bytes();
        let both = attributes(&[("author", "mish"), ("stage", "1")]);
        write(path, "user.a.", &both).unwrap();
        write(path, "user.b.", &attributes(&[("x", "y")])).unwrap();
        assert_eq!(read(path, "user.a."), both);
        write(path, "user.a.", &attributes(&[("stage", "2")])).unwrap();
        assert_eq!(read(path, "user.a."), attributes(&[("stage", "2")]));
        assert_eq!(read(path, "user.b."), attributes(&[("x", "y")]));
        write(path, "user.a.", &FileAttributes::new()).unwrap();
        assert!(read(path, "user.a.").is_empty());
        assert!(write(path, "user.a.", &attributes(&[("x", &"y".repeat(5000))])).is_err());
        assert!(read(b"/nonexistent", "user.a.").is_empty());
    }

    #[test]
    fn only_attributes_of_users_can_be_named() {
        assert!(check("user.e2b.", 1).is_ok());
        for prefix in ["", "security.", "user.overlay.", "user.", "user.o", "user.a\0"] {
            assert!(check(prefix, 1).is_err(), "{prefix:?}");
        }
        assert!(check("user.a.", ATTRIBUTE_PATHS_MAX + 1).is_err());
    }
}
