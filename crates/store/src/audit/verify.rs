//! Verifies a log or an export: finds lines that were changed, removed, moved, or cut off at the
//! end.

use super::{
    AuditDirectory,
    line::LogLine,
    log::{Head, lines, segments},
};
use crate::error::Error;
use std::{collections::BTreeSet, fmt, fs::File, io::Read, path::Path};

/// Findings that are told; more are counted.
const FINDINGS_MAX: usize = 1000;

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// That is no line of a log.
    Unreadable {
        /// Which of the file's lines, from 1.
        line: u64,
    },
    /// Its signature is not that of its text, or not under this key.
    Changed {
        /// Which of the file's lines, from 1.
        line: u64,
        /// As it says.
        seq: u64,
    },
    /// It stands behind a later one, or comes again.
    Reordered {
        /// Which of the file's lines, from 1.
        line: u64,
        /// As it says.
        seq: u64,
    },
    /// Entries are not there.
    Missing {
        /// The first of them, at the earliest.
        from: u64,
        /// The last of them, at the latest.
        to: u64,
    },
    /// The last line has no end.
    Torn {
        /// Which of the file's lines, from 1.
        line: u64,
    },
    /// The log goes on.
    Truncated {
        /// The last that is there; 0: none.
        seq: u64,
        /// The last that was written.
        written: u64,
    },
    /// The note of where the log begins and ends is not there, or not genuine.
    NoHead,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { line } => write!(f, "line {line} is no entry of an audit log"),
            Self::Changed { line, seq } => {
                write!(f, "line {line} (entry {seq}) was changed, or is of another log")
            }
            Self::Reordered { line, seq } => {
                write!(f, "line {line} (entry {seq}) stands behind a later entry, or comes again")
            }
            Self::Missing { from, to } if from == to => write!(f, "entry {from} is missing"),
            Self::Missing { from, to } => {
                write!(f, "entries are missing within {from} and {to}")
            }
            Self::Torn { line } => write!(f, "line {line} is not whole"),
            Self::Truncated { seq, written } => {
                write!(f, "it ends with entry {seq}, and the log goes on to entry {written}")
            }
            Self::NoHead => f.write_str(
                "the note of where the log begins and ends (`head`) is not there or not genuine",
            ),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Lines that are as they were written.
    pub good: u64,
    /// The first and the last `seq`.
    pub range: Option<(u64, u64)>,
    /// What is wrong, in the order in which it was found; at most 1,000.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub more: u64,
}

impl Verdict {
    /// Whether all is as it was written.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// What an export is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It was made just now: it ends where the log ends.
    Now,
    /// It was made earlier: it may end before the log does.
    Earlier,
}

/// Looks through a tenant's log as it lies. Blocks; a server that writes it must have stopped, or
/// what it writes meanwhile is taken for a cut.
impl AuditDirectory {
    /// # Errors
    /// [`Error::Io`].
    pub fn verify(&self, tenant: &str) -> Result<Verdict, Error> {
        let directory = self.of(tenant);
        let key = self.key(tenant);
        // The note first: a running server writes it last.
        let head = Head::read(&directory, &key);
        let mut check = Check::new(self, tenant, head.as_ref().map(|head| head.first));
        let all = segments(&directory).map_err(|error| Error::io(&directory, &error))?;
        for (_, path) in &all {
            let file = File::open(path).map_err(|error| Error::io(path, &error))?;
            check.read(file, path)?;
        }
        let some = !all.is_empty();
        let mut verdict = check.end(head.as_ref().map(|head| head.seq), Whole::Yes);
        if head.is_none() && some {
            verdict.find(Finding::NoHead);
        }
        Ok(verdict)
    }

    /// The last entry of a log, or of one sandbox in it; and the first that is held.
    fn ends(&self, tenant: &str, sandbox: Option<&str>) -> Result<Option<(u64, u64)>, Error> {
        let Some(head) = Head::read(&self.of(tenant), &self.key(tenant)) else { return Ok(None) };
        let mut end = head.seq;
        if sandbox.is_some() {
            end = 0;
            self.read(tenant, sandbox, |bytes| {
                let line = LogLine::read(bytes.strip_suffix(b"\n").unwrap_or(bytes));
                end = line.map_or(end, |line| end.max(line.seq));
                true
            })?;
        }
        Ok(Some((head.first, end)))
    }
}

