//! Chunks, and where streams are cut into them.

use crate::crypto::keys::{ChunkId, TenantKeys};
use crate::error::Error;
use fastcdc::v2020::{FastCDC, Normalization};

/// Maximum length of the content of a chunk, in bytes.
pub(crate) const CHUNK_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The lengths of chunks, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkLengths {
    min: usize,
    average: usize,
    max: usize,
}

/// Chunks of files: a change of one byte costs about half a MiB, and 1 TiB has 2 million chunks.
pub(crate) const OF_FILES: ChunkLengths =
    ChunkLengths { min: 128 * 1024, average: 512 * 1024, max: CHUNK_BYTES_MAX };
/// Chunks of lists of ids, which differ little between two pushes.
pub(crate) const OF_LISTS: ChunkLengths =
    ChunkLengths { min: 8 * 1024, average: 32 * 1024, max: 128 * 1024 };

/// Seals a chunk under its id.
pub(crate) fn seal(keys: &TenantKeys, id: &ChunkId, content: &[u8]) -> Result<Vec<u8>, Error> {
    keys.sealer.seal(&id.0, content)
}

/// Opens a chunk. `None` if it is not the chunk with this id.
pub(crate) fn open(keys: &TenantKeys, id: &ChunkId, sealed: &[u8]) -> Option<Vec<u8>> {
    let content = keys.sealer.open(&id.0, sealed, CHUNK_BYTES_MAX)?;
    (keys.chunk_id(&content) == *id).then_some(content)
}

/// Cuts a stream where its content and the tenant's seed say so.
pub(crate) struct Chunker {
    buffer: Vec<u8>,
    /// What was already cut off.
    start: usize,
    lengths: ChunkLengths,
    seed: u64,
}

impl Chunker {
    pub(crate) fn new(lengths: ChunkLengths, seed: u64) -> Self {
        Self { buffer: Vec::new(), start: 0, lengths, seed }
    }

    /// Appends a part of the stream, and passes complete chunks on.
    pub(crate) fn write<E>(
        &mut self,
        mut part: &[u8],
        mut emit: impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !part.is_empty() {
            if self.start >= self.lengths.max {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            let (now, later) = part.split_at(part.len().min(self.lengths.max));
            self.buffer.extend_from_slice(now);
            part = later;
            while self.buffer.len() - self.start >= self.lengths.max {
                emit(self.cut())?;
            }
        }
        Ok(())
    }

    /// Passes the rest of the stream on.
    pub(crate) fn finish<E>(
        &mut self,
        mut emit: impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.start < self.buffer.len() {
            emit(self.cut())?;
        }
        Ok(())
    }

    fn cut(&mut self) -> Vec<u8> {
        let ChunkLengths { min, average, max } = self.lengths;
        let rest = &self.buffer[self.start..];
        let rest = &rest[..rest.len().min(max)];
        let level = Normalization::Level1;
        let cutter = FastCDC::with_level_and_seed(rest, min, average, max, level, self.seed);
        let (_, end) = cutter.cut(0, rest.len());
        let chunk = rest[..end].to_vec();
        self.start += chunk.len();
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::convert::Infallible;

    /// Bytes that do not repeat.
    fn noise(count: usize, mut state: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    fn chunks(stream: &[u8], part: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut chunker = Chunker::new(OF_FILES, seed);
        let mut chunks = Vec::new();
        let mut emit = |chunk| -> Result<(), Infallible> {
            chunks.push(chunk);
            Ok(())
        };
        for part in stream.chunks(part) {
            chunker.write(part, &mut emit).unwrap();
        }
        chunker.finish(&mut emit).unwrap();
        chunks
    }

    #[test]
    fn cuts_depend_on_the_content_alone() {
        let stream = noise(20 << 20, 1);
        let all = chunks(&stream, 100_000, 5);
        assert_eq!(all.concat(), stream);
        assert_eq!(chunks(&stream, 3_000_001, 5), all, "not on the parts in which it arrives");
        assert_ne!(chunks(&stream, 100_000, 6), all, "but on the seed");
        assert!(all.iter().all(|chunk| chunk.len() <= CHUNK_BYTES_MAX));
        assert!((10..120).contains(&all.len()), "{} chunks", all.len());
    }

    #[test]
    fn inserted_bytes_change_few_chunks() {
        let mut stream = noise(20 << 20, 2);
        let before: HashSet<Vec<u8>> = chunks(&stream, 65_536, 5).into_iter().collect();
        stream.splice(10 << 20..10 << 20, noise(1000, 3));
        let after = chunks(&stream, 65_536, 5);
        let new = after.iter().filter(|chunk| !before.contains(*chunk)).count();
        assert!(new <= 3, "{new} of {} chunks are new", after.len());
    }
}
