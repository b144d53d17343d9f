//! Follows a tenant's log: entries behind a position, and where the log does not continue from it.
//!
//! A position names an entry and its signature, which is unique even when a log that lost its last
//! entries uses their numbers again. So a reader notices everything that it was not given.

use super::line::{LINE_BYTES_MAX, LogLine};
use super::log::segments;
use super::{Audit, AuditDirectory};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// Maximum size of the lines that are read at once, in bytes.
const BATCH_BYTES: u64 = 64 * 1024;

/// The last entry that a reader has taken; the default stands for the beginning of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPosition {
    /// The number of the entry.
    pub seq: u64,
    /// Its signature; empty for the beginning.
    pub mark: String,
    /// Its time, as in the log; empty if it is unknown.
    pub ts: String,
}

/// The first and the last entry of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditBounds {
    /// The number of the first entry in the log.
    pub first: u64,
    /// The number of the last entry; 0: the log is empty.
    pub last: u64,
    /// The signature of the last entry.
    pub mark: String,
}

/// An entry of a log, as it is read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ReadEntry {
    /// Its number in the log.
    pub seq: u64,
    /// When it happened (RFC 3339).
    pub ts: String,
    /// The sandbox; `None`: none, or more than one.
    #[serde(rename = "sandbox_id")]
    pub sandbox: Option<String>,
    /// The kind of action.
    pub event: String,
    /// Details.
    pub data: Map<String, Value>,
    /// The signature of the entry before.
    prev: String,
    /// Its own signature.
    pub hmac: String,
}

impl ReadEntry {
    /// The position behind this entry.
    #[must_use]
    pub fn position(&self) -> AuditPosition {
        AuditPosition { seq: self.seq, mark: self.hmac.clone(), ts: self.ts.clone() }
    }

    fn follows(&self, position: &AuditPosition) -> bool {
        let known = position.mark.is_empty() || self.prev == position.mark;
        self.seq == position.seq + 1 && known
    }
}

/// Why a log does not continue where a reader stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapReason {
    /// The entries were the oldest, and the log has dropped them.
    Dropped,
    /// The log lost entries, for instance in a power failure, or it is another one.
    Lost,
}

/// Entries that a reader was not given and will not be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditGap {
    /// The number of the first entry concerned.
    pub from: u64,
    /// The number of the last entry concerned.
    pub to: u64,
    /// Why they are missing.
    pub reason: GapReason,
    /// Where the reader continues.
    pub next: AuditPosition,
}

/// What follows a position.
#[derive(Debug, Clone, PartialEq)]
pub enum Followed {
    /// The next entries; empty at the end of the log.
    Entries(Vec<ReadEntry>),
    /// The log does not continue there.
    Gap(AuditGap),
}

/// A reader that follows a tenant's log.
#[derive(Debug)]
pub struct Follower {
    tenant: String,
    /// `None` until the log was opened.
    bounds: watch::Receiver<Option<AuditBounds>>,
    /// Where the entry behind a position begins, so that no segment is read twice.
    place: Option<Place>,
}

/// Where a reader stopped in a segment.
#[derive(Debug, Clone)]
struct Place {
    segment: PathBuf,
    offset: u64,
    behind: AuditPosition,
}

