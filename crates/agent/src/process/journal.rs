//! The output of a process: the last bytes of both streams, in the order in which they were read.
//!
//! Output is read whether or not anyone follows the process. All processes together are read up to
//! 4 MiB in 50 ms, so that `yes` does not take a core of the host.

use isolet_wire::response::STDERR;
use std::collections::VecDeque;

/// Size to which short pieces of one stream are merged, in bytes.
const PIECE_BYTES: usize = 16 * 1024;
/// Overhead of a piece, in bytes. It counts towards the limit, so that a process that switches
/// streams with every byte cannot exceed it.
const PIECE_COST: usize = 64;

/// The last output of a process, addressed by *position*, which counts both streams together.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pieces: VecDeque<Piece>,
    cost: usize,
    head: u64,
    counts: [u64; 2],
}

#[derive(Debug)]
struct Piece {
    stream: u8,
    position: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// A part of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// The stream number, 1 or 2.
    pub(crate) stream: u8,
    /// The position of the first byte.
    pub(crate) position: u64,
    /// The offset of the first byte in its stream.
    pub(crate) offset: u64,
    /// The bytes, never empty.
    pub(crate) bytes: &'a [u8],
}

impl Journal {
    /// Adds output and drops the oldest beyond `limit` bytes.
    pub(crate) fn push(&mut self, stream: u8, bytes: &[u8], limit: usize) {
        if bytes.is_empty() {
            return;
        }
        let slot = usize::from(stream == STDERR);
        let fits = |piece: &&mut Piece| {
            piece.stream == stream && piece.bytes.len() + bytes.len() <= PIECE_BYTES
        };
        match self.pieces.back_mut().filter(fits) {
            Some(piece) => piece.bytes.extend_from_slice(bytes),
            None => {
                let position = self.head;
                let offset = self.counts[slot];
                self.pieces.push_back(Piece { stream, position, offset, bytes: bytes.to_vec() });
                self.cost += PIECE_COST;
            }
        }
        self.cost += bytes.len();
        self.head += bytes.len() as u64;
        self.counts[slot] += bytes.len() as u64;
        self.trim(limit);
    }

    /// Drops the oldest output beyond `limit` bytes, but never the last piece.
    pub(crate) fn trim(&mut self, limit: usize) {
        while self.cost > limit && self.pieces.len() > 1 {
            if let Some(piece) = self.pieces.pop_front() {
                self.cost -= piece.bytes.len() + PIECE_COST;
            }
        }
    }

    /// The position after the last byte.
    #[must_use]
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// The first position in the log.
    #[must_use]
    pub(crate) fn first(&self) -> u64 {
        self.pieces.front().map_or(self.head, |piece| piece.position)
    }

    /// Total number of bytes of each stream.
    #[must_use]
    pub(crate) fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// The part from a position to the end of its piece; `None` at the end of the log.
    #[must_use]
    pub(crate) fn part(&self, position: u64) -> Option<Part<'_>> {
        let at = self.pieces.partition_point(|piece| piece.position <= position);
        let piece = self.pieces.get(at.saturating_sub(1))?;
        let skip = usize::try_from(position.saturating_sub(piece.position)).ok()?;
        let bytes = piece.bytes.get(skip..).filter(|bytes| !bytes.is_empty())?;
        let position = piece.position + skip as u64;
        let offset = piece.offset + skip as u64;
        Some(Part { stream: piece.stream, position, offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::response::STDOUT;

    fn all(journal: &Journal, mut position: u64) -> Vec<(u8, u64, Vec<u8>)> {
        let mut parts = Vec::new();
        while let Some(part) = journal.part(position) {
            parts.push((part.stream, part.offset, part.bytes.to_vec()));
            position = part.position + part.bytes.len() as u64;
        }
        assert_eq!(position.max(journal.head()), journal.head());
        parts
    }

    #[test]
    fn both_streams_come_in_the_order_in_which_they_were_read() {
        let mut journal = Journal::default();
        journal.push(STDOUT, b"ab", 1000);
        journal.push(STDOUT, b"c", 1000);
        journal.push(STDERR, b"x", 1000);
        journal.push(STDOUT, b"d", 1000);
        let abc = (STDOUT, 0, b"abc".to_vec());
        let x = (STDERR, 0, b"x".to_vec());
        let d = (STDOUT, 3, b"d".to_vec());
        assert_eq!(all(&journal, 0), [abc, x.clone(), d.clone()]);
        assert_eq!(all(&journal, 1), [(STDOUT, 1, b"bc".to_vec()), x, d]);
        assert_eq!((journal.head(), journal.counts()), (5, [4, 1]));
        assert_eq!(journal.part(5), None);
        assert_eq!(journal.part(u64::MAX), None);
    }

    /// Promises: J6.
    #[test]
    fn what_is_held_is_bounded_whatever_is_written() {
        let mut journal = Journal::default();
        for turn in 0..100_000_u32 {
            journal.push(if turn % 2 == 0 { STDOUT } else { STDERR }, b"x", 10_000);
        }
        assert!(journal.pieces.len() <= 10_000 / PIECE_COST);
        assert_eq!(journal.head(), 100_000);
        let kept = journal.head() - journal.first();
        assert_eq!(all(&journal, journal.first()).len() as u64, kept);
        journal.push(STDOUT, &vec![b'y'; 60_000], 10_000);
        assert_eq!(journal.first(), 100_000, "the last piece stays whole");
    }
}
