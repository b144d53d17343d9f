//! The record of a sandbox: what the store holds and clients see, and how a client's request
//! becomes one.

mod class;
mod from_snapshot;
pub(crate) mod image_sessions;
mod info;
mod limits;
mod pool_kind;
pub(crate) mod snapshot;
pub(crate) mod snapshot_layers;
pub(crate) mod stored_description;

pub(crate) use class::check_class;
pub(crate) use limits::check_limits;
pub(crate) use pool_kind::{PoolKind, layers};

use crate::model::agent_error::AgentError;
use crate::model::clock::now_ms;
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::class::SandboxClass;
use crate::model::info::ownership::{Departure, PushedSnapshot, RestoredFrom};
use crate::model::info::{AutoSnapshots, EndedSandbox, Lost, Patch, SandboxSpec, TTL_S_MAX};
use crate::model::input::check_merged_size;
use crate::model::network::Network;
use crate::model::network::injected_credential::InjectedCredential;
use crate::model::record::snapshot_layers::LayerStack;
use crate::model::state::State;
use isolet_wire::launcher::Limits;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version of [`RecordBody`]. A server refuses a record of another version.
const VERSION: u32 = 1;
/// The cause of failure of a sandbox whose record cannot be read.
pub(crate) const UNREAD: &str = "its record does not read";
/// Maximum length of the server's name for a sandbox, in bytes.
const NAME_BYTES_MAX: usize = 40;
/// Everything that is recorded about a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) tenant: TenantId,
    pub(crate) id: SandboxId,
    pub(crate) slot: u32,
    pub(crate) state: State,
    /// The protocol version of the agent that was reached last. Not stored, because each server
    /// finds it out.
    pub(crate) agent_version: Option<u16>,
    pub(crate) body: RecordBody,
}

/// The part of the record that the store holds as JSON.
///
/// More than 12 fields: one for each member of the stored JSON object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordBody {
    pub(crate) v: u32,
    /// The first id that its files have on disk; see [`isolet_wire::launcher::Spec::id_base`].
    /// `None` only before the sandbox has a slot.
    pub(crate) id_base: Option<u32>,
    pub(crate) image: String,
    pub(crate) image_resolved: String,
    /// The root from an image; `None` means the programs of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<isolet_image::Root>,
    /// The layers of snapshots between the sandbox's own files and those of its image.
    #[serde(default, skip_serializing_if = "LayerStack::is_empty")]
    pub(crate) layers: LayerStack,
    pub(crate) created_at_ms: i64,
    pub(crate) create_ms: f64,
    /// How often it was started: at its creation, and at each wake since.
    pub(crate) boots: u64,
    pub(crate) ttl_s: Option<u64>,
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) limits: Limits,
    pub(crate) dialect: Map<String, Value>,
    pub(crate) cause: Option<String>,
    /// Idle time in seconds; `None` means never.
    pub(crate) sleep_after_s: Option<u64>,
    pub(crate) persistent: bool,
    /// Whether a call that needs the sandbox resumes it if it is paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) auto_resume: bool,
    /// Whether the end of its lifetime pauses the sandbox instead of destroying it. While the lifetime
    /// is stopped, by that or by a client's pause, `ttl_s` without `expires_at_ms` is the lifetime that
    /// the next resume or wake for a client begins. A resume by the server itself leaves it stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pause_on_expiry: bool,
    /// The temporary snapshot of the fork that created it, whose record ends with the fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fork: Option<String>,
    /// The token of a restore in place that is not finished: [`crate::live::snapshots::restores`].
    #[serde(default, deserialize_with = "restore_token", skip_serializing_if = "Option::is_none")]
    pub(crate) restore: Option<String>,
    /// What the last sleep lost, until a client has received it.
    pub(crate) lost: Option<Vec<Lost>>,
    /// Exposed ports with their secrets.
    pub(crate) exposed: crate::model::exposed_ports::ExposedPorts,
    /// The name with which URLs of ports and files are signed, once another node has restored the sandbox:
    /// that of its record on the first node, so that they stay valid. `None`: that of this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signs_as: Option<String>,
    /// The usage when the cgroups were last removed.
    pub(crate) used: crate::model::used::UsageCounters,
    /// The network policy.
    pub(crate) network: Network,
    /// Injected credentials without their values, which are only in the secret store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) credentials: Vec<InjectedCredential>,
    /// When the server takes snapshots.
    #[serde(default, skip_serializing_if = "AutoSnapshots::is_default")]
    pub(crate) snapshots: AutoSnapshots,
    /// Whether the sandbox survives its node.
    #[serde(default, skip_serializing_if = "SandboxClass::is_node")]
    pub(crate) class: SandboxClass,
    /// The directory for its files, if another node has taken it over.
    #[serde(
        default,
        deserialize_with = "superseded_target",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) superseded: Option<String>,
    /// Why it leaves this node, if it is being removed without being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) departure: Option<Departure>,
    /// Of the class `store`: the newest snapshot from which another node can restore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pushed: Option<PushedSnapshot>,
    /// Of the class `store`: from what it was restored on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restored_from: Option<RestoredFrom>,
}

