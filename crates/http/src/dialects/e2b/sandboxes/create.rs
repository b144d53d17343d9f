//! Creates sandboxes.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::{Lenient, null_as_default};
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::sandboxes::egress::Egress;
use crate::dialects::e2b::sandboxes::turn::Turn;
use crate::dialects::e2b::sandboxes::view::{SandboxAccess, TEMPLATE};
use crate::dialects::e2b::templates::image_name;
use crate::dialects::e2b::templates::started::{Start, with_template};
use crate::foundation::creation::{done, idempotency_key};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::{AuditedSandbox, ClaimedId};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use axum::{Extension, Json};
use isolet_sandbox::image::Image;
use isolet_sandbox::info::TTL_S_MAX;
use isolet_sandbox::service::Access;
use isolet_sandbox::{
    Created, Environment, Error, IdempotencyKey, Metadata, SandboxId, SandboxInfo, SandboxSpec,
    SnapshotId, TenantId, ids,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::{Instrument, Span};

/// The default lifetime, in seconds.
pub(super) const TIMEOUT_S: u64 = 300;
/// Templates that stand for the default image of the server.
const DEFAULT_TEMPLATES: [&str; 4] = ["", "base", "code-interpreter-v1", "code-interpreter"];
/// The home directory of the user of commands and files.
const USER_HOME: &[u8] = b"/home/user";

/// The settings of a new sandbox. Unknown members are ignored, because newer clients send more.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NewSandbox {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(deserialize_with = "null_as_default")]
    timeout: Option<u64>,
    #[serde(deserialize_with = "null_as_default")]
    auto_pause: bool,
    /// Of a pause at the end.
    auto_pause_memory: Option<bool>,
    #[serde(deserialize_with = "null_as_default")]
    auto_resume: AutoResume,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    #[serde(deserialize_with = "null_as_default")]
    network: Egress,
    #[serde(deserialize_with = "null_as_default")]
    metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    env_vars: BTreeMap<String, String>,
    mcp: Option<Value>,
    iam: Option<Value>,
    #[serde(deserialize_with = "null_as_default")]
    volume_mounts: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AutoResume {
    enabled: bool,
}

/// Checks a lifetime in seconds.
pub(super) fn lifetime(seconds: u64) -> Result<u64, ApiError> {
    match seconds {
        // It ends as soon as possible.
        0 => Ok(1),
        seconds if seconds <= TTL_S_MAX => Ok(seconds),
        _ => Err(ApiError::bad_field("timeout", "at most 31622400 seconds (a year)")),
    }
}

impl NewSandbox {
    /// Refuses what this server does not have.
    fn check(&self) -> Result<(), ApiError> {
        let drops_memory = self.auto_pause && self.auto_pause_memory == Some(false);
        let refused = [
            (
                drops_memory,
                "autoPauseMemory",
                "a sandbox that is paused at its end keeps its memory",
            ),
            (self.mcp.is_some(), "mcp", "the server runs no MCP gateway in sandboxes"),
            (self.iam.is_some(), "iam", "sandboxes have no identity of their own"),
            (!self.volume_mounts.is_empty(), "volumeMounts", "there are no volumes"),
        ];
        for (is_set, name, reason) in refused {
            if is_set {
                return Err(ApiError::field_not_implemented(name, reason));
            }
        }
        self.network.check()
    }

    /// The image of the template, if this server has it.
    fn template_image(&self, app: &App, caller: &Caller) -> Option<Arc<Image>> {
        let tenant = &caller.tenant;
        let image = match source(app, tenant, &self.template_id) {
            (_, Some(snapshot)) => app.service.snapshot(tenant, &snapshot).ok()?.image_resolved,
            (image, None) => image?,
        };
        app.service.find_image(tenant, &image).ok()
    }

    async fn spec(mut self, app: &App, caller: &Caller) -> Result<SandboxSpec, ApiError> {
        let known = self.template_image(app, caller);
        self.check()?;
        self.network.internet = self.allow_internet_access;
        let network = self.network.of_new(app, caller).await?;
        let credentials = self.network.credentials()?;
        let (image, snapshot) = source(app, &caller.tenant, &self.template_id);
        let template = Map::from_iter([(TEMPLATE.to_owned(), Value::from(self.template_id))]);
        let dialect = with_template(template, known.as_deref())?;
        let metadata = self.metadata.into_iter().map(|(k, v)| (k, Value::from(v))).collect();
        Ok(SandboxSpec {
            image,
            snapshot,
            ttl_s: Some(lifetime(self.timeout.unwrap_or(TIMEOUT_S))?),
            // E2B's sandboxes end or are paused; they do not sleep.
            sleep_after_s: Some(0),
            auto_resume: Some(self.auto_resume.enabled),
            pause_on_expiry: Some(self.auto_pause),
            metadata: Some(Metadata::parse(metadata)?),
            env: Environment::parse(self.env_vars)?,
            dialect,
            network,
            credentials,
            ..SandboxSpec::default()
        })
    }
}

/// The image or the snapshot that a template stands for.
fn source(app: &App, tenant: &TenantId, template: &str) -> (Option<String>, Option<SnapshotId>) {
    if is_default_template(template) {
        return (None, None);
    }
    let snapshot = SnapshotId::parse(template).ok();
    match snapshot.filter(|id| app.service.snapshot(tenant, id).is_ok()) {
        Some(snapshot) => (None, Some(snapshot)),
        None => (Some(image_name(template)), None),
    }
}

/// Whether a template stands for the default image of the server.
pub(in crate::dialects::e2b) fn is_default_template(template: &str) -> bool {
    DEFAULT_TEMPLATES.contains(&template)
}

/// Makes a new sandbox what E2B's clients expect: its home directory is there, and the start command of
/// its template runs.
async fn prepare(app: &App, caller: &Caller, info: &SandboxInfo) -> Result<(), ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &info.id, Access::MustExist).await?;
    sandbox.file_mkdir(USER_HOME).await?;
    let is_host = app.service.names_host(&info.image)?;
    let image = if is_host { None } else { Some(&info.image_resolved) };
    let image = image.and_then(|name| app.service.find_image(&caller.tenant, name).ok());
    match image.as_deref().and_then(Start::of) {
        Some(start) => start.run(&sandbox).await,
        None => Ok(()),
    }
}

