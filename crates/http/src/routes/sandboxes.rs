//! Sandboxes: create, list, get, change, delete.

pub(crate) mod credentials;
pub(crate) mod network;
pub(crate) mod view;

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        creation::{created, idempotency_key},
        error::ApiError,
        input::{self, NotImplemented, PathIds, metadata},
        json::{Object, StrictJson, UniqueMap, not_null, null_as_zero},
        pagination::{IdPage, Pagination},
    },
    routes::sandboxes::{
        credentials::{CredentialBody, CredentialList},
        network::{NetworkBody, NetworkWanted},
        view::SandboxView,
    },
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, Uri},
    response::Response,
};
use isolet_sandbox::{Patch, SandboxId, SandboxSpec, service::Access};
use serde::Deserialize;
use utoipa::ToSchema;

/// The default number of entries on a page.
const PAGE: usize = 100;

/// Why fields are refused that belong elsewhere.
pub(crate) const OWN_NETWORK: &str =
    "all sessions of a sandbox have its network: give it to the sandbox";
const NO_NETWORK: &str = "change it with PATCH /v1/sandboxes/{id}/network";
const NO_DISK: &str = "a disk keeps the size that it was made with";
const NO_FILE_ACCESS: &str =
    "a scope belongs to a session: give it to POST /v1/sandboxes/{id}/sessions";

/// What a sandbox is to be. Every field may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateSandbox {
    /// `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`; the server makes one otherwise.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<String>, nullable = false)]
    id: Option<String>,
    /// `host` (also where it is left out), a name of the configuration's alias table, or an image
    /// by its name in a registry, which is pulled where it is not here.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    image: Option<String>,
    /// Memory of its processes and tmpfs, in MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    memory_mib: Option<u64>,
    /// Processor time, in thousandths of one core.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cpu_millis: Option<u64>,
    /// Processes and threads.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    pids: Option<u64>,
    /// Ends by itself after so many seconds; 0 never.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
    /// The client's own words, given back as they are.
    #[schema(value_type = Object)]
    metadata: Object,
    /// Environment of every shell and program.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    env: UniqueMap<String>,
    /// Where it may connect to: `"none"` (loopback alone; unless configured), `"open"`, or rules.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<NetworkWanted>, nullable = false)]
    network: Option<NetworkBody>,
    /// The rules of a network profile, as it is now, in place of `network`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network_profile: Option<String>,
    /// Put into its requests on their way out, so that the values never are inside. At most 32, of
    /// 64 KiB together.
    #[schema(value_type = Vec<CredentialBody>)]
    credentials: CredentialList,
    /// Its files, in MiB, from 32 on: a file system of its own, with an inode for each 8 KiB. 0 (unless
    /// configured) for as much as the server's disk has.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    disk_mib: Option<u64>,
    #[schema(ignore)]
    file_access: NotImplemented,
    /// Falls asleep when nobody used it for so many seconds (600 unless configured); 0 or `null`
    /// never. Commands, programs and attached clients keep it awake; background jobs do not.
    #[serde(deserialize_with = "null_as_zero")]
    sleep_after_s: Option<u64>,
    /// Whether files outlive a sleep; `true` unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    persistent: Option<bool>,
}

impl CreateSandbox {
    async fn wish(self, app: &App, caller: &Caller) -> Result<SandboxSpec, ApiError> {
        self.file_access.reject("file_access", NO_FILE_ACCESS)?;
        input::env(self.env.0.iter().map(|(name, value)| (name, Some(value))))?;
        Ok(SandboxSpec {
            id: self.id.map(|id| SandboxId::parse(&id)).transpose().map_err(input::bad_id)?,
            image: self.image,
            memory_mib: self.memory_mib,
            cpu_millis: self.cpu_millis,
            pids: self.pids,
            disk_mib: self.disk_mib,
            ttl_s: self.ttl_s,
            sleep_after_s: self.sleep_after_s,
            persistent: self.persistent,
            metadata: metadata(self.metadata)?,
            env: self.env.0,
            dialect: serde_json::Map::new(),
            network: network::wanted(app, caller, self.network, self.network_profile).await?,
            credentials: self.credentials.lend("credentials")?,
        })
    }
}

/// What is to change; the rest stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ChangeSandbox {
    /// Seconds to live, counted from now; 0 never ends by itself.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
    /// In place of the old.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<Object>, nullable = false)]
    metadata: Option<Object>,
    /// For shells and programs started from now on: a value sets, `null` removes.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// Memory, in MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    memory_mib: Option<u64>,
    /// Processor time, in thousandths of one core.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cpu_millis: Option<u64>,
    /// Processes and threads.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    pids: Option<u64>,
    #[schema(ignore)]
    network: NotImplemented,
    #[schema(ignore)]
    disk_mib: NotImplemented,
    /// Seconds without use after which it falls asleep, counted from now; 0 or `null` never.
    #[serde(deserialize_with = "null_as_zero")]
    sleep_after_s: Option<u64>,
}

