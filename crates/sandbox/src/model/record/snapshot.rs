//! Snapshots: the files of a sandbox and the saved state of its shells at one moment, with the
//! settings of the sandbox and its sessions.

use crate::model::error::Error;
use crate::model::ids::{SandboxId, SessionId, SnapshotId, TenantId};
use crate::model::info::{Limits, Lost, Trigger};
use crate::model::input::Metadata;
use crate::model::network::injected_credential::InjectedCredential;
use crate::model::record::{RecordBody, is_internal_name};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum number of snapshots of one tenant, without automatic ones.
pub const SNAPSHOTS_MAX: usize = 1000;
/// Maximum number of sandboxes that one fork creates.
pub const FORKS_MAX: usize = 100;
/// The version of [`SnapshotBody`]. A server refuses a record of another version.
pub(crate) const VERSION: u32 = 1;

/// The parameters of a new snapshot. Every field is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotSpec {
    /// A name that can stand for the id, unique within the tenant.
    pub name: Option<SnapshotId>,
    /// Arbitrary JSON of the client.
    pub metadata: Metadata,
    /// Lifetime in seconds; `None` or 0 means unlimited.
    pub ttl_s: Option<u64>,
}

/// The description of a snapshot.
///
/// More than 12 fields: one for each field that clients see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// The id of the snapshot.
    pub id: SnapshotId,
    /// The name that can stand for the id.
    pub name: Option<SnapshotId>,
    /// The id that the sandbox had.
    pub sandbox: SandboxId,
    /// Why it was taken.
    pub trigger: Trigger,
    /// Arbitrary JSON of the client.
    pub metadata: Map<String, Value>,
    /// Time of the snapshot, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// End of the lifetime, in milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
    /// Size of the data in its files, in bytes, and 4,096 bytes for each file, directory and link.
    /// A copy by reference takes less of the disk.
    pub size_bytes: u64,
    /// How long the processes of the sandbox were frozen, in ms with decimals; 0 if none ran.
    pub frozen_ms: f64,
    /// The image to which the name that the sandbox was created with resolved.
    pub image_resolved: String,
    /// The image as the client requested it.
    pub image: String,
    /// The resource limits that a sandbox from this snapshot has.
    pub limits: Limits,
    /// What the snapshot does not contain.
    pub lost: Vec<Lost>,
}

/// A snapshot in the object store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSnapshot {
    /// The snapshot as it was pushed.
    pub info: SnapshotInfo,
    /// When it was pushed, in milliseconds since 1970.
    pub pushed_at_ms: i64,
    /// Whether this server has the snapshot too.
    pub is_here: bool,
}

/// Everything that is recorded about a snapshot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SnapshotRecord {
    /// The name of its directory.
    pub(crate) name: String,
    pub(crate) tenant: TenantId,
    pub(crate) id: SnapshotId,
    pub(crate) body: SnapshotBody,
}

/// The part of the record that the store holds as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnapshotBody {
    pub(crate) v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<SnapshotId>,
    pub(crate) sandbox: SandboxId,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) created_at_ms: i64,
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) size_bytes: u64,
    /// The part of `size_bytes` that lies in its top layer.
    pub(crate) layer_bytes: u64,
    pub(crate) frozen_ms: f64,
    pub(crate) lost: Vec<Lost>,
    /// The settings of the sandbox, without credentials and exposed ports.
    pub(crate) settings: RecordBody,
    pub(crate) sessions: Vec<SnapshotSession>,
    /// The credentials that the sandbox had, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) credentials: Vec<InjectedCredential>,
    /// Whether the snapshot serves one fork and ends with it.
    pub(crate) temporary: bool,
    pub(crate) trigger: Trigger,
    /// With an identity: its number among the snapshots of the sandbox on this server.
    #[serde(default)]
    pub(crate) number: u64,
    /// The internal name of the sandbox, which tells it from others that had its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) incarnation: Option<String>,
    /// How long the sandbox had been awake in total, in ms, if it slept. While this does not change,
    /// neither do its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asleep_after_ms: Option<u64>,
    /// Of a sandbox of the class `store`: its whole record, with which another node restores it under
    /// its id. A sandbox that a client creates from the snapshot gets nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Box<RecordBody>>,
    /// With an identity: the sessions that tenants address by their id alone, of which there can be only
    /// one each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) own_sessions: Vec<SnapshotSession>,
}

