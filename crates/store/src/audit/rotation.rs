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
        let to = keys.fingerprint();
        let place = Self { directory: self.directory.clone(), keys };
        for (tenant, log) in logs.iter_mut() {
            log.set_keys(place.keys(tenant));
            let entry = AuditEntry::now(tenant, None, EVENT).with("retired", from.clone());
            log.append(&[entry.with("current", to.clone())])?;
            log.sync()?;
        }
        let keys = Arc::new(place.keys.complete(&self.directory)?);
        let place = Self { keys, ..place };
        let rotation = KeyRotation { from, to, logs: tenants.len() };
        Ok((place, rotation))
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