/// Makes a sandbox.
///
/// Answers when its agent has answered. Naming a sandbox in a call that works in it (`exec`,
/// `shell`, `sessions`) makes it as well.
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", request_body = CreateSandbox,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key and body give the same sandbox; another body is refused with 422.")),
    responses((status = 201, body = SandboxView), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: StrictJson<CreateSandbox>,
) -> Result<Response, ApiError> {
    let once = idempotency_key(&headers, "POST /v1/sandboxes", &body.raw)?;
    let wish = body.value.wish(&app, &caller).await?;
    let created_now = app.service.create(&caller.tenant, wish, once).await?;
    let location = format!("/v1/sandboxes/{}", created_now.info.id);
    Ok(created(&location, created_now.replayed, Json(SandboxView::from(created_now.info))))
}

/// The caller's sandboxes, sorted by id.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes",
    params(("limit" = Option<u64>, Query, description = "1 to 1000; 100 unless told."),
        ("cursor" = Option<String>, Query, description = "From the `Link` header of the page before.")),
    responses((status = 200, body = Vec<SandboxView>, description = "A `Link` header with `rel=\"next\"` where there are more."),
        (status = "4XX", body = ApiError)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    let paging = Pagination::of(&uri, PAGE)?;
    let page = app.service.list(&caller.tenant, paging.after.as_ref(), paging.limit).await?;
    let page = IdPage { items: page.items, last: page.next.map(String::from) };
    Ok(paging.answer::<_, SandboxView>("/v1/sandboxes", page))
}

/// One sandbox, and what it uses.
#[utoipa::path(get, path = "/v1/sandboxes/{id}", tag = "sandboxes",
    params(("id" = String, Path)),
    responses((status = 200, body = SandboxView), (status = 404, body = ApiError)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SandboxView>, ApiError> {
    let info = app.service.get(&caller.tenant, &ids.sandbox).await?;
    // To reach a sandbox that is being created would wait for its creation.
    if info.state != isolet_sandbox::State::Running {
        return Ok(Json(SandboxView::from(info)));
    }
    let usage = match app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await {
        Ok(sandbox) => sandbox.usage().await.ok(),
        Err(_) => None,
    };
    let info = match usage {
        Some(_) => info,
        // Reaching the sandbox may have revealed that it has failed.
        None => app.service.get(&caller.tenant, &ids.sandbox).await?,
    };
    Ok(Json(SandboxView::from(info).using(usage)))
}

/// Changes a sandbox: all of the fields, or nothing.
#[utoipa::path(patch, path = "/v1/sandboxes/{id}", tag = "sandboxes",
    params(("id" = String, Path)), request_body = ChangeSandbox,
    responses((status = 200, body = SandboxView), (status = "4XX", body = ApiError)))]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<ChangeSandbox>,
) -> Result<Json<SandboxView>, ApiError> {
    let change = body.value;
    change.network.reject("network", NO_NETWORK)?;
    change.disk_mib.reject("disk_mib", NO_DISK)?;
    let patch = Patch {
        ttl_s: change.ttl_s,
        sleep_after_s: change.sleep_after_s,
        metadata: change.metadata.map(metadata).transpose()?,
        env: input::env_change(change.env)?,
        memory_mib: change.memory_mib,
        cpu_millis: change.cpu_millis,
        pids: change.pids,
    };
    let info = app.service.patch(&caller.tenant, &ids.sandbox, patch).await?;
    Ok(Json(SandboxView::from(info)))
}

/// Ends a sandbox and everything in it.
///
/// Never waits behind a running command. Answers with its last state and what it had used.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", tag = "sandboxes",
    params(("id" = String, Path)),
    responses((status = 200, body = SandboxView), (status = 404, body = ApiError)))]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SandboxView>, ApiError> {
    let ended = app.service.delete(&caller.tenant, &ids.sandbox).await?;
    Ok(Json(SandboxView::from(ended)))
}

/// Makes a sandbox that has failed one to work in again.
///
/// It sleeps then, with its files and what was saved of its shells, and the next call that works in
/// it wakes it. One that has not failed stays as it is. Refused with 409 for one that is not
/// persistent: its files can be read until it is deleted.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/recover", tag = "sandboxes",
    params(("id" = String, Path)),
    responses((status = 200, body = SandboxView), (status = 404, body = ApiError), (status = 409, body = ApiError)))]
pub(crate) async fn recover(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SandboxView>, ApiError> {
    let info = app.service.recover(&caller.tenant, &ids.sandbox).await?;
    Ok(Json(SandboxView::from(info)))
}

/// Puts a sandbox to sleep now.
///
/// Answers when nothing of it runs: shells and background jobs end, files of a persistent one
/// stay. The next call that works in it wakes it, and its answer says in `lost` what is gone.
/// Refused with 409 while a command runs or a client is attached.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/sleep", tag = "sandboxes",
    params(("id" = String, Path)),
    responses((status = 200, body = SandboxView), (status = 404, body = ApiError), (status = 409, body = ApiError)))]
pub(crate) async fn sleep(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SandboxView>, ApiError> {
    let info = app.service.sleep(&caller.tenant, &ids.sandbox).await?;
    Ok(Json(SandboxView::from(info)))
}
