//! Runs: create, list, get, change the timeout, delete, run commands.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        creation::{created, idempotency_key},
        denied::{self, DeniedView},
        error::ApiError,
        input::{self, PathIds},
        json::{StrictJson, not_null},
        json_text::write_json_string,
        pagination::{IdPage, PAGE_MAX, Pagination},
        time::rfc3339,
    },
    routes::{
        sandboxes::{
            credentials::{self, CredentialList},
            network::{self, NetworkBody, NetworkWanted},
        },
        shell,
    },
    stream::{
        captured_output::{CapturedOutput, OUTPUT_BYTES, exit_fields},
        command::Command,
    },
};
use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Uri, header},
    response::{IntoResponse, Response},
};
use isolet_sandbox::{Info, Patch, SandboxSpec, Start, info::TTL_S_MAX, service::Access};
use isolet_wire::request::What;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The default lifetime of a run, in seconds.
const TIMEOUT_S: f64 = 300.0;
/// The default timeout of a command, in seconds.
const EXEC_TIMEOUT_S: f64 = 30.0;
/// The default image of a run.
const IMAGE: &str = "node:22-slim";

/// What a run is to be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateRun {
    /// A name of the configuration's alias table, or an image by its name in a registry.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    image: Option<String>,
    /// Processors; fractions are allowed.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    vcpus: Option<f64>,
    /// Memory, in MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    mem_mib: Option<u64>,
    /// Seconds to live, 300 unless told; 0 never ends by itself.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout: Option<f64>,
    /// Its files, in MiB, from 32 on; the server's disk unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    disk_mib: Option<u64>,
    /// What it may connect to; nothing unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<NetworkWanted>, nullable = false)]
    network: Option<NetworkBody>,
    /// The rules of a network profile, in place of `network`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network_profile: Option<String>,
    /// Values by `HOST` (for its `Authorization` header) or `HOST:HEADER`, put into requests to
    /// that host; they never are inside.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>, nullable = false)]
    credentials: Option<CredentialList>,
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Run {
    #[schema(value_type = String)]
    id: String,
    /// `running`, `creating`, `unreachable`, `sleeping` (after the host was started anew), `failed`
    /// or `destroyed`.
    status: &'static str,
    image: String,
    vcpus: f64,
    mem_mib: u64,
    /// `null` where it is not limited.
    disk_mib: Option<u64>,
    create_ms: f64,
    /// RFC 3339.
    created_at: String,
}

impl From<Info> for Run {
    fn from(info: Info) -> Self {
        Self {
            id: info.id.into(),
            status: info.state.word(),
            image: info.image,
            vcpus: info.limits.cpu_millis as f64 / 1000.0,
            mem_mib: info.limits.memory_mib,
            disk_mib: Some(info.limits.disk_mib).filter(|mib| *mib > 0),
            create_ms: info.create_ms,
            created_at: rfc3339(info.created_at_ms),
        }
    }
}

/// Rounds seconds up to a whole number, so that nothing ends too early.
fn ttl(seconds: f64) -> Result<u64, ApiError> {
    if !(0.0..=TTL_S_MAX as f64).contains(&seconds) {
        return Err(ApiError::bad_field("timeout", "seconds from 0 (never) to 31622400 (a year)"));
    }
    Ok(seconds.ceil() as u64)
}

/// Makes a run.
#[utoipa::path(post, path = "/v1/runs", tag = "isorun", request_body = CreateRun,
    responses((status = 201, body = Run), (status = "4XX", body = ApiError)))]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: StrictJson<CreateRun>,
) -> Result<Response, ApiError> {
    let once = idempotency_key(&headers, "POST /v1/runs", &body.raw)?;
    let body = body.value;
    let network = network::wanted(&app, &caller, body.network, body.network_profile).await?;
    let cpu_millis = match body.vcpus {
        None => None,
        Some(vcpus) if (0.001..=1024.0).contains(&vcpus) => Some((vcpus * 1000.0) as u64),
        Some(_) => return Err(ApiError::bad_field("vcpus", "0.001 to 1024")),
    };
    let wish = SandboxSpec {
        image: Some(body.image.unwrap_or_else(|| IMAGE.to_owned())),
        cpu_millis,
        memory_mib: body.mem_mib,
        disk_mib: body.disk_mib,
        ttl_s: Some(ttl(body.timeout.unwrap_or(TIMEOUT_S))?),
        // Runs end; they do not sleep.
        sleep_after_s: Some(0),
        network,
        credentials: credentials::from_host_map(body.credentials.unwrap_or_default())?,
        ..SandboxSpec::default()
    };
    let made = app.service.create(&caller.tenant, wish, once).await?;
    let location = format!("/v1/runs/{}", made.info.id);
    Ok(created(&location, made.replayed, Json(Run::from(made.info))))
}

/// The caller's runs: all sandboxes of its tenant.
#[utoipa::path(get, path = "/v1/runs", tag = "isorun",
    params(("limit" = Option<u64>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Vec<Run>)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    // The client reads a single page, so the page is as long as possible.
    let paging = Pagination::of(&uri, PAGE_MAX)?;
    let page = app.service.list(&caller.tenant, paging.after.as_ref(), paging.limit).await?;
    let page = IdPage { items: page.items, last: page.next.map(String::from) };
    Ok(paging.answer::<_, Run>("/v1/runs", page))
}

