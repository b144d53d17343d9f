//! Which entries of an archive a step copies, and where to. The result is another archive with the
//! names that the files have in the sandbox.

use super::stop::Stop;
use super::{Content, Kind, NameBytes, kind, name, open, target};
use crate::error::Error;
use globset::{GlobBuilder, GlobMatcher};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, Write};
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// Maximum length of a pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1024;
/// Maximum size of the names of all copies together, in bytes.
const COPIES_BYTES_MAX: usize = 128 << 20;

/// Which entries of an archive a step copies.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    /// A path, and everything below it. An empty one stands for the whole archive.
    Path(String),
    /// Paths that match, and everything below them.
    Glob(GlobMatcher),
}

impl Pattern {
    /// Parses the source of a step: a path or a pattern relative to the root of the archive.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX || text.contains('\0') {
            return Err("source: 1 to 1024 bytes without NUL".to_owned());
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." if parts.pop().is_none() => {
                    return Err(format!("source: {text:?} lies outside of the files"));
                }
                ".." => {}
                part => parts.push(part),
            }
        }
        let path = parts.join("/");
        if !path.contains(['*', '?', '[']) {
            return Ok(Self::Path(path));
        }
        let glob = GlobBuilder::new(&path).literal_separator(true).backslash_escape(true).build();
        let glob = glob.map_err(|error| format!("source: {error}"))?;
        Ok(Self::Glob(glob.compile_matcher()))
    }

    /// The entries that it selects, each with the topmost path above it that it selects.
    fn select<'a>(&self, entries: &'a BTreeMap<String, Kind>) -> Vec<Selected<'a>> {
        let names = entries.keys().map(String::as_str);
        match self {
            Self::Path(path) => {
                let below = names.filter(|name| below(name, path).is_some());
                below.map(|name| Selected { name, root: &name[..path.len()] }).collect()
            }
            Self::Glob(glob) => {
                let mut all: Vec<Selected<'a>> = Vec::new();
                let mut last = "";
                // The root of the archive has no name that could match.
                for name in names.filter(|name| !name.is_empty()) {
                    let known = all.last().map(|one| one.root);
                    let root = match known.filter(|root| below(name, root).is_some()) {
                        Some(root) => Some(&name[..root.len()]),
                        // Parents that the name before it has too do not match.
                        None => with_parents(name)
                            .filter(|path| !is_parent(path, last))
                            .find(|path| glob.is_match(path)),
                    };
                    all.extend(root.map(|root| Selected { name, root }));
                    last = name;
                }
                all
            }
        }
    }
}

/// An entry that a step copies.
#[derive(Debug, Clone, Copy)]
struct Selected<'a> {
    name: &'a str,
    /// The topmost path that was selected: the name, or a directory that it lies in.
    root: &'a str,
}

/// Whether a path is a directory that another one lies in.
fn is_parent(path: &str, other: &str) -> bool {
    other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
}

/// A path, and each directory that it lies in, the topmost first.
fn with_parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).chain(std::iter::once(path))
}

/// The part of a path below a root; empty for the root itself.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    if root.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix(root)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// Where the copies go.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    /// An absolute path, without a slash at the end.
    pub(crate) path: String,
    /// Whether the step writes it as a directory, or the sandbox has one there.
    pub(crate) is_directory: bool,
}

/// Where each entry goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The new name of each selected entry, absolute.
    names: BTreeMap<String, String>,
    /// The topmost paths of the copies.
    pub(crate) tops: Vec<String>,
    /// Those of them that are directories. Only their content is copied, so that one that exists keeps
    /// its permissions.
    pub(crate) directories: BTreeSet<String>,
}

/// Reads the names of an archive. Blocks.
pub(crate) fn entries(path: &Path, stop: &Stop) -> Result<BTreeMap<String, Kind>, Error> {
    let mut all = BTreeMap::new();
    let mut name_bytes = NameBytes::default();
    let mut archive = open(path, stop)?;
    while let Some(entry) = archive.next_entry()? {
        let name = name(&entry)?;
        name_bytes.add(&name)?;
        let kind = kind(&entry, &name)?;
        all.insert(name, kind);
    }
    Ok(all)
}

impl Layout {
    /// Decides where the entries go that a pattern selects; `None` if it selects nothing. Blocks.
    ///
    /// # Errors
    /// [`Error::FilesTooLarge`].
    pub(crate) fn of(
        entries: &BTreeMap<String, Kind>,
        pattern: &Pattern,
        to: &Destination,
    ) -> Result<Option<Self>, Error> {
        let selected = pattern.select(entries);
        let roots: BTreeSet<&str> = selected.iter().map(|one| one.root).collect();
        let is_directory = to.is_directory || roots.len() > 1;
        let is_file = |root: &str| {
            matches!(entries.get(root), Some(Kind::File | Kind::Symlink | Kind::HardLink))
        };
        let top_of = |root: &str| -> String {
            let base = root.rsplit('/').next().unwrap_or_default();
            if is_file(root) && is_directory { join(&to.path, base) } else { to.path.clone() }
        };
        let mut names = BTreeMap::new();
        let mut bytes = 0;
        for one in &selected {
            let rest = below(one.name, one.root).unwrap_or_default();
            let new = join(&top_of(one.root), rest);
            bytes += new.len();
            if bytes > COPIES_BYTES_MAX {
                let quantity = "the names of the copies together".to_owned();
                let limit = format!("{} MiB", COPIES_BYTES_MAX >> 20);
                return Err(Error::FilesTooLarge { quantity, limit });
            }
            names.insert(one.name.to_owned(), new);
        }
        let mut tops: Vec<String> = roots.iter().map(|root| top_of(root)).collect();
        tops.dedup();
        let own = roots.iter().filter(|root| !is_file(root)).map(|root| top_of(root));
        let directories: BTreeSet<String> = own.collect();
        Ok((!roots.is_empty()).then_some(Self { names, tops, directories }))
    }

