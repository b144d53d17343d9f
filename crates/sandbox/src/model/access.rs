//! The part of the workspace that a session sees: the client's request is checked and turned into
//! the grants that the kernel enforces. This module does no I/O.
//!
//! Rights add up: a path has the strongest right that any grant gives it, and no grant takes away
//! the right of another. The right to write includes the right to read.

use crate::model::error::Error;
use crate::model::ids::SessionId;
use isolet_wire::launcher::Grant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of paths of one session.
pub const GRANTS_MAX: usize = 1000;
/// Maximum size of all paths together, in bytes, because one packet carries them to the launcher.
pub const GRANTS_BYTES_MAX: usize = 48 * 1024;
/// Maximum length of a path and of one component, in bytes, as in the kernel.
const PATH_BYTES_MAX: usize = 4095;
const PART_BYTES_MAX: usize = 255;

/// Requested paths below the workspace; `""` is the whole workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAccess {
    /// Paths that the session may read.
    #[serde(default)]
    pub read: Vec<String>,
    /// Paths that the session may read and write.
    #[serde(default)]
    pub write: Vec<String>,
}

impl Default for FileAccess {
    fn default() -> Self {
        Self { read: vec![String::new()], write: vec![String::new()] }
    }
}

impl FileAccess {
    /// Whether the session may read and write the whole workspace, so that it needs no scope.
    #[must_use]
    pub fn whole(&self) -> bool {
        self.write.iter().any(|path| named(path).is_empty())
    }

    /// Checks everything that can be checked without the workspace.
    ///
    /// # Errors
    /// [`Error::BadField`] for an invalid path, too many paths, or paths that are too long.
    pub fn check(&self) -> Result<(), Error> {
        let count = self.read.len() + self.write.len();
        let bytes: usize = self.read.iter().chain(&self.write).map(String::len).sum();
        if count > GRANTS_MAX || bytes > GRANTS_BYTES_MAX {
            let reason = format!(
                "at most {GRANTS_MAX} paths and {GRANTS_BYTES_MAX} bytes in all, not {count} and {bytes}"
            );
            return Err(Error::BadField { field: "file_access", reason });
        }
        self.read.iter().chain(&self.write).try_for_each(|path| parts(path).map(drop))
    }

    /// The grants of the session with this id, including its own directory, sorted by components.
    /// Grants that another grant implies are left out.
    ///
    /// # Errors
    /// See [`FileAccess::check`].
    pub(crate) fn grants(&self, session: &SessionId) -> Result<Vec<Grant>, Error> {
        self.check()?;
        let own = own(session);
        let mut all: BTreeMap<Vec<&str>, bool> = BTreeMap::new();
        let read = self.read.iter().map(|path| (path, false));
        for (path, write) in read.chain(self.write.iter().map(|path| (path, true))) {
            *all.entry(parts(path)?).or_default() |= write;
        }
        all.insert(own.split('/').collect(), true);
        let implied = |parts: &[&str], write: bool| {
            (0..parts.len()).any(|end| all.get(&parts[..end]).is_some_and(|above| *above || !write))
        };
        let kept = all.iter().filter(|(parts, write)| !implied(parts, **write));
        Ok(kept.map(|(parts, write)| Grant { path: parts.join("/"), write: *write }).collect())
    }
}

/// The directory that belongs to one session alone.
fn own(session: &SessionId) -> String {
    format!(".sessions/{session}")
}

fn named(path: &str) -> &str {
    path.trim_end_matches('/')
}

