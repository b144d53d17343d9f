//! Code contexts, which are interpreters that keep their variables, and the runs in them.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::creation::{created, idempotency_key};
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::accepts_event_stream;
use crate::foundation::input::{self, PathIds};
use crate::foundation::json::{StrictJson, UniqueMap, not_null};
use crate::foundation::lost::LostFields;
use crate::foundation::query::Query;
use crate::stream::captured_output::{self, CapturedOutput};
use crate::stream::context_run::{self, context_error};
use crate::stream::context_run_events;
use crate::stream::context_run_view::RunReport;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use isolet_sandbox::contexts::{Code, ContextInfo, ContextSpec, Kernel};
use isolet_sandbox::service::Access;
use isolet_sandbox::{CommandText, ContextId, EnvironmentChange, SessionId};
use isolet_wire::context::Language;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The names of languages. The first five are also ids of contexts that a run creates.
const LANGUAGES: [(&str, Language); 9] = [
    ("python", Language::Python),
    ("javascript", Language::JavaScript),
    ("typescript", Language::TypeScript),
    ("bash", Language::Bash),
    ("jupyter", Language::Jupyter),
    ("js", Language::JavaScript),
    ("ts", Language::TypeScript),
    ("sh", Language::Bash),
    ("shell", Language::Bash),
];

/// The `kernel` of a context without a Jupyter kernel.
const NO_KERNEL: &str = "none";

/// The settings of a new code context. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateContext {
    /// The id. Defaults to a generated id.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// `python` (default), `javascript`, `typescript`, `bash` or `jupyter`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    language: Option<String>,
    /// The name of a Jupyter kernel of the image, as listed by `jupyter kernelspec list`; implies
    /// the language `jupyter`, whose default is `python3`. `none` forbids a Jupyter kernel for any
    /// other language. By default, a Python context uses the kernel of the package `ipykernel` if
    /// the image has it.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    kernel: Option<String>,
    /// The session whose directory, environment and files the context uses, and with which it ends.
    /// Created if it does not exist.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    session: Option<String>,
    /// Where the interpreter starts. Defaults to the directory of the session, or to `/workspace`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Environment variables to set, or with `null` to unset.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// The timeout of runs that name none, in milliseconds. Defaults to 60000. 0 means a day, which
    /// is the maximum.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// Add the data of matplotlib's figures (`application/vnd.isolet.chart+json`) and of pandas'
    /// tables (`application/vnd.isolet.table+json`) to results. Applies to `python` with `ipykernel`.
    structured: bool,
}

/// Code to run in a context.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = CodeRunRequest)]
pub(crate) struct RunBody {
    /// The code, at most 1 MiB together with `stdin`.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    code: Option<String>,
    /// What `input()` and similar functions read. Without it, they fail.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin: Option<String>,
    /// The timeout in milliseconds of running, after which the code is interrupted. If it does not
    /// stop within 2 s, the interpreter is killed. 0 means a day. Defaults to that of the context.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// Environment variables to set, or with `null` to unset, while this code runs.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// The most bytes of each stream in the answer: 8 MiB by default, at most 64 MiB. Does not
    /// apply to event streams.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    max_output_bytes: Option<u64>,
    /// Interrupt the code if the client disconnects before its end.
    cancel_on_close: bool,
}

/// A code context: an interpreter that keeps its variables between runs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Context)]
pub(crate) struct ContextView {
    /// The id, unique in its sandbox.
    id: String,
    /// `python`, `javascript`, `typescript`, `bash` or `jupyter`.
    language: &'static str,
    /// The Jupyter kernel that runs the code, if any.
    #[schema(required = true)]
    kernel: Option<String>,
    /// The session that it belongs to, if any.
    #[schema(required = true)]
    session: Option<String>,
    /// Where the interpreter started.
    cwd: String,
    /// The timeout of runs that name none, in milliseconds.
    timeout_ms: u64,
    /// When it was created, in milliseconds since 1970.
    created_at_ms: i64,
    /// The process id of the interpreter inside the sandbox. `null` while there is none.
    #[schema(required = true)]
    pid: Option<i32>,
    /// Whether code is running.
    busy: bool,
    /// The number of waiting runs.
    queued: u32,
    /// The number of runs that have started.
    runs: u64,
    /// How often the interpreter was restarted and lost its variables.
    restarts: u64,
}

/// Whether code was interrupted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Interrupted {
    /// Whether code was running and was interrupted.
    interrupted: bool,
}

impl From<ContextInfo> for ContextView {
    fn from(info: ContextInfo) -> Self {
        Self {
            id: info.id.into(),
            language: word(info.language),
            kernel: info.kernel,
            session: info.session.map(String::from),
            cwd: info.cwd,
            timeout_ms: info.timeout_ms,
            created_at_ms: info.created_at_ms,
            pid: info.pid,
            busy: info.busy,
            queued: info.queued,
            runs: info.runs,
            restarts: info.restarts,
        }
    }
}

