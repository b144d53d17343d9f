//! Code contexts, which are interpreters that keep their variables, and the runs in them.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        creation::{created, idempotency_key},
        error::ApiError,
        event_encoding::accepts_event_stream,
        input::{self, PathIds},
        json::{StrictJson, UniqueMap, not_null},
        query::Query,
    },
    stream::{
        captured_output::{self, CapturedOutput, lost_field},
        context_run::{self, ContextRun, context_error},
        context_run_events,
    },
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::Response,
};
use isolet_sandbox::{
    ContextId, Error, Sandbox, SessionId,
    contexts::{Code, ContextSpec, Info, Kernel},
    service::Access,
};
use isolet_wire::{context::Language, response::RefusalReason};
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

/// A context to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateContext {
    /// Its id; the server makes one unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// `python` (unless told), `javascript`, `typescript`, `bash` or `jupyter`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    language: Option<String>,
    /// A Jupyter kernel of the image by its name, as `jupyter kernelspec list` tells them, for
    /// `jupyter`, which it means: `python3` (the package `ipykernel`) unless told. `none`, for any
    /// other language: no Jupyter kernel. A context of `python` has that of `ipykernel` where the
    /// image has it, unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    kernel: Option<String>,
    /// The session whose directory, environment and files it has, and with which it ends; made
    /// where it is not there.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    session: Option<String>,
    /// Where it starts; the session's own, or `/workspace`, unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Over the sandbox's (and the session's) environment; `null` unsets.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// For runs that name none, in ms: 60000 unless told; 0 is a day, the most.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
}

/// Code to run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunBody {
    /// Its text, at most 1 MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    code: Option<String>,
    /// What `input()` and the like read; without it they fail at once.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin: Option<String>,
    /// Interrupted after so many ms of running; the context's own unless told, 0 is a day. Where
    /// the interrupt does not help within 2 s, the interpreter is killed.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// Kept of each stream, in bytes: 8 MiB unless told, at most 64 MiB. Not for event streams.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    max_output_bytes: Option<u64>,
    /// Interrupted when the client goes away before its end; otherwise it goes on.
    cancel_on_close: bool,
}

/// A context.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextView {
    /// Its id.
    id: String,
    /// `python`, `javascript`, `typescript`, `bash` or `jupyter`.
    language: &'static str,
    /// The name of the Jupyter kernel that runs it; `null` where none does.
    kernel: Option<String>,
    /// Whose it is, if a session's.
    session: Option<String>,
    /// Where it started.
    cwd: String,
    /// For runs that name none, in ms.
    timeout_ms: u64,
    /// Milliseconds since 1970.
    created_at_ms: i64,
    /// Process id of its interpreter, inside; `null` while there is none.
    pid: Option<i32>,
    /// Something runs.
    busy: bool,
    /// Runs that wait.
    queued: u32,
    /// Runs that have begun.
    runs: u64,
    /// How often its interpreter was started anew, without what the one before held.
    restarts: u64,
}

/// Whether anything was interrupted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Interrupted {
    /// Something ran, and was told to stop.
    interrupted: bool,
}

impl From<Info> for ContextView {
    fn from(info: Info) -> Self {
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
            ApiError::bad_field("language", "python, javascript, typescript, bash or jupyter")
        })?;
        let id = self.id.map(|id| ContextId::parse(&id)).transpose().map_err(input::bad_id)?;
        if id.as_ref().and_then(default_of).is_some_and(|own| own != language.1) {
            return Err(ApiError::bad_field(
                "id",
                "the name of a language is for contexts of that",
            ));
        }
        let kernel = kernel(language.1, self.kernel)?;
        input::cwd(self.cwd.as_deref())?;
        input::timeout(self.timeout_ms)?;
        let session = self.session.map(|id| SessionId::parse(&id)).transpose();
        Ok(ContextSpec {
            id,
            language: language.1,
            kernel,
            session: session.map_err(input::bad_id)?,
            cwd: self.cwd,
            env: input::env_change(self.env)?,
            timeout_ms: self.timeout_ms,
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
            Err(ApiError::bad_field("kernel", "is for the language jupyter, or none"))
        }
        Some(name) if name == NO_KERNEL => {
            Err(ApiError::bad_field("kernel", "the language jupyter is for a kernel"))
        }
        Some(name) if (1..=100).contains(&name.len()) && name.bytes().all(letter) => {
            Ok(Kernel::Named(name))
        }
        Some(_) => Err(ApiError::bad_field("kernel", "1 to 100 letters, digits, `.`, `_` and `-`")),
    }
}

