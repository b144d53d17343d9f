//! Fetches chunks in order: neighbours in a pack with one request, several requests at a time.

use crate::crypto::keys::ChunkId;
use crate::error::Error;
use crate::format::chunk;
use crate::transfer::known::{Location, Locations};
use crate::transfer::progress::ProgressSender;
use crate::transfer::repository::TenantRepository;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Maximum length of one request, in bytes.
const REQUEST_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes between two chunks that are fetched with them, because another request costs more.
const GAP_BYTES_MAX: u64 = 64 * 1024;
/// Maximum number of chunks of one request, so that a stream of repeated chunks is bounded too.
const REQUEST_CHUNKS_MAX: usize = 1024;
/// How many requests run at the same time. Each takes its length of memory.
const REQUESTS_AT_ONCE: usize = 8;
/// How many chunks are decrypted and decompressed at the same time.
const OPENS_AT_ONCE: usize = 4;
/// How often something is fetched again that is missing or damaged: the answer may be wrong, or the transfer
/// may have damaged it. A pull of many packs would otherwise seldom end with a store that is wrong at times.
const RETRIES: u32 = 5;
/// The pause before it is fetched again for the first time. Each further pause is twice as long; together they
/// last about 3 s.
const PAUSE: Duration = Duration::from_millis(100);

/// Chunks that one request fetches.
struct Request {
    pack: u32,
    start: u64,
    end: u64,
    chunks: Vec<(ChunkId, Location)>,
}

impl Request {
    fn new(id: ChunkId, location: Location) -> Self {
        let start = u64::from(location.offset);
        let end = start + u64::from(location.bytes);
        Self { pack: location.pack, start, end, chunks: vec![(id, location)] }
    }

    /// Adds a chunk if it is close enough.
    fn add(&mut self, id: ChunkId, location: Location) -> bool {
        let start = u64::from(location.offset);
        let end = start + u64::from(location.bytes);
        let is_near = start <= self.end + GAP_BYTES_MAX && self.start <= end + GAP_BYTES_MAX;
        let whole = self.start.min(start)..self.end.max(end);
        let fits = self.pack == location.pack
            && is_near
            && whole.end - whole.start <= REQUEST_BYTES_MAX
            && self.chunks.len() < REQUEST_CHUNKS_MAX;
        if fits {
            self.start = whole.start;
            self.end = whole.end;
            self.chunks.push((id, location));
        }
        fits
    }

    /// Whether all chunks lie in another pack too, so that this one may be lost.
    fn has_others(&self, locations: &Locations) -> bool {
        self.chunks.iter().all(|(id, _)| !locations.others(id).is_empty())
    }
}

/// The requests for a list of chunks.
fn requests(locations: &Locations, ids: &[ChunkId]) -> Result<Vec<Request>, Error> {
    let mut all: Vec<Request> = Vec::new();
    for id in ids {
        let location = locations.find(id);
        let location = location.ok_or_else(|| Error::damaged("an index", "it lacks a chunk"))?;
        if !all.last_mut().is_some_and(|last| last.add(*id, location)) {
            all.push(Request::new(*id, location));
        }
    }
    Ok(all)
}

impl TenantRepository {
    /// The contents of chunks, in order.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a chunk is missing or not what was pushed, also after it was read again; errors
    /// of the store.
    pub(crate) fn fetch<'a>(
        &'a self,
        locations: &'a Arc<Locations>,
        ids: &[ChunkId],
        progress: Option<&'a ProgressSender>,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, Error>> + 'a, Error> {
        let requests = requests(locations, ids)?;
        let fetched = futures_util::stream::iter(requests)
            .map(move |request| self.answer(locations, request, progress))
            .buffered(REQUESTS_AT_ONCE);
        let parts = fetched.map_ok(|parts| futures_util::stream::iter(parts.into_iter().map(Ok)));
        let opened = parts
            .try_flatten()
            .map(move |part: Result<Part, Error>| async move {
                let part = part?;
                self.open_chunk(locations, part).await
            })
            .buffered(OPENS_AT_ONCE);
        Ok(opened)
    }

    async fn answer(
        &self,
        locations: &Locations,
        request: Request,
        progress: Option<&ProgressSender>,
    ) -> Result<Vec<Part>, Error> {
        let name = self.pack_name(locations, request.pack);
        let whole = match self.read_again(&name, request.start..request.end).await {
            Err(Error::Damaged { .. } | Error::Store(_)) if request.has_others(locations) => {
                return self.answer_elsewhere(locations, request).await;
            }
            read => read?,
        };
        if let Some(progress) = progress {
            progress.send_modify(|now| now.transferred += whole.len() as u64);
        }
        let part = |(id, location): (ChunkId, Location)| {
            let start = (u64::from(location.offset) - request.start) as usize;
            let sealed = whole.slice(start..start + location.bytes as usize);
            Part { id, location, sealed }
        };
        Ok(request.chunks.into_iter().map(part).collect())
    }

    /// Reads the chunks of a request in other packs.
    async fn answer_elsewhere(
        &self,
        locations: &Locations,
        request: Request,
    ) -> Result<Vec<Part>, Error> {
        let mut parts = Vec::with_capacity(request.chunks.len());
        for (id, location) in request.chunks {
            let mut error = None;
            for location in locations.others(&id).iter().chain([&location]) {
                let name = self.pack_name(locations, location.pack);
                let start = u64::from(location.offset);
                let range = start..start + u64::from(location.bytes);
                match self.objects.get_range(&name, range).await {
                    Ok(sealed) => {
                        parts.push(Part { id, location: *location, sealed });
                        error = None;
                        break;
                    }
                    Err(failure) => error = Some(failure),
                }
            }
            if let Some(error) = error {
                return Err(error);
            }
        }
        Ok(parts)
    }

    /// Reads a part of a pack, again with growing pauses while it is missing or too short.
    async fn read_again(&self, name: &str, range: Range<u64>) -> Result<Bytes, Error> {
        for attempt in 0..RETRIES {
            match self.objects.get_range(name, range.clone()).await {
                Err(Error::Damaged { .. }) => sleep(PAUSE * 2_u32.pow(attempt)).await,
                read => return read,
            }
        }
        self.objects.get_range(name, range).await
    }

    fn pack_name(&self, locations: &Locations, pack: u32) -> String {
        let tag = locations.packs.get(pack as usize).copied().unwrap_or_default();
        self.names.pack(&tag)
    }

    async fn open_chunk(&self, locations: &Locations, part: Part) -> Result<Vec<u8>, Error> {
        let Part { id, location, mut sealed } = part;
        let name = self.pack_name(locations, location.pack);
        for attempt in 0..=RETRIES {
            let keys = Arc::clone(&self.keys);
            let own = sealed.clone();
            let opened = spawn_blocking(move || chunk::open(&keys, &id, &own)).await;
            if let Some(content) = opened.map_err(Error::fault)? {
                return Ok(content);
            }
            if attempt < RETRIES {
                let start = u64::from(location.offset);
                let range = start..start + u64::from(location.bytes);
                sleep(PAUSE * 2_u32.pow(attempt)).await;
                sealed = self.read_again(&name, range).await?;
            }
        }
        Err(Error::damaged(&name, "a chunk is not what was pushed"))
    }
}

/// A sealed chunk.
struct Part {
    id: ChunkId,
    location: Location,
    sealed: Bytes,
}