fn word(language: Language) -> &'static str {
    LANGUAGES.iter().find(|(_, one)| *one == language).map_or("", |(word, _)| word)
}

/// The language of a context that a run creates.
fn default_of(id: &ContextId) -> Option<Language> {
    LANGUAGES[..5].iter().find(|(word, _)| *word == id.as_str()).map(|(_, language)| *language)
}

impl CreateContext {
    fn wish(self) -> Result<ContextSpec, ApiError> {
        let named = self.kernel.as_deref().is_some_and(|name| name != NO_KERNEL);
        let usual = if named { "jupyter" } else { "python" };
        let named = self.language.as_deref().unwrap_or(usual).to_ascii_lowercase();
        let language = LANGUAGES.iter().find(|(word, _)| *word == named).ok_or_else(|| {
            ApiError::bad_field(
                "language",
                "must be python, javascript, typescript, bash or jupyter",
            )
        })?;
        let id = self.id.map(|id| ContextId::parse(&id)).transpose().map_err(input::bad_id)?;
        if id.as_ref().and_then(default_of).is_some_and(|own| own != language.1) {
            return Err(ApiError::bad_field(
                "id",
                "the name of a language is reserved for contexts of that language",
            ));
        }
        let kernel = kernel(language.1, self.kernel)?;
        let cwd = input::cwd(self.cwd)?;
        input::timeout(self.timeout_ms)?;
        let session = self.session.map(|id| SessionId::parse(&id)).transpose();
        Ok(ContextSpec {
            id,
            language: language.1,
            kernel,
            session: session.map_err(input::bad_id)?,
            cwd,
            env: EnvironmentChange::parse(self.env.0)?,
            timeout_ms: self.timeout_ms,
            structured: self.structured,
        })
    }
}

/// Parses the kernel of a context. Kernel names follow Jupyter's syntax.
fn kernel(language: Language, wish: Option<String>) -> Result<Kernel, ApiError> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match wish {
        None => Ok(Kernel::Usual),
        Some(name) if name == NO_KERNEL && language != Language::Jupyter => Ok(Kernel::Without),
        Some(_) if language != Language::Jupyter => {
            Err(ApiError::bad_field("kernel", "requires the language jupyter, unless it is none"))
        }
        Some(name) if name == NO_KERNEL => {
            Err(ApiError::bad_field("kernel", "the language jupyter requires a kernel"))
        }
        Some(name) if (1..=100).contains(&name.len()) && name.bytes().all(letter) => {
            Ok(Kernel::Named(name))
        }
        Some(_) => Err(ApiError::bad_field("kernel", "1 to 100 letters, digits, `.`, `_` and `-`")),
    }
}

/// Create a code context
///
/// Answers when the interpreter is ready. The contexts `python`, `javascript`, `typescript`, `bash`
/// and `jupyter` need not be created: running code in them creates them. Creates the sandbox if it
/// does not exist. Answers 409 if the id is taken, and 501 `not_in_image` if the image has no such
/// interpreter.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/contexts", operation_id = "contexts_create", tag = "contexts",
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = CreateContext, example = json!({"id": "analysis", "language": "python"})),
    responses(
        (status = 201, description = "The context was created.", body = ContextView, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")))
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: StrictJson<CreateContext>,
) -> Result<Response, ApiError> {
    let route = format!("POST /v1/sandboxes/{}/contexts", ids.sandbox);
    let once = idempotency_key(&headers, &route, &body.raw)?;
    let wish = body.value.wish()?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::CreateIfMissing).await?;
    let (info, replayed) = sandbox.context_create(wish, once).await.map_err(context_error)?;
    let location = format!("/v1/sandboxes/{}/contexts/{}", ids.sandbox, info.id);
    Ok(created(&location, replayed, Json(ContextView::from(info))))
}

/// List code contexts
///
/// Returns the contexts sorted by id. A sleeping sandbox has none, and is not woken.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/contexts", operation_id = "contexts_list", tag = "contexts",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The contexts.", body = Vec<ContextView>)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Vec<ContextView>>, ApiError> {
    Query::of(&uri, &[])?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let all = sandbox.contexts().await?;
    Ok(Json(all.into_iter().map(ContextView::from).collect()))
}

/// Get a code context
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/contexts/{cid}", operation_id = "contexts_get", tag = "contexts",
    params(
        ("id" = String, Path),
        ("cid" = String, Path)
    ),
    responses(
        (status = 200, description = "The context.", body = ContextView)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<ContextView>, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let info = sandbox.context(ids.context()?).await.map_err(context_error)?;
    Ok(Json(info.into()))
}

