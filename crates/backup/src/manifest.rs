//! The manifest: what a backup contains. A backup without one is not complete.

use crate::error::{Error, at};
use isolet_store::FORMAT;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The file of the manifest.
pub(crate) const FILE: &str = "manifest.json";
/// What the manifest says about itself.
const KIND: &str = "isolet-backup";
/// Maximum size of a manifest, in bytes: about 500 for each of 32,768 sandboxes.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum length of the server's name for a sandbox.
const NAME_MAX: usize = 40;

/// What a backup contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    kind: String,
    /// The format of the data directory, which is also that of the backup.
    format: u32,
    /// The version of Isolet that wrote it.
    pub isolet: String,
    /// When it was begun, in ms since 1970.
    pub began_at_ms: i64,
    /// When it was complete, in ms since 1970.
    pub ended_at_ms: i64,
    /// Whether it contains images.
    pub images: bool,
    /// Whether it contains secrets.
    pub secrets: bool,
    /// All files but the manifest.
    pub files: Vec<FileEntry>,
    /// The sandboxes whose files it contains.
    pub sandboxes: Vec<SandboxMoment>,
    /// The sandboxes that it does not contain.
    pub left_out: Vec<LeftOut>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// What the file contains; its path follows from it.
    #[serde(flatten)]
    pub content: Content,
    /// Its size, in bytes.
    pub bytes: u64,
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
    /// The number of entries of an archive.
    pub entries: u64,
    /// Space that its contents need after a restore, in bytes.
    pub restored_bytes: u64,
    /// Number of files that it does not contain: sockets, devices and paths of more than 64 KiB,
    /// and those of `skipped`.
    pub left_out: u64,
    /// Files that could not be read or archived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedFile>,
}

/// A file that an archive does not contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedFile {
    /// Its path below the archive's root, quoted and with escaped control characters.
    pub path: String,
    /// Why it is missing.
    pub reason: String,
}

impl SkippedFile {
    /// Stands for further files.
    pub(crate) fn unnamed(count: u64) -> Self {
        Self { path: format!("{count} more"), reason: "not listed".to_owned() }
    }
}

/// What a file contains. It determines where the file lies, and where its contents are restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "content", rename_all = "snake_case")]
pub enum Content {
    /// The records of all sandboxes, as an SQLite database.
    Records,
    /// Files of the server beside the records.
    Server,
    /// The files of a sandbox.
    Sandbox {
        /// The server's name for it.
        name: String,
    },
    /// An immutable layer of a snapshot that sandboxes need.
    Layer {
        /// The server's name for it.
        name: String,
    },
    /// Files of a sandbox without a record.
    Orphan {
        /// The server's name for it.
        name: String,
    },
    /// The layers and the index of the images.
    Images,
    /// The audit logs of all tenants.
    Audit,
    /// Keys and credentials, encrypted with the passphrase.
    Secrets,
}

/// The moment at which a sandbox was copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxMoment {
    /// The server's name for it.
    pub name: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The id of the sandbox.
    pub id: String,
    /// The state that it had.
    pub state: String,
    /// When it was copied, in ms since 1970. The copy holds what was written before.
    pub at_ms: i64,
    /// How long its processes were frozen, in ms; `None`: none ran.
    pub frozen_ms: Option<u64>,
    /// Shells whose latest state could not be saved: they come back as they were saved before.
    pub unsaved_shells: usize,
}

/// A sandbox that a backup does not contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The id of the sandbox.
    pub id: String,
    /// Why it is missing.
    pub reason: String,
}

