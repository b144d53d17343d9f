//! What a layer's bytes go through on their way into a tree: counted, hashed, unpacked.

use crate::error::Error;
use crate::reference::Digest;
use crate::unpack::slots::Work;
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;
use tokio::sync::mpsc;

/// More than this out of one byte, beyond [`RATIO_FREE_BYTES`], is a bomb: text shrinks to a tenth.
const RATIO_MAX: u64 = 400;
const RATIO_FREE_BYTES: u64 = 64 * 1024 * 1024;

/// A reader that counts what goes through it, and stops at a bound and at a bomb.
pub(crate) struct Bounded<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
    max: u64,
    what: &'static str,
    /// How much the same was before it was unpacked.
    packed: Option<Rc<Cell<u64>>>,
}

impl<R: Read> Bounded<R> {
    /// Lets `max` bytes through; the error names `what`.
    pub(crate) fn new(inner: R, max: u64, what: &'static str) -> Self {
        Self { inner, bytes: Rc::default(), max, what, packed: None }
    }

    /// Counts what is read, for a reader of what is unpacked from it.
    pub(crate) fn counter(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.bytes)
    }

    /// Stops also where it has grown out of proportion to what came.
    pub(crate) fn unpacked_from(mut self, packed: Rc<Cell<u64>>) -> Self {
        self.packed = Some(packed);
        self
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        let bytes = self.bytes.get() + count as u64;
        self.bytes.set(bytes);
        if bytes > self.max {
            return Err(carried(Error::large(self.what, format!("{} bytes", self.max))));
        }
        let packed = self.packed.as_ref().map_or(bytes, |packed| packed.get().max(1));
        if bytes > RATIO_FREE_BYTES && bytes / packed > RATIO_MAX {
            let what = format!("bytes of {} for one that came", self.what);
            return Err(carried(Error::large(what, RATIO_MAX.to_string())));
        }
        Ok(count)
    }
}

/// A reader that hashes what goes through it.
pub(crate) struct Hashing<R> {
    inner: Bounded<R>,
    hash: Sha256,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: Bounded<R>) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    /// What it read from, and the digest of everything, to the end.
    pub(crate) fn over(mut self) -> io::Result<(R, Digest)> {
        let (digest, _) = self.rest()?;
        Ok((self.inner.inner, digest))
    }

    /// The digest of everything, to the end; and how much it was.
    pub(crate) fn end(mut self) -> io::Result<(Digest, u64)> {
        self.rest()
    }

    fn rest(&mut self) -> io::Result<(Digest, u64)> {
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

/// A layer without its compression, told by its first bytes.
pub(crate) enum Plain<R: Read> {
    Tar(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<R>>>),
}

impl<R: Read> Plain<R> {
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

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tar(from) => from.read(into),
            Self::Gzip(from) => from.read(into),
            Self::Zstd(from) => from.read(into),
        }
    }
}

/// Bytes that a task fetches, read by a thread. An error ends it; so does the task's end, which is
/// not taken for the end of the bytes.
pub(crate) struct Fetched {
    from: mpsc::Receiver<Result<Option<Bytes>, Error>>,
    now: Bytes,
    over: bool,
    working: Work,
}

impl Fetched {
    pub(crate) fn new(from: mpsc::Receiver<Result<Option<Bytes>, Error>>, working: Work) -> Self {
        Self { from, now: Bytes::new(), over: false, working }
    }

    /// The next piece; while none has come, another may work.
    fn next(&mut self) -> Option<Result<Option<Bytes>, Error>> {
        match self.from.try_recv() {
            Ok(piece) => Some(piece),
            Err(_) => self.working.pause(|| self.from.blocking_recv()),
        }
    }
}

impl Read for Fetched {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.now.is_empty() && !self.over {
            match self.next() {
                Some(Ok(Some(bytes))) => self.now = bytes,
                Some(Ok(None)) => self.over = true,
                Some(Err(error)) => return Err(carried(error)),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.now.len().min(into.len());
        into[..count].copy_from_slice(&self.now.split_to(count));
        Ok(count)
    }
}

/// An error of ours, on its way through readers that know only the kernel's.
pub(crate) fn carried(error: Error) -> io::Error {
    io::Error::other(error)
}

/// What came out of such readers: ours, or that the bytes are not what they say.
pub(crate) fn from_stream(error: io::Error) -> Error {
    if let Some(ours) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return ours.clone();
    }
    match error.raw_os_error() {
        Some(_) => error.into(),
        None => Error::bad(format!("a layer is damaged or cut off: {error}")),
    }
}
