//! Runs: create, list, get, change the timeout, delete, run commands.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::forwarding::lists;
use crate::forwarding::lists::stored::Listed;
use crate::foundation::creation::{created, idempotency_key};
use crate::foundation::denied::{DeniedFields, DeniedView};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::ClaimedId;
use crate::foundation::input::PathIds;
use crate::foundation::json::{StrictJson, not_null};
use crate::foundation::json_text::{self, OutputText};
use crate::foundation::pagination::{IdPage, PAGE_MAX, Pagination};
use crate::foundation::time::Millis;
use crate::routes::sandboxes::credentials::{self, CredentialList};
use crate::routes::sandboxes::network::{self, NetworkBody};
use crate::routes::shell;
use crate::stream::captured_output::{CapturedOutput, OUTPUT_BYTES};
use crate::stream::command::{FinishedCommand, RunningCommand};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::{Extension, Json};
use isolet_clock::rfc3339;
use isolet_sandbox::State as SandboxState;
use isolet_sandbox::info::TTL_S_MAX;
use isolet_sandbox::service::Access;
use isolet_sandbox::{CommandText, Denied, Patch, Program, ProgramSpec, SandboxInfo, SandboxSpec};
use isolet_wire::response::CommandExit;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The default lifetime of a run, in seconds.
const TIMEOUT_S: f64 = 300.0;
/// The default timeout of a command, in seconds.
const EXEC_TIMEOUT_S: f64 = 30.0;
/// The default image of a run.
const IMAGE: &str = "node:22-slim";

/// The settings of a new run. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateRun {
    /// An alias from the configuration of the server, or the name of an image in a registry.
    /// Defaults to `node:22-slim`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    image: Option<String>,
    /// The CPU limit in cores; fractions are allowed.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    vcpus: Option<f64>,
    /// The memory limit, in MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    mem_mib: Option<u64>,
    /// The lifetime in seconds. Defaults to 300; 0 means no limit.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout: Option<f64>,
    /// The size of its own disk, in MiB, at least 32. By default its files share the disk of the
    /// server.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    disk_mib: Option<u64>,
    /// Where the run may connect to: `"none"`, `"open"`, or rules.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network: Option<NetworkBody>,
    /// The network profile whose rules to use, instead of `network`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network_profile: Option<String>,
    /// Secret values by `HOST` (for its `Authorization` header) or `HOST:HEADER`. The server
    /// injects them into requests to that host; they never enter the sandbox.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>, nullable = false)]
    credentials: Option<CredentialList>,
}

/// A run, which is a sandbox with a limited lifetime.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct IsorunRun {
    /// The id of the run.
    #[schema(value_type = String)]
    id: String,
    /// `running`, `hibernated`, `creating`, `unreachable`, `sleeping` (after a restart of the host),
    /// `failed` or `destroyed`.
    status: &'static str,
    /// The image as it was requested.
    image: String,
    /// The CPU limit, in cores.
    vcpus: f64,
    /// The memory limit, in MiB.
    mem_mib: u64,
    /// The size of its own disk, in MiB. `null` if its files share the disk of the server.
    #[schema(required = true)]
    disk_mib: Option<u64>,
    /// How long its creation took, in milliseconds.
    create_ms: f64,
    /// When it was created, as in RFC 3339.
    created_at: String,
}

impl From<SandboxInfo> for IsorunRun {
    fn from(info: SandboxInfo) -> Self {
        Self {
            id: info.id.into(),
            status: match info.state {
                SandboxState::Paused => "hibernated",
                state => state.word(),
            },
            image: info.image,
            vcpus: info.limits.cpu_millis as f64 / 1000.0,
            mem_mib: info.limits.memory_mib,
            disk_mib: Some(info.limits.disk_mib).filter(|mib| *mib > 0),
            create_ms: info.create_ms,
            created_at: rfc3339(info.created_at_ms),
        }
    }
}

