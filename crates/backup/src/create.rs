//! Writes a backup, while sandboxes run. Each sandbox stands still while its files are copied; the
//! others continue.
//!
//! The records are copied last. A sandbox that was created during the backup is removed from the copy, and
//! the archive of one that was deleted during it is removed, so that records and files agree.

mod archives;
mod audit;
mod target;
#[cfg(test)]
mod tests;

use crate::error::{Error, at};
use crate::files::{Digested, HashedFile, check_space, digest, sync_directory};
use crate::manifest::{
    self, Content, FileEntry, LeftOut, Manifest, SandboxMoment, SkippedFile, is_name,
};
use crate::progress::{Progress, ProgressEvent};
use crate::records::{allowed_in_layer, allowed_in_orphan, allowed_in_sandbox, check_record};
use crate::secrets::{AuditKeys, Passphrase, Secrets};
use crate::verify::{verify_file, verify_others};
use archives::{Archives, WrittenArchive};
use isolet_store::backup::{CopiedRecords, LinkSecrets, SandboxSummary, SummaryLayer, sandboxes};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use target::PartialBackup;

/// Maximum number of skipped files that a manifest names, so that its size stays within its limit.
const SKIPPED_NAMED_MAX: usize = 1000;
/// Attempts to copy the layers of a sandbox, which may be folded in the meantime.
const LAYERS_ATTEMPTS: u32 = 5;
/// Attempts to copy audit logs while nobody replaces their keys.
const AUDIT_ATTEMPTS: u32 = 5;
/// Space that a backup needs besides copies of all files, in bytes.
const SPARE_BYTES: u64 = 16 * 1024 * 1024;

/// Stands for the tenant of files without a record.
const UNKNOWN_TENANT: &str = "-";

/// What a backup contains, and where it is written.
pub struct BackupOptions {
    /// The data directory to back up.
    pub data_dir: PathBuf,
    /// The backup, which must not exist or be an empty directory.
    pub target: PathBuf,
    /// Whether images are part of it.
    pub with_images: bool,
    /// The passphrase of the secrets; `None`: they are not part of it.
    pub passphrase: Option<Passphrase>,
    /// Whether to refuse a target that may have too little space.
    pub check_space: bool,
}

/// A sandbox that stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The state that it has.
    pub state: String,
    /// Whether its processes are frozen; otherwise none runs.
    pub frozen: bool,
    /// Shells whose latest state could not be saved.
    pub unsaved_shells: usize,
}

/// Makes sandboxes stand still, one at a time.
pub trait Holds {
    /// Makes a sandbox stand still. `None` if it does not exist any more.
    ///
    /// # Errors
    /// [`Error::Hold`] if this sandbox cannot stand still; [`Error::Server`].
    fn hold(&mut self, name: &str) -> Result<Option<Held>, Error>;

    /// Lets the sandbox continue. Returns how long it stood still.
    ///
    /// # Errors
    /// [`Error::Hold`] if it continued before; [`Error::Server`].
    fn release(&mut self) -> Result<Duration, Error>;
}

/// Writes a backup, and verifies it like [`crate::verify()`] before it gets its name. A sandbox that
/// cannot be read or archived is left out. Blocks.
///
/// # Errors
/// [`Error`], if the target cannot be written or the server's own files cannot be read. Nothing that
/// looks like a backup is left then.
pub fn create(
    options: &BackupOptions,
    holds: &mut dyn Holds,
    progress: &dyn Progress,
) -> Result<Manifest, Error> {
    let data = fs::canonicalize(&options.data_dir).map_err(at(&options.data_dir))?;
    let records = data.join("isolet.db");
    let all = sandboxes(&records)?;
    let partial = PartialBackup::create(&options.target, &data)?;
    let bytes = archives::estimate(&data, options.with_images);
    if options.check_space {
        check_space(partial.path(), bytes.saturating_add(SPARE_BYTES))?;
    }
    progress.event(&ProgressEvent::Started { bytes, sandboxes: all.len() });
    let mut backup = Backup {
        data: &data,
        folder: partial.path(),
        progress,
        manifest: Manifest::new(),
        kept: HashSet::new(),
        layers: HashMap::new(),
        archived_layers: HashSet::new(),
        skipped_named: 0,
        audit_keys: AuditKeys::default(),
    };
    for sandbox in &all {
        backup.sandbox(sandbox, holds)?;
    }
    backup.others(options.with_images)?;
    let links = backup.records(&records)?;
    if let Some(passphrase) = &options.passphrase {
        backup.secrets(links, passphrase)?;
    }
    backup.finish()?;
    let manifest = verify_others(partial.path(), &Quiet)?;
    partial.complete()?;
    Ok(manifest)
}