fn bad(field: &'static str, reason: String) -> Error {
    Error::BadField { field, reason }
}

/// Checks a time in seconds; 0 means never.
fn check_time(field: &'static str, seconds: Option<u64>) -> Result<Option<u64>, Error> {
    match seconds {
        Some(seconds) if seconds > TTL_S_MAX => {
            Err(bad(field, format!("{seconds} is more than {TTL_S_MAX} (a year)")))
        }
        other => Ok(other.filter(|seconds| *seconds > 0)),
    }
}

pub(crate) fn expiry(ttl_s: Option<u64>) -> Option<i64> {
    ttl_s.map(|s| now_ms().saturating_add(i64::try_from(s * 1000).unwrap_or(i64::MAX)))
}

/// The full name of an image: `host`, or the reference after aliases are applied.
pub(crate) fn resolve(config: &Config, image: &str) -> Result<String, Error> {
    match config.aliases.get(image).map_or(image, String::as_str) {
        "host" => Ok("host".to_owned()),
        other => Ok(isolet_image::Reference::parse(other)
            .map_err(isolet_image::Error::from)?
            .to_string()),
    }
}

impl RecordBody {
    /// The properties that a warm sandbox must have to become this one.
    pub(crate) fn kind(&self) -> PoolKind {
        PoolKind {
            has_veth: self.network.mode() != crate::model::network::Mode::None,
            root: self.root.as_ref().map(layers),
        }
    }

    /// Checks a request and fills in the defaults of the configuration.
    pub(crate) fn plan(config: &Config, spec: SandboxSpec) -> Result<Self, Error> {
        let limits = Limits {
            memory_mib: spec.memory_mib.unwrap_or(config.limits.memory_mib),
            cpu_millis: spec.cpu_millis.unwrap_or(config.limits.cpu_millis),
            pids: spec.pids.unwrap_or(config.limits.pids),
            disk_mib: spec.disk_mib.unwrap_or(config.limits.disk_mib),
        };
        if let Some(lack) = config.no_disk.as_ref().filter(|_| limits.disk_mib > 0) {
            return Err(Error::Lacks { field: "disk_mib", reason: lack.clone() });
        }
        class::check_class(config, spec.class, spec.persistent)?;
        let image = spec.image.unwrap_or_else(|| "host".to_owned());
        let ttl_s = check_time("ttl_s", spec.ttl_s)?;
        let sleep_after_s = Some(spec.sleep_after_s.unwrap_or(config.sleep_after_s));
        Ok(Self {
            v: VERSION,
            id_base: None,
            image_resolved: resolve(config, &image)?,
            image,
            root: None,
            layers: LayerStack::default(),
            created_at_ms: now_ms(),
            create_ms: 0.0,
            boots: 1,
            ttl_s,
            expires_at_ms: expiry(ttl_s),
            metadata: spec.metadata.unwrap_or_default().into_inner(),
            env: spec.env.into_inner(),
            limits: check_limits(config, limits)?,
            dialect: spec.dialect.into_inner(),
            cause: None,
            sleep_after_s: check_time("sleep_after_s", sleep_after_s)?,
            persistent: spec.persistent.unwrap_or(true),
            auto_resume: spec.auto_resume.unwrap_or(false),
            pause_on_expiry: spec.pause_on_expiry.unwrap_or(false),
            fork: None,
            restore: None,
            lost: None,
            exposed: crate::model::exposed_ports::ExposedPorts::new(),
            signs_as: None,
            used: crate::model::used::UsageCounters::begun(),
            network: spec.network.unwrap_or_else(|| config.network.default.clone()),
            credentials: spec.credentials.into_iter().map(|one| one.credential).collect(),
            snapshots: AutoSnapshots::of_class(config, spec.class)
                .changed(config, spec.snapshots)?,
            class: spec.class,
            superseded: None,
            departure: None,
            pushed: None,
            restored_from: None,
        })
    }

