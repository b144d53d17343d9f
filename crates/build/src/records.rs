//! Builds on the disk. A build is written when it is requested, when it starts, and when it ends; its
//! log with the last. A server that starts marks builds as failed that an earlier one has not ended.

use crate::build_log::LogEntry;
use crate::error::Error;
use isolet_sandbox::{SandboxId, TenantId};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The version of [`BuildRecord`].
const VERSION: u32 = 1;

/// The part of a build that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedPart {
    /// The base could not be found or pulled.
    Base,
    /// A step, from 0.
    Step(usize),
    /// The image could not be made of the result.
    Image,
    /// The server stopped, or a limit was reached.
    Build,
}

/// What has become of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BuildState {
    /// Its steps are not known yet.
    Requested,
    /// It waits for others of the tenant or of the server.
    Waiting,
    /// Its steps run.
    Building,
    /// The image exists.
    Ready {
        /// The digest of the image.
        digest: String,
    },
    /// It failed, and left nothing but steps in the cache.
    Failed {
        /// What failed.
        part: FailedPart,
        /// Why, for people.
        reason: String,
    },
}

impl BuildState {
    /// Whether nothing more happens to the build.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Ready { .. } | Self::Failed { .. })
    }
}

/// A build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildInfo {
    /// Its id, a UUID.
    pub id: String,
    /// The names of the image, complete with their tags.
    pub names: Vec<String>,
    /// When it was requested, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it ended, in milliseconds since 1970.
    pub ended_at_ms: Option<i64>,
    /// What has become of it.
    #[serde(flatten)]
    pub state: BuildState,
}

/// What is written of a build.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BuildRecord {
    v: u32,
    #[serde(flatten)]
    pub(crate) info: BuildInfo,
    /// The sandbox in which it runs.
    pub(crate) sandbox: Option<SandboxId>,
    pub(crate) log: Vec<LogEntry>,
}

impl BuildRecord {
    pub(crate) fn new(info: BuildInfo, sandbox: Option<SandboxId>, log: Vec<LogEntry>) -> Self {
        Self { v: VERSION, info, sandbox, log }
    }

    fn path(root: &Path, tenant: &TenantId, id: &str) -> PathBuf {
        root.join(tenant.as_str()).join(format!("{id}.json"))
    }

    /// Writes the record. Blocks.
    pub(crate) fn write(&self, root: &Path, tenant: &TenantId) -> Result<(), Error> {
        let path = Self::path(root, tenant, &self.info.id);
        let text = serde_json::to_vec(self).map_err(|error| Error::Disk(error.to_string()))?;
        let directory = root.join(tenant.as_str());
        fs::create_dir_all(&directory)?;
        let fresh = path.with_extension("new");
        let mut file = fs::File::create(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        Ok(fs::File::open(directory)?.sync_all()?)
    }

    /// Reads the log of a build that has ended. Blocks.
    pub(crate) fn read_log(
        root: &Path,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Vec<LogEntry>, Error> {
        let text = fs::read(Self::path(root, tenant, id))?;
        let record: Self =
            serde_json::from_slice(&text).map_err(|error| Error::Disk(error.to_string()))?;
        Ok(record.log)
    }

    /// Removes the record of a build. Blocks.
    pub(crate) fn remove(root: &Path, tenant: &TenantId, id: &str) {
        let _ = fs::remove_file(Self::path(root, tenant, id));
    }
}

/// Reads all builds, with their tenants and without their logs. One that cannot be read is reported and left out. Blocks.
pub(crate) fn read_all(root: &Path) -> Result<Vec<(TenantId, BuildRecord)>, Error> {
    let mut all = Vec::new();
    fs::create_dir_all(root)?;
    // Uploads are files of tenants.
    fs::set_permissions(root, fs::Permissions::from_mode(0o700))?;
    for directory in fs::read_dir(root)? {
        let directory = directory?;
        let Ok(tenant) = TenantId::parse(&directory.file_name().to_string_lossy()) else {
            continue;
        };
        for entry in fs::read_dir(directory.path())? {
            let path = entry?.path();
            if path.extension().is_none_or(|end| end != "json") {
                continue;
            }
            let read = || -> Option<BuildRecord> {
                let mut record: BuildRecord =
                    serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
                // Logs of ended builds stay on the disk, and others are not written.
                record.log = Vec::new();
                (record.v == VERSION).then_some(record)
            };
            match read() {
                Some(record) => all.push((tenant.clone(), record)),
                None => tracing::warn!(path = %path.display(), "cannot read the record of a build"),
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_log::LogLevel;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let home = tempfile::tempdir().unwrap();
        let tenant = TenantId::parse("one").unwrap();
        let failed = |part| BuildState::Failed { part, reason: "why".to_owned() };
        let ready = BuildState::Ready { digest: "sha256:1".to_owned() };
        let states = [
            BuildState::Requested,
            BuildState::Building,
            ready,
            failed(FailedPart::Step(3)),
            failed(FailedPart::Base),
        ];
        for (number, state) in states.into_iter().enumerate() {
            let info = BuildInfo {
                id: number.to_string(),
                names: vec!["a:1".to_owned()],
                created_at_ms: 5,
                ended_at_ms: Some(6),
                state,
            };
            let entry =
                LogEntry { at_ms: 5, level: LogLevel::Warn, message: "x".into(), step: Some(1) };
            let record = BuildRecord::new(info, SandboxId::parse("box").ok(), vec![entry]);
            record.write(home.path(), &tenant).unwrap();
            let (owner, read) = read_all(home.path()).unwrap().pop().unwrap();
            assert_eq!((&owner, &read.info), (&tenant, &record.info));
            assert!(read.log.is_empty(), "it stays on the disk");
            let log = BuildRecord::read_log(home.path(), &tenant, &record.info.id).unwrap();
            assert_eq!(log, record.log);
            assert_eq!(read.sandbox, record.sandbox);
            BuildRecord::remove(home.path(), &tenant, &record.info.id);
            fs::write(home.path().join("one/bad.json"), "{}").unwrap();
            assert!(read_all(home.path()).unwrap().is_empty());
        }
    }
}
