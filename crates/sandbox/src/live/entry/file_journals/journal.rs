//! The changes of the files in one directory, found by comparing two readings of it.
//!
//! ```text
//! reading 1   reading 2   reading 3        what is held: the last reading, and the changes
//!        └─ compare ─┴─ compare ─┘         between readings, numbered in order
//! ```
//!
//! A version is the number of the next change, so it needs no reading of its own: the changes since
//! a version are those behind it. Readings are not atomic: a change during one is in it or in the
//! next. Each file is compared with what was read of it before, so no change falls between two.

use isolet_wire::response::{FileFingerprint, FileKind};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

/// Maximum number of changes that are held.
pub(crate) const CHANGES_MAX: usize = 100_000;
/// Maximum size of the changes that are held, in bytes.
const CHANGES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum size of all paths in one answer, in bytes.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long one answer may be looked for. What it did not look at is in the next one.
const LOOK_MAX: Duration = Duration::from_millis(50);
/// Changes that are looked at before the time is.
const LOOKED_AT_ONCE: u64 = 16;
/// Approximate size of one file or change besides its path, in bytes.
const ENTRY_BYTES: usize = 80;

/// How a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It did not exist before.
    Created,
    /// Its content or attributes changed, or another file has its name.
    Modified,
    /// It does not exist any more.
    Deleted,
}

/// A file that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Path relative to the directory.
    pub path: Vec<u8>,
    /// How it changed.
    pub change: ChangeKind,
    /// Its type, or the last one that is known of a deleted file.
    pub kind: FileKind,
}

/// A moment in a journal. Its text is opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// A random number of the journal.
    epoch: u64,
    /// The number of the next change.
    next: u64,
}

impl Version {
    /// Parses the text of a version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, next) = text.split_once('-')?;
        let hex =
            epoch.len() == 16 && epoch.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let digits = (1..=20).contains(&next.len()) && next.bytes().all(|b| b.is_ascii_digit());
        let epoch = u64::from_str_radix(epoch, 16).ok().filter(|_| hex)?;
        Some(Self { epoch, next: next.parse().ok().filter(|_| digits)? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}-{}", self.epoch, self.next)
    }
}

/// The changes after a version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    /// At most one for each path, sorted by path.
    pub(crate) changes: Vec<ChangedFile>,
    /// The version behind these changes.
    pub(crate) version: Version,
    /// More changes are known.
    pub(crate) more: bool,
}

/// The last reading of a directory, and the changes that led to it.
#[derive(Debug)]
pub(crate) struct FileJournal {
    epoch: u64,
    /// Sorted by path.
    files: Vec<FileFingerprint>,
    files_bytes: usize,
    changes: VecDeque<ChangedFile>,
    changes_bytes: usize,
    /// The number of the next change.
    next: u64,
}

impl FileJournal {
    /// Begins with a reading.
    pub(crate) fn new(epoch: u64, mut files: Vec<FileFingerprint>) -> Self {
        sort(&mut files);
        let files_bytes = files.iter().map(|file| size(&file.path)).sum();
        let changes = VecDeque::new();
        Self { epoch, files, files_bytes, changes, changes_bytes: 0, next: 0 }
    }