    /// Applies a patch to a copy. An error in one part changes nothing.
    pub(crate) fn patched(&self, config: &Config, patch: Patch) -> Result<Self, Error> {
        let mut new = self.clone();
        if let Some(ttl_s) = patch.ttl_s {
            new.ttl_s = check_time("ttl_s", Some(ttl_s))?;
            new.expires_at_ms = expiry(new.ttl_s);
        }
        if patch.stop_lifetime {
            new.expires_at_ms = None;
        }
        if let Some(sleep_after_s) = patch.sleep_after_s {
            new.sleep_after_s = check_time("sleep_after_s", Some(sleep_after_s))?;
        }
        new.auto_resume = patch.auto_resume.unwrap_or(new.auto_resume);
        new.pause_on_expiry = patch.pause_on_expiry.unwrap_or(new.pause_on_expiry);
        new.snapshots = new.snapshots.changed(config, patch.snapshots)?;
        if let Some(metadata) = patch.metadata {
            new.metadata = metadata.into_inner();
        }
        patch.env.apply(&mut new.env);
        check_merged_size(&new.env)?;
        let limits = Limits {
            memory_mib: patch.memory_mib.unwrap_or(self.limits.memory_mib),
            cpu_millis: patch.cpu_millis.unwrap_or(self.limits.cpu_millis),
            pids: patch.pids.unwrap_or(self.limits.pids),
            disk_mib: self.limits.disk_mib,
        };
        if limits != self.limits {
            new.limits = check_limits(config, limits)?;
        }
        Ok(new)
    }

    /// Whether its lifetime is stopped, and begins again when a client resumes or wakes it.
    pub(crate) fn lifetime_is_stopped(&self) -> bool {
        self.ttl_s.is_some() && self.expires_at_ms.is_none()
    }

    /// Records the ids of files that have those of the slot on disk, so that they keep their owners
    /// if the sandbox gets another slot.
    pub(crate) fn set_id_base(&mut self, config: &Config, slot: u32) {
        self.id_base = self.id_base.or_else(|| isolet_jail::first_id(config.uid_base, slot));
    }

    /// The directory in which shells and programs start.
    pub(crate) fn home(&self) -> &str {
        let own = self.root.as_ref().and_then(|root| root.cwd.as_deref());
        own.unwrap_or(crate::model::sessions::WORKSPACE)
    }

    pub(crate) fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Fault(error.to_string()))
    }
}

/// The published state of a sandbox, which only its driver changes.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) record: Arc<Record>,
    /// Set with `Destroyed`: the answer to the delete, or why the sandbox could not be created. The
    /// latter is also set while the remains are being removed.
    pub(crate) end: Option<Result<EndedSandbox, Error>>,
}

impl View {
    /// Why nothing can be done in the sandbox once its end is decided.
    pub(crate) fn destroyed(&self) -> Option<AgentError> {
        let gone = match self.record.body.lives_on() {
            true => AgentError::Departed,
            false => AgentError::Destroyed,
        };
        (!self.record.state.visible()).then(|| gone(self.record.id.clone()))
    }

    /// Why a call that is in the sandbox has lost it. A sandbox sleeps while a call is in it only if
    /// that is forced.
    pub(crate) fn lost_to(&self) -> Option<AgentError> {
        match self.record.state {
            State::Sleeping => Some(AgentError::Slept(self.record.id.clone())),
            _ => self.destroyed(),
        }
    }
}

impl Record {
    pub(crate) fn row(&self) -> Result<isolet_store::SandboxRow, Error> {
        Ok(isolet_store::SandboxRow {
            name: self.name.clone(),
            tenant: self.tenant.to_string(),
            id: self.id.to_string(),
            slot: self.slot,
            state: self.state.word().to_owned(),
            body: self.body.json()?,
        })
    }

