//! A file of a snapshot that is being read.

use crate::model::blocking::blocking;
use crate::model::error::Error;
use bytes::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Bytes that are read at a time.
const READ_BYTES: usize = 128 * 1024;

/// A file of a snapshot, and where to read on.
#[derive(Debug)]
pub(crate) struct StoredFile {
    pub(crate) file: Arc<File>,
    pub(crate) at: u64,
}

impl StoredFile {
    /// Reads the next bytes; `None` at the end. Cancel-safe: what was not returned is read again.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let file = Arc::clone(&self.file);
        let at = self.at;
        let read = blocking(move || {
            let mut bytes = vec![0; READ_BYTES];
            let count = file.read_at(&mut bytes, at)?;
            bytes.truncate(count);
            Ok::<_, std::io::Error>(bytes)
        });
        let bytes = read.await?.map_err(|error| Error::Fault(error.to_string()))?;
        self.at += bytes.len() as u64;
        Ok((!bytes.is_empty()).then(|| bytes.into()))
    }
}
