//! Ends, pauses and resumes sandboxes, and changes their lifetime.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::{Lenient, null_as_default};
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::sandboxes::create::{TIMEOUT_S, lifetime};
use crate::dialects::e2b::sandboxes::egress::Egress;
use crate::dialects::e2b::sandboxes::view::{SandboxAccess, is_paused};
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use isolet_clock::now_ms;
use isolet_sandbox::service::Access;
use isolet_sandbox::{
    CredentialRemoval, Error, NetworkChange, Patch, SandboxInfo, SleepMode, State as Stands,
};
use serde::Deserialize;

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
    auto_pause: Option<bool>,
    /// Of `connect` and `resume`: `false` for a sandbox that starts again with its files alone.
    #[serde(deserialize_with = "null_as_default")]
    memory: Option<bool>,
}

/// Gives a sandbox a new lifetime from now on. That of a paused one begins when it is resumed.
async fn set_lifetime(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    seconds: u64,
) -> Result<SandboxInfo, ApiError> {
    let ttl_s = Some(lifetime(seconds)?);
    let info = app.service.get(&caller.tenant, &ids.sandbox).await?;
    let patch = Patch { ttl_s, stop_lifetime: is_paused(&info), ..Patch::default() };
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
    let tenant = &caller.tenant;
    if is_paused(&app.service.get(tenant, &ids.sandbox).await?) {
        let info = continue_paused(&app, &caller, &ids, &value).await?;
        let access = SandboxAccess::grant(&app, &caller, &info).await?;
        return Ok((StatusCode::CREATED, Json(access)));
    }
    let info = match value.timeout {
        Some(seconds) => extend(&app, &caller, &ids, seconds).await?,
        None => app.service.get(tenant, &ids.sandbox).await?,
    };
    let status = StatusCode::OK;
    Ok((status, Json(SandboxAccess::grant(&app, &caller, &info).await?)))
}

/// Resumes a paused sandbox, whose lifetime begins again. Its processes continue, unless the caller
/// wants its files alone.
async fn continue_paused(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    wish: &TimeoutBody,
) -> Result<SandboxInfo, ApiError> {
    let tenant = &caller.tenant;
    let info = match wish.memory {
        Some(false) => app.service.sleep(tenant, &ids.sandbox, SleepMode::Forced).await?,
        _ => app.service.resume(tenant, &ids.sandbox).await?,
    };
    if info.state == Stands::Sleeping {
        app.service.reach(tenant, &ids.sandbox, Access::MustExist).await?;
    }
    let ttl_s = Some(lifetime(wish.timeout.unwrap_or(TIMEOUT_S))?);
    let patch = Patch { ttl_s, pause_on_expiry: wish.auto_pause, ..Patch::default() };
    Ok(app.service.patch(tenant, &ids.sandbox, patch).await?)
}

/// Resumes a paused sandbox, for older clients.
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<TimeoutBody>,
) -> Result<(StatusCode, Json<SandboxAccess>), E2bError> {
    if !is_paused(&app.service.get(&caller.tenant, &ids.sandbox).await?) {
        return Err(conflict("is not paused"));
    }
    let info = continue_paused(&app, &caller, &ids, &value).await?;
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

/// Pauses a sandbox: its processes keep their memory, or end if only the files are kept. 409 says that
/// it is paused already, and nothing else, because that is how the SDKs read it.
pub(crate) async fn pause(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<PauseBody>,
) -> Result<StatusCode, E2bError> {
    let tenant = &caller.tenant;
    let info = app.service.get(tenant, &ids.sandbox).await?;
    if is_paused(&info) {
        return Err(conflict("is paused already"));
    }
    let paused = match value.memory {
        // Nothing of it runs, so there is no memory to keep.
        _ if info.state == Stands::Sleeping => Ok(info),
        true => app.service.pause(tenant, &ids.sandbox).await,
        // As at E2B, the pause ends what runs and disconnects clients.
        false => app.service.sleep(tenant, &ids.sandbox, SleepMode::Forced).await,
    };
    match paused {
        // It fell asleep in the meantime.
        Ok(_) | Err(Error::Sleeping(_)) => {}
        Err(error) => return Err(not_paused(error.into()).into()),
    }
    // A paused sandbox does not end.
    let patch = Patch { stop_lifetime: true, ..Patch::default() };
    let patched = app.service.patch(tenant, &ids.sandbox, patch).await;
    patched.map_err(|error| not_paused(error.into()))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer to a pause that failed, with another status than 409.
fn not_paused(failure: ApiError) -> ApiError {
    if failure.status() != StatusCode::CONFLICT {
        return failure;
    }
    let status = match failure.code {
        // Another request has paused it.
        "sandbox_paused" => return failure,
        "sandbox_destroyed" => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    ApiError::new(status, failure.code, failure.message, failure.hint)
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

/// Replaces the network of a sandbox and the headers that the server sets in its requests. What is
/// left out is open, or not set.
pub(crate) async fn network(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<Egress>,
) -> Result<StatusCode, E2bError> {
    value.check()?;
    let tenant = &caller.tenant;
    let own = app.service.get(tenant, &ids.sandbox).await?.credentials;
    let remove_credentials = own.into_iter().map(|one| CredentialRemoval {
        host: one.host,
        header: one.header,
        placeholder: one.placeholder,
    });
    let change = NetworkChange {
        whole: value.of_update(&app, &caller).await?,
        remove_credentials: remove_credentials.collect(),
        add_credentials: value.credentials()?,
        ..NetworkChange::default()
    };
    app.service.network(tenant, &ids.sandbox, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_sandbox::SandboxId;

    #[test]
    fn a_pause_that_fails_is_no_pause_of_a_paused_sandbox() {
        let id = SandboxId::parse("a").unwrap();
        let status = |error: Error| not_paused(error.into()).status().as_u16();
        assert_eq!(status(Error::Failed { id: id.clone(), cause: "killed".into() }), 500);
        assert_eq!(status(Error::InUse(id.clone())), 500);
        assert_eq!(status(Error::Paused(id.clone())), 409);
        assert_eq!(status(Error::Link(isolet_sandbox::AgentError::Destroyed(id.clone()))), 404);
        assert_eq!(status(Error::NoSandbox(id)), 404);
    }
}