impl Content {
    /// The path below the backup.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Records => "records.db".to_owned(),
            Self::Server => "server.tar.zst".to_owned(),
            Self::Sandbox { name } => format!("sandboxes/{name}.tar.zst"),
            Self::Layer { name } => format!("layers/{name}.tar.zst"),
            Self::Orphan { name } => format!("orphaned/{name}.tar.zst"),
            Self::Images => "images.tar.zst".to_owned(),
            Self::Audit => "audit.tar.zst".to_owned(),
            Self::Secrets => "secrets.age".to_owned(),
        }
    }

    /// Whether it is an archive of files.
    #[must_use]
    pub fn is_archive(&self) -> bool {
        !matches!(self, Self::Records | Self::Secrets)
    }

    /// Whether the names in it can be used as file names.
    fn is_valid(&self) -> bool {
        match self {
            Self::Sandbox { name } | Self::Orphan { name } | Self::Layer { name } => is_name(name),
            _ => true,
        }
    }
}

/// Whether this is a name that the server gives to sandboxes, or to one that it moved aside.
pub(crate) fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.';
    (1..=NAME_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(known)
}

impl Manifest {
    /// The files that could not be read or archived, with the content of the archive.
    pub fn skipped(&self) -> impl Iterator<Item = (&Content, &SkippedFile)> {
        self.files.iter().flat_map(|file| file.skipped.iter().map(|one| (&file.content, one)))
    }

    /// An empty manifest of a backup that begins now.
    pub(crate) fn new() -> Self {
        Self {
            kind: KIND.to_owned(),
            format: FORMAT,
            isolet: env!("CARGO_PKG_VERSION").to_owned(),
            began_at_ms: isolet_clock::now_ms(),
            ended_at_ms: 0,
            images: false,
            secrets: false,
            files: Vec::new(),
            sandboxes: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Reads the manifest of a backup.
    ///
    /// # Errors
    /// [`Error::NoBackup`], [`Error::OtherFormat`], [`Error::EarlierVersion`], [`Error::Io`].
    pub fn read(backup: &Path) -> Result<Self, Error> {
        let no_backup = |reason: String| Error::NoBackup { path: backup.to_owned(), reason };
        let path = backup.join(FILE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(no_backup("it has no manifest.json".to_owned()));
            }
            Err(error) => return Err(at(&path)(error)),
        };
        let mut text = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(at(&path))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(no_backup("its manifest is too long".to_owned()));
        }
        let parsed: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| no_backup(format!("its manifest cannot be read: {error}")))?;
        // Checked before the rest, which another version may have changed. A version without formats
        // wrote its kind into the member `format`.
        if parsed["format"] == KIND {
            return Err(Error::EarlierVersion(backup.to_owned()));
        }
        if parsed["kind"] != KIND {
            return Err(no_backup("its manifest is not that of a backup".to_owned()));
        }
        match parsed["format"].as_u64() {
            Some(found) if found == u64::from(FORMAT) => {}
            Some(found) => return Err(Error::OtherFormat { backup: backup.to_owned(), found }),
            None => return Err(no_backup("its manifest names no format".to_owned())),
        }
        let manifest: Self = serde_json::from_value(parsed)
            .map_err(|error| no_backup(format!("its manifest cannot be read: {error}")))?;
        manifest.check(&no_backup)?;
        Ok(manifest)
    }

    fn check(&self, no_backup: &impl Fn(String) -> Error) -> Result<(), Error> {
        let mut paths = std::collections::HashSet::new();
        for file in &self.files {
            if !file.content.is_valid() || !paths.insert(file.content.path()) {
                let path = file.content.path();
                return Err(no_backup(format!("its manifest names {path:?}")));
            }
        }
        let invalid = self.sandboxes.iter().find(|sandbox| !is_name(&sandbox.name));
        if let Some(sandbox) = invalid {
            return Err(no_backup(format!("its manifest names the sandbox {:?}", sandbox.name)));
        }
        let has = |content: &Content| self.files.iter().any(|file| file.content == *content);
        if !has(&Content::Records) || !has(&Content::Server) {
            return Err(no_backup("its manifest names no records".to_owned()));
        }
        if self.secrets != has(&Content::Secrets) || self.images != has(&Content::Images) {
            return Err(no_backup("its manifest contradicts itself".to_owned()));
        }
        Ok(())
    }

    /// Space that a restore needs, in bytes.
    #[must_use]
    pub fn restored_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.restored_bytes))
    }
}