    /// The paths of all copies, without the topmost directories.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &str> {
        let all: HashSet<&str> = self.names.values().map(String::as_str).collect();
        all.into_iter().filter(|path| !self.directories.contains(*path))
    }

    /// The names of the selected entries in the archive.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Writes the selected entries under their new names, owned by root, with `mode` if there is one.
    /// Blocks.
    ///
    /// # Errors
    /// [`Error::BadFiles`] for a hard link to a file that is not copied, [`Error::Disk`].
    pub(crate) fn write(
        &self,
        from: &Path,
        to: impl Write,
        mode: Option<u32>,
        stop: &Stop,
    ) -> Result<(), Error> {
        let mut out = Builder::new(to);
        let mut archive = open(from, stop)?;
        while let Some(entry) = archive.next_entry()? {
            let old = name(&entry)?;
            let Some(new) = self.names.get(&old) else { continue };
            let kind = kind(&entry, &old)?;
            if kind == Kind::Directory && self.directories.contains(new) {
                continue;
            }
            let new = new.trim_start_matches('/');
            let mut header = Header::new_gnu();
            header.set_mode(mode.filter(|_| kind != Kind::Symlink).unwrap_or(entry.mode));
            header.set_mtime(u64::try_from(entry.mtime.seconds).unwrap_or(0));
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(0);
            match kind {
                Kind::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    out.append_data(&mut header, new, io::empty())?;
                }
                Kind::File => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(entry.size);
                    out.append_data(&mut header, new, Content(&mut archive))?;
                }
                Kind::Symlink => {
                    header.set_entry_type(EntryType::Symlink);
                    out.append_link(&mut header, new, target(&entry, &old)?)?;
                }
                Kind::HardLink => {
                    let first = super::clean(target(&entry, &old)?.as_bytes())?;
                    let first = self.names.get(&first).ok_or_else(|| {
                        let text = format!("the link {old:?} is to {first:?}, which is not copied");
                        Error::BadFiles(text)
                    })?;
                    header.set_entry_type(EntryType::Link);
                    out.append_link(&mut header, new, first.trim_start_matches('/'))?;
                }
            }
        }
        out.into_inner()?.flush()?;
        Ok(())
    }
}

