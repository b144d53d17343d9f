//! Pushes a snapshot: reads its files, sends the chunks that the store lacks, and writes the
//! manifest last.

use crate::crypto::keys::{ChunkId, TenantKeys};
use crate::error::Error;
use crate::files::read::{self, Counts};
use crate::files::source::Source;
use crate::format::chunk::{self, Chunker, OF_FILES, OF_LISTS};
use crate::format::manifest::{Contents, Manifest};
use crate::transfer::checkpoint::Checkpoint;
use crate::transfer::packer::Packer;
use crate::transfer::progress::{Phase, Progress, ProgressSender};
use crate::transfer::repository::TenantRepository;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::Value;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time limit of a push. A prune relies on it: see [`crate::PRUNE_AGE`].
pub(crate) const PUSH_MAX: Duration = Duration::from_secs(12 * 3600);
/// Chunks that were read and wait to be compressed, of at most 2 MiB each.
const CHUNKS_WAITING: usize = 4;
/// How many chunks are compressed and encrypted at the same time.
const SEALS_AT_ONCE: usize = 4;

/// A snapshot to push.
#[derive(Debug)]
pub struct PushRequest {
    /// The id of the snapshot.
    pub id: String,
    /// The record that a pull returns.
    pub record: Value,
    /// Its trees and files, which must not change.
    pub sources: Vec<Source>,
    /// The expected size of the data, for the progress, in bytes.
    pub bytes: u64,
}

/// What a push did.
#[derive(Debug, Clone, PartialEq)]
pub struct Pushed {
    /// The manifest in the store.
    pub manifest: Manifest,
    /// What was sent to the store, in bytes.
    pub sent_bytes: u64,
    /// The number of chunks that the store did not have.
    pub sent_chunks: u64,
    /// Whether the store had the snapshot before.
    pub existed: bool,
    /// Sockets and devices, which are not part of it.
    pub left_out: u64,
}

/// A chunk of the stream, sealed unless the store has it.
struct Prepared {
    id: ChunkId,
    sealed: Option<Vec<u8>>,
}

type Known = Arc<RwLock<HashSet<ChunkId>>>;

impl TenantRepository {
    /// Pushes a snapshot. What an earlier push of it has sent is not sent again.
    ///
    /// # Errors
    /// [`Error::TooLate`], [`Error::TooLarge`], [`Error::File`], and errors of the store. The
    /// snapshot is not in the store then; packs that were sent are found by the next push.
    pub async fn push(
        &self,
        request: PushRequest,
        progress: &watch::Sender<Progress>,
        checkpoint: &Checkpoint,
    ) -> Result<Pushed, Error> {
        let pushed = timeout(PUSH_MAX, self.push_all(request, progress, checkpoint)).await;
        pushed.unwrap_or(Err(Error::TooLate(PUSH_MAX.as_secs())))
    }

    async fn push_all(
        &self,
        request: PushRequest,
        progress: &ProgressSender,
        checkpoint: &Checkpoint,
    ) -> Result<Pushed, Error> {
        progress.send_modify(|now| now.total = request.bytes);
        // The files of a snapshot never change, so one that is there is complete.
        if let Some(manifest) = self.find(&request.id).await? {
            return Ok(Pushed {
                manifest,
                sent_bytes: 0,
                sent_chunks: 0,
                existed: true,
                left_out: 0,
            });
        }
        let known: Known = Arc::new(RwLock::new(self.known_chunks().await?));
        progress.send_modify(|now| now.phase = Phase::Transferring);
        let mut packer = Packer::new(self, checkpoint.clone(), Some(progress.clone()));
        let (counts, lists) = self.send_files(&request, &known, &mut packer, progress).await?;
        packer.finish().await?;
        progress.send_modify(|now| {
            now.phase = Phase::Finishing;
            now.done = now.total;
        });
        checkpoint.pass("push.uploaded").await?;
        let contents = Contents {
            tenant: self.tenant.clone(),
            id: request.id,
            pushed_at_ms: isolet_clock::now_ms(),
            roots: request.sources.into_iter().map(|source| source.root).collect(),
            entries: counts.entries,
            bytes: counts.bytes,
            record: request.record,
            lists,
        };
        let manifest = Manifest::new(&self.repository, contents);
        let name = self.snapshot_name(&manifest.id);
        let sealed = manifest.seal(&self.keys, &name)?;
        let sent_bytes = packer.sent_bytes + sealed.len() as u64;
        self.objects.put(&name, sealed).await?;
        checkpoint.pass("push.recorded").await?;
        if let Err(error) = packer.merge().await {
            // The next prune merges them.
            tracing::warn!(%error, "index objects of a push are not merged");
        }
        let sent_chunks = packer.sent_chunks;
        let left_out = counts.left_out;
        Ok(Pushed { manifest, sent_bytes, sent_chunks, existed: false, left_out })
    }

