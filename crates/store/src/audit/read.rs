//! Reading a log while it is written: whole, or what was done to one sandbox.

use super::{
    Audit, Place,
    line::Line,
    log::{lines, segments},
};
use crate::Error;
use std::{
    fs::File,
    io::{self, ErrorKind},
};
use tokio::sync::mpsc;

/// How much is handed on at once, in bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that wait for who reads them.
const PIECES_MAX: usize = 4;

impl Place {
    /// Hands on the lines of a tenant's log, of all or of one sandbox, each with its end, until
    /// `take` says `false`. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`]. A tenant without a log has no lines.
    pub fn read(
        &self,
        tenant: &str,
        sandbox: Option<&str>,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Error> {
        let directory = self.of(tenant);
        let mut all = || -> io::Result<()> {
            // Opened before any is read: one that is dropped meanwhile is read to its end.
            let mut files = Vec::new();
            for (_, path) in segments(&directory)? {
                match File::open(path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    file => files.push(file?),
                }
            }
            let mut more = true;
            for file in files {
                lines(file, |bytes, whole| {
                    // What has no end yet is being written.
                    if more && whole && wanted(bytes, sandbox) {
                        more = take(&[bytes, b"\n"].concat());
                    }
                    if more { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
                })?;
            }
            Ok(())
        };
        match all() {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::BrokenPipe) => {
                Ok(())
            }
            Err(error) => Err(Error::io(&directory, &error)),
            Ok(()) => Ok(()),
        }
    }
}

/// Lines that do not read are in the whole log alone.
fn wanted(bytes: &[u8], sandbox: Option<&str>) -> bool {
    let Some(sandbox) = sandbox else { return true };
    Line::read(bytes).is_some_and(|line| line.sandbox.as_deref() == Some(sandbox))
}

impl Audit {
    /// The lines of a tenant's log up to now, in pieces of whole lines; of all or of one sandbox.
    /// One that cannot be read to its end gives an error as its last piece.
    pub async fn read(
        &self,
        tenant: &str,
        sandbox: Option<&str>,
    ) -> mpsc::Receiver<Result<Vec<u8>, Error>> {
        let shared = &self.writer.shared;
        let (pieces, received) = mpsc::channel(PIECES_MAX);
        // The semaphore is never closed.
        let Ok(permit) = shared.readers.clone().acquire_owned().await else { return received };
        self.flush().await;
        let (place, tenant) = (shared.place.clone(), tenant.to_owned());
        let sandbox = sandbox.map(str::to_owned);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut piece = Vec::new();
            let read = place.read(&tenant, sandbox.as_deref(), |line| {
                piece.extend_from_slice(line);
                piece.len() < PIECE_BYTES
                    || pieces.blocking_send(Ok(std::mem::take(&mut piece))).is_ok()
            });
            if !piece.is_empty() {
                let _ = pieces.blocking_send(Ok(piece));
            }
            if let Err(error) = read {
                let _ = pieces.blocking_send(Err(error));
            }
        });
        received
    }
}
