//! The description of a sandbox for clients, from its record.

use super::Record;
use crate::model::info::SandboxInfo;
use crate::model::state::State;

impl Record {
    /// The description for clients.
    pub(crate) fn info(&self) -> SandboxInfo {
        let body = &self.body;
        SandboxInfo {
            id: self.id.clone(),
            tenant: self.tenant.clone(),
            state: self.state,
            cause: body.cause.clone(),
            image: body.image.clone(),
            image_resolved: body.image_resolved.clone(),
            created_at_ms: body.created_at_ms,
            create_ms: body.create_ms,
            boots: body.boots,
            ttl_s: body.ttl_s,
            expires_at_ms: body.expires_at_ms,
            metadata: body.metadata.clone(),
            env_names: body.env.keys().cloned().collect(),
            limits: body.limits,
            network: body.network.clone(),
            credentials: body.credentials.clone(),
            persistent: body.persistent,
            auto_resume: body.auto_resume,
            pause_on_expiry: body.pause_on_expiry,
            snapshots: body.snapshots,
            sleep_after_s: body.sleep_after_s,
            class: body.class,
            pushed: body.pushed.clone(),
            restored_from: body.restored_from.clone(),
            dialect: body.dialect.clone(),
            agent_version: self
                .agent_version
                .filter(|_| matches!(self.state, State::Running | State::Paused)),
        }
    }
}