/// One run.
#[utoipa::path(get, path = "/v1/runs/{id}", tag = "isorun", params(("id" = String, Path)),
    responses((status = 200, body = Run), (status = 404, body = ApiError)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Run>, ApiError> {
    Ok(Json(Run::from(app.service.get(&caller.tenant, &ids.sandbox).await?)))
}

/// Another timeout, counted from now.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ChangeRun {
    /// Seconds; 0 never ends by itself.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    timeout: Option<f64>,
}

/// Gives a run another timeout.
#[utoipa::path(patch, path = "/v1/runs/{id}", tag = "isorun", params(("id" = String, Path)),
    request_body = ChangeRun,
    responses((status = 200, body = Run), (status = "4XX", body = ApiError)))]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<ChangeRun>,
) -> Result<Json<Run>, ApiError> {
    let timeout = body.value.timeout.ok_or_else(|| ApiError::bad_field("timeout", "is needed"))?;
    let patch = Patch { ttl_s: Some(ttl(timeout)?), ..Patch::default() };
    Ok(Json(Run::from(app.service.patch(&caller.tenant, &ids.sandbox, patch).await?)))
}

/// What a run had used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Destroyed {
    status: &'static str,
    cpu_ms: f64,
    mem_peak_bytes: u64,
    uptime_ms: u64,
    /// Nothing costs anything here.
    cost_cents: u64,
}

/// Ends a run.
#[utoipa::path(delete, path = "/v1/runs/{id}", tag = "isorun", params(("id" = String, Path)),
    responses((status = 200, body = Destroyed), (status = 404, body = ApiError)))]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Destroyed>, ApiError> {
    let ended = app.service.delete(&caller.tenant, &ids.sandbox).await?;
    Ok(Json(Destroyed {
        status: ended.info.state.word(),
        cpu_ms: ended.usage.cpu_us as f64 / 1000.0,
        mem_peak_bytes: ended.usage.memory_peak_bytes,
        uptime_ms: ended.usage.uptime_ms,
        cost_cents: 0,
    }))
}

/// A command line.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExecRun {
    /// For `bash -c`.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    command: Option<String>,
    /// Seconds, 30 unless told; 0 never ends it.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout: Option<f64>,
}

/// How a command ended.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // Written by hand: outputs are large.
pub(crate) struct Executed {
    exit_code: i32,
    stdout: String,
    stderr: String,
    timed_out: bool,
    /// What was refused to the run meanwhile, only where something was.
    denied: Option<Vec<DeniedView>>,
}

/// Runs a command line to its end.
#[utoipa::path(post, path = "/v1/runs/{id}/exec", tag = "isorun", params(("id" = String, Path)),
    request_body = ExecRun,
    responses((status = 200, body = Executed), (status = "4XX", body = ApiError)))]
pub(crate) async fn exec(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<ExecRun>,
) -> Result<Response, ApiError> {
    let text = body.value.command.ok_or_else(|| ApiError::bad_field("command", "is needed"))?;
    input::command(&text)?;
    let seconds = body.value.timeout.unwrap_or(EXEC_TIMEOUT_S);
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(ApiError::bad_field("timeout", "seconds from 0 (never) to 86400 (a day)"));
    }
    let start = Start {
        what: What::Command(text),
        timeout_ms: (seconds * 1000.0).ceil() as u64,
        ..Start::default()
    };
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let command = Command::start_program(&sandbox, start, None).await?;
    let gathered = CapturedOutput::new(OUTPUT_BYTES, app.response_memory.share(&caller.tenant));
    let (exit, output, denied) =
        command.finish(gathered, app.cancellations.subscribe(&caller)).await?;
    let (stdout, stderr) = output.texts();
    let mut out = format!("{{{}", exit_fields(&exit)).into_bytes();
    out.extend_from_slice(br#","stdout":"#);
    write_json_string(&mut out, &stdout);
    out.extend_from_slice(br#","stderr":"#);
    write_json_string(&mut out, &stderr);
    out.extend_from_slice(denied::fields(&denied).as_bytes());
    out.push(b'}');
    let mut response = out.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// The shell WebSocket, as of a sandbox; a run that is not there is 404.
#[utoipa::path(get, path = "/v1/runs/{id}/shell", tag = "isorun", params(("id" = String, Path)),
    responses((status = 101), (status = "4XX", body = ApiError)))]
pub(crate) async fn shell(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Result<Response, ApiError> {
    shell::attach(app, caller, ids, Access::MustExist, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_seconds_within_reason() {
        assert_eq!(ttl(0.0).unwrap(), 0);
        assert_eq!(ttl(0.2).unwrap(), 1);
        assert_eq!(ttl(300.0).unwrap(), 300);
        for bad in [-1.0, 1e308, f64::NAN, f64::INFINITY] {
            assert!(ttl(bad).is_err(), "{bad}");
        }
    }
}