/// Looks through an export of a tenant's log, whole or of one sandbox. Blocks.
///
/// # Errors
/// [`Error::Io`].
pub fn verify(
    place: &AuditDirectory,
    tenant: &str,
    file: &Path,
    expected: Expected,
) -> Result<Verdict, Error> {
    let open = File::open(file).map_err(|error| Error::io(file, &error))?;
    let mut check = Check::new(place, tenant, None);
    check.read(open, file)?;
    // A sandbox's part leaves out what others did; a file that says nothing of more than one is
    // such a part, or a log in which there is nothing else.
    let sandbox = match &check.sandboxes {
        Seen::One(Some(sandbox)) => Some(sandbox.clone()),
        _ => None,
    };
    let whole = if sandbox.is_some() { Whole::OneSandbox } else { Whole::Yes };
    let ends = place.ends(tenant, sandbox.as_deref())?;
    check.first = ends.map(|(first, _)| first);
    let end = ends.map(|(_, end)| end).filter(|_| expected == Expected::Now);
    Ok(check.end(end, whole))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    OneSandbox,
}

/// Of whom lines have spoken so far.
enum Seen {
    Nobody,
    One(Option<String>),
    Many,
}

/// A gap in the numbers, and whether the sandbox's own chain leads over it.
struct Gap {
    from: u64,
    to: u64,
    bridged: bool,
}

struct Check {
    key: super::ChainKey,
    verdict: Verdict,
    /// The file's lines so far.
    count: u64,
    first: Option<u64>,
    /// Of the first line: its number, and that of the sandbox's line before.
    begins: Option<(u64, u64)>,
    /// The latest entry, and its signature where that held.
    latest: Option<(u64, Option<String>)>,
    gaps: Vec<Gap>,
    /// Entries that came late.
    late: BTreeSet<u64>,
    sandboxes: Seen,
}

impl Check {
    fn new(place: &AuditDirectory, tenant: &str, first: Option<u64>) -> Self {
        Self {
            key: place.key(tenant),
            verdict: Verdict::default(),
            count: 0,
            first,
            begins: None,
            latest: None,
            gaps: Vec::new(),
            late: BTreeSet::new(),
            sandboxes: Seen::Nobody,
        }
    }

    fn read(&mut self, file: impl Read, path: &Path) -> Result<(), Error> {
        let read = lines(file, |bytes, whole| {
            self.count += 1;
            match LogLine::read(bytes) {
                _ if !whole => self.verdict.find(Finding::Torn { line: self.count }),
                None => self.verdict.find(Finding::Unreadable { line: self.count }),
                Some(line) => self.take(line, bytes),
            }
            Ok(())
        });
        read.map_err(|error| Error::io(path, &error))
    }

    fn take(&mut self, line: LogLine, bytes: &[u8]) {
        let count = self.count;
        let seq = line.seq;
        self.begins.get_or_insert((seq, line.last));
        self.see(&line);
        let mut holds = line.holds(&self.key, bytes);
        match &self.latest {
            Some((latest, _)) if seq <= *latest => {
                self.late.insert(seq);
                self.verdict.find(Finding::Reordered { line: count, seq });
                return;
            }
            Some((latest, hmac)) if seq == latest + 1 => {
                // After a line that was changed, this one's own signature has to do.
                holds &= hmac.as_ref().is_none_or(|hmac| line.prev == *hmac);
            }
            Some((latest, _)) if self.gaps.len() < FINDINGS_MAX => {
                let bridged = line.last == *latest || line.last == 0;
                self.gaps.push(Gap { from: latest + 1, to: seq - 1, bridged });
            }
            Some(_) => self.verdict.more += 1,
            None => {}
        }
        if holds {
            self.verdict.good += 1;
        } else {
            self.verdict.find(Finding::Changed { line: count, seq });
        }
        self.latest = Some((seq, holds.then_some(line.hmac)));
    }

    fn see(&mut self, line: &LogLine) {
        match &self.sandboxes {
            Seen::Nobody => self.sandboxes = Seen::One(line.sandbox.clone()),
            Seen::One(one) if *one != line.sandbox => self.sandboxes = Seen::Many,
            _ => {}
        }
    }

    /// What is missing at both ends and between.
    fn end(mut self, written: Option<u64>, whole: Whole) -> Verdict {
        if let (Some(first), Some((begins, last))) = (self.first, self.begins) {
            match whole {
                Whole::Yes if begins > first => {
                    self.verdict.find(Finding::Missing { from: first, to: begins - 1 });
                }
                Whole::OneSandbox if last >= first => {
                    self.verdict.find(Finding::Missing { from: first, to: last });
                }
                _ => {}
            }
        }
        for gap in std::mem::take(&mut self.gaps) {
            if gap.bridged && whole == Whole::OneSandbox {
                continue;
            }
            // What came late is not missing.
            let late = self.late.range(gap.from..=gap.to).count() as u64;
            if late < gap.to - gap.from + 1 {
                self.verdict.find(Finding::Missing { from: gap.from, to: gap.to });
            }
        }
        let latest = self.latest.as_ref().map_or(0, |(seq, _)| *seq);
        if let Some(written) = written.filter(|written| *written > latest) {
            self.verdict.find(Finding::Truncated { seq: latest, written });
        }
        self.verdict.range = self.begins.map(|(first, _)| (first.min(latest), latest));
        self.verdict
    }
}
