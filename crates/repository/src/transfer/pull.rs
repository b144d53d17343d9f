//! Pulls a snapshot: fetches the chunks of its stream and writes its files.

use crate::crypto::keys::ChunkId;
use crate::error::Error;
use crate::files::extract::{Extraction, extract};
use crate::format::manifest::Manifest;
use crate::transfer::checkpoint::Checkpoint;
use crate::transfer::known::Locations;
use crate::transfer::progress::{Phase, Progress, ProgressSender};
use crate::transfer::repository::TenantRepository;
use futures_util::TryStreamExt;
use rustix::fs::{Mode, OFlags};
use std::io::{self, Read};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time limit of a pull.
const PULL_MAX: Duration = Duration::from_secs(12 * 3600);
/// Chunks that were fetched and wait to be written, of at most 2 MiB each.
const CHUNKS_WAITING: usize = 4;
/// Ids of chunks that are resolved together.
const IDS_TOGETHER: usize = 8192;

/// Where a pull writes.
pub struct PullTarget {
    /// An empty directory that nobody else uses.
    pub directory: PathBuf,
    /// Called before that many bytes are written. An error ends the pull.
    pub check: Box<dyn FnMut(u64) -> Result<(), Error> + Send>,
}

/// What a pull did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulled {
    /// What was received from the store, in bytes.
    pub received_bytes: u64,
}

impl TenantRepository {
    /// Writes the files of a snapshot. The caller flushes trees; files of the server are flushed.
    ///
    /// # Errors
    /// [`Error::TooLate`], [`Error::Damaged`], [`Error::File`], [`Error::Full`], and errors of the
    /// store. A part of the files may be there, for the caller to remove.
    pub async fn pull(
        &self,
        manifest: &Manifest,
        target: PullTarget,
        progress: &watch::Sender<Progress>,
        checkpoint: &Checkpoint,
    ) -> Result<Pulled, Error> {
        let pulled = timeout(PULL_MAX, self.pull_all(manifest, target, progress, checkpoint)).await;
        pulled.unwrap_or(Err(Error::TooLate(PULL_MAX.as_secs())))
    }

    async fn pull_all(
        &self,
        manifest: &Manifest,
        target: PullTarget,
        progress: &ProgressSender,
        checkpoint: &Checkpoint,
    ) -> Result<Pulled, Error> {
        progress.send_modify(|now| now.total = manifest.bytes);
        let lists = manifest.lists(&self.snapshot_name(&manifest.id))?;
        let locations = Arc::new(self.locations().await?);
        checkpoint.pass("pull.begun").await?;
        progress.send_modify(|now| now.phase = Phase::Transferring);
        let (sender, receiver) = mpsc::channel(CHUNKS_WAITING);
        let own = manifest.clone();
        let reported = progress.clone();
        let writing = spawn_blocking(move || write_files(receiver, &own, target, &reported));
        let fetched = self.send_stream(&locations, &lists, &sender, progress).await;
        drop(sender);
        let written = writing.await.map_err(Error::fault)?;
        // The error of the disk explains why the stream was not read to its end.
        match (written, fetched) {
            (Err(Error::Damaged { .. }), Err(error)) => return Err(error),
            (written, fetched) => written.and(fetched)?,
        }
        checkpoint.pass("pull.extracted").await?;
        progress.send_modify(|now| {
            now.phase = Phase::Finishing;
            now.done = now.total;
        });
        Ok(Pulled { received_bytes: progress.borrow().transferred })
    }

    /// Fetches the lists, and the chunks that they name.
    async fn send_stream(
        &self,
        locations: &Arc<Locations>,
        lists: &[ChunkId],
        sender: &mpsc::Sender<Vec<u8>>,
        progress: &ProgressSender,
    ) -> Result<(), Error> {
        let mut lists = pin!(self.fetch(locations, lists, Some(progress))?);
        let mut text = Vec::new();
        loop {
            let list = lists.try_next().await?;
            let is_last = list.is_none();
            text.extend(list.into_iter().flatten());
            if !is_last && text.len() < IDS_TOGETHER * 32 {
                continue;
            }
            let whole = text.len() - text.len() % 32;
            let ids: Vec<ChunkId> = text[..whole]
                .chunks_exact(32)
                .filter_map(|id| Some(ChunkId(id.try_into().ok()?)))
                .collect();
            text.drain(..whole);
            let mut chunks = pin!(self.fetch(locations, &ids, Some(progress))?);
            while let Some(chunk) = chunks.try_next().await? {
                if sender.send(chunk).await.is_err() {
                    // Writing has failed, and says why.
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

fn write_files(
    receiver: mpsc::Receiver<Vec<u8>>,
    manifest: &Manifest,
    mut target: PullTarget,
    progress: &ProgressSender,
) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let staging = rustix::fs::open(&target.directory, flags, Mode::empty());
    let staging = staging.map_err(|errno| Error::at(b"", errno))?;
    let mut input = ReceivedStream { receiver, chunk: Vec::new(), read: 0, progress };
    let extraction = Extraction {
        roots: &manifest.roots,
        bytes: manifest.bytes,
        entries: manifest.entries,
        check: &mut target.check,
    };
    extract(&mut input, staging, extraction)
}

/// Reads the chunks of the stream as they arrive.
struct ReceivedStream<'a> {
    receiver: mpsc::Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    read: usize,
    progress: &'a ProgressSender,
}

impl Read for ReceivedStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read == self.chunk.len() {
            match self.receiver.blocking_recv() {
                Some(chunk) => {
                    self.chunk = chunk;
                    self.read = 0;
                    let bytes = self.chunk.len() as u64;
                    // Records between the files are small, so the length of the stream is close.
                    self.progress.send_modify(|now| now.done = (now.done + bytes).min(now.total));
                }
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.chunk.len() - self.read);
        into[..count].copy_from_slice(&self.chunk[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}