/// Delete a code context
///
/// Ends the interpreter and everything that it started. Answers 404 `no_context` if there is no
/// such context.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/contexts/{cid}", operation_id = "contexts_delete", tag = "contexts",
    params(
        ("id" = String, Path),
        ("cid" = String, Path)
    ),
    responses(
        (status = 204, description = "The context was deleted.")
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<StatusCode, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let id = ids.context()?;
    sandbox.context(id).await.map_err(context_error)?;
    sandbox.context_close(id).await.map_err(context_error)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Run code in a context
///
/// Variables and imports stay for the next run. Runs of one context happen one after the other; a
/// full queue is refused with 429 `queue_full`. An exception in the code is not an error of the
/// call: the answer is 200, and `exception` describes it. The contexts `python`, `javascript`,
/// `typescript`, `bash` and `jupyter` are created if they do not exist, and so is the sandbox.
///
/// With `Accept: text/event-stream`, the server streams events while the code runs:
///
/// | event | data |
/// |---|---|
/// | `stdout`, `stderr` | `{"data", "offset"}`; with `Accept: text/event-stream; encoding=base64` exact bytes as `{"data_b64", "offset"}` |
/// | `result` | an entry of `results` |
/// | `exception` | the exception |
/// | `end` | how the run ended: the fields of the JSON answer without its output, results and exception, and `out_bytes` and `err_bytes`; the last event |
/// | `error` | `{"error", "message", "hint"}`; the last event |
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/contexts/{cid}/run", operation_id = "contexts_run", tag = "contexts",
    params(
        ("id" = String, Path),
        ("cid" = String, Path)
    ),
    request_body(content = RunBody, example = json!({"code": "x = 41\nx + 1"})),
    responses(
        (status = 200, description = "The run ended, also if the code raised an exception, or with `Accept: text/event-stream` a stream of events.", content((context_run::RunAnswer = "application/json"), (String = "text/event-stream")))
    )
)]
pub(crate) async fn run(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: StrictJson<RunBody>,
) -> Result<Response, ApiError> {
    let body = body.value;
    let max = captured_output::output_limit_bytes(body.max_output_bytes)?;
    input::timeout(body.timeout_ms)?;
    let code = body.code.ok_or_else(|| ApiError::bad_field("code", "is required"))?;
    if code.len() + body.stdin.as_ref().map_or(0, String::len) > CommandText::BYTES_MAX {
        return Err(ApiError::bad_field(
            "code",
            "must be at most 1 MiB together with stdin; write longer text to a file first",
        ));
    }
    let env = EnvironmentChange::parse(body.env.0)?;
    let code = Code { code, stdin: body.stdin, env, timeout_ms: body.timeout_ms };
    let id = ids.context()?;
    let reach = Access::CreateIfMissing;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, reach).await?;
    let memory = app.body_memory.share(&caller.tenant);
    let cancel = body.cancel_on_close;
    let context_run =
        context_run::begin(&sandbox, id, code, cancel, default_spec(id), memory).await?;
    let report = RunReport { context: id.clone(), lost: LostFields::take(&sandbox) };
    let cancellation = app.cancellations.subscribe(&caller);
    match accepts_event_stream(&headers) {
        Some(encoding) => {
            Ok(context_run_events::events(context_run, encoding, report, cancellation))
        }
        None => {
            let gathered = CapturedOutput::new(max, app.response_memory.share(&caller.tenant));
            context_run.finish(gathered, report, cancellation).await
        }
    }
}

/// The settings of a context that a run creates because its id is the name of a language.
fn default_spec(id: &ContextId) -> Option<ContextSpec> {
    Some(ContextSpec {
        id: Some(id.clone()),
        language: default_of(id)?,
        kernel: Kernel::Usual,
        session: None,
        cwd: None,
        env: EnvironmentChange::default(),
        timeout_ms: None,
        structured: false,
    })
}

/// Interrupt the code that runs in a context
///
/// The next waiting run then starts. If the code does not stop within 10 s, the server kills the
/// interpreter.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/contexts/{cid}/interrupt", operation_id = "contexts_interrupt", tag = "contexts",
    params(
        ("id" = String, Path),
        ("cid" = String, Path)
    ),
    responses(
        (status = 200, description = "Whether code was running.", body = Interrupted)
    )
)]
pub(crate) async fn interrupt(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Interrupted>, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let interrupted = sandbox.context_interrupt(ids.context()?).await.map_err(context_error)?;
    Ok(Json(Interrupted { interrupted }))
}

/// Restart the interpreter of a context
///
/// Ends the interpreter with its variables and everything that it started, and starts a new one.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/contexts/{cid}/restart", operation_id = "contexts_restart", tag = "contexts",
    params(
        ("id" = String, Path),
        ("cid" = String, Path)
    ),
    responses(
        (status = 200, description = "The context with its new interpreter.", body = ContextView)
    )
)]
pub(crate) async fn restart(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<ContextView>, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let info = sandbox.context_restart(ids.context()?).await.map_err(context_error)?;
    Ok(Json(info.into()))
}
