//! The ring buffer of a terminal's last output, with the offsets of size changes.

use isolet_wire::frame::DATA_BYTES_MAX;
use isolet_wire::terminal::{RING_BYTES, Size};
use std::collections::VecDeque;

/// Maximum number of remembered size changes. A client further behind receives a snapshot.
const MARKS_MAX: usize = 256;

/// The last output of a terminal and the size changes within it. Holds at most [`RING_BYTES`], and
/// no more than was ever written.
#[derive(Debug, Default)]
pub(crate) struct OutputRing {
    bytes: Vec<u8>,
    head: u64,
    marks: VecDeque<Mark>,
    marked: u64,
}

/// A size change in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Offset of the first byte that is drawn for the new size.
    pub(crate) offset: u64,
    pub(crate) size: Size,
}

impl OutputRing {
    /// The offset after the last byte.
    #[must_use]
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// The offset of the first byte in the buffer.
    #[must_use]
    pub(crate) fn tail(&self) -> u64 {
        self.head - self.bytes.len() as u64
    }

    /// Adds bytes and drops the oldest.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let grows = (RING_BYTES - self.bytes.len()).min(bytes.len());
        if self.bytes.len() + grows > self.bytes.capacity() {
            // Never above the capacity.
            let wanted = (self.bytes.capacity() * 2).clamp(self.bytes.len() + grows, RING_BYTES);
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(&bytes[..grows]);
        self.head += grows as u64;
        let mut rest = &bytes[grows..];
        while !rest.is_empty() {
            // When the buffer is full, a byte's place is its offset modulo the capacity.
            let at = (self.head % RING_BYTES as u64) as usize;
            let count = rest.len().min(RING_BYTES - at);
            self.bytes[at..at + count].copy_from_slice(&rest[..count]);
            self.head += count as u64;
            rest = &rest[count..];
        }
        while self.marks.front().is_some_and(|mark| mark.offset < self.tail()) {
            self.marks.pop_front();
        }
    }

    /// The contiguous bytes from `offset` on, before `limit`, at most one frame. Empty if there are
    /// none in the buffer.
    #[must_use]
    pub(crate) fn piece(&self, offset: u64, limit: u64) -> &[u8] {
        let limit = limit.min(self.head);
        if offset < self.tail() || offset >= limit {
            return &[];
        }
        let at = (offset % RING_BYTES as u64) as usize;
        let count = usize::try_from(limit - offset).unwrap_or(usize::MAX);
        &self.bytes[at..at + count.min(self.bytes.len() - at).min(DATA_BYTES_MAX)]
    }

    /// Records that the following output is drawn for another size.
    pub(crate) fn mark(&mut self, size: Size) {
        self.marked += 1;
        self.marks.push_back(Mark { offset: self.head, size });
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    /// The number of the next size change.
    #[must_use]
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// The size change with this number; `Ok(None)` if it has not happened yet.
    ///
    /// # Errors
    /// The size change is no longer remembered.
    pub(crate) fn find(&self, number: u64) -> Result<Option<Mark>, ()> {
        let first = self.marked - self.marks.len() as u64;
        let at = usize::try_from(number.checked_sub(first).ok_or(())?).map_err(|_| ())?;
        Ok(self.marks.get(at).copied())
    }

    /// Whether all bytes from `offset` on are in the buffer and drawn for one size.
    #[must_use]
    pub(crate) fn whole_since(&self, offset: u64) -> bool {
        let even = self.marks.back().is_none_or(|mark| mark.offset <= offset);
        (self.tail()..=self.head).contains(&offset) && even
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(cols: u16) -> Size {
        Size { cols, rows: 1 }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_held_byte_is_found_by_its_offset(
            lengths in proptest::collection::vec(1..700_000_usize, 1..12),
            from in 0..6_000_000_u64,
        ) {
            let mut ring = OutputRing::default();
            let mut at = 0_u64;
            for length in lengths {
                let bytes: Vec<u8> = (at..at + length as u64).map(|n| (n % 251) as u8).collect();
                ring.push(&bytes);
                at += length as u64;
                prop_assert_eq!(ring.head(), at);
                prop_assert_eq!(ring.head() - ring.tail(), at.min(RING_BYTES as u64));
                let mut offset = from.clamp(ring.tail(), at);
                prop_assert!(ring.tail() == 0 || ring.piece(ring.tail() - 1, at).is_empty());
                while offset < at {
                    let piece = ring.piece(offset, at);
                    prop_assert!(!piece.is_empty());
                    for byte in piece {
                        prop_assert_eq!(*byte, (offset % 251) as u8);
                        offset += 1;
                    }
                }
            }
        }
    }

    #[test]
    fn marks_are_held_as_long_as_the_bytes_behind_them_and_no_more_than_some() {
        let mut ring = OutputRing::default();
        ring.push(b"abc");
        ring.mark(size(1));
        ring.push(b"def");
        assert_eq!(ring.find(0), Ok(Some(Mark { offset: 3, size: size(1) })));
        assert_eq!(ring.find(1), Ok(None));
        assert!(ring.whole_since(3) && !ring.whole_since(2) && !ring.whole_since(7));
        ring.push(&vec![0; RING_BYTES]);
        assert_eq!(ring.find(0), Err(()));
        assert!(ring.whole_since(ring.tail()));
        for cols in 0..=MARKS_MAX as u16 {
            ring.mark(size(cols));
        }
        assert_eq!(ring.find(1), Err(()));
        assert_eq!(ring.find(2).map(|mark| mark.map(|mark| mark.size)), Ok(Some(size(1))));
        assert_eq!(ring.marked(), MARKS_MAX as u64 + 2);
    }
}
