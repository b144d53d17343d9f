//! Which changes of a watched directory a client receives.

use crate::foundation::error::ApiError;
use crate::foundation::query::{self, Query};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use isolet_wire::response::{FileChange, FileChangeKind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The query parameters of patterns.
pub(super) const INCLUDE: &str = "include";
pub(super) const EXCLUDE: &str = "exclude";

/// The most patterns of one parameter. Each costs memory while the watch runs, and time for every
/// change.
const PATTERNS_MAX: usize = 16;
/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 256;

/// Whether patterns match a path only, or also everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Path,
    Below,
}

/// Patterns of one parameter. One without a slash matches names, one with a slash matches paths
/// relative to the watched directory. All are matched with the whole path in one pass, because a path
/// can have thousands of parts.
#[derive(Debug)]
struct Patterns(GlobSet);

impl Patterns {
    /// Parses the values of a parameter; `None` if there are none.
    fn of(query: &Query<'_>, name: &str, reach: Reach) -> Result<Option<Self>, ApiError> {
        let all = query.list(name)?;
        if all.is_empty() {
            return Ok(None);
        }
        if all.len() > PATTERNS_MAX {
            return Err(query::bad_parameter(name, "at most 16 patterns"));
        }
        let mut set = GlobSetBuilder::new();
        for pattern in &all {
            if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
                return Err(query::bad_parameter(name, "1 to 256 bytes"));
            }
            let bad = |error: globset::Error| query::bad_parameter(name, &error.to_string());
            let glob =
                |text: &str| GlobBuilder::new(text).literal_separator(true).build().map_err(bad);
            // Its own text first, so that an error names it.
            glob(pattern)?;
            let whole = match pattern.contains('/') {
                true => pattern.clone(),
                false => format!("**/{pattern}"),
            };
            set.add(glob(&whole)?);
            if reach == Reach::Below {
                set.add(glob(&format!("{whole}/**"))?);
            }
        }
        let set = set.build();
        set.map(|set| Some(Self(set))).map_err(|e| query::bad_parameter(name, &e.to_string()))
    }

    fn matches(&self, path: &[u8]) -> bool {
        self.0.is_match(as_path(path))
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The changes that a client receives.
#[derive(Debug, Default)]
pub(super) struct WatchFilter {
    include: Option<Patterns>,
    exclude: Option<Patterns>,
}

impl WatchFilter {
    pub(super) fn of(query: &Query<'_>) -> Result<Self, ApiError> {
        let include = Patterns::of(query, INCLUDE, Reach::Path)?;
        Ok(Self { include, exclude: Patterns::of(query, EXCLUDE, Reach::Below)? })
    }

    /// Whether the client wants to know of changes of a path.
    pub(super) fn admits_path(&self, path: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|include| include.matches(path))
            && !self.exclude.as_ref().is_some_and(|exclude| exclude.matches(path))
    }

    /// Whether the client receives a change: always one that concerns the watch itself, and a move if
    /// either of its paths is wanted.
    pub(super) fn admits(&self, change: &FileChange) -> bool {
        match change.kind {
            FileChangeKind::Overflow | FileChangeKind::Unwatched | FileChangeKind::Gone => true,
            FileChangeKind::Created
            | FileChangeKind::Modified
            | FileChangeKind::Moved
            | FileChangeKind::Deleted => {
                self.admits_path(&change.path)
                    || change.to.as_ref().is_some_and(|to| self.admits_path(to))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(query: &str) -> Result<WatchFilter, ApiError> {
        let uri = format!("/?{query}").parse().unwrap();
        let query = Query::with_lists(&uri, &[], &[INCLUDE, EXCLUDE])?;
        WatchFilter::of(&query)
    }

    fn change(kind: FileChangeKind, path: &str, to: Option<&str>) -> FileChange {
        let to = to.map(|to| to.as_bytes().to_vec());
        FileChange { kind, path: path.as_bytes().to_vec(), to, directory: false }
    }

    #[test]
    fn patterns_select_names_and_paths() {
        let cases = [
            ("", "a/b.rs", true),
            ("include=*.rs", "a/b.rs", true),
            ("include=*.rs", "a/b.py", false),
            ("include=*.rs&include=*.py", "b.py", true),
            ("include=src/*.rs", "src/a.rs", true),
            ("include=src/*.rs", "src/a/b.rs", false),
            ("include=src/**/*.rs", "src/a/b.rs", true),
            ("include=*.{js,ts}", "x/y.ts", true),
            ("exclude=node_modules", "a/node_modules/b/c.js", false),
            ("exclude=node_modules", "a/node_modules2", true),
            ("exclude=a/tmp", "a/tmp/x", false),
            ("exclude=a/tmp", "b/a/tmp/x", true),
            ("include=*.rs&exclude=target", "target/b.rs", false),
            ("include=a*", "b/abc", true),
            ("include=a*", "a/b", false),
            ("exclude=a*", "x/abc/d/e", false),
            ("exclude=**/tmp", "x/tmp/y/z", false),
            ("exclude={a,b}", "x/b/c", false),
            ("exclude=*", "x", false),
        ];
        for (query, path, expected) in cases {
            let filter = filter(query).unwrap();
            let change = change(FileChangeKind::Created, path, None);
            assert_eq!(filter.admits(&change), expected, "{query} {path}");
        }
    }

    #[test]
    fn what_concerns_the_watch_itself_always_passes() {
        let filter = filter("include=*.rs").unwrap();
        assert!(filter.admits(&change(FileChangeKind::Overflow, "", None)));
        assert!(filter.admits(&change(FileChangeKind::Gone, "", None)));
        assert!(filter.admits(&change(FileChangeKind::Moved, "a.tmp", Some("a.rs"))));
        assert!(!filter.admits(&change(FileChangeKind::Moved, "a.tmp", Some("b.tmp"))));
    }

    #[test]
    fn malformed_and_too_many_patterns_are_refused() {
        let many = "include=a&".repeat(17);
        let long = format!("include={}", "a".repeat(257));
        for bad in ["include=", "exclude=[", "include={a", &many, &long] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }
}