impl Follower {
    /// The bounds of the log, as soon as it was opened.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn bounds(&mut self) -> Result<AuditBounds, Error> {
        let bounds = self.bounds.wait_for(Option::is_some).await.map_err(|_| Error::Closed)?;
        Ok(bounds.clone().unwrap_or_default())
    }

    /// The number of the last entry, as far as it is known; 0 before the log was opened.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.bounds.borrow().as_ref().map_or(0, |bounds| bounds.last)
    }

    /// Waits until the log has changed since the last call of [`Follower::after`].
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn changed(&mut self) -> Result<(), Error> {
        self.bounds.changed().await.map_err(|_| Error::Closed)
    }

    /// The position behind the last entry that is not later than a time (RFC 3339).
    ///
    /// # Errors
    /// [`Error::Io`]; a later call may succeed.
    pub async fn at(&mut self, audit: &Audit, ts: &str) -> Result<AuditPosition, Error> {
        let bounds = self.bounds().await?;
        let shared = &audit.writer.shared;
        let permit = Arc::clone(&shared.readers).acquire_owned().await;
        let place = shared.place();
        let tenant = self.tenant.clone();
        let ts = ts.to_owned();
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let reader = Reader { place: &place, tenant: &tenant, bounds: &bounds };
            reader.until(&ts).map_err(|error| Error::io(&place.of(&tenant), &error))
        });
        read.await.map_err(|_| Error::Closed)?
    }

    /// What follows a position.
    ///
    /// # Errors
    /// [`Error::Io`]; a later call may succeed.
    pub async fn after(
        &mut self,
        audit: &Audit,
        position: &AuditPosition,
    ) -> Result<Followed, Error> {
        self.bounds().await?;
        let bounds = self.bounds.borrow_and_update().clone().unwrap_or_default();
        if bounds.last == position.seq && (bounds.last == 0 || bounds.mark == position.mark) {
            return Ok(Followed::Entries(Vec::new()));
        }
        let shared = &audit.writer.shared;
        let permit = Arc::clone(&shared.readers).acquire_owned().await;
        let place = shared.place();
        let tenant = self.tenant.clone();
        let position = position.clone();
        let known = self.place.take().filter(|known| known.behind == position);
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let reader = Reader { place: &place, tenant: &tenant, bounds: &bounds };
            reader.after(&position, known).map_err(|error| Error::io(&place.of(&tenant), &error))
        });
        let (found, place) = read.await.map_err(|_| Error::Closed)??;
        self.place = place;
        Ok(found)
    }
}

/// Reads the segments of one log. Blocks.
struct Reader<'a> {
    place: &'a AuditDirectory,
    tenant: &'a str,
    bounds: &'a AuditBounds,
}

impl Reader<'_> {
    fn after(
        &self,
        position: &AuditPosition,
        known: Option<Place>,
    ) -> io::Result<(Followed, Option<Place>)> {
        if position.seq + 1 < self.bounds.first {
            return Ok((Followed::Gap(self.dropped(position)?), None));
        }
        if self.bounds.last <= position.seq {
            return Ok((Followed::Gap(self.lost(position)?), None));
        }
        let segments = self.segments()?;
        let mut at = segments.iter().rposition(|(first, _)| *first <= position.seq + 1);
        let mut offset = 0;
        if let Some(known) = known {
            at = segments.iter().position(|(_, path)| *path == known.segment).or(at);
            offset =
                if at.is_some_and(|at| segments[at].1 == known.segment) { known.offset } else { 0 };
        }
        let mut entries: Vec<ReadEntry> = Vec::new();
        let mut last = position.clone();
        for (_, path) in &segments[at.unwrap_or(0)..] {
            let mut lines = Lines::open(path, offset)?;
            offset = 0;
            while let Some(entry) = lines.next()? {
                if entry.seq <= position.seq {
                    continue;
                }
                if !entry.follows(&last) {
                    let gap = self.broken(&last, &entry)?;
                    let found = if entries.is_empty() {
                        Followed::Gap(gap)
                    } else {
                        Followed::Entries(entries)
                    };
                    return Ok((found, None));
                }
                last = entry.position();
                entries.push(entry);
                // Lines behind the bounds are still being written.
                if lines.taken >= BATCH_BYTES || last.seq == self.bounds.last {
                    let place = Place { segment: path.clone(), offset: lines.offset, behind: last };
                    return Ok((Followed::Entries(entries), Some(place)));
                }
            }
        }
        if entries.is_empty() {
            // The rest of the log cannot be read.
            let reason = GapReason::Lost;
            let to = self.bounds.last;
            let next =
                AuditPosition { seq: to, mark: self.bounds.mark.clone(), ..position.clone() };
            return Ok((Followed::Gap(AuditGap { from: last.seq + 1, to, reason, next }), None));
        }
        Ok((Followed::Entries(entries), None))
    }

    /// The entry does not follow the last one: entries are missing between them, or the log is another
    /// one since.
    fn broken(&self, last: &AuditPosition, entry: &ReadEntry) -> io::Result<AuditGap> {
        if entry.seq == last.seq + 1 {
            return self.lost(last);
        }
        let to = entry.seq - 1;
        let next = AuditPosition { seq: to, mark: entry.prev.clone(), ts: last.ts.clone() };
        Ok(AuditGap { from: last.seq + 1, to, reason: GapReason::Lost, next })
    }

    /// The log has dropped the entries behind the position.
    fn dropped(&self, position: &AuditPosition) -> io::Result<AuditGap> {
        let Some((_, path)) =
            self.segments()?.into_iter().find(|(first, _)| *first >= self.bounds.first)
        else {
            return self.lost(position);
        };
        let Some(first) = Lines::open(&path, 0)?.next()? else { return self.lost(position) };
        let to = first.seq.saturating_sub(1);
        let next = AuditPosition { seq: to, mark: first.prev, ts: position.ts.clone() };
        Ok(AuditGap { from: position.seq + 1, to, reason: GapReason::Dropped, next })
    }

    /// The entry of the position is not in the log any more. The reader continues behind the last entry
    /// that is not later than it, so that no later one is missed.
    fn lost(&self, position: &AuditPosition) -> io::Result<AuditGap> {
        let next = self.until(&position.ts)?;
        let from = next.seq.min(position.seq.saturating_sub(1)) + 1;
        let to = next.seq.max(position.seq);
        Ok(AuditGap { from, to, reason: GapReason::Lost, next })
    }

    /// The position behind the last entry that is not later than a time.
    fn until(&self, ts: &str) -> io::Result<AuditPosition> {
        let mut found = AuditPosition::default();
        let all = self.segments()?;
        for (_, path) in &all {
            let mut lines = Lines::open(path, 0)?;
            while let Some(entry) = lines.next()? {
                if entry.seq <= self.bounds.last && entry.ts.as_str() <= ts {
                    found = entry.position();
                }
            }
        }
        if found.seq == 0
            && let Some((_, path)) = all.first()
            && let Some(first) = Lines::open(path, 0)?.next()?
        {
            // Every entry is later. The first one names the signature before it.
            found.seq = first.seq.saturating_sub(1);
            found.mark = first.prev;
        }
        Ok(found)
    }

    fn segments(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        match segments(&self.place.of(self.tenant)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            found => found,
        }
    }
}

