//! Where a source goes: the path rules of `docker cp`.

use anyhow::{Result, bail};

/// What is copied.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    /// A directory, otherwise a file or a symbolic link.
    pub(super) directory: bool,
    /// The path ends with `/.`: the content of the directory is meant.
    pub(super) contents: bool,
    /// The last name of the path; empty for a root directory.
    pub(super) name: &'a [u8],
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A directory.
    Directory,
    /// Anything else.
    Other,
    /// Nothing.
    Missing,
}

/// Where the source goes.
#[derive(Debug, PartialEq)]
pub(super) enum Place {
    /// To the path itself.
    Itself,
    /// To the source's name in the directory at the path.
    Inside,
}

/// Decides where a source goes. `shown` is the target for people, and `slash` whether its path ends with one.
pub(super) fn place(source: Source<'_>, target: Kind, slash: bool, shown: &str) -> Result<Place> {
    match (source.directory, target) {
        (false, Kind::Missing) if slash => bail!("the directory {shown} does not exist"),
        (_, Kind::Other) if slash => bail!("{shown} is not a directory"),
        (true, Kind::Other) => bail!("cannot copy a directory onto the file {shown}"),
        (_, Kind::Missing) | (false, Kind::Other) => Ok(Place::Itself),
        (true, Kind::Directory) if source.contents || source.name.is_empty() => Ok(Place::Itself),
        (_, Kind::Directory) => Ok(Place::Inside),
    }
}

/// Whether a path names the content of a directory: it ends with `/.`, or is `.`.
pub(super) fn names_contents(path: &[u8]) -> bool {
    path == b"." || path.ends_with(b"/.")
}

/// Whether a path ends with a slash, so that it must be a directory.
pub(super) fn names_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || names_contents(path)
}

/// Resolves `.` and `..` of a path in text, beginning in `/workspace`.
pub(super) fn absolute(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> =
        if path.first() == Some(&b'/') { vec![] } else { vec![&b"workspace"[..]] };
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    [&b"/"[..], parts.join(&b'/').as_slice()].concat()
}

/// The directory of an absolute path, and its last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// A name in a directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let gap: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, gap, name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_those_of_docker_cp() {
        let file = Source { directory: false, contents: false, name: b"f" };
        let directory = Source { directory: true, contents: false, name: b"d" };
        let contents = Source { directory: true, contents: true, name: b"d" };
        for (source, target, slash, expected) in [
            (file, Kind::Missing, false, Some(Place::Itself)),
            (file, Kind::Missing, true, None),
            (file, Kind::Other, false, Some(Place::Itself)),
            (file, Kind::Other, true, None),
            (file, Kind::Directory, true, Some(Place::Inside)),
            (directory, Kind::Missing, true, Some(Place::Itself)),
            (directory, Kind::Other, false, None),
            (directory, Kind::Directory, false, Some(Place::Inside)),
            (contents, Kind::Directory, false, Some(Place::Itself)),
            (contents, Kind::Missing, false, Some(Place::Itself)),
            (contents, Kind::Other, false, None),
        ] {
            assert_eq!(place(source, target, slash, "x").ok(), expected);
        }
    }

    #[test]
    fn paths_are_resolved_in_text() {
        for (path, expected) in [
            ("", "/workspace"),
            ("a/./b", "/workspace/a/b"),
            ("../etc/", "/etc"),
            ("/", "/"),
            ("/../..", "/"),
            ("/a//b/..", "/a"),
        ] {
            assert_eq!(absolute(path.as_bytes()), expected.as_bytes(), "{path}");
        }
        assert_eq!(split(b"/a/b"), (&b"/a"[..], &b"b"[..]));
        assert_eq!(split(b"/a"), (&b"/"[..], &b"a"[..]));
        assert_eq!(join(b"/", b"a"), b"/a");
        assert!(names_contents(b".") && names_contents(b"a/.") && !names_contents(b"a."));
    }
}
