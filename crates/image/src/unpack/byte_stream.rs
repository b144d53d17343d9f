//! Readers that a layer's bytes pass before they are unpacked: they count, hash and decompress.

use crate::error::Error;
use crate::reference::Digest;
use crate::unpack::slots::ThreadSlot;
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;
use tokio::sync::mpsc;

/// Maximum number of decompressed bytes per compressed byte, beyond [`RATIO_FREE_BYTES`]; more is taken
/// for a decompression bomb. Text usually shrinks to a tenth.
const RATIO_MAX: u64 = 400;
/// Decompressed bytes for which the ratio is not checked.
const RATIO_FREE_BYTES: u64 = 64 * 1024 * 1024;

/// A reader that counts bytes, and fails at a limit and at a decompression bomb.
pub(crate) struct Bounded<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
    max: u64,
    stream_name: &'static str,
    /// Bytes of the same stream before it was decompressed.
    compressed_bytes: Option<Rc<Cell<u64>>>,
}

impl<R: Read> Bounded<R> {
    /// Passes `max` bytes on, then fails with an error that names `stream_name`.
    pub(crate) fn new(inner: R, max: u64, stream_name: &'static str) -> Self {
        Self { inner, bytes: Rc::default(), max, stream_name, compressed_bytes: None }
    }

    /// The number of bytes read so far, for [`Bounded::unpacked_from`] of a later reader.
    pub(crate) fn counter(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.bytes)
    }

    /// Also fails where the bytes exceed the compressed ones by a factor of [`RATIO_MAX`].
    pub(crate) fn unpacked_from(mut self, compressed_bytes: Rc<Cell<u64>>) -> Self {
        self.compressed_bytes = Some(compressed_bytes);
        self
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        let bytes = self.bytes.get() + count as u64;
        self.bytes.set(bytes);
        if bytes > self.max {
            return Err(into_io_error(Error::large(
                self.stream_name,
                format!("{} bytes", self.max),
            )));
        }
        let compressed_bytes = self
            .compressed_bytes
            .as_ref()
            .map_or(bytes, |compressed_bytes| compressed_bytes.get().max(1));
        if bytes > RATIO_FREE_BYTES && bytes / compressed_bytes > RATIO_MAX {
            let quantity =
                format!("decompressed bytes of {} per compressed byte", self.stream_name);
            return Err(into_io_error(Error::large(quantity, RATIO_MAX.to_string())));
        }
        Ok(count)
    }
}

/// A reader that hashes its bytes.
pub(crate) struct Hashing<R> {
    inner: Bounded<R>,
    hash: Sha256,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: Bounded<R>) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    /// Reads to the end; returns the inner reader and the digest of everything.
    pub(crate) fn into_inner(mut self) -> io::Result<(R, Digest)> {
        let (digest, _) = self.read_to_end()?;
        Ok((self.inner.inner, digest))
    }

    /// Reads to the end; returns the digest and the number of bytes.
    pub(crate) fn finish(mut self) -> io::Result<(Digest, u64)> {
        self.read_to_end()
    }

    fn read_to_end(&mut self) -> io::Result<(Digest, u64)> {
        let mut rest = [0; 16 * 1024];
        while self.read(&mut rest)? > 0 {}
        let digest = Digest::from_hash(self.hash.finalize_reset().as_slice());
        Ok((digest, self.inner.bytes.get()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.hash.update(&into[..count]);
        Ok(count)
    }
}

/// A decompressed layer. The first bytes show the kind of compression.
pub(crate) enum Decompressed<R: Read> {
    Tar(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<R>>>),
}

impl<R: Read> Decompressed<R> {
    pub(crate) fn of(from: R) -> io::Result<Self> {
        let mut from = BufReader::with_capacity(64 * 1024, from);
        Ok(match from.fill_buf()? {
            [0x1f, 0x8b, ..] => Self::Gzip(Box::new(MultiGzDecoder::new(from))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd(Box::new(zstd::Decoder::with_buffer(from)?)),
            _ => Self::Tar(from),
        })
    }

    pub(crate) fn into_inner(self) -> R {
        match self {
            Self::Tar(from) => from.into_inner(),
            Self::Gzip(from) => from.into_inner().into_inner(),
            Self::Zstd(from) => from.finish().into_inner(),
        }
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tar(from) => from.read(into),
            Self::Gzip(from) => from.read(into),
            Self::Zstd(from) => from.read(into),
        }
    }
}

/// Reads bytes that an async task sends. If the task ends without the final `None`, reading fails.
pub(crate) struct ChannelReader {
    from: mpsc::Receiver<Result<Option<Bytes>, Error>>,
    current: Bytes,
    ended: bool,
    thread_slot: ThreadSlot,
}

impl ChannelReader {
    pub(crate) fn new(
        from: mpsc::Receiver<Result<Option<Bytes>, Error>>,
        thread_slot: ThreadSlot,
    ) -> Self {
        Self { from, current: Bytes::new(), ended: false, thread_slot }
    }

    /// The next chunk; gives the thread slot back while it waits.
    fn next(&mut self) -> Option<Result<Option<Bytes>, Error>> {
        match self.from.try_recv() {
            Ok(piece) => Some(piece),
            Err(_) => self.thread_slot.pause(|| self.from.blocking_recv()),
        }
    }
}

impl Read for ChannelReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.next() {
                Some(Ok(Some(bytes))) => self.current = bytes,
                Some(Ok(None)) => self.ended = true,
                Some(Err(error)) => return Err(into_io_error(error)),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.current.len().min(into.len());
        into[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}

/// Wraps an error, to pass it through readers that only return `io::Error`.
pub(crate) fn into_io_error(error: Error) -> io::Error {
    io::Error::other(error)
}

/// Unwraps an error of [`into_io_error`]. Any other error means that the bytes are damaged.
pub(crate) fn from_io_error(error: io::Error) -> Error {
    if let Some(ours) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return ours.clone();
    }
    match error.raw_os_error() {
        Some(_) => error.into(),
        None => Error::bad(format!("a layer is damaged or cut off: {error}")),
    }
}
