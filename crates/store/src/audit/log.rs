//! One tenant's log: segments of a bounded size, and a head that says where the log begins and ends.
//!
//! The head is signed like the lines: without it, a log that lost its first or last lines would look
//! complete. It is written after the lines, so that a server that is killed in between leaves a log that
//! continues after its head, and never one that ends before it.

use super::keyring::TenantKeys;
use super::line::{self, ChainKey, ChainPosition, LINE_BYTES_MAX, LogLine};
use super::{AuditBounds, AuditEntry, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file of the head.
const HEAD: &str = "head";
/// The head is padded to this length, so that it overwrites an earlier one completely.
const HEAD_BYTES: usize = 256;
/// The file name suffix of a segment.
const SUFFIX: &str = ".ndjson";

/// Where a log begins and ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The first `seq` in the log.
    pub(crate) first: u64,
    /// The last `seq` in the log.
    pub(crate) seq: u64,
    /// The signature of the last line.
    pub(crate) hmac: String,
    /// The signature of the other three members.
    mac: String,
}

impl Head {
    fn text(&self) -> String {
        format!("head {} {} {}", self.first, self.seq, self.hmac)
    }

    /// Reads the head of a log; `None` if it is missing or its signature is invalid.
    pub(crate) fn read(directory: &Path, keys: &TenantKeys) -> Option<Self> {
        let mut text = String::new();
        let file = File::open(directory.join(HEAD)).ok()?;
        file.take(2 * HEAD_BYTES as u64).read_to_string(&mut text).ok()?;
        let head: Self = serde_json::from_str(&text).ok()?;
        let signed = |key: &ChainKey| key.sign(head.text().as_bytes()) == head.mac;
        let valid = signed(keys.current()) || keys.retired_head(head.seq).is_some_and(signed);
        valid.then_some(head)
    }

    fn write(&self, directory: &Path, key: &ChainKey) -> io::Result<()> {
        let signed = Self { mac: key.sign(self.text().as_bytes()), ..self.clone() };
        let mut text = serde_json::to_string(&signed)?;
        text.extend(std::iter::repeat_n(' ', (HEAD_BYTES - 1).saturating_sub(text.len())));
        text.push('\n');
        let mut open = OpenOptions::new();
        let open = open.write(true).create(true).truncate(false).mode(0o600);
        open.open(directory.join(HEAD))?.write_all_at(text.as_bytes(), 0)
    }
}

/// The segments of a log in order, each with its first `seq`.
pub(crate) fn segments(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let first = name.and_then(|name| name.strip_suffix(SUFFIX)?.parse().ok());
        all.extend(first.map(|first| (first, path)));
    }
    all.sort_unstable();
    Ok(all)
}

/// Calls `each` with every line, without its newline, and whether it had one. Longer lines than
/// [`LINE_BYTES_MAX`] are split.
pub(crate) fn lines(
    reader: impl Read,
    mut each: impl FnMut(&[u8], bool) -> io::Result<()>,
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let whole = line.pop_if(|byte| *byte == b'\n').is_some();
        each(&line, whole)?;
    }
}

/// A log that is open for writing, by one writer.
pub(crate) struct TenantLog {
    directory: PathBuf,
    keys: TenantKeys,
    head: Head,
    /// The first `seq` of each segment.
    segments: Vec<u64>,
    /// The size of the last segment, in bytes.
    bytes: u64,
    /// The last `seq` of each sandbox in the log.
    last: HashMap<String, u64>,
}

/// Damage that was found and repaired when a log was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Repaired {
    /// Bytes of an incomplete last line, which was removed.
    pub(crate) torn_bytes: u64,
    /// Number of lines that are missing at the end, according to the head.
    pub(crate) lost: u64,
    /// The log has lines, but no valid head.
    pub(crate) no_head: bool,
}