    /// Approximate size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.files_bytes + self.changes_bytes
    }

    /// The version behind all changes that are known.
    pub(crate) fn version(&self) -> Version {
        Version { epoch: self.epoch, next: self.next }
    }

    /// Adds the changes from the last reading to this one.
    pub(crate) fn update(&mut self, mut files: Vec<FileFingerprint>) {
        sort(&mut files);
        let old = std::mem::take(&mut self.files);
        let mut before = old.iter().peekable();
        for file in &files {
            while let Some(gone) = before.next_if(|old| old.path < file.path) {
                self.push(gone, ChangeKind::Deleted);
            }
            match before.next_if(|old| old.path == file.path) {
                None => self.push(file, ChangeKind::Created),
                Some(old) if is_same(old, file) => {}
                Some(_) => self.push(file, ChangeKind::Modified),
            }
        }
        before.for_each(|gone| self.push(gone, ChangeKind::Deleted));
        self.files_bytes = files.iter().map(|file| size(&file.path)).sum();
        self.files = files;
    }

    fn push(&mut self, file: &FileFingerprint, change: ChangeKind) {
        self.changes_bytes += size(&file.path);
        self.changes.push_back(ChangedFile { path: file.path.clone(), change, kind: file.kind });
        self.next += 1;
        while self.changes.len() > CHANGES_MAX || self.changes_bytes > CHANGES_BYTES_MAX {
            let Some(dropped) = self.changes.pop_front() else { break };
            self.changes_bytes -= size(&dropped.path);
        }
    }

    /// The changes after `version` whose paths `admits` accepts, of at most `limit` paths and those that
    /// are found in [`LOOK_MAX`]; `None` if the version is of another journal, or its changes are not held
    /// any more.
    pub(crate) fn since(
        &self,
        version: Version,
        limit: usize,
        admits: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Delta> {
        let first = self.next - self.changes.len() as u64;
        if version.epoch != self.epoch || !(first..=self.next).contains(&version.next) {
            return None;
        }
        let mut paths: BTreeMap<&[u8], Net> = BTreeMap::new();
        let mut bytes = 0;
        let mut next = version.next;
        let end = Instant::now() + LOOK_MAX;
        for one in self.changes.range((version.next - first) as usize..) {
            if admits(&one.path) {
                if !paths.contains_key(one.path.as_slice()) {
                    bytes += one.path.len();
                    let full = paths.len() >= limit || bytes > ANSWER_BYTES_MAX;
                    if full && !paths.is_empty() {
                        break;
                    }
                }
                paths.entry(&one.path).or_insert_with(|| Net::before(one)).add(one);
            }
            next += 1;
            if (next - version.next).is_multiple_of(LOOKED_AT_ONCE) && Instant::now() >= end {
                break;
            }
        }
        let changes = paths.into_iter().filter_map(|(path, net)| net.changed(path)).collect();
        let version = Version { epoch: self.epoch, next };
        Some(Delta { changes, version, more: next < self.next })
    }
}

/// The sum of several changes of one path.
struct Net {
    existed: bool,
    exists: bool,
    kind: FileKind,
}

impl Net {
    /// Before the first change.
    fn before(first: &ChangedFile) -> Self {
        let existed = first.change != ChangeKind::Created;
        Self { existed, exists: existed, kind: first.kind }
    }

    fn add(&mut self, one: &ChangedFile) {
        self.exists = one.change != ChangeKind::Deleted;
        self.kind = one.kind;
    }

    fn changed(&self, path: &[u8]) -> Option<ChangedFile> {
        let change = match (self.existed, self.exists) {
            (false, true) => ChangeKind::Created,
            (true, true) => ChangeKind::Modified,
            (true, false) => ChangeKind::Deleted,
            (false, false) => return None,
        };
        Some(ChangedFile { path: path.to_vec(), change, kind: self.kind })
    }
}

fn size(path: &[u8]) -> usize {
    path.len() + ENTRY_BYTES
}

/// A reading may contain a file twice that moved while it was taken.
fn sort(files: &mut Vec<FileFingerprint>) {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
}

