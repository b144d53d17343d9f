//! Writes a backup, while sandboxes run. Each sandbox stands still while its files are copied; the
//! others continue.
//!
//! The records are copied last. A sandbox that was created during the backup is removed from the copy, and
//! the archive of one that was deleted during it is removed, so that records and files agree.

mod archives;
mod audit;
mod target;

use crate::error::{Error, at};
use crate::files::{Digested, HashedFile, check_space, digest, sync_directory};
use crate::manifest::{self, Content, FileEntry, LeftOut, Manifest, SandboxMoment, is_name};
use crate::progress::{Event, Progress};
use crate::secrets::{Passphrase, Secrets};
use archives::Archives;
use isolet_store::backup::{CopiedRecords, LinkSecrets, SandboxSummary, sandboxes};
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use target::PartialBackup;

/// Space that a backup needs besides copies of all files, in bytes.
const SPARE_BYTES: u64 = 16 * 1024 * 1024;

/// What a backup contains, and where it is written.
pub struct Options {
    /// The data directory.
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

/// Writes a backup. Blocks.
///
/// # Errors
/// [`Error`]. Nothing that looks like a backup is left then.
pub fn create(
    options: &Options,
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
    progress.event(&Event::Started { bytes, sandboxes: all.len() });
    let mut backup = Backup {
        data: &data,
        folder: partial.path(),
        progress,
        manifest: Manifest::new(),
        kept: HashSet::new(),
    };
    for sandbox in &all {
        backup.sandbox(sandbox, holds)?;
    }
    backup.others(options.with_images)?;
    let links = backup.records(&records)?;
    if let Some(passphrase) = &options.passphrase {
        backup.secrets(links, passphrase)?;
    }
    let manifest = backup.finish()?;
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
        let held = match holds.hold(&sandbox.name) {
            Ok(Some(held)) => held,
            Ok(None) => return Ok(()),
            Err(Error::Hold(reason)) => return self.left_out(sandbox, reason),
            Err(error) => return Err(error),
        };
        let at_ms = isolet_clock::now_ms();
        // A sleep removes the files of an ephemeral sandbox, and a restored one is asleep.
        let has_files = sandbox.persistent || held.state == "failed";
        let copied = match has_files {
            true => self.archives().standing_sandbox(&sandbox.name).map(Some),
            false => Ok(None),
        };
        let stood = holds.release();
        let copied = match (copied, stood) {
            (Ok(copied), Ok(stood)) => (copied, stood),
            (_, Err(Error::Hold(reason))) => {
                archives::remove(self.folder, &sandbox.name)?;
                return self.left_out(sandbox, reason);
            }
            (Err(error), _) if error.is_busy() => {
                archives::remove(self.folder, &sandbox.name)?;
                return self.left_out(sandbox, error.to_string());
            }
            (_, Err(error)) | (Err(error), _) => return Err(error),
        };
        let (copied, stood) = copied;
        let frozen_ms = held.frozen.then(|| u64::try_from(stood.as_millis()).unwrap_or(u64::MAX));
        let mut bytes = 0;
        if let Some(copied) = copied {
            bytes = copied.totals().data_bytes;
            let file = copied.finish()?;
            self.manifest.files.push(file);
        }
        self.kept.insert(sandbox.name.clone());
        self.progress.event(&Event::Sandbox {
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

    fn left_out(&mut self, sandbox: &SandboxSummary, reason: String) -> Result<(), Error> {
        let tenant = sandbox.tenant.clone();
        let id = sandbox.id.clone();
        self.progress.event(&Event::LeftOut {
            tenant: tenant.clone(),
            id: id.clone(),
            reason: reason.clone(),
        });
        self.manifest.left_out.push(LeftOut { tenant, id, reason });
        Ok(())
    }

    /// Copies everything that belongs to no sandbox.
    fn others(&mut self, with_images: bool) -> Result<(), Error> {
        let archives = self.archives();
        let mut files = Vec::new();
        if with_images {
            files.push(archives.images()?);
        }
        files.extend(archives.orphans()?);
        files.push(archives.audit()?);
        // Before the records: a removal that is in both is applied twice, which changes nothing.
        files.push(archives.server()?);
        self.manifest.images = with_images;
        for file in files {
            self.add(file);
        }
        Ok(())
    }

    fn add(&mut self, file: FileEntry) {
        let path = file.content.path();
        self.progress.event(&Event::File { path, bytes: file.bytes });
        self.manifest.files.push(file);
    }

    /// Copies the records of the sandboxes that were copied. Returns the secrets of links, which the
    /// copy does not contain.
    fn records(&mut self, records: &Path) -> Result<LinkSecrets, Error> {
        let path = self.folder.join(Content::Records.path());
        let copy = CopiedRecords::copy(records, &path)?;
        copy.retain(&self.kept)?;
        let links = copy.take_link_secrets()?;
        let recorded: HashSet<String> =
            copy.sandboxes()?.into_iter().map(|sandbox| sandbox.name).collect();
        copy.finish()?;
        for name in self.kept.difference(&recorded) {
            archives::remove(self.folder, name)?;
        }
        self.kept = recorded;
        let kept = &self.kept;
        self.manifest.sandboxes.retain(|one| kept.contains(&one.name));
        self.manifest.files.retain(|file| match &file.content {
            Content::Sandbox { name } => kept.contains(name),
            _ => true,
        });
        let Digested { bytes, sha256 } = digest(&path, &Quiet)?;
        self.add(file_entry(Content::Records, Digested { bytes, sha256 }));
        Ok(links)
    }

    fn secrets(&mut self, links: LinkSecrets, passphrase: &Passphrase) -> Result<(), Error> {
        let bytes = Secrets::read(self.data, &self.kept, links)?.encrypt(passphrase)?;
        let path = self.folder.join(Content::Secrets.path());
        let mut file = HashedFile::create(&path)?;
        file.write_all(&bytes).map_err(at(&path))?;
        let digested = file.finish().map_err(at(&path))?;
        self.add(file_entry(Content::Secrets, digested));
        self.manifest.secrets = true;
        Ok(())
    }

    /// Writes the manifest, after everything else is on the disk.
    fn finish(mut self) -> Result<Manifest, Error> {
        for folder in ["sandboxes", "orphaned"] {
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
        sync_directory(self.folder)?;
        Ok(self.manifest)
    }
}

fn file_entry(content: Content, digested: Digested) -> FileEntry {
    let Digested { bytes, sha256 } = digested;
    FileEntry { content, bytes, sha256, entries: 0, restored_bytes: 2 * bytes, left_out: 0 }
}

/// Reports nothing.
struct Quiet;

impl Progress for Quiet {
    fn event(&self, _: &Event) {}
    fn bytes(&self, _: u64) {}
}
