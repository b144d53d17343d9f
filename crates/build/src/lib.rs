//! Builds images: runs the steps of a recipe in a sandbox of the tenant, and makes an image of the
//! result. Knows nothing of HTTP; the native API, the E2B dialect and `isolet image build` use it.
//!
//! A [`Recipe`] begins with a base and has steps. [`Builder`] runs it: the limits, the quotas and the
//! network of the tenant's sandboxes apply, because it is one. After each step that changes files the
//! builder takes a snapshot, named by a digest of all that led to it; a later build with the same
//! steps begins at the last one that it finds.
//!
//! | layer | modules |
//! |---|---|
//! | operations | `builder` |
//! | one build | `run`: base, steps, cache, image |
//! | parts | `archive`: uploaded files, `expand`: variables, `chain`: digests of steps |
//! | on the disk | `files`: uploads, `records`: builds |
//! | Dockerfiles | `dockerfile`: from text to steps, without a server |
//! | data | `recipe`, `build_log`, `error` |
//!
//! ```text
//! DATA/builds/<tenant>/<build>.json          one build with its log, once it has ended
//! DATA/builds/<tenant>/files/<name>.json     an upload: the digest of its content
//! DATA/builds/<tenant>/files/<digest>.tar    uploaded files, as they were received
//! ```
#![forbid(unsafe_code)]

mod archive;
mod build_log;
mod builder;
mod chain;
pub mod dockerfile;
mod error;
mod expand;
mod files;
mod recipe;
mod records;
mod run;
mod upload_token;

pub use archive::ArchiveSummary;
pub use build_log::{LogEntry, LogLevel};
pub use builder::{BuildNames, BuildWatch, Builder};
pub use error::Error;
pub use files::{FILE_BYTES_MAX, FilesName, Upload};
pub use recipe::{
    Accounts, Action, Base, CopyStep, Place, READY_LABEL, Recipe, RunProgram, RunStep, START_LABEL,
    StartCommand, Step,
};
pub use records::{BuildInfo, BuildState, FailedPart};
pub use run::cache::is_cached_step;
pub use upload_token::UploadGrant;