/// The entries of one segment. Lines that cannot be parsed are skipped, which leaves a gap.
struct Lines {
    reader: BufReader<File>,
    /// Where the next line begins, in bytes.
    offset: u64,
    /// How many bytes were read.
    taken: u64,
    line: Vec<u8>,
}

impl Lines {
    fn open(path: &PathBuf, offset: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let reader = BufReader::with_capacity(64 * 1024, file);
        Ok(Self { reader, offset, taken: 0, line: Vec::new() })
    }

    fn next(&mut self) -> io::Result<Option<ReadEntry>> {
        loop {
            self.line.clear();
            let most = LINE_BYTES_MAX as u64 + 2;
            let read = (&mut self.reader).take(most).read_until(b'\n', &mut self.line)? as u64;
            // A line without a newline is still being written.
            if read == 0 || (self.line.last() != Some(&b'\n') && read < most) {
                return Ok(None);
            }
            self.offset += read;
            self.taken += read;
            self.line.pop_if(|byte| *byte == b'\n');
            if LogLine::read(&self.line).is_none() {
                continue;
            }
            if let Ok(entry) = serde_json::from_slice(&self.line) {
                return Ok(Some(entry));
            }
        }
    }
}

impl Audit {
    /// Follows a tenant's log.
    #[must_use]
    pub fn follow(&self, tenant: &str) -> Follower {
        let shared = &self.writer.shared;
        let bounds = shared.follow(tenant);
        Follower { tenant: tenant.to_owned(), bounds, place: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditEntry, SEGMENTS_MAX};
    use std::fs;
    use std::path::Path;

    async fn write(audit: &Audit, count: usize, padding: usize) {
        for number in 0..count {
            let entry = AuditEntry::now("t", Some("box"), "sandbox.created");
            audit.put(entry.with("n", number).with("padding", "x".repeat(padding)));
        }
        audit.flush().await;
    }

    /// Follows the log to its end. Returns the numbers of the entries.
    async fn rest(audit: &Audit, follower: &mut Follower, from: &mut AuditPosition) -> Vec<u64> {
        let mut numbers = Vec::new();
        loop {
            match follower.after(audit, from).await.unwrap() {
                Followed::Entries(entries) if entries.is_empty() => return numbers,
                Followed::Entries(entries) => {
                    numbers.extend(entries.iter().map(|entry| entry.seq));
                    *from = entries.last().unwrap().position();
                }
                Followed::Gap(gap) => panic!("{gap:?}"),
            }
        }
    }

    fn segment(data: &Path) -> PathBuf {
        data.join("audit/tenants/t").join(format!("{:020}.ndjson", 1))
    }

    #[tokio::test]
    async fn a_follower_reads_each_entry_once_and_goes_on_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        let mut position = AuditPosition::default();
        let mut follower = audit.follow("t");
        assert_eq!(rest(&audit, &mut follower, &mut position).await, [] as [u64; 0]);
        write(&audit, 300, 1000).await;
        let all: Vec<u64> = (1..=300).collect();
        assert_eq!(rest(&audit, &mut follower, &mut position).await, all);
        write(&audit, 2, 0).await;
        assert_eq!(rest(&audit, &mut follower, &mut position).await, [301, 302]);
        audit.rotate_key().await.unwrap();
        assert_eq!(rest(&audit, &mut follower, &mut position).await, [303, 304]);
        write(&audit, 1, 0).await;
        drop(follower);
        drop(audit);
        let audit = Audit::open(folder.path()).unwrap();
        let mut follower = audit.follow("t");
        assert_eq!(rest(&audit, &mut follower, &mut position).await, [305]);
    }

