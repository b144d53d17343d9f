//! The settings that a snapshot keeps of a sandbox, and those of a sandbox that starts from it.

use super::class::check_class;
use super::{RecordBody, bad, check_limits, check_time, expiry};
use crate::model::clock::now_ms;
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::exposed_ports::ExposedPorts;
use crate::model::info::class::SandboxClass;
use crate::model::info::ownership::{PushedSnapshot, RestoredFrom};
use crate::model::info::{Lost, SandboxSpec};
use crate::model::input::{Metadata, check_merged_size};
use crate::model::network::CredentialSpec;
use crate::model::network::injected_credential::InjectedCredential;
use crate::model::used::UsageCounters;
use isolet_wire::launcher::Limits;

impl RecordBody {
    /// The settings of a new sandbox from those of a snapshot, with the changes of a request.
    pub(crate) fn restored(
        &self,
        config: &Config,
        spec: SandboxSpec,
        lost: &[Lost],
    ) -> Result<Self, Error> {
        if spec.image.is_some() {
            let reason = "a sandbox from a snapshot has the image of the snapshot".to_owned();
            return Err(bad("image", reason));
        }
        check_class(config, spec.class, spec.persistent.or(Some(self.persistent)))?;
        let limits = Limits {
            memory_mib: spec.memory_mib.unwrap_or(self.limits.memory_mib),
            cpu_millis: spec.cpu_millis.unwrap_or(self.limits.cpu_millis),
            pids: spec.pids.unwrap_or(self.limits.pids),
            disk_mib: self.limits.disk_mib,
        };
        if spec.disk_mib.is_some_and(|mib| mib != limits.disk_mib) {
            let reason = format!("a sandbox from this snapshot has {} MiB", limits.disk_mib);
            return Err(bad("disk_mib", reason));
        }
        let ttl_s = check_time("ttl_s", spec.ttl_s)?;
        let mut env = self.env.clone();
        env.extend(spec.env.into_inner());
        check_merged_size(&env)?;
        let own_dialect = spec.dialect.into_inner();
        Ok(Self {
            created_at_ms: now_ms(),
            create_ms: 0.0,
            boots: 1,
            ttl_s,
            expires_at_ms: expiry(ttl_s),
            metadata: spec.metadata.map_or_else(|| self.metadata.clone(), Metadata::into_inner),
            env,
            limits: check_limits(config, limits)?,
            dialect: if own_dialect.is_empty() { self.dialect.clone() } else { own_dialect },
            cause: None,
            sleep_after_s: match spec.sleep_after_s {
                None => self.sleep_after_s,
                after => check_time("sleep_after_s", after)?,
            },
            persistent: spec.persistent.unwrap_or(self.persistent),
            auto_resume: spec.auto_resume.unwrap_or(self.auto_resume),
            pause_on_expiry: spec.pause_on_expiry.unwrap_or(false),
            fork: None,
            restore: None,
            lost: Some(lost.to_vec()).filter(|lost| !lost.is_empty()),
            exposed: ExposedPorts::new(),
            signs_as: None,
            used: UsageCounters::begun(),
            network: spec.network.unwrap_or_else(|| self.network.clone()),
            credentials: spec.credentials.into_iter().map(|one| one.credential).collect(),
            snapshots: self
                .snapshots
                .begun_again()
                .or_of_class(config, spec.class)
                .changed(config, spec.snapshots)?,
            class: spec.class,
            superseded: None,
            departure: None,
            pushed: None,
            restored_from: None,
            ..self.clone()
        })
    }

    /// The settings of this sandbox after it got the files of a snapshot with the settings `from`. What
    /// belongs to its identity stays: times, limits, metadata, network, credentials and ports. All
    /// else describes the files and sessions, and is that of the snapshot.
    pub(crate) fn restored_in_place(&self, from: &Self, lost: Vec<Lost>, restore: String) -> Self {
        let own = self.clone();
        Self {
            created_at_ms: own.created_at_ms,
            create_ms: own.create_ms,
            boots: own.boots,
            ttl_s: own.ttl_s,
            expires_at_ms: own.expires_at_ms,
            metadata: own.metadata,
            limits: own.limits,
            dialect: own.dialect,
            cause: None,
            sleep_after_s: own.sleep_after_s,
            persistent: own.persistent,
            auto_resume: own.auto_resume,
            pause_on_expiry: own.pause_on_expiry,
            fork: own.fork,
            restore: Some(restore),
            lost: Some(lost).filter(|lost| !lost.is_empty()),
            exposed: own.exposed,
            signs_as: own.signs_as,
            used: own.used,
            network: own.network,
            credentials: own.credentials,
            snapshots: own.snapshots.begun_again(),
            class: own.class,
            superseded: own.superseded,
            departure: own.departure,
            pushed: own.pushed,
            restored_from: own.restored_from,
            ..from.clone()
        }
    }

    /// The settings of this sandbox when another node restores it from a snapshot with the settings
    /// `from`. Values of credentials are not part of snapshots, so it has only those that are `given`.
    pub(crate) fn restored_elsewhere(
        &self,
        from: &Self,
        pushed: PushedSnapshot,
        restored_from: RestoredFrom,
        given: &[CredentialSpec],
    ) -> Self {
        let credentials = self.credentials.iter();
        let is_given =
            |known: &&InjectedCredential| given.iter().any(|given| given.credential == **known);
        let credentials = credentials.filter(is_given).cloned().collect();
        let pushed = Some(pushed).filter(|_| self.class == SandboxClass::Store);
        let lost = restored_from.lost.as_ref().map(|lost| lost.items.clone());
        Self {
            fork: None,
            restore: None,
            superseded: None,
            departure: None,
            credentials,
            used: self.used.elsewhere(),
            pushed,
            restored_from: Some(restored_from),
            ..self.restored_in_place(from, lost.unwrap_or_default(), String::new())
        }
    }

    /// The part of the settings that a snapshot keeps.
    pub(crate) fn for_snapshot(&self) -> Self {
        Self {
            cause: None,
            fork: None,
            restore: None,
            lost: None,
            exposed: ExposedPorts::new(),
            signs_as: None,
            used: UsageCounters::default(),
            credentials: Vec::new(),
            ttl_s: None,
            expires_at_ms: None,
            class: SandboxClass::Node,
            superseded: None,
            departure: None,
            pushed: None,
            restored_from: None,
            ..self.clone()
        }
    }
}
