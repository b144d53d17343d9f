//! Replaces the key of the logs. The old key signs a last entry in each log, and the new key signs the
//! next one, so that the chain continues over the change.

use super::keyring::KeyRing;
use super::log::TenantLog;
use super::{Audit, AuditDirectory, AuditEntry, WriterLogs, WriterState};
use crate::error::Error;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use tokio::sync::oneshot;

/// The event of the entries before and after the change.
const EVENT: &str = "audit.key_rotated";

/// A change of the key that signs the logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    /// Fingerprint of the retired key.
    pub from: String,
    /// Fingerprint of the new key.
    pub to: String,
    /// Number of logs that continue with the new key.
    pub logs: usize,
}

impl AuditDirectory {
    /// Replaces the key of a data directory whose lock the caller holds. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn rotate_key(data: &Path) -> Result<KeyRotation, Error> {
        let place = Self::make(data)?;
        let mut logs = HashMap::new();
        let wrong = |error| Error::io(&place.directory, &error);
        place.rotate(&mut logs).map(|(_, rotation)| rotation).map_err(wrong)
    }

    /// Replaces the key. `logs` are those that are open; afterwards they are all open.
    fn rotate(&self, logs: &mut HashMap<String, TenantLog>) -> io::Result<(Self, KeyRotation)> {
        let replaced = self.replace_key(logs)?;
        let rotation = KeyRotation {
            from: self.keys.fingerprint(),
            to: replaced.keys.fingerprint(),
            logs: logs.len(),
        };
        Ok((replaced.sign_heads(logs, &rotation)?, rotation))
    }

    /// Ends each log with an entry under the old key, and writes the new key. The heads are still
    /// signed by the old one.
    fn replace_key(&self, logs: &mut HashMap<String, TenantLog>) -> io::Result<Self> {
        let tenants = self.tenants().map_err(|error| io::Error::other(error.to_string()))?;
        let from = self.keys.fingerprint();
        let mut until = BTreeMap::new();
        for tenant in &tenants {
            if !logs.contains_key(tenant) {
                let (log, _) = TenantLog::open(&self.of(tenant), self.keys(tenant))?;
                logs.insert(tenant.clone(), log);
            }
            let Some(log) = logs.get_mut(tenant) else { continue };
            log.append(&[AuditEntry::now(tenant, None, EVENT).with("retired", from.clone())])?;
            log.sync()?;
            until.insert(tenant.clone(), log.last_seq());
        }
        let keys: Arc<KeyRing> = Arc::new(self.keys.replace(&self.directory, until)?);
        Ok(Self { directory: self.directory.clone(), keys })
    }

    /// Continues each log under the current key, which then signs the heads too.
    fn sign_heads(
        self,
        logs: &mut HashMap<String, TenantLog>,
        rotation: &KeyRotation,
    ) -> io::Result<Self> {
        for (tenant, log) in logs.iter_mut() {
            log.set_keys(self.keys(tenant));
            let entry = AuditEntry::now(tenant, None, EVENT).with("retired", rotation.from.clone());
            log.append(&[entry.with("current", rotation.to.clone())])?;
            log.sync()?;
        }
        let keys = Arc::new(self.keys.complete(&self.directory)?);
        Ok(Self { keys, ..self })
    }
}

impl Audit {
    /// Replaces the key that signs the logs. Entries that were queued before are signed with the old
    /// key.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub async fn rotate_key(&self) -> Result<KeyRotation, Error> {
        let (answer, answered) = oneshot::channel();
        let shared = &self.writer.shared;
        shared.lock().rotations.push(answer);
        shared.wake_writer();
        answered.await.map_err(|_| Error::Closed)?
    }
}

impl WriterState {
    /// Replaces the key on the writer's thread.
    pub(super) fn rotate(&self, writing: &mut WriterLogs) -> Result<KeyRotation, Error> {
        let place = self.place();
        let rotated = place.rotate(&mut writing.logs);
        let (place, rotation) = match rotated {
            Ok((place, rotation)) => (place, Ok(rotation)),
            Err(error) => {
                // Keys and logs are read again: the files may already have the new key.
                writing.logs.clear();
                let keys = Arc::new(KeyRing::read(&place.directory)?);
                let directory = place.directory.clone();
                let error = Error::io(&directory, &error);
                (AuditDirectory { directory, keys }, Err(error))
            }
        };
        *self.place.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(place);
        rotation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::verify::Finding;
    use std::fs;

    async fn write(audit: &Audit, tenants: &[&str]) {
        for tenant in tenants {
            audit.put(AuditEntry::now(tenant, Some("a"), "exec.start"));
        }
        audit.flush().await;
    }

    fn assert_holds(data: &Path, tenant: &str) {
        let verdict = AuditDirectory::open(data).unwrap().verify(tenant).unwrap();
        assert!(verdict.holds(), "{tenant}: {:?}", verdict.findings);
    }

    fn text(data: &Path, tenant: &str) -> String {
        let directory = AuditDirectory::open(data).unwrap().of(tenant);
        fs::read_to_string(directory.join(format!("{:020}.ndjson", 1))).unwrap()
    }

    #[tokio::test]
    async fn a_crash_before_the_heads_are_signed_loses_no_log() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        write(&Audit::open(data).unwrap(), &["t", "u"]).await;
        let old = AuditDirectory::open(data).unwrap();
        let new = old.replace_key(&mut HashMap::new()).unwrap();
        assert_ne!(new.keys.fingerprint(), old.keys.fingerprint());
        assert_holds(data, "t");

        // What is cut off the end is still found.
        let whole = text(data, "u");
        let cut = whole.trim_end().rfind('\n').unwrap() + 1;
        let path = new.of("u").join(format!("{:020}.ndjson", 1));
        fs::write(&path, &whole[..cut]).unwrap();
        let verdict = AuditDirectory::open(data).unwrap().verify("u").unwrap();
        assert_eq!(verdict.findings, [Finding::Truncated { seq: 1, written: 2 }]);
        fs::write(&path, &whole).unwrap();

        let audit = Audit::open(data).unwrap();
        write(&audit, &["t", "u"]).await;
        audit.rotate_key().await.unwrap();
        write(&audit, &["t", "u"]).await;
        for tenant in ["t", "u"] {
            assert_holds(data, tenant);
            assert!(!text(data, tenant).contains("no_head"), "{}", text(data, tenant));
        }
    }

    #[tokio::test]
    async fn a_rotation_that_fails_leaves_logs_that_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let audit = Audit::open(data).unwrap();
        write(&audit, &["t"]).await;
        let before = AuditDirectory::open(data).unwrap().keys.fingerprint();
        let in_the_way = data.join("audit/key.new");
        fs::create_dir(&in_the_way).unwrap();
        audit.rotate_key().await.unwrap_err();
        write(&audit, &["t"]).await;
        assert_holds(data, "t");
        assert_eq!(AuditDirectory::open(data).unwrap().keys.fingerprint(), before);
        fs::remove_dir(&in_the_way).unwrap();
        let rotation = audit.rotate_key().await.unwrap();
        assert_eq!((rotation.from, rotation.logs), (before, 1));
        write(&audit, &["t"]).await;
        assert_holds(data, "t");
    }
}