    #[tokio::test]
    async fn entries_that_the_log_has_dropped_are_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        let mut follower = audit.follow("t");
        write(&audit, 1, 0).await;
        let mut position = AuditPosition::default();
        rest(&audit, &mut follower, &mut position).await;
        let entries = (SEGMENTS_MAX + 2) * 600;
        // What is written at once lies in one segment.
        for _ in 0..SEGMENTS_MAX + 2 {
            write(&audit, 600, 7000).await;
        }
        let first = follower.bounds().await.unwrap().first;
        assert!(first > 2);
        let gap = match follower.after(&audit, &position).await.unwrap() {
            Followed::Gap(gap) => gap,
            Followed::Entries(entries) => panic!("{} entries", entries.len()),
        };
        assert_eq!((gap.from, gap.to, gap.reason), (2, first - 1, GapReason::Dropped));
        position = gap.next;
        let numbers = rest(&audit, &mut follower, &mut position).await;
        assert_eq!(numbers.first(), Some(&first));
        assert_eq!(numbers.last(), Some(&(entries as u64 + 1)));
    }

    /// After a loss of power, a log may end earlier and use the numbers of lost entries again.
    #[tokio::test]
    async fn a_log_that_lost_entries_and_reused_their_numbers_is_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let audit = Audit::open(data).unwrap();
        let mut follower = audit.follow("t");
        write(&audit, 10, 0).await;
        let mut position = AuditPosition::default();
        rest(&audit, &mut follower, &mut position).await;
        drop(follower);
        drop(audit);
        let text = fs::read_to_string(segment(data)).unwrap();
        let kept: String = text.split_inclusive('\n').take(7).collect();
        fs::write(segment(data), kept).unwrap();
        fs::remove_file(data.join("audit/tenants/t/head")).unwrap();

        let audit = Audit::open(data).unwrap();
        let mut follower = audit.follow("t");
        // `audit.repaired` and 9 entries: the log has an entry 10 again, and a later one.
        write(&audit, 9, 0).await;
        let gap = match follower.after(&audit, &position).await.unwrap() {
            Followed::Gap(gap) => gap,
            Followed::Entries(entries) => panic!("{entries:?}"),
        };
        assert_eq!((gap.to, gap.reason), (10, GapReason::Lost));
        assert!(gap.next.seq >= 7 && gap.from <= gap.to, "{gap:?}");
        position = gap.next;
        let numbers = rest(&audit, &mut follower, &mut position).await;
        assert_eq!(numbers.last(), Some(&17));
    }
}
