//! Verifies a log or an export of one: finds lines that were changed, removed, moved, or cut off the end.

use super::AuditDirectory;
use super::line::LogLine;
use super::log::{Head, lines, segments};
use crate::error::Error;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum number of findings in a verdict; further ones are only counted.
const FINDINGS_MAX: usize = 1000;

/// A difference between a log and what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A line cannot be parsed.
    Unreadable {
        /// Line number in the file, from 1.
        line: u64,
    },
    /// The signature of a line is invalid, or belongs to another log.
    Changed {
        /// Line number in the file, from 1.
        line: u64,
        /// The line's own `seq`.
        seq: u64,
    },
    /// A line follows a later one, or is repeated.
    Reordered {
        /// Line number in the file, from 1.
        line: u64,
        /// The line's own `seq`.
        seq: u64,
    },
    /// Entries between two others, or at the start, are missing.
    Missing {
        /// Lower bound of the first missing `seq`.
        from: u64,
        /// Upper bound of the last missing `seq`.
        to: u64,
    },
    /// The last line is incomplete.
    Torn {
        /// Line number in the file, from 1.
        line: u64,
    },
    /// Entries are missing at the end.
    Truncated {
        /// The last `seq` that was found; 0: none.
        seq: u64,
        /// The last `seq` that was written.
        written: u64,
    },
    /// An entry follows the end of the log: the log lost it, or never had it.
    Unknown {
        /// Line number in the file, from 1.
        line: u64,
        /// The line's own `seq`.
        seq: u64,
        /// The last `seq` of the log.
        written: u64,
    },
    /// The head, which says where the log begins and ends, is missing or has an invalid signature.
    NoHead,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { line } => write!(f, "line {line} is not an entry of an audit log"),
            Self::Changed { line, seq } => {
                write!(f, "line {line} (entry {seq}) was changed, or belongs to another log")
            }
            Self::Reordered { line, seq } => {
                write!(f, "line {line} (entry {seq}) follows a later entry, or is repeated")
            }
            Self::Missing { from, to } if from == to => write!(f, "entry {from} is missing"),
            Self::Missing { from, to } => {
                write!(f, "entries are missing between {from} and {to}")
            }
            Self::Torn { line } => write!(f, "line {line} is incomplete"),
            Self::Truncated { seq, written } => {
                write!(f, "the file ends with entry {seq}, but the log continues to entry {written}")
            }
            Self::Unknown { line, seq, written } => write!(
                f,
                "line {line} (entry {seq}) and those behind it are unknown: the log ends with entry {written}"
            ),
            Self::NoHead => f.write_str(
                "the file `head`, which says where the log begins and ends, is missing or was changed",
            ),
        }
    }
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Number of valid lines.
    pub good: u64,
    /// The first and the last `seq`.
    pub range: Option<(u64, u64)>,
    /// At most 1,000 findings, in the order of the file.
    pub findings: Vec<Finding>,
    /// Number of further findings.
    pub more: u64,
}

impl Verdict {
    /// Whether nothing was found.
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

/// Where a complete export must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The export was made just now, and ends where the log ends.
    Now,
    /// The export was made earlier, and may end before the log does.
    Earlier,
}

impl AuditDirectory {
    /// Verifies a tenant's log on the disk. Blocks. No server may write it in the meantime, otherwise new
    /// lines may be reported as incomplete.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn verify(&self, tenant: &str) -> Result<Verdict, Error> {
        let directory = self.of(tenant);
        let keys = self.keys(tenant);
        // The head is read first, because a running server writes it last.
        let head = Head::read(&directory, &keys);
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

    /// The first `seq` of a log, and the last one of the log or of one sandbox in it.
    fn ends(&self, tenant: &str, sandbox: Option<&str>) -> Result<Option<(u64, u64)>, Error> {
        let Some(head) = Head::read(&self.of(tenant), &self.keys(tenant)) else {
            return Ok(None);
        };
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

/// Verifies an export of a tenant's log, complete or of one sandbox. Blocks.
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
    // Read before the file: what a server writes during the verification is in no export.
    let head = Head::read(&place.of(tenant), &check.keys);
    check.known = Some(head.as_ref().map_or(0, |head| head.seq));
    check.read(open, file)?;
    if head.is_none() {
        check.verdict.find(Finding::NoHead);
    }
    // A file with lines of a single sandbox is the export of that sandbox, or of a log that has no others.
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

/// The sandboxes of the lines so far.
enum Seen {
    Nobody,
    One(Option<String>),
    Many,
}

/// A gap in the sequence numbers.
struct Gap {
    from: u64,
    to: u64,
    /// Whether the `last` of the next line says that no line of its sandbox is missing.
    bridged: bool,
}

struct Check {
    keys: super::TenantKeys,
    verdict: Verdict,
    /// Number of lines so far.
    count: u64,
    first: Option<u64>,
    /// The last `seq` that the log has; `None`: this is the log itself.
    known: Option<u64>,
    /// `seq` and `last` of the first line.
    begins: Option<(u64, u64)>,
    /// The highest `seq` so far, and the signature of its line if that was valid.
    latest: Option<(u64, Option<String>)>,
    gaps: Vec<Gap>,
    /// Sequence numbers that appear after a higher one.
    late: BTreeSet<u64>,
    sandboxes: Seen,
}

impl Check {
    fn new(place: &AuditDirectory, tenant: &str, first: Option<u64>) -> Self {
        Self {
            keys: place.keys(tenant),
            verdict: Verdict::default(),
            count: 0,
            first,
            known: None,
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
        if let Some(written) = self.known.filter(|written| seq > *written) {
            // Only the first one is named.
            self.known = None;
            self.verdict.find(Finding::Unknown { line: count, seq, written });
        }
        let mut holds = line.holds(self.keys.at(seq), bytes);
        match &self.latest {
            Some((latest, _)) if seq <= *latest => {
                self.late.insert(seq);
                self.verdict.find(Finding::Reordered { line: count, seq });
                return;
            }
            Some((latest, hmac)) if seq == latest + 1 => {
                // After a changed line, only the line's own signature is checked.
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

    /// Adds the findings about missing entries, and returns the verdict.
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
            // Reordered entries are not missing.
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