/// A session of the sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnapshotSession {
    pub(crate) id: SessionId,
    /// The record of the session, as JSON.
    pub(crate) record: String,
}

impl SnapshotBody {
    /// Whether the server took it on its own account, of a sandbox of the class `store`: it belongs to the
    /// sandbox, does not count for the tenant and is deleted with the sandbox. There are at most as many of
    /// one sandbox as it keeps.
    pub(crate) fn is_automatic(&self) -> bool {
        self.trigger == Trigger::Schedule && self.identity.is_some()
    }

    /// Makes the sessions that belong to the sandbox alone part of the others, to restore it.
    pub(crate) fn join_sessions(&mut self) {
        self.sessions.append(&mut self.own_sessions);
    }

    /// What a sandbox from the snapshot lacks that has the credentials `given`.
    pub(crate) fn lost_with(&self, given: &[InjectedCredential]) -> Vec<Lost> {
        let mut lost = self.lost.clone();
        if self.credentials.iter().any(|one| !given.contains(one)) {
            lost.push(Lost::Credentials);
        }
        lost.sort_unstable();
        lost.dedup();
        lost
    }
}

impl SnapshotRecord {
    /// The description for clients.
    pub(crate) fn info(&self) -> SnapshotInfo {
        let body = &self.body;
        SnapshotInfo {
            id: self.id.clone(),
            name: body.name.clone(),
            sandbox: body.sandbox.clone(),
            trigger: body.trigger,
            metadata: body.metadata.clone(),
            created_at_ms: body.created_at_ms,
            expires_at_ms: body.expires_at_ms,
            size_bytes: body.size_bytes,
            frozen_ms: body.frozen_ms,
            image: body.settings.image.clone(),
            image_resolved: body.settings.image_resolved.clone(),
            limits: body.settings.limits,
            lost: body.lost_with(&[]),
        }
    }

    /// Whether this snapshot is meant by an id or a name.
    pub(crate) fn is(&self, id: &SnapshotId) -> bool {
        self.id == *id || self.body.name.as_ref() == Some(id)
    }

    /// The record for the object store: without what belongs to this server.
    pub(crate) fn portable(&self) -> Result<Value, Error> {
        let mut body = self.body.clone();
        body.expires_at_ms = None;
        body.incarnation = None;
        body.asleep_after_ms = None;
        body.settings.id_base = Some(isolet_jail::FILES_ID_BASE);
        serde_json::to_value(&body).map_err(|error| Error::Fault(error.to_string()))
    }

    pub(crate) fn row(&self) -> Result<isolet_store::SnapshotRow, Error> {
        let body = serde_json::to_string(&self.body);
        Ok(isolet_store::SnapshotRow {
            name: self.name.clone(),
            tenant: self.tenant.to_string(),
            id: self.id.to_string(),
            body: body.map_err(|error| Error::Fault(error.to_string()))?,
        })
    }

    /// Reads a row of the store.
    pub(crate) fn read(row: isolet_store::SnapshotRow, uid_base: u32) -> Result<Self, String> {
        // Its name is that of its directory.
        match is_internal_name(&row.name) {
            true => Self::read_elsewhere(row, uid_base),
            false => Err(format!("its name {:?} is invalid", row.name)),
        }
    }

    /// Reads the record of a snapshot that has no directory here, and so no name.
    pub(crate) fn read_elsewhere(
        row: isolet_store::SnapshotRow,
        uid_base: u32,
    ) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let body: SnapshotBody = serde_json::from_str(&row.body).map_err(|error| text(&error))?;
        // Names of layers become paths.
        if !body.settings.layers.is_valid(uid_base, body.settings.id_base) {
            return Err("it names invalid layers".to_owned());
        }
        if body.v != VERSION {
            return Err(format!("its record has version {}, not {VERSION}", body.v));
        }
        Ok(Self {
            name: row.name,
            tenant: TenantId::parse(&row.tenant).map_err(|error| text(&error))?,
            id: SnapshotId::parse(&row.id).map_err(|error| text(&error))?,
            body,
        })
    }
}