/// Rounds seconds up to a whole number, so that a run never ends too early.
fn ttl(seconds: f64) -> Result<u64, ApiError> {
    if !(0.0..=TTL_S_MAX as f64).contains(&seconds) {
        return Err(ApiError::bad_field("timeout", "seconds from 0 (never) to 31622400 (a year)"));
    }
    Ok(seconds.ceil() as u64)
}

/// Create a run
///
/// A run is a sandbox that does not sleep, and that ends after its timeout.
#[utoipa::path(
    post, path = "/v1/runs", operation_id = "runs_create", tag = "isorun",
    params(
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = CreateRun, example = json!({"image": "node:22-slim", "timeout": 300})),
    responses(
        (status = 201, description = "The run was created.", body = IsorunRun, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")))
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    claimed: Option<Extension<ClaimedId>>,
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
    let wish = ClaimedId::complete(claimed, wish);
    let made = app.service.create(&caller.tenant, wish, once).await?;
    let location = format!("/v1/runs/{}", made.info.id);
    Ok(created(&location, made.replayed, Json(IsorunRun::from(made.info))))
}

/// List runs
///
/// Returns all sandboxes of the caller, in the form of runs.
#[utoipa::path(
    get, path = "/v1/runs", operation_id = "runs_list", tag = "isorun",
    params(
        ("limit" = Option<u64>, Query),
        ("cursor" = Option<String>, Query)
    ),
    responses(
        (status = 200, description = "One page of runs.", body = Vec<IsorunRun>, headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one.")))
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    // The client reads a single page, so this page has the largest size.
    let paging = Pagination::of(&uri, PAGE_MAX)?;
    let page = lists::stored::page(&app, &caller, &paging).await?;
    let is_incomplete = page.is_incomplete;
    let items = page.items.into_iter().map(Listed::info).collect();
    let page = IdPage { items, last: page.last };
    let mut response = paging.answer::<_, IsorunRun>("/v1/runs", page);
    if is_incomplete {
        response.headers_mut().insert(lists::MISSING, lists::STORED);
    }
    Ok(response)
}

/// Get a run
#[utoipa::path(
    get, path = "/v1/runs/{id}", operation_id = "runs_get", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The run.", body = IsorunRun)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<IsorunRun>, ApiError> {
    Ok(Json(IsorunRun::from(app.service.get(&caller.tenant, &ids.sandbox).await?)))
}

/// Changes to a run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = UpdateRun)]
pub(crate) struct ChangeRun {
    /// The lifetime in seconds, counted from now. 0 means no limit.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    timeout: Option<f64>,
}

/// Change the timeout of a run
#[utoipa::path(
    patch, path = "/v1/runs/{id}", operation_id = "runs_update", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    request_body = ChangeRun,
    responses(
        (status = 200, description = "The run.", body = IsorunRun)
    )
)]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<ChangeRun>,
) -> Result<Json<IsorunRun>, ApiError> {
    let timeout =
        body.value.timeout.ok_or_else(|| ApiError::bad_field("timeout", "is required"))?;
    let patch = Patch { ttl_s: Some(ttl(timeout)?), ..Patch::default() };
    Ok(Json(IsorunRun::from(app.service.patch(&caller.tenant, &ids.sandbox, patch).await?)))
}

/// A deleted run and the resources that it used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeletedRun)]
pub(crate) struct Destroyed {
    /// The state after the deletion: `destroyed`.
    status: &'static str,
    /// CPU time, in milliseconds.
    cpu_ms: f64,
    /// Peak memory, in bytes.
    mem_peak_bytes: u64,
    /// Milliseconds from its creation to its end.
    uptime_ms: u64,
    /// Always 0, because this server bills nothing.
    cost_cents: u64,
}

/// Delete a run
///
/// Answers with the resources that the run used.
#[utoipa::path(
    delete, path = "/v1/runs/{id}", operation_id = "runs_delete", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The run was deleted.", body = Destroyed)
    )
)]
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

/// A command line to run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = RunExecRequest)]
pub(crate) struct ExecRun {
    /// A command line for `bash -c`.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    command: Option<String>,
    /// The timeout in seconds. Defaults to 30; 0 means none.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout: Option<f64>,
}