/// Creates a sandbox and prepares it, or deletes it if it cannot be prepared. A sandbox that the key
/// has created before only has to exist.
async fn create_whole(
    app: App,
    caller: Caller,
    spec: SandboxSpec,
    once: Option<IdempotencyKey>,
) -> Result<Created, ApiError> {
    let made = app.service.create(&caller.tenant, spec, once).await?;
    let id = &made.info.id;
    if made.replayed {
        app.service.reach(&caller.tenant, id, Access::MustExist).await?;
        return Ok(made);
    }
    if let Err(failure) = prepare(&app, &caller, &made.info).await {
        let _ = app.service.delete(&caller.tenant, id).await;
        return Err(failure);
    }
    Ok(made)
}

/// Creates a sandbox in a task of its own, so that a client that disconnects leaves no sandbox that is
/// not prepared.
async fn create_in_task(
    app: &App,
    caller: &Caller,
    spec: SandboxSpec,
    once: Option<IdempotencyKey>,
) -> Result<Created, ApiError> {
    let turn = match &once {
        Some(once) => Some(Turn::take(&caller.tenant, &once.key).await?),
        None => None,
    };
    let work = create_whole(app.clone(), caller.clone(), spec, once);
    let work = async move {
        let made = work.await;
        drop(turn);
        made
    };
    let task = tokio::spawn(work.instrument(Span::current()));
    task.await.map_err(|error| Error::Fault(error.to_string()))?
}

/// Creates a sandbox.
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    claimed: Option<Extension<ClaimedId>>,
    uri: Uri,
    headers: HeaderMap,
    Lenient { value, raw }: Lenient<NewSandbox>,
) -> Result<Response, E2bError> {
    let once = idempotency_key(&headers, &format!("POST {}", uri.path()), &raw)?;
    let mut spec = ClaimedId::complete(claimed, value.spec(&app, &caller).await?);
    if spec.id.is_none() && once.is_none() {
        // A name that can be part of a host name.
        spec.id = SandboxId::parse(&ids::random()).ok();
    }
    let made = create_in_task(&app, &caller, spec, once).await?;
    let access = SandboxAccess::grant(&app, &caller, &made.info).await?;
    let audited = Extension(AuditedSandbox(made.info.id.clone()));
    Ok(done(made.replayed, (StatusCode::CREATED, audited, Json(access))))
}
