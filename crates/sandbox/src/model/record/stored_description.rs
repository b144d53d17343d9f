//! What the fleet shows of a sandbox that only the object store has: its settings without secrets, and
//! the ids of its sessions. The restore reads the snapshot instead.

use crate::model::error::Error;
use crate::model::exposed_ports::ExposedPorts;
use crate::model::ids::{SandboxId, SessionId, TenantId};
use crate::model::info::SandboxInfo;
use crate::model::record::{Record, RecordBody};
use crate::model::sessions::Sessions;
use crate::model::state::State;
use serde::{Deserialize, Serialize};

/// The version. A node that reads another one does not show the sandbox.
const VERSION: u8 = 1;
/// Maximum size in bytes: records in etcd must stay small. Metadata has at most 16 KiB.
const BYTES_MAX: usize = 40 * 1024;
/// Maximum number of named sessions.
const SESSIONS_MAX: usize = 100;

#[derive(Serialize, Deserialize)]
struct Description {
    v: u8,
    name: String,
    body: RecordBody,
    sessions: Vec<SessionId>,
}

/// Describes a sandbox.
///
/// # Errors
/// [`Error::NotMovable`] if it is too large for a record of the fleet.
pub(crate) fn write(record: &Record, sessions: &Sessions) -> Result<String, Error> {
    let mut body = record.body.clone();
    body.env.values_mut().for_each(String::clear);
    body.exposed = ExposedPorts::new();
    body.departure = None;
    let all = sessions.copied().into_iter().chain(sessions.uncopied());
    let ids = all.map(|(id, _)| id);
    let sessions = ids.take(SESSIONS_MAX).collect();
    let description = Description { v: VERSION, name: record.name.clone(), body, sessions };
    let text = serde_json::to_string(&description);
    let text = text.map_err(|error| Error::Fault(error.to_string()))?;
    if text.len() > BYTES_MAX {
        let reason = format!(
            "its settings have {} bytes in the records of the fleet, of {BYTES_MAX}",
            text.len()
        );
        return Err(Error::NotMovable { id: record.id.clone(), reason });
    }
    Ok(text)
}

/// Reads a description. `None`: another version wrote it, or it is damaged.
pub(crate) fn read(tenant: &TenantId, id: &SandboxId, text: &[u8]) -> Option<SandboxInfo> {
    read_record(tenant, id, text).map(|record| record.info())
}

/// Reads a description as the record of a sandbox that sleeps. `None`: as of [`read`].
pub(crate) fn read_record(tenant: &TenantId, id: &SandboxId, text: &[u8]) -> Option<Record> {
    let read: Description =
        serde_json::from_slice(text).ok().filter(|d: &Description| d.v == VERSION)?;
    Some(Record {
        name: read.name,
        tenant: tenant.clone(),
        id: id.clone(),
        slot: 0,
        state: State::Sleeping,
        agent_version: None,
        body: read.body,
    })
}
