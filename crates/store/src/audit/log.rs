//! The log of one tenant: segments of a bounded size, and a note of where it begins and ends.
//!
//! The note (`head`) is signed like the lines. Without it, a log that lost its first or last lines
//! would look complete. It is written after the lines that it covers, so a server that is killed in
//! between leaves a log that continues behind its note, and never one that ends before it.

use super::{
    AuditEntry, SEGMENT_BYTES_MAX, SEGMENTS_MAX,
    line::{self, ChainKey, LINE_BYTES_MAX, LogLine, ChainPosition},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The note's file.
const HEAD: &str = "head";
/// The note is always this long, so that a shorter one leaves nothing of a longer.
const HEAD_BYTES: usize = 256;
/// What a segment's name ends with.
const SUFFIX: &str = ".ndjson";

/// Where a log begins and ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The first `seq` that is held.
    pub(crate) first: u64,
    /// The last.
    pub(crate) seq: u64,
    /// The last line's signature.
    pub(crate) hmac: String,
    /// Over the three.
    #[serde(default)]
    mac: String,
}

impl Head {
    fn text(&self) -> String {
        format!("head {} {} {}", self.first, self.seq, self.hmac)
    }

    /// The note of a log; `None` where there is none, or it is not genuine.
    pub(crate) fn read(directory: &Path, key: &ChainKey) -> Option<Self> {
        let mut text = String::new();
        let file = File::open(directory.join(HEAD)).ok()?;
        file.take(2 * HEAD_BYTES as u64).read_to_string(&mut text).ok()?;
        let head: Self = serde_json::from_str(&text).ok()?;
        (key.sign(head.text().as_bytes()) == head.mac).then_some(head)
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

/// The segments of a log, each with the first `seq` in it, in order.
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

/// The lines of a reader, without their ends; one that is longer than a line can be is cut there.
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

/// A log that is written to, by one writer.
pub(crate) struct TenantLog {
    directory: PathBuf,
    key: ChainKey,
    head: Head,
    /// The first `seq` of each segment.
    segments: Vec<u64>,
    /// The size of the last one.
    bytes: u64,
    /// The last `seq` of each sandbox that is held.
    last: HashMap<String, u64>,
}

/// What was not as a server leaves it, found when a log was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Repaired {
    /// Bytes of a last line that was not whole.
    pub(crate) torn_bytes: u64,
    /// Lines that the note speaks of, and that are not there.
    pub(crate) lost: u64,
    /// There are lines, and no genuine note of them.
    pub(crate) no_head: bool,
}

impl TenantLog {
    /// Opens a log, or begins one. A last line that is not whole is cut off.
    pub(crate) fn open(directory: &Path, key: ChainKey) -> io::Result<(Self, Repaired)> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let noted = Head::read(directory, &key);
        let found = segments(directory)?;
        let mut log = Self {
            directory: directory.to_owned(),
            key,
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

    /// Reads a segment: how many bytes there are up to the end of its last line, and behind that.
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

    /// Appends entries; all of them, or none.
    pub(crate) fn append(&mut self, entries: &[AuditEntry]) -> io::Result<()> {
        let mut head = self.head.clone();
        let mut last = HashMap::<&str, u64>::new();
        let mut text = Vec::with_capacity(entries.len() * 512);
        for entry in entries {
            let sandbox = entry.sandbox.as_deref().unwrap_or_default();
            let before = last.get(sandbox).or_else(|| self.last.get(sandbox)).copied();
            let place = ChainPosition { seq: head.seq + 1, last: before.unwrap_or(0), prev: &head.hmac };
            let hmac = line::write(&mut text, &self.key, entry, place);
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
            // What was written of it is no line, or one that nobody was told of.
            let cut = OpenOptions::new().write(true).open(&path);
            let _ = cut.and_then(|file| file.set_len(self.bytes));
            return Err(error);
        }
        self.bytes += text.len() as u64;
        self.last.extend(last.into_iter().map(|(sandbox, seq)| (sandbox.to_owned(), seq)));
        self.head = head;
        self.drop_oldest();
        self.head.write(&self.directory, &self.key)
    }

    /// The segment that is written to.
    fn segment(&self) -> PathBuf {
        let first = self.segments.last().copied().unwrap_or(1);
        self.directory.join(format!("{first:020}{SUFFIX}"))
    }

    /// The oldest segments go where there are more than are held.
    fn drop_oldest(&mut self) {
        let more = self.segments.len().saturating_sub(SEGMENTS_MAX);
        if more == 0 {
            return;
        }
        self.head.first = self.segments[more];
        let first = self.head.first;
        self.last.retain(|_, seq| *seq >= first);
        // Noted before they go: a server that is killed between leaves lines before the first, and
        // they go with the next.
        let _ = self.head.write(&self.directory, &self.key);
        for gone in self.segments.drain(..more) {
            let _ = fs::remove_file(self.directory.join(format!("{gone:020}{SUFFIX}")));
        }
    }

    /// Waits until the disk has what was written.
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