impl TenantLog {
    /// Opens a log, or creates one, and removes an incomplete last line.
    pub(crate) fn open(directory: &Path, keys: TenantKeys) -> io::Result<(Self, Repaired)> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let noted = Head::read(directory, &keys);
        let found = segments(directory)?;
        let mut log = Self {
            directory: directory.to_owned(),
            keys,
            head: Head { first: found.first().map_or(1, |(first, _)| *first), ..Head::default() },
            segments: found.iter().map(|(first, _)| *first).collect(),
            bytes: 0,
            last: HashMap::new(),
        };
        let mut repaired = Repaired::default();
        for (_, path) in &found {
            (log.bytes, repaired.torn_bytes) = log.take(path)?;
        }
        if let Some((_, path)) = found.last().filter(|_| repaired.torn_bytes > 0) {
            OpenOptions::new().write(true).open(path)?.set_len(log.bytes)?;
        }
        match noted {
            Some(noted) => {
                log.head.first = noted.first.max(1);
                if noted.seq > log.head.seq {
                    repaired.lost = noted.seq - log.head.seq;
                    log.head.seq = noted.seq;
                    log.head.hmac = noted.hmac;
                }
            }
            None => repaired.no_head = !found.is_empty(),
        }
        Ok((log, repaired))
    }

    /// Reads a segment. Returns its size up to the end of the last complete line, and the number of bytes
    /// after that.
    fn take(&mut self, path: &Path) -> io::Result<(u64, u64)> {
        let mut all = 0;
        let mut good = 0;
        lines(File::open(path)?, |bytes, whole| {
            all += bytes.len() as u64 + u64::from(whole);
            if let Some(line) = LogLine::read(bytes).filter(|_| whole) {
                good = all;
                self.head.seq = line.seq;
                self.head.hmac = line.hmac;
                line.sandbox.map(|sandbox| self.last.insert(sandbox, line.seq));
            }
            Ok(())
        })?;
        Ok((good, all - good))
    }

    /// Appends all entries, or none of them.
    pub(crate) fn append(&mut self, entries: &[AuditEntry]) -> io::Result<()> {
        let mut head = self.head.clone();
        let mut last = HashMap::<&str, u64>::new();
        let mut text = Vec::with_capacity(entries.len() * 512);
        for entry in entries {
            let sandbox = entry.sandbox.as_deref().unwrap_or_default();
            let before = last.get(sandbox).or_else(|| self.last.get(sandbox)).copied();
            let place =
                ChainPosition { seq: head.seq + 1, last: before.unwrap_or(0), prev: &head.hmac };
            let hmac = line::write(&mut text, self.keys.current(), entry, place);
            head.seq += 1;
            head.hmac = hmac;
            if entry.sandbox.is_some() {
                last.insert(sandbox, head.seq);
            }
        }
        if self.segments.is_empty() || self.bytes + text.len() as u64 > SEGMENT_BYTES_MAX {
            self.segments.push(self.head.seq + 1);
            self.bytes = 0;
        }
        let path = self.segment();
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(&text));
        if let Err(error) = written {
            // Partly written entries are removed: they were not acknowledged.
            let cut = OpenOptions::new().write(true).open(&path);
            let _ = cut.and_then(|file| file.set_len(self.bytes));
            return Err(error);
        }
        self.bytes += text.len() as u64;
        self.last.extend(last.into_iter().map(|(sandbox, seq)| (sandbox.to_owned(), seq)));
        self.head = head;
        self.drop_oldest();
        self.head.write(&self.directory, self.keys.current())
    }

    /// The last `seq` in the log.
    pub(crate) fn last_seq(&self) -> u64 {
        self.head.seq
    }

    /// The first and the last entry.
    pub(crate) fn bounds(&self) -> AuditBounds {
        let Head { first, seq, hmac, .. } = &self.head;
        AuditBounds { first: *first, last: *seq, mark: hmac.clone() }
    }

    /// Signs everything from here on with other keys.
    pub(crate) fn set_keys(&mut self, keys: TenantKeys) {
        self.keys = keys;
    }

    /// The path of the last segment.
    fn segment(&self) -> PathBuf {
        let first = self.segments.last().copied().unwrap_or(1);
        self.directory.join(format!("{first:020}{SUFFIX}"))
    }

    /// Removes the oldest segments beyond [`SEGMENTS_MAX`].
    fn drop_oldest(&mut self) {
        let more = self.segments.len().saturating_sub(SEGMENTS_MAX);
        if more == 0 {
            return;
        }
        self.head.first = self.segments[more];
        let first = self.head.first;
        self.last.retain(|_, seq| *seq >= first);
        // The head is written first: if the server is killed in between, it leaves lines before the first
        // one of the head, which the next call removes.
        let _ = self.head.write(&self.directory, self.keys.current());
        for gone in self.segments.drain(..more) {
            let _ = fs::remove_file(self.directory.join(format!("{gone:020}{SUFFIX}")));
        }
    }

    /// Flushes the last segment and the head to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        for path in [self.segment(), self.directory.join(HEAD)] {
            match File::open(path) {
                Ok(file) => file.sync_data()?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        File::open(&self.directory)?.sync_all()
    }
}
