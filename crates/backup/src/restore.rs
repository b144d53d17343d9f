//! Restores a backup into an empty data directory.
//!
//! All hashes are verified before anything is written; what archives and records contain is checked
//! while they are written. A file marks the directory until the restore is complete, so that no
//! server starts on a part of it, and a restore that was killed is repeated from the beginning. A
//! restore that fails removes what it wrote.

mod target;

use crate::archive::Extractor;
use crate::error::{Error, at};
use crate::files::{check_space, open};
use crate::manifest::{Content, FileEntry, LeftOut, Manifest};
use crate::progress::{Progress, ProgressEvent};
use crate::records::FileIds;
use crate::secrets::{Passphrase, Secrets};
use crate::verify::{check_hash, check_sizes, unpack};
use isolet_store::backup::{Contents, CopiedRecords, SandboxSummary};
use isolet_store::check_or_write_format;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use target::IncompleteRestore;

/// The records while they are prepared. They get their name last.
const RECORDS_NEW: &str = "isolet.db.restoring";

/// Maximum mode of the directory of a sandbox: processes in it may pass it, but not list it.
const SANDBOX_MODE: u32 = 0o711;
/// Maximum mode of directories that only the server uses. Layers of images and files of sandboxes
/// contain set-user-id programs, which users of the host must not reach.
const PRIVATE_MODE: u32 = 0o700;

/// What is restored, and where.
pub struct RestoreOptions<'a> {
    /// The directory of the backup.
    pub backup: &'a Path,
    /// The data directory, which must be missing or empty.
    pub data_dir: &'a Path,
    /// The passphrase of the secrets; `None`: they are not restored.
    pub passphrase: Option<&'a Passphrase>,
    /// Whether to refuse a disk that may have too little space.
    pub check_space: bool,
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What the backup contains.
    pub manifest: Manifest,
    /// Sentences about what is missing, and what to do.
    pub notes: Vec<String>,
}

/// Restores a backup. Blocks.
///
/// # Errors
/// [`Error`]. The data directory is empty then, or as it was before.
pub fn restore(options: &RestoreOptions<'_>, progress: &dyn Progress) -> Result<Restored, Error> {
    let backup = options.backup;
    let data = options.data_dir;
    let manifest = Manifest::read(backup)?;
    check_sizes(backup, &manifest)?;
    let target = IncompleteRestore::begin(data)?;
    check_or_write_format(data)?;
    if options.check_space {
        check_space(data, manifest.restored_bytes())?;
    }
    let bytes = manifest.files.iter().map(|file| file.bytes).sum();
    progress.event(&ProgressEvent::Started { bytes, sandboxes: manifest.sandboxes.len() });
    for file in &manifest.files {
        check_hash(backup, file, progress)?;
    }
    let secrets = match (manifest.secrets, options.passphrase) {
        (true, Some(passphrase)) => {
            Some(Secrets::load(&backup.join(Content::Secrets.path()), passphrase)?)
        }
        _ => None,
    };
    let restoring = Restoring { backup, data, manifest: &manifest, secrets: secrets.as_ref() };
    let contents = restoring.records()?;
    let ids = FileIds::check(&manifest, &contents)?;
    for file in &manifest.files {
        restoring.archive(file, &ids)?;
        progress.event(&ProgressEvent::File { path: file.content.path(), bytes: file.bytes });
    }
    if let Some(secrets) = &secrets {
        secrets.write(data)?;
    }
    restoring.folders()?;
    fs::rename(data.join(RECORDS_NEW), data.join("isolet.db")).map_err(at(data))?;
    target.complete()?;
    let notes = restoring.notes(&contents.sandboxes);
    Ok(Restored { manifest, notes })
}

struct Restoring<'a> {
    backup: &'a Path,
    data: &'a Path,
    manifest: &'a Manifest,
    secrets: Option<&'a Secrets>,
}