fn is_same(old: &FileFingerprint, new: &FileFingerprint) -> bool {
    !old.unsettled && old.kind == new.kind && old.inode == new.inode && old.stamp == new.stamp
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(path: &str, stamp: u128) -> FileFingerprint {
        let path = path.as_bytes().to_vec();
        FileFingerprint { path, kind: FileKind::File, inode: 7, stamp, unsettled: false }
    }

    fn all(_: &[u8]) -> bool {
        true
    }

    fn text(delta: &Delta) -> Vec<String> {
        let sign = |change| match change {
            ChangeKind::Created => '+',
            ChangeKind::Modified => '~',
            ChangeKind::Deleted => '-',
        };
        let one = |one: &ChangedFile| {
            format!("{}{}", sign(one.change), String::from_utf8_lossy(&one.path))
        };
        delta.changes.iter().map(one).collect()
    }

    #[test]
    fn changes_of_one_path_add_up() {
        let mut journal = FileJournal::new(1, vec![file("a", 1), file("b", 1), file("c", 1)]);
        let start = journal.version();
        journal.update(vec![file("b", 2), file("c", 1), file("d", 1), file("e", 1)]);
        let middle = journal.version();
        assert_eq!(text(&journal.since(start, 10, &all).unwrap()), ["-a", "~b", "+d", "+e"]);
        journal.update(vec![file("a", 3), file("c", 1), file("d", 2)]);
        assert_eq!(text(&journal.since(start, 10, &all).unwrap()), ["~a", "-b", "+d"]);
        assert_eq!(text(&journal.since(middle, 10, &all).unwrap()), ["+a", "-b", "~d", "-e"]);
        assert_eq!(text(&journal.since(journal.version(), 10, &all).unwrap()), [""; 0]);
    }

    #[test]
    fn another_type_or_inode_under_the_same_name_is_a_change() {
        let mut journal = FileJournal::new(1, vec![file("a", 1), file("b", 1)]);
        let start = journal.version();
        let folder = FileFingerprint { kind: FileKind::Directory, ..file("a", 1) };
        journal.update(vec![folder, FileFingerprint { inode: 8, ..file("b", 1) }]);
        assert_eq!(text(&journal.since(start, 10, &all).unwrap()), ["~a", "~b"]);
    }

    #[test]
    fn a_file_that_did_not_rest_is_reported_again() {
        let unsettled = || vec![FileFingerprint { unsettled: true, ..file("a", 1) }];
        let mut journal = FileJournal::new(1, unsettled());
        let start = journal.version();
        journal.update(vec![file("a", 1)]);
        let rested = journal.version();
        journal.update(vec![file("a", 1)]);
        assert_eq!(text(&journal.since(start, 10, &all).unwrap()), ["~a"]);
        assert_eq!(text(&journal.since(rested, 10, &all).unwrap()), [""; 0]);
    }

    #[test]
    fn dropped_changes_expire_their_versions_and_no_others() {
        let mut journal = FileJournal::new(1, Vec::new());
        let start = journal.version();
        journal.update((0..CHANGES_MAX).map(|n| file(&format!("{n:06}"), 1)).collect());
        assert!(journal.since(start, 10, &all).is_some());
        let full = journal.version();
        journal.update(vec![file("000000", 1)]);
        assert_eq!(journal.since(start, 10, &all), None);
        assert!(journal.since(full, 10, &all).is_some());
        assert!(journal.changes.len() <= CHANGES_MAX);
    }

    #[test]
    fn versions_of_other_journals_and_of_the_future_are_unknown() {
        let journal = FileJournal::new(1, Vec::new());
        let other = Version { epoch: 2, next: 0 };
        let future = Version { epoch: 1, next: 1 };
        assert_eq!(journal.since(other, 10, &all), None);
        assert_eq!(journal.since(future, 10, &all), None);
        let version = Version { epoch: 0xab, next: 12 };
        assert_eq!(Version::parse(&version.to_string()), Some(version));
        for bad in
            ["", "-", "1-2", "00000000000000AB-1", "00000000000000ab-", "00000000000000ab-+1"]
        {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }

    /// Applies changes to a set of paths, as a client would.
    fn apply(known: &mut BTreeMap<Vec<u8>, u128>, delta: &Delta, now: &BTreeMap<Vec<u8>, u128>) {
        for one in &delta.changes {
            match now.get(&one.path) {
                Some(stamp) if one.change != ChangeKind::Deleted => {
                    known.insert(one.path.clone(), *stamp);
                }
                _ => {
                    known.remove(&one.path);
                }
            }
        }
    }

    proptest! {
        /// A client that follows pages of any size has the same files as the directory at the end.
        #[test]
        fn pages_lead_to_the_same_files(
            trees in prop::collection::vec(prop::collection::btree_map("[a-e]{1,2}", 0u128..4, 0..12), 1..8),
            limit in 1usize..5,
        ) {
            let files = |tree: &BTreeMap<String, u128>| -> Vec<_> {
                tree.iter().map(|(path, stamp)| file(path, *stamp)).collect()
            };
            let bytes = |tree: &BTreeMap<String, u128>| -> BTreeMap<Vec<u8>, u128> {
                tree.iter().map(|(path, stamp)| (path.clone().into_bytes(), *stamp)).collect()
            };
            let mut journal = FileJournal::new(1, files(&trees[0]));
            let mut version = journal.version();
            let mut known = bytes(&trees[0]);
            let last = bytes(&trees[trees.len() - 1]);
            for tree in &trees[1..] {
                journal.update(files(tree));
            }
            loop {
                let delta = journal.since(version, limit, &all).unwrap();
                prop_assert!(delta.changes.len() <= limit);
                apply(&mut known, &delta, &last);
                version = delta.version;
                if !delta.more { break }
            }
            prop_assert_eq!(known, last);
        }
    }
}
