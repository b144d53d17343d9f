//! Reads a log while it is written: all of it, or the lines of one sandbox.

use super::line::{LINE_BYTES_MAX, LogLine};
use super::log::segments;
use super::{Audit, AuditDirectory};
use crate::error::Error;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Size of a chunk of an export, in bytes. Chunks end with complete lines.
const PIECE_BYTES: usize = 64 * 1024;

/// A reader's position in a log.
#[derive(Debug, Default)]
struct Reading {
    left: VecDeque<PathBuf>,
    open: Option<BufReader<File>>,
    sandbox: Option<String>,
}

impl Reading {
    fn new(place: &AuditDirectory, tenant: &str, sandbox: Option<&str>) -> io::Result<Self> {
        let left = match segments(&place.of(tenant)) {
            Err(error) if error.kind() == ErrorKind::NotFound => VecDeque::new(),
            found => found?.into_iter().map(|(_, path)| path).collect(),
        };
        Ok(Self { left, open: None, sandbox: sandbox.map(str::to_owned) })
    }

    /// Reads the next lines; `None` at the end. Blocks. Fails if a segment was removed in the meantime.
    fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        let mut line = Vec::new();
        while out.len() < PIECE_BYTES {
            let Some(open) = &mut self.open else {
                let Some(path) = self.left.pop_front() else { break };
                self.open = Some(BufReader::with_capacity(PIECE_BYTES, File::open(path)?));
                continue;
            };
            line.clear();
            if open.take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)? == 0 {
                self.open = None;
                continue;
            }
            // A line without a newline is still being written.
            if line.pop_if(|byte| *byte == b'\n').is_some() && self.wants(&line) {
                out.extend_from_slice(&line);
                out.push(b'\n');
            }
        }
        Ok(Some(out).filter(|out| !out.is_empty()))
    }

    /// Whether a line belongs to the export. Lines that cannot be parsed belong only to a complete one.
    fn wants(&self, bytes: &[u8]) -> bool {
        let Some(sandbox) = &self.sandbox else { return true };
        LogLine::read(bytes).is_some_and(|line| line.sandbox.as_ref() == Some(sandbox))
    }
}

impl AuditDirectory {
    /// Passes the lines of a tenant's log, or of one sandbox in it, with their newlines to `take`, until
    /// that returns `false`. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`]. A tenant without a log has no lines.
    pub fn read(
        &self,
        tenant: &str,
        sandbox: Option<&str>,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Error> {
        let wrong = |error| Error::io(&self.of(tenant), &error);
        let mut reading = Reading::new(self, tenant, sandbox).map_err(wrong)?;
        while let Some(piece) = reading.piece().map_err(wrong)? {
            if !piece.split_inclusive(|byte| *byte == b'\n').all(&mut take) {
                break;
            }
        }
        Ok(())
    }
}

/// An export of a tenant's log. Between two chunks it holds one open file and no thread, so that a slow
/// reader delays nobody else.
#[derive(Debug)]
pub struct Export {
    directory: PathBuf,
    readers: Arc<Semaphore>,
    /// `None` after the end, and after an error.
    reading: Option<Reading>,
}

impl Export {
    /// Reads the next lines; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`], after which the export ends.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some(mut reading) = self.reading.take() else { return Ok(None) };
        let permit = Arc::clone(&self.readers).acquire_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let piece = reading.piece();
            (reading, piece)
        });
        let (reading, piece) = read.await.map_err(|_| Error::Closed)?;
        let piece = piece.map_err(|error| Error::io(&self.directory, &error))?;
        self.reading = Some(reading).filter(|_| piece.is_some());
        Ok(piece)
    }
}

impl Audit {
    /// Starts an export of a tenant's log up to now, of all lines or those of one sandbox.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub async fn read(&self, tenant: &str, sandbox: Option<&str>) -> Result<Export, Error> {
        let shared = &self.writer.shared;
        self.flush().await;
        let place = shared.place();
        let directory = place.of(tenant);
        let reading = Reading::new(&place, tenant, sandbox);
        let reading = Some(reading.map_err(|error| Error::io(&directory, &error))?);
        Ok(Export { directory, readers: Arc::clone(&shared.readers), reading })
    }
}
