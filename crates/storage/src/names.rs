//! How many names of files a copy holds in memory.

use crate::error::CopyError;

/// Maximum memory of the names of all directories that a copy is in, in bytes: about a million names.
/// As many copies as the server allows at the same time then need 2 GiB.
pub(crate) const NAMES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The memory of one name.
pub(crate) fn bytes_of_one(name: &[u8]) -> usize {
    name.len() + size_of::<Vec<u8>>()
}

/// The memory of names.
pub(crate) fn bytes_of(names: &[Vec<u8>]) -> usize {
    names.iter().map(|name| bytes_of_one(name)).sum()
}

/// # Errors
/// [`CopyError::Refused`] if this is more memory than a copy may need.
pub(crate) fn check_names(bytes: usize, path: &[u8]) -> Result<(), CopyError> {
    if bytes <= NAMES_BYTES_MAX {
        return Ok(());
    }
    let path = String::from_utf8_lossy(path);
    Err(CopyError::Refused(format!("/{path}: its directories have too many entries to be copied")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_are_refused_with_their_path() {
        assert!(check_names(NAMES_BYTES_MAX, b"a").is_ok());
        let refused = check_names(NAMES_BYTES_MAX + 1, b"a/b").unwrap_err();
        assert_eq!(refused.to_string(), "/a/b: its directories have too many entries to be copied");
        assert_eq!(bytes_of(&[b"ab".to_vec(), b"c".to_vec()]), 3 + 2 * size_of::<Vec<u8>>());
    }
}