fn parts(path: &str) -> Result<Vec<&str>, Error> {
    let bad = |reason: &str| {
        let shown: String = path.chars().take(80).collect();
        Error::BadField { field: "file_access", reason: format!("{shown:?}: {reason}") }
    };
    if path.starts_with('/') {
        return Err(bad("paths are relative to the workspace, without a leading slash"));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(bad("longer than 4095 bytes"));
    }
    if path.contains('\0') {
        return Err(bad("holds NUL"));
    }
    let path = named(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err(bad("holds an empty part, . or .."));
    }
    if parts.iter().any(|part| part.len() > PART_BYTES_MAX) {
        return Err(bad("holds a name of more than 255 bytes"));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(read: &[&str], write: &[&str]) -> FileAccess {
        let all = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        FileAccess { read: all(read), write: all(write) }
    }

    fn session() -> SessionId {
        SessionId::parse("s1").expect("an id")
    }

    fn grants(read: &[&str], write: &[&str]) -> Vec<(String, bool)> {
        let grants = access(read, write).grants(&session()).expect("grants");
        grants.into_iter().map(|grant| (grant.path, grant.write)).collect()
    }

    fn own(others: &[(&str, bool)]) -> Vec<(String, bool)> {
        let own = [(".sessions/s1", true)];
        own.iter().chain(others).map(|(path, write)| ((*path).to_owned(), *write)).collect()
    }

    /// Promises: V3.
    #[test]
    fn nothing_granted_is_the_sessions_own_directory() {
        assert_eq!(grants(&[], &[]), own(&[]));
        assert!(FileAccess::default().whole() && access(&[], &["/"]).whole());
        assert!(!access(&[""], &["a"]).whole());
    }

    /// Promises: V2.
    #[test]
    fn rights_add_up() {
        assert_eq!(grants(&["a", "a"], &["a"]), own(&[("a", true)]), "the stronger one");
        assert_eq!(grants(&["a", "a/b"], &[]), own(&[("a", false)]), "implied");
        assert_eq!(grants(&["a/b"], &["a/"]), own(&[("a", true)]), "writing implies reading");
        assert_eq!(grants(&["a"], &["a/b"]), own(&[("a", false), ("a/b", true)]));
        assert_eq!(
            grants(&["a", "a/b/c"], &["a/b"]),
            own(&[("a", false), ("a/b", true)]),
            "by the nearest and by any above"
        );
    }

    /// Promises: V2.
    #[test]
    fn a_part_is_no_prefix() {
        assert_eq!(
            grants(&["ab", "a-b"], &["a"]),
            own(&[("a", true), ("a-b", false), ("ab", false)])
        );
    }

    /// Promises: V2.
    #[test]
    fn all_of_it_to_be_read_leaves_what_may_be_written() {
        let all = grants(&["", "x"], &["src"]);
        let own = [("", false), (".sessions/s1", true), ("src", true)];
        assert_eq!(all, own.map(|(path, write)| (path.to_owned(), write)));
    }

    /// Promises: V2.
    #[test]
    fn what_is_no_path_is_refused() {
        let long = "x/".repeat(2100);
        let name = "n".repeat(256);
        for path in ["/etc", "..", "a/../b", "a//b", "./a", "a/.", "a\0b", &long, &name] {
            assert!(access(&[path], &[]).grants(&session()).is_err(), "{path:?}");
            assert!(access(&[], &[path]).grants(&session()).is_err(), "{path:?}");
        }
        let most = vec!["n".repeat(255); 16].join("/");
        assert_eq!(most.len(), 4095);
        assert!(access(&[&most], &[]).grants(&session()).is_ok());
    }

    /// Promises: V2.
    #[test]
    fn a_thousand_paths_are_taken_and_one_more_is_not() {
        let paths: Vec<String> = (0..=GRANTS_MAX).map(|n| format!("dir/{n}")).collect();
        let many = |count| FileAccess { read: paths[..count].to_vec(), write: Vec::new() };
        assert_eq!(many(GRANTS_MAX).grants(&session()).expect("grants").len(), GRANTS_MAX + 1);
        assert!(many(GRANTS_MAX + 1).grants(&session()).is_err());
        let long = FileAccess { read: vec!["n".repeat(200); 300], write: Vec::new() };
        assert!(long.grants(&session()).is_err(), "in bytes");
    }
}