fn join(directory: &str, name: &str) -> String {
    if name.is_empty() { directory.to_owned() } else { format!("{directory}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tar;
    use super::*;
    use std::io::{Cursor, Read};
    use tar::Archive;

    fn layout(names: &[(&str, Kind)], source: &str, dest: &str) -> Option<Vec<String>> {
        let entries = names.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        let is_directory = dest.ends_with('/');
        let path = dest.trim_end_matches('/').to_owned();
        let pattern = Pattern::parse(source).unwrap();
        let layout =
            Layout::of(&entries, &pattern, &Destination { path, is_directory }).unwrap()?;
        Some(layout.names.into_values().collect())
    }

    const TREE: [(&str, Kind); 5] = [
        ("Dockerfile", Kind::File),
        ("src", Kind::Directory),
        ("src/a.py", Kind::File),
        ("src/link", Kind::Symlink),
        ("src/sub/b.py", Kind::File),
    ];

    #[test]
    fn copies_go_where_a_dockerfile_puts_them() {
        for (source, dest, expected) in [
            ("Dockerfile", "/app/", vec!["/app/Dockerfile"]),
            ("./Dockerfile", "/app", vec!["/app"]),
            ("src", "/app", vec!["/app", "/app/a.py", "/app/link", "/app/sub/b.py"]),
            ("src/", "/app/", vec!["/app", "/app/a.py", "/app/link", "/app/sub/b.py"]),
            ("src/*", "/app", vec!["/app/a.py", "/app/link", "/app/b.py"]),
            ("src/*.py", "/app/x.py", vec!["/app/x.py"]),
            ("src/**/*.py", "/app", vec!["/app/a.py", "/app/b.py"]),
            ("src/sub", "/s", vec!["/s/b.py"]),
            ("D*", "/", vec!["/Dockerfile"]),
        ] {
            assert_eq!(layout(&TREE, source, dest).unwrap(), expected, "{source} {dest}");
        }
        let all = layout(&TREE, ".", "/app").unwrap();
        assert_eq!(
            all,
            ["/app/Dockerfile", "/app/src", "/app/src/a.py", "/app/src/link", "/app/src/sub/b.py"]
        );
        assert_eq!(layout(&TREE, "missing", "/app"), None);
        assert_eq!(layout(&TREE, "sr", "/app"), None);
        assert_eq!(layout(&TREE, "*.c", "/app"), None);
    }

    /// A name between a directory and its content does not separate them, and the root of the archive
    /// matches no pattern.
    #[test]
    fn patterns_select_each_entry_once() {
        let names = ["", "a", "a.x", "a/b", "a/b/c", "b/a", "b/a/d"];
        let entries: Vec<(&str, Kind)> = names.map(|name| (name, Kind::File)).to_vec();
        let of = |source: &str| layout(&entries, source, "/t/").unwrap();
        assert_eq!(of("a*"), ["/t/a", "/t/a.x", "/t/a/b", "/t/a/b/c"]);
        assert_eq!(of("a"), ["/t/a", "/t/a/b", "/t/a/b/c"]);
        assert_eq!(of("**/b"), ["/t/b", "/t/b/c", "/t/a", "/t/a/d"]);
        assert_eq!(of("*/a"), ["/t/a", "/t/a/d"]);
    }

    /// Each entry was once compared with each path that a pattern selects.
    #[test]
    fn many_entries_are_laid_out_in_linear_time() {
        let names: Vec<String> = (0..100_000).map(|at| format!("d{at}/f")).collect();
        let entries: Vec<(&str, Kind)> = names.iter().map(|n| (n.as_str(), Kind::File)).collect();
        assert_eq!(layout(&entries, "*/f", "/t/").unwrap().len(), names.len());
    }

    #[test]
    fn sources_outside_are_refused() {
        for bad in ["..", "a/../../b", "../a", ""] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
        assert!(matches!(Pattern::parse("a/../b"), Ok(Pattern::Path(path)) if path == "b"));
    }

    #[test]
    fn entries_are_written_under_their_new_names() {
        let bytes = tar(&[
            (EntryType::Directory, "d", "", 0o700, b""),
            (EntryType::Regular, "d/f", "", 0o640, b"text"),
            (EntryType::Link, "d/h", "d/f", 0o640, b""),
            (EntryType::Symlink, "d/s", "../../x", 0o777, b""),
            (EntryType::Regular, "other", "", 0o644, b"no"),
        ]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let names = entries(file.path(), &Stop::default()).unwrap();
        let to = Destination { path: "/opt/d".to_owned(), is_directory: false };
        let layout = Layout::of(&names, &Pattern::parse("d").unwrap(), &to).unwrap().unwrap();
        assert_eq!(
            (layout.tops.join(" "), layout.directories.iter().next().cloned()),
            ("/opt/d".to_owned(), Some("/opt/d".to_owned()))
        );
        // A directory that exists keeps its owner.
        let mut copies: Vec<&str> = layout.copies().collect();
        copies.sort_unstable();
        assert_eq!(copies, ["/opt/d/f", "/opt/d/h", "/opt/d/s"]);
        let mut out = Vec::new();
        layout.write(file.path(), &mut out, Some(0o755), &Stop::default()).unwrap();
        let mut archive = Archive::new(Cursor::new(out));
        let written: Vec<(String, u32, Option<String>, String)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
                let link =
                    entry.link_name_bytes().map(|b| String::from_utf8(b.into_owned()).unwrap());
                let mode = entry.header().mode().unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (name, mode, link, text)
            })
            .collect();
        let row = |name: &str, mode, link: Option<&str>, text: &str| {
            (name.to_owned(), mode, link.map(str::to_owned), text.to_owned())
        };
        assert_eq!(
            written,
            [
                row("opt/d/f", 0o755, None, "text"),
                row("opt/d/h", 0o755, Some("opt/d/f"), ""),
                row("opt/d/s", 0o777, Some("../../x"), ""),
            ]
        );
    }

    #[test]
    fn a_hard_link_to_a_file_that_is_not_copied_is_refused() {
        let bytes = tar(&[
            (EntryType::Regular, "f", "", 0o644, b"text"),
            (EntryType::Link, "h", "f", 0o644, b""),
        ]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let to = Destination { path: "/h".to_owned(), is_directory: false };
        let names = entries(file.path(), &Stop::default()).unwrap();
        let layout = Layout::of(&names, &Pattern::parse("h").unwrap(), &to).unwrap().unwrap();
        let error = layout.write(file.path(), Vec::new(), None, &Stop::default()).unwrap_err();
        assert!(error.to_string().contains("not copied"), "{error}");
    }

    #[test]
    fn nothing_is_read_when_nobody_waits_any_more() {
        let bytes = tar(&[(EntryType::Regular, "f", "", 0o640, b"text")]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let stop = Stop::default();
        let waiting = stop.on_drop();
        assert_eq!(entries(file.path(), &stop).unwrap().len(), 1);
        drop(waiting);
        let error = entries(file.path(), &stop).unwrap_err().to_string();
        assert!(error.contains("nobody waits"), "{error}");
    }
}
