//! Sandboxes as E2B describes them.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::access_token;
use crate::foundation::error::ApiError;
use isolet_clock::rfc3339;
use isolet_sandbox::info::TTL_S_MAX;
use isolet_sandbox::{SandboxInfo, State};
use serde::Serialize;
use serde_json::{Map, Value};

/// The version of E2B's daemon whose calls this server answers. The SDKs decide by it what they use.
pub(in crate::dialects::e2b) const DAEMON_VERSION: &str = "0.6.4";
/// E2B's name of the machine that has the sandbox.
const CLIENT_ID: &str = "isolet";
/// The member of a record that holds the template as the client named it.
pub(super) const TEMPLATE: &str = "e2b_template";

/// A sandbox with the access to its data plane.
#[derive(Debug, Serialize)]
pub(crate) struct SandboxAccess {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    #[serde(rename = "envdVersion")]
    daemon_version: &'static str,
    #[serde(rename = "envdAccessToken")]
    access_token: String,
    /// The same token: the SDKs send no other with some calls of the code interpreter.
    #[serde(rename = "trafficAccessToken")]
    traffic_access_token: String,
    /// The domain below which each port has a host name.
    domain: Option<String>,
}

impl SandboxAccess {
    /// Describes a sandbox, and gives the caller access to its data plane.
    pub(super) async fn grant(
        app: &App,
        caller: &Caller,
        info: &SandboxInfo,
    ) -> Result<Self, ApiError> {
        let access_token = access_token::issue(app, caller, &info.id).await?;
        Ok(Self {
            template_id: template(info),
            sandbox_id: info.id.to_string(),
            client_id: CLIENT_ID,
            daemon_version: DAEMON_VERSION,
            traffic_access_token: access_token.clone(),
            access_token,
            domain: app.ports_domain.as_deref().map(str::to_owned),
        })
    }
}

/// A sandbox in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxView {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    started_at: String,
    end_at: String,
    /// In cores, rounded up.
    cpu_count: u64,
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
    /// 0 if its files share the disk of the server.
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u64,
    metadata: Map<String, Value>,
    state: &'static str,
    #[serde(rename = "envdVersion")]
    daemon_version: &'static str,
    domain: Option<String>,
    lifecycle: Lifecycle,
}

/// What happens at the timeout of a sandbox, and to calls while it is paused.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lifecycle {
    auto_resume: bool,
    on_timeout: &'static str,
}

impl SandboxView {
    pub(super) fn new(app: &App, info: SandboxInfo) -> Self {
        // The SDKs need an end, also of a sandbox without one.
        let latest_s = i64::try_from(TTL_S_MAX).unwrap_or(i64::MAX);
        let latest = info.created_at_ms.saturating_add(latest_s.saturating_mul(1000));
        Self {
            template_id: template(&info),
            sandbox_id: info.id.to_string(),
            client_id: CLIENT_ID,
            started_at: rfc3339(info.created_at_ms),
            end_at: rfc3339(info.expires_at_ms.unwrap_or(latest)),
            cpu_count: info.limits.cpu_millis.div_ceil(1000),
            memory_mb: info.limits.memory_mib,
            disk_size_mb: info.limits.disk_mib,
            state: state_word(&info).unwrap_or("paused"),
            metadata: info.metadata,
            daemon_version: DAEMON_VERSION,
            domain: app.ports_domain.as_deref().map(str::to_owned),
            lifecycle: Lifecycle {
                auto_resume: info.auto_resume,
                on_timeout: if info.pause_on_expiry { "pause" } else { "kill" },
            },
        }
    }
}

/// The template as the client named it, or the image.
pub(super) fn template(info: &SandboxInfo) -> String {
    let named = info.dialect.get(TEMPLATE).and_then(Value::as_str);
    named.unwrap_or(&info.image).to_owned()
}

/// E2B's word for a state; `None` for a sandbox that has failed or ended.
pub(super) fn state_word(info: &SandboxInfo) -> Option<&'static str> {
    match info.state {
        State::Running | State::Creating => Some("running"),
        State::Paused | State::Sleeping => Some(if is_paused(info) { "paused" } else { "running" }),
        _ => None,
    }
}

/// Whether a sandbox is paused, with its memory or without. Those of this dialect sleep only for the
/// latter; others fall asleep when nothing uses them, and run again when something does.
pub(super) fn is_paused(info: &SandboxInfo) -> bool {
    match info.state {
        State::Paused => true,
        State::Sleeping => info.sleep_after_s.is_none(),
        _ => false,
    }
}