    /// Reads a row of the store. A sandbox whose body cannot be read is returned as failed so that
    /// a client can see and delete it. A row with invalid ids belongs to no tenant and is skipped.
    pub(crate) fn read(config: &Config, row: isolet_store::SandboxRow) -> Result<Self, String> {
        let tenant = TenantId::parse(&row.tenant).map_err(|error| error.to_string())?;
        let id = SandboxId::parse(&row.id).map_err(|error| error.to_string())?;
        if !is_internal_name(&row.name) || row.slot >= isolet_jail::SLOTS {
            return Err(format!("invalid name {:?} or range {}", row.name, row.slot));
        }
        let state = serde_json::from_value(Value::String(row.state));
        let body = serde_json::from_str::<RecordBody>(&row.body).ok();
        let body = body.filter(|body| body.v == VERSION);
        let (state, body) = match (state, body) {
            (Ok(state), Some(body)) => (state, body),
            (Ok(state @ (State::Creating | State::Destroying)), None) => {
                (state, Self::unread(config, row.slot))
            }
            _ => (State::Failed, Self::unread(config, row.slot)),
        };
        if !body.layers.is_valid(config.uid_base, body.id_base) {
            return Err("it names invalid layers".to_owned());
        }
        if body.id_base.is_none_or(|base| !isolet_jail::is_id_base(config.uid_base, base)) {
            return Err(format!("its files have the invalid ids {:?}", body.id_base));
        }
        Ok(Self { name: row.name, tenant, id, slot: row.slot, state, agent_version: None, body })
    }

    fn unread(config: &Config, slot: u32) -> RecordBody {
        RecordBody {
            v: VERSION,
            id_base: isolet_jail::first_id(config.uid_base, slot),
            image: "host".to_owned(),
            image_resolved: "host".to_owned(),
            root: None,
            layers: LayerStack::default(),
            created_at_ms: now_ms(),
            create_ms: 0.0,
            boots: 1,
            ttl_s: None,
            expires_at_ms: None,
            metadata: Map::new(),
            env: BTreeMap::new(),
            limits: config.limits,
            dialect: Map::new(),
            cause: Some(UNREAD.to_owned()),
            sleep_after_s: None,
            persistent: true,
            auto_resume: false,
            pause_on_expiry: false,
            fork: None,
            restore: None,
            lost: None,
            exposed: crate::model::exposed_ports::ExposedPorts::new(),
            signs_as: None,
            used: crate::model::used::UsageCounters::default(),
            network: Network::none(),
            credentials: Vec::new(),
            snapshots: AutoSnapshots::default(),
            class: SandboxClass::Node,
            superseded: None,
            departure: None,
            pushed: None,
            restored_from: None,
        }
    }
}

/// Whether a text is a name that the server gives to sandboxes, and that names files of it.
pub(crate) fn is_internal_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(known)
}

// Fields of a record that become paths are checked where it is read: it may come from a backup or an
// object store, and be forged.

/// Reads the token of a restore in place, which names a directory below `DATA/restores`.
fn restore_token<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let token = Option::<String>::deserialize(from)?;
    match token.as_deref().is_none_or(is_internal_name) {
        true => Ok(token),
        false => Err(D::Error::custom("an invalid token of a restore")),
    }
}

/// Reads the name of a directory below `DATA/superseded/TENANT`: `ID-TIME`.
fn superseded_target<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let target = Option::<String>::deserialize(from)?;
    let is_valid = |target: &str| {
        let parts = target.rsplit_once('-');
        parts.is_some_and(|(id, time)| SandboxId::parse(id).is_ok() && time.parse::<u64>().is_ok())
    };
    match target.as_deref().is_none_or(is_valid) {
        true => Ok(target),
        false => Err(D::Error::custom("an invalid directory of superseded files")),
    }
}

/// The error of calls on a failed sandbox.
pub(crate) fn failed(record: &Record) -> Error {
    let cause = record.body.cause.clone().unwrap_or_else(|| "unknown".to_owned());
    Error::Failed { id: record.id.clone(), cause }
}

#[cfg(test)]
mod tests;