struct Backup<'a> {
    data: &'a Path,
    folder: &'a Path,
    progress: &'a dyn Progress,
    manifest: Manifest,
    /// Names of the sandboxes whose records the backup contains.
    kept: HashSet<String>,
    /// The layers of snapshots that each of them had when its files were copied.
    layers: HashMap<String, Vec<SummaryLayer>>,
    /// Names of the layers in the backup.
    archived_layers: HashSet<String>,
    /// Number of skipped files that the manifest names.
    skipped_named: usize,
    audit_keys: AuditKeys,
}

impl Backup<'_> {
    fn archives(&self) -> Archives<'_> {
        Archives { data: self.data, folder: self.folder, progress: self.progress }
    }

    /// Copies a sandbox at one moment.
    fn sandbox(&mut self, sandbox: &SandboxSummary, holds: &mut dyn Holds) -> Result<(), Error> {
        if !is_name(&sandbox.name) {
            return self.left_out(sandbox, "its name is invalid".to_owned());
        }
        if let Err(reason) = check_record(sandbox) {
            return self.left_out(sandbox, format!("it {reason}"));
        }
        // Most of them before the sandbox stands still: layers never change.
        if let Err(error) = self.layers_of(&sandbox.name) {
            return self.left_out_if_of_source(sandbox, error);
        }
        let held = match holds.hold(&sandbox.name) {
            Ok(Some(held)) => held,
            Ok(None) => return Ok(()),
            Err(Error::Hold(reason)) => return self.left_out(sandbox, reason),
            Err(error) => return Err(error),
        };
        let at_ms = isolet_clock::now_ms();
        // A sleep removes the files of an ephemeral sandbox, and a restored one is asleep.
        let has_files = sandbox.persistent || held.state == "failed";
        let copied = match self.layers_of(&sandbox.name) {
            Ok(()) if has_files => self.archives().standing_sandbox(&sandbox.name).map(Some),
            Ok(()) => Ok(None),
            Err(error) => Err(error),
        };
        if !has_files {
            // It begins again without files, also without those in layers.
            self.layers.insert(sandbox.name.clone(), Vec::new());
        }
        let stood = holds.release();
        let content = Content::Sandbox { name: sandbox.name.clone() };
        let finished = match (copied, stood) {
            (_, Err(error @ Error::Server(_))) => return Err(error),
            (_, Err(error)) => Err(error),
            (Err(error), _) => Err(error),
            (Ok(copied), Ok(stood)) => self.finished(sandbox, copied).map(|copied| (copied, stood)),
        };
        let (copied, stood) = match finished {
            Ok(finished) => finished,
            Err(error) if error.is_of_source() => {
                archives::remove(self.folder, &content)?;
                return self.left_out(sandbox, error.to_string());
            }
            Err(error) => return Err(error),
        };
        let frozen_ms = held.frozen.then(|| u64::try_from(stood.as_millis()).unwrap_or(u64::MAX));
        let mut bytes = 0;
        if let Some(Finished { file, data_bytes }) = copied {
            bytes = data_bytes;
            self.push(file);
        }
        self.kept.insert(sandbox.name.clone());
        self.progress.event(&ProgressEvent::Sandbox {
            tenant: sandbox.tenant.clone(),
            id: sandbox.id.clone(),
            bytes,
            frozen_ms,
        });
        self.manifest.sandboxes.push(SandboxMoment {
            name: sandbox.name.clone(),
            tenant: sandbox.tenant.clone(),
            id: sandbox.id.clone(),
            state: held.state,
            at_ms,
            frozen_ms,
            unsaved_shells: held.unsaved_shells,
        });
        Ok(())
    }

    /// Waits until the archive of a sandbox is on the disk, and verifies it.
    fn finished(
        &self,
        sandbox: &SandboxSummary,
        copied: Option<WrittenArchive>,
    ) -> Result<Option<Finished>, Error> {
        let Some(copied) = copied else { return Ok(None) };
        let data_bytes = copied.totals().data_bytes;
        let file = copied.finish()?;
        let allowed = allowed_in_sandbox(sandbox, file.restored_bytes);
        verify_file(self.folder, &file, allowed, &Quiet)?;
        Ok(Some(Finished { file, data_bytes }))
    }

    fn left_out_if_of_source(
        &mut self,
        sandbox: &SandboxSummary,
        error: Error,
    ) -> Result<(), Error> {
        match error.is_of_source() {
            true => self.left_out(sandbox, error.to_string()),
            false => Err(error),
        }
    }

    /// Copies the layers of a sandbox that the backup does not have yet, and remembers which it has.
    fn layers_of(&mut self, name: &str) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            let all = sandboxes(&self.data.join("isolet.db"))?;
            let found = all.into_iter().find(|one| one.name == name);
            let layers = found.map(|one| one.snapshot_layers).unwrap_or_default();
            if self.archive_layers(&layers)? {
                self.layers.insert(name.to_owned(), layers);
                return Ok(());
            }
            attempt += 1;
            if attempt > LAYERS_ATTEMPTS {
                let root = self.data.join("snapshots/layers");
                let source = std::io::Error::other("a layer of the sandbox is missing");
                return Err(Error::Source { root, source });
            }
        }
    }

    /// Returns `false` if a layer was discarded while it was copied, because others replace it.
    fn archive_layers(&mut self, layers: &[SummaryLayer]) -> Result<bool, Error> {
        for layer in layers {
            if self.archived_layers.contains(&layer.name) {
                continue;
            }
            let source = || std::io::Error::other("it names an invalid layer");
            if !is_name(&layer.name) {
                return Err(Error::Source { root: self.data.to_owned(), source: source() });
            }
            let Some(file) = self.archives().layer(&layer.name)? else { return Ok(false) };
            let allowed = allowed_in_layer(layer, file.restored_bytes);
            if let Err(error) = verify_file(self.folder, &file, allowed, &Quiet) {
                // Another sandbox may name it too.
                archives::remove(self.folder, &file.content)?;
                return Err(error);
            }
            self.archived_layers.insert(layer.name.clone());
            self.add(file);
        }
        Ok(true)
    }

    fn left_out(&mut self, sandbox: &SandboxSummary, reason: String) -> Result<(), Error> {
        self.missing(sandbox.tenant.clone(), sandbox.id.clone(), reason);
        Ok(())
    }

    fn missing(&mut self, tenant: String, id: String, reason: String) {
        self.progress.event(&ProgressEvent::LeftOut {
            tenant: tenant.clone(),
            id: id.clone(),
            reason: reason.clone(),
        });
        self.manifest.left_out.push(LeftOut { tenant, id, reason });
    }

    /// Copies everything that belongs to no sandbox.
    fn others(&mut self, with_images: bool) -> Result<(), Error> {
        for name in self.archives().orphan_names()? {
            self.orphan(name)?;
        }
        let audit = self.audit()?;
        let archives = self.archives();
        let mut files = vec![audit];
        if with_images {
            files.push(archives.images()?);
        }
        // Before the records: a removal that is in both is applied twice, which changes nothing.
        files.push(archives.server()?);
        self.manifest.images = with_images;
        for file in files {
            self.add(file);
        }
        Ok(())
    }

    fn orphan(&mut self, name: String) -> Result<(), Error> {
        let written = self.archives().orphan(&name).and_then(|file| {
            let allowed = allowed_in_orphan(file.restored_bytes);
            verify_file(self.folder, &file, allowed, &Quiet)?;
            Ok(file)
        });
        match written {
            Ok(file) => self.add(file),
            Err(error) if error.is_of_source() => {
                archives::remove(self.folder, &Content::Orphan { name: name.clone() })?;
                let id = format!("orphaned/{name}");
                self.missing(UNKNOWN_TENANT.to_owned(), id, error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Copies the audit logs together with the keys that verify them.
    fn audit(&mut self) -> Result<FileEntry, Error> {
        let mut attempt = 1;
        loop {
            let before = AuditKeys::read(self.data)?;
            let file = self.archives().audit()?;
            if AuditKeys::read(self.data)? == before {
                self.audit_keys = before;
                return Ok(file);
            }
            archives::remove(self.folder, &Content::Audit)?;
            attempt += 1;
            if attempt > AUDIT_ATTEMPTS {
                let source = std::io::Error::other("its key is replaced again and again");
                return Err(Error::Source { root: self.data.join("audit"), source });
            }
        }
    }

    fn add(&mut self, file: FileEntry) {
        let path = file.content.path();
        self.progress.event(&ProgressEvent::File { path, bytes: file.bytes });
        self.push(file);
    }

    fn push(&mut self, mut file: FileEntry) {
        if self.skipped_named + file.skipped.len() > SKIPPED_NAMED_MAX {
            file.skipped = vec![SkippedFile::unnamed(file.left_out)];
        }
        self.skipped_named += file.skipped.len();
        self.manifest.files.push(file);
    }

    /// Copies the records of the sandboxes that were copied. Returns the secrets of links, which the
    /// copy does not contain.
    fn records(&mut self, records: &Path) -> Result<LinkSecrets, Error> {
        let path = self.folder.join(Content::Records.path());
        let copy = CopiedRecords::copy(records, &path)?;
        copy.retain(&self.kept)?;
        copy.put_snapshot_layers(&self.layers)?;
        let (summaries, invalid): (Vec<_>, Vec<_>) =
            copy.sandboxes()?.into_iter().partition(|sandbox| check_record(sandbox).is_ok());
        for sandbox in &invalid {
            let reason = check_record(sandbox).err().unwrap_or_default();
            self.left_out(sandbox, format!("it {reason}"))?;
        }
        copy.retain(&summaries.iter().map(|sandbox| sandbox.name.clone()).collect())?;
        let links = copy.take_link_secrets()?;
        let layers = summaries.iter().flat_map(|sandbox| &sandbox.snapshot_layers);
        let layers: HashSet<String> = layers.map(|layer| layer.name.clone()).collect();
        let recorded: HashSet<String> = summaries.into_iter().map(|sandbox| sandbox.name).collect();
        copy.finish()?;
        for name in self.kept.difference(&recorded) {
            archives::remove(self.folder, &Content::Sandbox { name: name.clone() })?;
        }
        for name in self.archived_layers.difference(&layers) {
            archives::remove(self.folder, &Content::Layer { name: name.clone() })?;
        }
        self.kept = recorded;
        let kept = &self.kept;
        self.manifest.sandboxes.retain(|one| kept.contains(&one.name));
        self.manifest.files.retain(|file| match &file.content {
            Content::Sandbox { name } => kept.contains(name),
            Content::Layer { name } => layers.contains(name),
            _ => true,
        });
        let Digested { bytes, sha256 } = digest(&path, &Quiet)?;
        self.add(file_entry(Content::Records, Digested { bytes, sha256 }));
        Ok(links)
    }

    fn secrets(&mut self, links: LinkSecrets, passphrase: &Passphrase) -> Result<(), Error> {
        let audit = self.audit_keys.clone();
        let bytes = Secrets::read(self.data, &self.kept, audit, links)?.encrypt(passphrase)?;
        let path = self.folder.join(Content::Secrets.path());
        let mut file = HashedFile::create(&path)?;
        file.write_all(&bytes).map_err(at(&path))?;
        let digested = file.finish().map_err(at(&path))?;
        self.add(file_entry(Content::Secrets, digested));
        self.manifest.secrets = true;
        Ok(())
    }

    /// Writes the manifest, after everything else is on the disk.
    fn finish(mut self) -> Result<(), Error> {
        for folder in ["sandboxes", "layers", "orphaned"] {
            let folder = self.folder.join(folder);
            if folder.is_dir() {
                sync_directory(&folder)?;
            }
        }
        self.manifest.ended_at_ms = isolet_clock::now_ms();
        let path = self.folder.join(manifest::FILE);
        let mut text = serde_json::to_vec_pretty(&self.manifest)
            .map_err(|error| at(&path)(std::io::Error::from(error)))?;
        text.push(b'\n');
        let mut file = HashedFile::create(&path)?;
        file.write_all(&text).map_err(at(&path))?;
        file.finish().map_err(at(&path))?;
        sync_directory(self.folder)
    }
}

fn file_entry(content: Content, digested: Digested) -> FileEntry {
    let Digested { bytes, sha256 } = digested;
    let skipped = Vec::new();
    FileEntry {
        content,
        bytes,
        sha256,
        entries: 0,
        restored_bytes: 2 * bytes,
        left_out: 0,
        skipped,
    }
}

/// An archive of a sandbox that is on the disk and verified.
struct Finished {
    file: FileEntry,
    /// Bytes of contents, without holes.
    data_bytes: u64,
}

/// Reports no progress to anybody.
struct Quiet;

impl Progress for Quiet {
    fn event(&self, _: &ProgressEvent) {}
    fn bytes(&self, _: u64) {}
}