/// Makes a context (and the sandbox, where it is not there); answers when its interpreter is ready.
///
/// Contexts `python`, `javascript`, `typescript`, `bash` and `jupyter` need not be made: a run makes them.
/// 501 where the image has no such interpreter. An id that is taken is 409.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/contexts", tag = "contexts",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same key and body give the same context, as long as there is one; another body is refused with 422.")),
    request_body = CreateContext,
    responses((status = 201, body = ContextView), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
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

/// Contexts of a sandbox, sorted by id, at most 64 of each agent; none of one that sleeps.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/contexts", tag = "contexts",
    params(("id" = String, Path)),
    responses((status = 200, body = Vec<ContextView>), (status = "4XX", body = ApiError)))]
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

/// One context.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/contexts/{cid}", tag = "contexts",
    params(("id" = String, Path), ("cid" = String, Path)),
    responses((status = 200, body = ContextView), (status = "4XX", body = ApiError)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<ContextView>, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let info = sandbox.context(ids.context()?).await.map_err(context_error)?;
    Ok(Json(info.into()))
}

/// Ends a context and all that it started; 404 where there is none.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/contexts/{cid}", tag = "contexts",
    params(("id" = String, Path), ("cid" = String, Path)),
    responses((status = 204), (status = "4XX", body = ApiError)))]
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

/// Runs code in a context: variables and imports stay for the next run.
///
/// Runs of a context come one after the other; a full queue is 429. What the code does wrong is
/// no failure of the call: the answer is 200 and its `exception` says it. With
/// `Accept: text/event-stream` come events `stdout` and `stderr` (`{data, offset}`; with
/// `; encoding=base64` behind it `{data_b64, offset}`), `result` and `exception` in the order in
/// which they happened, then `end`. Contexts `python`, `javascript`, `typescript`,
/// `bash` and `jupyter` are made where they are not there.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/contexts/{cid}/run", tag = "contexts",
    params(("id" = String, Path), ("cid" = String, Path)), request_body = RunBody,
    responses((status = 200, body = context_run::RunAnswer), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
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
    let code = body.code.ok_or_else(|| ApiError::bad_field("code", "is needed"))?;
    if code.len() + body.stdin.as_ref().map_or(0, String::len) > input::COMMAND_BYTES_MAX {
        return Err(ApiError::bad_field(
            "code",
            "at most 1 MiB with its stdin; write more to a file first",
        ));
    }
    let code = Code { code, stdin: body.stdin, timeout_ms: body.timeout_ms };
    let id = ids.context()?;
    let reach = Access::CreateIfMissing;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, reach).await?;
    let context_run = begin(&sandbox, id, code, body.cancel_on_close).await?;
    let more = format!(",\"context\":\"{id}\"{}", lost_field(&sandbox));
    let cancellation = app.cancellations.subscribe(&caller);
    match accepts_event_stream(&headers) {
        Some(encoding) => Ok(context_run_events::events(context_run, encoding, more, cancellation)),
        None => {
            let gathered = CapturedOutput::new(max, app.response_memory.share(&caller.tenant));
            context_run.finish(gathered, &more, cancellation).await
        }
    }
}

/// Starts a run. Creates the context when its id is the name of a language.
async fn begin(
    sandbox: &Sandbox,
    id: &ContextId,
    code: Code,
    cancel: bool,
) -> Result<ContextRun, ApiError> {
    let own = default_of(id);
    let again = own.map(|_| code.clone());
    let link = sandbox.context_run(id, code).await.map_err(context_error)?;
    let first = ContextRun::new(link, sandbox.denials(), cancel).started().await;
    let (Some(language), Some(code), Err(Error::Refused { why: RefusalReason::NoShell, .. })) =
        (own, again, &first)
    else {
        return first.map_err(context_error);
    };
    let wish = ContextSpec {
        id: Some(id.clone()),
        language,
        kernel: Kernel::Usual,
        session: None,
        cwd: None,
        env: std::collections::BTreeMap::new(),
        timeout_ms: None,
    };
    sandbox.context_open(wish, true).await.map_err(context_error)?;
    let link = sandbox.context_run(id, code).await.map_err(context_error)?;
    ContextRun::new(link, sandbox.denials(), cancel).started().await.map_err(context_error)
}

/// Interrupts what runs in a context; what waits there comes next.
///
/// Code that does not heed it within 10 s is killed with its interpreter.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/contexts/{cid}/interrupt", tag = "contexts",
    params(("id" = String, Path), ("cid" = String, Path)),
    responses((status = 200, body = Interrupted), (status = "4XX", body = ApiError)))]
pub(crate) async fn interrupt(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Interrupted>, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let interrupted = sandbox.context_interrupt(ids.context()?).await.map_err(context_error)?;
    Ok(Json(Interrupted { interrupted }))
}

/// Ends a context's interpreter, with all it holds and has started, and begins with a new one.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/contexts/{cid}/restart", tag = "contexts",
    params(("id" = String, Path), ("cid" = String, Path)),
    responses((status = 200, body = ContextView), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
pub(crate) async fn restart(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<ContextView>, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let info = sandbox.context_restart(ids.context()?).await.map_err(context_error)?;
    Ok(Json(info.into()))
}