impl Restoring<'_> {
    /// Copies the records, and puts the secrets of links back.
    fn records(&self) -> Result<Contents, Error> {
        let path = self.data.join(RECORDS_NEW);
        let mut from = open(&self.backup.join(Content::Records.path()))?;
        let mut options = OpenOptions::new();
        let to = options.write(true).create_new(true).mode(0o600).open(&path);
        let mut to = to.map_err(at(&path))?;
        io::copy(&mut from, &mut to).map_err(at(&path))?;
        let records = CopiedRecords::open(&path)?;
        let contents = records.contents()?;
        if let Some(secrets) = self.secrets {
            records.put_link_secrets(secrets.links())?;
        }
        records.finish()?;
        Ok(contents)
    }

    fn archive(&self, file: &FileEntry, ids: &FileIds) -> Result<(), Error> {
        let (root, mode_max) = match &file.content {
            Content::Records | Content::Secrets => return Ok(()),
            Content::Server => return self.server(file, ids),
            Content::Sandbox { name } => (self.data.join("sandboxes").join(name), SANDBOX_MODE),
            Content::Layer { name } => {
                (self.data.join("snapshots/layers").join(name), PRIVATE_MODE)
            }
            Content::Orphan { name } => (self.data.join("orphaned").join(name), SANDBOX_MODE),
            Content::Images => (self.data.join("images"), PRIVATE_MODE),
            Content::Audit => (self.audit_folder(), PRIVATE_MODE),
        };
        self.folders()?;
        let made = DirBuilder::new().recursive(true).mode(PRIVATE_MODE).create(&root);
        made.map_err(at(&root))?;
        self.extract(file, ids, &root, mode_max)
    }

    fn extract(
        &self,
        file: &FileEntry,
        ids: &FileIds,
        root: &Path,
        mode_max: u32,
    ) -> Result<(), Error> {
        let mut extractor = Extractor::new(root, mode_max).map_err(at(root))?;
        unpack(self.backup, file, ids.allowed(file), &mut extractor)?;
        extractor.finish().map_err(at(root))
    }

    /// Extracts beside the data directory's own files, and moves the known ones to their place.
    fn server(&self, file: &FileEntry, ids: &FileIds) -> Result<(), Error> {
        let folder = self.data.join("restoring");
        DirBuilder::new().mode(0o700).create(&folder).map_err(at(&folder))?;
        self.extract(file, ids, &folder, PRIVATE_MODE)?;
        for name in ["identity", "isolet.tombstones", "isolet.revoked"] {
            let from = folder.join(name);
            if fs::symlink_metadata(&from).is_ok_and(|about| about.is_file()) {
                fs::rename(&from, self.data.join(name)).map_err(at(&from))?;
            }
        }
        isolet_sys::tree::remove(&folder).map_err(at(&folder))
    }

    /// Without their key, nobody can continue or verify the logs: they are put aside.
    fn audit_folder(&self) -> PathBuf {
        match self.secrets {
            Some(_) => self.data.join("audit/tenants"),
            None => self.data.join(format!("audit/unverified-{}", self.manifest.began_at_ms)),
        }
    }

    /// The folders that every data directory has.
    fn folders(&self) -> Result<(), Error> {
        for name in ["sandboxes", "trash", "audit"] {
            let path = self.data.join(name);
            let made = DirBuilder::new().recursive(true).mode(PRIVATE_MODE).create(&path);
            made.map_err(at(&path))?;
        }
        Ok(())
    }

    fn notes(&self, sandboxes: &[SandboxSummary]) -> Vec<String> {
        let mut notes = Vec::new();
        for LeftOut { tenant, id, reason } in &self.manifest.left_out {
            notes.push(format!("sandbox {id} of tenant {tenant} is not in the backup: {reason}"));
        }
        if !self.manifest.images {
            let mut images: Vec<_> = sandboxes.iter().map(|one| one.image.as_str()).collect();
            images.retain(|image| *image != "host");
            images.sort_unstable();
            images.dedup();
            if !images.is_empty() {
                let images = images.join(", ");
                notes.push(format!("the backup has no images; sandboxes need {images}: run `isolet image pull` for each"));
            }
        }
        if self.secrets.is_some() {
            return notes;
        }
        let hint = match self.manifest.secrets {
            true => "; the backup contains them: restore with --passphrase-file",
            false => "",
        };
        notes.push(format!("secrets were not restored{hint}"));
        notes.push("API keys work as before, but the file DATA/key is missing: put a key there, or create one with `isolet keys add`".to_owned());
        notes.push("links to ports are invalid: create them again".to_owned());
        let folder = self.audit_folder();
        let folder = folder.display();
        notes.push(format!(
            "audit logs begin again with another key; those of the backup are in {folder}"
        ));
        for sandbox in sandboxes.iter().filter(|one| !one.credential_hosts.is_empty()) {
            let hosts = sandbox.credential_hosts.join(", ");
            let SandboxSummary { tenant, id, .. } = sandbox;
            notes.push(format!("sandbox {id} of tenant {tenant} has no credentials for {hosts}: set them again with `isolet network {id} --credential-add`"));
        }
        notes
    }
}

/// Waits until everything below a directory is on the disk.
pub(crate) fn sync(directory: &Path) -> Result<(), Error> {
    let opened = File::open(directory).map_err(at(directory))?;
    rustix::fs::syncfs(&opened).map_err(at(directory))
}
