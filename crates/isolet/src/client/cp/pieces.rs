//! Bytes on their way between a blocking thread and the connection, in pieces. Both sides wait for each other,
//! so little is held in memory.

use bytes::Bytes;
use std::io::{self, Read, Write};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How many pieces wait.
const PIECES_MAX: usize = 4;
/// The size of a piece, in bytes.
pub(super) const PIECE_BYTES: usize = 256 * 1024;

/// A part of the bytes, or why there are no more. For a [`PieceReader`], an empty one is the end.
pub(super) type Piece = io::Result<Bytes>;

/// Both ends of a queue.
pub(super) fn queue() -> (Sender<Piece>, Receiver<Piece>) {
    channel(PIECES_MAX)
}

/// Writes into a queue, from a blocking thread.
pub(super) struct PieceWriter {
    sender: Sender<Piece>,
    buffer: Vec<u8>,
}

impl PieceWriter {
    /// Fills a queue.
    pub(super) fn new(sender: Sender<Piece>) -> Self {
        Self { sender, buffer: Vec::with_capacity(PIECE_BYTES) }
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..count]);
        if self.buffer.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE_BYTES));
        let sent = self.sender.blocking_send(Ok(full.into()));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

/// Reads from a queue, in a blocking thread.
pub(super) struct PieceReader {
    receiver: Receiver<Piece>,
    piece: Bytes,
    ended: bool,
}

impl PieceReader {
    /// Empties a queue.
    pub(super) fn new(receiver: Receiver<Piece>) -> Self {
        Self { receiver, piece: Bytes::new(), ended: false }
    }
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            // A queue without an end is a copy that was given up, and must not look complete.
            let piece = self.receiver.blocking_recv();
            self.piece = piece.unwrap_or_else(|| Err(io::Error::other("interrupted")))?;
            self.ended = self.piece.is_empty();
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
