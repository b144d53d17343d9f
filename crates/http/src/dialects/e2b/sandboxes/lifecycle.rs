//! Ends, pauses and resumes sandboxes, and changes their lifetime.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::{Lenient, null_as_default};
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::sandboxes::create::{check_rules, lifetime};
use crate::dialects::e2b::sandboxes::view::SandboxAccess;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::routes::sandboxes::network::{self, NetworkBody, NetworkMode};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use isolet_clock::now_ms;
use isolet_sandbox::{NetworkChange, Patch, SandboxInfo, State as Stands};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The default of `refreshes`, in seconds.
const REFRESH_S: u64 = 60;

/// Ends a sandbox.
pub(crate) async fn kill(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<StatusCode, E2bError> {
    app.service.delete(&caller.tenant, &ids.sandbox).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TimeoutBody {
    #[serde(deserialize_with = "null_as_default")]
    timeout: Option<u64>,
    /// Of `refreshes`.
    #[serde(deserialize_with = "null_as_default")]
    duration: Option<u64>,
    #[serde(deserialize_with = "null_as_default")]
    auto_pause: bool,
}

impl TimeoutBody {
    fn check(&self) -> Result<(), ApiError> {
        if self.auto_pause {
            let reason = "a sandbox ends at its timeout; pause it before";
            return Err(ApiError::field_not_implemented("autoPause", reason));
        }
        Ok(())
    }
}

/// Gives a sandbox a new lifetime from now on.
async fn set_lifetime(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    seconds: u64,
) -> Result<SandboxInfo, ApiError> {
    let patch = Patch { ttl_s: Some(lifetime(seconds)?), ..Patch::default() };
    Ok(app.service.patch(&caller.tenant, &ids.sandbox, patch).await?)
}

/// Makes a lifetime longer, but never shorter.
async fn extend(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    seconds: u64,
) -> Result<SandboxInfo, ApiError> {
    let info = app.service.get(&caller.tenant, &ids.sandbox).await?;
    let wanted = i64::try_from(lifetime(seconds)?).unwrap_or(i64::MAX).saturating_mul(1000);
    let wanted = now_ms().saturating_add(wanted);
    match info.expires_at_ms {
        Some(at_ms) if at_ms < wanted => set_lifetime(app, caller, ids, seconds).await,
        _ => Ok(info),
    }
}

/// Resumes a sandbox if it is paused, and gives the caller access to it.
pub(crate) async fn connect(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<TimeoutBody>,
) -> Result<(StatusCode, Json<SandboxAccess>), E2bError> {
    value.check()?;
    let tenant = &caller.tenant;
    let is_paused = app.service.get(tenant, &ids.sandbox).await?.state == Stands::Paused;
    let mut status = StatusCode::OK;
    if is_paused {
        app.service.resume(tenant, &ids.sandbox).await?;
        status = StatusCode::CREATED;
    }
    let info = match value.timeout {
        Some(seconds) => extend(&app, &caller, &ids, seconds).await?,
        None => app.service.get(tenant, &ids.sandbox).await?,
    };
    Ok((status, Json(SandboxAccess::grant(&app, &caller, &info).await?)))
}

/// Resumes a paused sandbox, for older clients.
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<TimeoutBody>,
) -> Result<(StatusCode, Json<SandboxAccess>), E2bError> {
    value.check()?;
    let tenant = &caller.tenant;
    if app.service.get(tenant, &ids.sandbox).await?.state != Stands::Paused {
        return Err(conflict("is not paused"));
    }
    let mut info = app.service.resume(tenant, &ids.sandbox).await?;
    if let Some(seconds) = value.timeout {
        info = set_lifetime(&app, &caller, &ids, seconds).await?;
    }
    Ok((StatusCode::CREATED, Json(SandboxAccess::grant(&app, &caller, &info).await?)))
}

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct PauseBody {
    memory: bool,
}

impl Default for PauseBody {
    fn default() -> Self {
        Self { memory: true }
    }
}

/// Pauses a sandbox: its processes keep their memory.
pub(crate) async fn pause(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<PauseBody>,
) -> Result<StatusCode, E2bError> {
    if !value.memory {
        let reason = "a paused sandbox keeps its memory; take a snapshot of its files instead";
        return Err(ApiError::field_not_implemented("memory", reason).into());
    }
    let tenant = &caller.tenant;
    if app.service.get(tenant, &ids.sandbox).await?.state == Stands::Paused {
        return Err(conflict("is paused already"));
    }
    app.service.pause(tenant, &ids.sandbox).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn conflict(what: &str) -> E2bError {
    let message = format!("the sandbox {what}");
    ApiError::new(StatusCode::CONFLICT, "conflict", message, "").into()
}

/// Sets the lifetime of a sandbox.
pub(crate) async fn timeout(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<TimeoutBody>,
) -> Result<StatusCode, E2bError> {
    let seconds = value.timeout.ok_or_else(|| ApiError::bad_field("timeout", "is needed"))?;
    set_lifetime(&app, &caller, &ids, seconds).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes the lifetime of a sandbox longer.
pub(crate) async fn refresh(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<TimeoutBody>,
) -> Result<StatusCode, E2bError> {
    extend(&app, &caller, &ids, value.duration.unwrap_or(REFRESH_S)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkUpdate {
    allow_internet_access: Option<bool>,
    #[serde(flatten)]
    rules: Map<String, Value>,
}

/// Gives a sandbox no network, or the whole.
pub(crate) async fn network(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<NetworkUpdate>,
) -> Result<StatusCode, E2bError> {
    check_rules(&value.rules)?;
    let mode = match value.allow_internet_access {
        Some(false) => NetworkMode::None,
        _ => NetworkMode::Open,
    };
    let whole = network::wanted(&app, &caller, Some(NetworkBody::Mode(mode)), None).await?;
    let change = NetworkChange { whole, ..NetworkChange::default() };
    app.service.network(&caller.tenant, &ids.sandbox, change).await?;
    Ok(StatusCode::NO_CONTENT)
}
