//! Verifies a backup: every file is there, has its hash, and contains what a restore accepts.

use crate::archive::entry::Entry;
use crate::archive::{Allowed, AllowedSink, Sink, read};
use crate::error::{Error, at};
use crate::files::{digest, open};
use crate::manifest::{Content, FileEntry, Manifest};
use crate::progress::{Progress, ProgressEvent};
use crate::records::FileIds;
use isolet_store::backup::inspect;
use std::io::{self, BufReader};
use std::path::Path;

/// Largest window of zstd that is accepted: 2^27 bytes of memory.
const WINDOW_LOG_MAX: u32 = 27;

/// Verifies a backup without restoring it. Blocks.
///
/// # Errors
/// The first difference: [`Error::Damaged`], [`Error::Refused`], and those of [`Manifest::read`].
pub fn verify(backup: &Path, progress: &dyn Progress) -> Result<Manifest, Error> {
    verify_files(backup, progress, |_| true)
}

/// Verifies a backup that was just written, without sandboxes and
/// layers, which were verified one by one.
pub(crate) fn verify_others(backup: &Path, progress: &dyn Progress) -> Result<Manifest, Error> {
    verify_files(backup, progress, |content| {
        !matches!(content, Content::Sandbox { .. } | Content::Layer { .. } | Content::Orphan { .. })
    })
}

fn verify_files(
    backup: &Path,
    progress: &dyn Progress,
    wanted: impl Fn(&Content) -> bool,
) -> Result<Manifest, Error> {
    let manifest = Manifest::read(backup)?;
    check_sizes(backup, &manifest)?;
    let bytes = manifest.files.iter().map(|file| file.bytes).sum();
    progress.event(&ProgressEvent::Started { bytes, sandboxes: manifest.sandboxes.len() });
    let records = manifest.files.iter().filter(|file| file.content == Content::Records);
    for file in records {
        check_hash(backup, file, progress)?;
    }
    let ids = FileIds::check(&manifest, &inspect(&backup.join(Content::Records.path()))?)?;
    for file in manifest.files.iter().filter(|file| wanted(&file.content)) {
        if file.content != Content::Records {
            verify_file(backup, file, ids.allowed(file), progress)?;
        }
        progress.event(&ProgressEvent::File { path: file.content.path(), bytes: file.bytes });
    }
    Ok(manifest)
}

/// Verifies the hash of a file, and reads an archive to its end.
pub(crate) fn verify_file(
    backup: &Path,
    file: &FileEntry,
    allowed: Allowed,
    progress: &dyn Progress,
) -> Result<(), Error> {
    check_hash(backup, file, progress)?;
    if file.content.is_archive() {
        unpack(backup, file, allowed, &mut Nothing)?;
    }
    Ok(())
}

/// Finds missing and truncated files, before anything is read.
pub(crate) fn check_sizes(backup: &Path, manifest: &Manifest) -> Result<(), Error> {
    for file in &manifest.files {
        let path = file.content.path();
        let found = open(&backup.join(&path))
            .map_err(|error| Error::Damaged { path: path.clone(), reason: error.to_string() })?;
        let length = found.metadata().map_err(at(&backup.join(&path)))?.len();
        if length != file.bytes {
            let reason = format!("{length} bytes instead of {}", file.bytes);
            return Err(Error::Damaged { path, reason });
        }
    }
    Ok(())
}

/// Compares the hash of a file with the manifest.
pub(crate) fn check_hash(
    backup: &Path,
    file: &FileEntry,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let path = file.content.path();
    let found = digest(&backup.join(&path), progress)?;
    if found.sha256 == file.sha256 {
        return Ok(());
    }
    Err(Error::Damaged { path, reason: "another SHA-256".to_owned() })
}

/// Reads an archive to its end, or to the first entry that is not allowed.
pub(crate) fn unpack(
    backup: &Path,
    file: &FileEntry,
    allowed: Allowed,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    let path = file.content.path();
    let refused = |error: io::Error| {
        // A full or failing disk says nothing about the archive.
        match error.raw_os_error() {
            Some(_) => at(&backup.join(&path))(error),
            None => Error::Refused { path: path.clone(), reason: error.to_string() },
        }
    };
    let from = BufReader::new(open(&backup.join(&path))?);
    let mut decoder = zstd::Decoder::with_buffer(from).map_err(refused)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(refused)?;
    let mut sink = AllowedSink::new(allowed, sink);
    let entries = read(&mut decoder, &mut sink).map_err(refused)?;
    if entries != file.entries {
        let reason = format!("{entries} entries instead of {}", file.entries);
        return Err(Error::Damaged { path, reason });
    }
    Ok(())
}

/// Reads an archive without writing anything.
pub(crate) struct Nothing;

impl Sink for Nothing {
    fn entry(&mut self, _: Entry) -> io::Result<()> {
        Ok(())
    }

    fn data(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn end_of_file(&mut self) -> io::Result<()> {
        Ok(())
    }
}