    /// Sends the stream of the files. Returns the chunks with the list of its chunks.
    async fn send_files(
        &self,
        request: &PushRequest,
        known: &Known,
        packer: &mut Packer,
        progress: &ProgressSender,
    ) -> Result<(Counts, Vec<ChunkId>), Error> {
        let (sender, receiver) = mpsc::channel(CHUNKS_WAITING);
        let sources = request.sources.clone();
        let seed = self.keys.seed;
        let reported = progress.clone();
        let reading = spawn_blocking(move || read_chunks(&sources, seed, &sender, &reported));
        let chunks = futures_util::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|chunk| (chunk, receiver))
        });
        let prepared = chunks.map(|chunk| self.prepare(known, chunk)).buffered(SEALS_AT_ONCE);
        let mut prepared = std::pin::pin!(prepared);
        let mut list_chunker = Chunker::new(OF_LISTS, self.keys.seed);
        let mut lists = Vec::new();
        while let Some(one) = prepared.try_next().await? {
            let id = one.id;
            pack(known, packer, one).await?;
            let mut complete = Vec::new();
            write_list(&mut list_chunker, &id, &mut complete);
            self.pack_lists(complete, known, packer, &mut lists).await?;
        }
        let counts = reading.await.map_err(Error::fault)??;
        let mut complete = Vec::new();
        let Ok(()) = list_chunker.finish(|chunk| -> Result<(), Infallible> {
            complete.push(chunk);
            Ok(())
        });
        self.pack_lists(complete, known, packer, &mut lists).await?;
        Ok((counts, lists))
    }

    async fn pack_lists(
        &self,
        complete: Vec<Vec<u8>>,
        known: &Known,
        packer: &mut Packer,
        lists: &mut Vec<ChunkId>,
    ) -> Result<(), Error> {
        for chunk in complete {
            let prepared = self.prepare(known, chunk).await?;
            lists.push(prepared.id);
            pack(known, packer, prepared).await?;
        }
        Ok(())
    }

    /// Names a chunk, and seals it unless the store has it.
    async fn prepare(&self, known: &Known, chunk: Vec<u8>) -> Result<Prepared, Error> {
        let keys = Arc::clone(&self.keys);
        let known = Arc::clone(known);
        let prepare = move || prepare(&keys, &known, &chunk);
        spawn_blocking(prepare).await.map_err(Error::fault)?
    }
}

fn prepare(keys: &TenantKeys, known: &Known, chunk: &[u8]) -> Result<Prepared, Error> {
    let id = keys.chunk_id(chunk);
    let is_known = known.read().unwrap_or_else(PoisonError::into_inner).contains(&id);
    let sealed = match is_known {
        true => None,
        false => Some(chunk::seal(keys, &id, chunk)?),
    };
    Ok(Prepared { id, sealed })
}

/// Adds a chunk to the packs, unless one with the same content was added since it was prepared.
async fn pack(known: &Known, packer: &mut Packer, one: Prepared) -> Result<(), Error> {
    let Some(sealed) = one.sealed else { return Ok(()) };
    let is_new = known.write().unwrap_or_else(PoisonError::into_inner).insert(one.id);
    if is_new { packer.add(one.id, &sealed).await } else { Ok(()) }
}

fn write_list(chunker: &mut Chunker, id: &ChunkId, complete: &mut Vec<Vec<u8>>) {
    let Ok(()) = chunker.write(&id.0, |chunk| -> Result<(), Infallible> {
        complete.push(chunk);
        Ok(())
    });
}

/// Reads files, cuts the stream, and passes the chunks on. Blocks.
fn read_chunks(
    sources: &[Source],
    seed: u64,
    sender: &mpsc::Sender<Vec<u8>>,
    progress: &ProgressSender,
) -> Result<Counts, Error> {
    let mut chunker = Chunker::new(OF_FILES, seed);
    let mut emit = |chunk| {
        let sent = sender.blocking_send(chunk);
        sent.map_err(|_| Error::Refused("the push has ended".to_owned()))
    };
    let mut sink = |part: &[u8], data: u64| {
        if data > 0 {
            progress.send_modify(|now| now.done += data);
        }
        chunker.write(part, &mut emit)
    };
    let counts = read::read(sources, &mut sink)?;
    chunker.finish(&mut emit)?;
    Ok(counts)
}
