//! Backups of a data directory: written while sandboxes run, verified, and restored.
//!
//! A backup is a directory. Its manifest is written last, and the directory gets its name only when
//! everything in it is on the disk, so that an interrupted backup never looks like a complete one.
//!
//! ```text
//! manifest.json             what the backup contains, with the size and SHA-256 of every file
//! records.db                the records, without the secrets of links
//! server.tar.zst            identity, and removals that wait for space
//! sandboxes/<name>.tar.zst  the files of a sandbox, at one moment
//! orphaned/<name>.tar.zst   files of a sandbox without a record
//! images.tar.zst            images
//! audit.tar.zst             audit logs
//! secrets.age               keys and credentials, encrypted with a passphrase (age)
//! ```
//!
//! The layers, each of which uses only those before it: `error`, `manifest` and `progress`; `files`;
//! `archive`; `secrets` and `records`; `verify`; `create` and `restore`.
#![forbid(unsafe_code)]

mod archive;
mod create;
mod error;
mod files;
mod manifest;
mod progress;
mod records;
mod restore;
mod secrets;
mod verify;

pub use create::{BackupOptions, Held, Holds, create};
pub use error::Error;
pub use manifest::{Content, FileEntry, LeftOut, Manifest, SandboxMoment, SkippedFile};
pub use progress::{Progress, ProgressEvent};
pub use restore::{RestoreOptions, Restored, restore};
pub use secrets::Passphrase;
pub use verify::verify;