/// The result of a command.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunExecResult)]
pub(crate) struct Executed<'a> {
    /// The exit code; 128 plus the signal number if a signal ended the command.
    exit_code: i32,
    /// The signal that ended the command, if any.
    signal: Option<i32>,
    /// Whether the timeout ended the command.
    timed_out: bool,
    /// The kernel killed a process of the sandbox for memory while it ran.
    oom: bool,
    /// Whether a client cancelled the command.
    cancelled: bool,
    /// From its start to its end, in ms.
    #[schema(value_type = f64)]
    duration_ms: Millis,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    #[schema(value_type = String)]
    stdout: OutputText<'a>,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    #[schema(value_type = String)]
    stderr: OutputText<'a>,
    /// The network traffic of the whole sandbox that was denied while this ran; at most 64 entries.
    /// Absent if nothing was denied. To allow it, send `{"allow_add": denied}` to `PATCH
    /// /v1/sandboxes/{id}/network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    denied: Option<Vec<DeniedView>>,
    /// How much more was denied than the list holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_lost: Option<u64>,
}

impl<'a> Executed<'a> {
    fn new(exit: &CommandExit, texts: [OutputText<'a>; 2], denied: Denied) -> Self {
        let [stdout, stderr] = texts;
        let DeniedFields { denied, denied_lost } = denied.into();
        Self {
            exit_code: exit.code,
            signal: exit.signal,
            timed_out: exit.timed_out,
            oom: exit.oom,
            cancelled: exit.cancelled,
            duration_ms: Millis::from_micros(exit.micros),
            stdout,
            stderr,
            denied,
            denied_lost,
        }
    }
}

/// Run a command line
///
/// Answers when the command has ended.
#[utoipa::path(
    post, path = "/v1/runs/{id}/exec", operation_id = "runs_exec", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    request_body(content = ExecRun, example = json!({"command": "node --version"})),
    responses(
        (status = 200, description = "The command ended, whatever its exit code.", body = Executed)
    )
)]
pub(crate) async fn exec(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<ExecRun>,
) -> Result<Response, ApiError> {
    let text = body.value.command.ok_or_else(|| ApiError::bad_field("command", "is required"))?;
    let text = CommandText::parse(text)?;
    let seconds = body.value.timeout.unwrap_or(EXEC_TIMEOUT_S);
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(ApiError::bad_field("timeout", "seconds from 0 (never) to 86400 (a day)"));
    }
    let start = ProgramSpec {
        program: Program::Command(text),
        timeout_ms: (seconds * 1000.0).ceil() as u64,
        ..ProgramSpec::default()
    };
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let command = RunningCommand::start_program(&sandbox, start, None).await?;
    let gathered = CapturedOutput::new(OUTPUT_BYTES, app.response_memory.share(&caller.tenant));
    let done = command.finish(gathered, app.cancellations.subscribe(&caller)).await?;
    let FinishedCommand { exit, output, denied, shell_ended: _ } = done;
    let texts = output.texts();
    let text_bytes = texts.iter().map(|text| text.0.len()).sum();
    Ok(json_text::response(&Executed::new(&exit, texts, denied), text_bytes))
}

/// Connect to a shell over a WebSocket
///
/// Works like `/v1/sandboxes/{id}/shell`, but answers 404 `no_sandbox` if there is no such run.
#[utoipa::path(
    get, path = "/v1/runs/{id}/shell", operation_id = "runs_shell_connect", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 101, description = "The connection continues as a WebSocket.")
    )
)]
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

    #[test]
    fn answers_keep_their_bytes() {
        let exit = CommandExit { code: 7, micros: 2000, ..CommandExit::default() };
        let denied = Denied { list: Vec::new(), lost: 1 };
        assert_eq!(
            json_text::to_string(&Executed::new(&exit, ["a\n".into(), "�".into()], denied), 0),
            r#"{"exit_code":7,"signal":null,"timed_out":false,"oom":false,"cancelled":false,"duration_ms":2,"stdout":"a\n","stderr":"�","denied":[],"denied_lost":1}"#
        );
    }
}
