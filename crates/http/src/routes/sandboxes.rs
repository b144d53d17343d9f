//! Sandboxes: create, list, get, change, delete.

pub(crate) mod credentials;
pub(crate) mod moving;
pub(crate) mod network;
pub(crate) mod view;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::forwarding::lists::stored::Listed;
use crate::forwarding::{errors, lists};
use crate::foundation::creation::{created, idempotency_key};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::ClaimedId;
use crate::foundation::input::{self, NotImplemented, PathIds};
use crate::foundation::json::{Object, StrictJson, UniqueMap, not_null, null_as_zero};
use crate::foundation::pagination::{IdPage, Pagination};
use crate::foundation::query::Query;
use crate::routes::sandboxes::credentials::{CredentialBody, CredentialList};
use crate::routes::sandboxes::network::NetworkBody;
use crate::routes::sandboxes::view::{RecoveredView, SandboxView};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use axum::{Extension, Json};
use isolet_sandbox::State as SandboxState;
use isolet_sandbox::service::Access;
use isolet_sandbox::{
    AutoSnapshotsChange, Environment, EnvironmentChange, Metadata, Patch, SandboxClass, SandboxId,
    SandboxInfo, SandboxSpec, SleepMode, SnapshotId,
};
use serde::Deserialize;
use utoipa::ToSchema;

/// The default number of entries on a page.
const PAGE: usize = 100;

/// Why fields are refused that belong elsewhere.
pub(crate) const OWN_NETWORK: &str =
    "all sessions share the network of the sandbox: set it for the sandbox";
const NO_NETWORK: &str = "change it with PATCH /v1/sandboxes/{id}/network";
const NO_DISK: &str = "the size of a disk cannot be changed";
const NO_FILE_ACCESS: &str =
    "a scope belongs to a session: send it to POST /v1/sandboxes/{id}/sessions";

/// The settings of a new sandbox. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateSandbox {
    /// The id: `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`. Defaults to a generated id.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<String>, nullable = false)]
    id: Option<String>,
    /// `host` (default), an alias from the configuration of the server, or the name of an image in
    /// a registry, which is pulled if needed.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    image: Option<String>,
    /// The memory limit for processes and tmpfs, in MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    memory_mib: Option<u64>,
    /// The CPU limit, in thousandths of one core.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cpu_millis: Option<u64>,
    /// The limit on processes and threads.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    pids: Option<u64>,
    /// The lifetime in seconds. 0 means no limit.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
    /// Data of the client, returned unchanged. At most 16 KiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<Object>, nullable = false)]
    metadata: Option<Object>,
    /// Environment variables of every shell and program.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    env: UniqueMap<String>,
    /// Where the sandbox may connect to: `"none"`, `"open"`, or rules. The default is set by the
    /// configuration of the server; without configuration it is `"none"`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network: Option<NetworkBody>,
    /// The network profile whose rules to use, instead of `network`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    network_profile: Option<String>,
    /// Credentials that the server injects into requests of the sandbox; the values never enter the
    /// sandbox. At most 32, 64 KiB in total.
    #[schema(value_type = Vec<CredentialBody>)]
    credentials: CredentialList,
    /// The size of its own disk, in MiB, at least 32. Without configuration it is 10240, or 0 on a
    /// server without ext4 or loop devices. 0 means that its files share the disk of the server.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    disk_mib: Option<u64>,
    #[schema(ignore)]
    file_access: NotImplemented,
    /// The idle time in seconds after which the sandbox falls asleep (600 without configuration). 0
    /// or `null` means never. Commands, programs and attached clients keep it awake; background
    /// jobs do not.
    #[serde(deserialize_with = "null_as_zero")]
    sleep_after_s: Option<u64>,
    /// Whether files outlive a sleep. Defaults to `true`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    persistent: Option<bool>,
    /// The id or the name of a snapshot to start from. Its image and the size of its disk cannot be
    /// changed; `env` adds variables; other settings that are left out are those of the snapshot,
    /// except `ttl_s` and `credentials`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    snapshot: Option<String>,
    /// Whether a call that works in the sandbox resumes it when it is paused. Defaults to `false`:
    /// such a call is then refused. Calls that only read never resume it.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    auto_resume: Option<bool>,
    /// The interval in seconds at which the server takes a snapshot, at least 60 unless the server is
    /// configured otherwise. 0 or `null` means never (default; 300 for the class `store`). A snapshot at an
    /// interval is no use of the sandbox, and none is taken while nothing has run since the last one.
    #[serde(deserialize_with = "null_as_zero")]
    snapshot_every_s: Option<u64>,
    /// How many snapshots at intervals exist, 1 to 100 (default 5; 1 for the class `store`). The server deletes the oldest ones.
    #[serde(deserialize_with = "not_null")]
    #[schema(minimum = 1, maximum = 100, nullable = false)]
    keep: Option<u64>,
    /// Whether the server takes a snapshot before it deletes the sandbox: for `DELETE`, and at the
    /// end of `ttl_s`. Defaults to `false`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    snapshot_on_destroy: Option<bool>,
    /// In a fleet: the region of the node. Defaults to the region of the node that receives the
    /// request. A server that is no node of a fleet refuses it with 422 `not_a_fleet`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    region: Option<String>,
    /// In a fleet: labels that the node must have, at most 32. A server that is no node of a fleet
    /// refuses them with 422 `not_a_fleet`.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    labels: UniqueMap<String>,
    /// Whether the sandbox survives its node: `node` (default), whose files are only on its node, or
    /// `store`, which another node may take over when its node is lost. `store` needs a fleet.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    class: Option<String>,
}

impl CreateSandbox {
    async fn wish(self, app: &App, caller: &Caller) -> Result<SandboxSpec, ApiError> {
        self.file_access.reject("file_access", NO_FILE_ACCESS)?;
        // In a fleet, the node that received the request has chosen this one by them.
        if app.fleet.is_none() && (self.region.is_some() || !self.labels.0.is_empty()) {
            return Err(errors::not_a_fleet(
                StatusCode::UNPROCESSABLE_ENTITY,
                "region and labels choose a node, and this server is no node of a fleet",
                "leave both out, or send the request to a server with [cluster] in its configuration",
            ));
        }
        let env = Environment::parse(self.env.0)?;
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
            auto_resume: self.auto_resume,
            pause_on_expiry: None,
            metadata: self.metadata.map(|own| Metadata::parse(own.0)).transpose()?,
            env,
            dialect: Metadata::default(),
            network: network::wanted(app, caller, self.network, self.network_profile).await?,
            credentials: self.credentials.parse_added("credentials")?,
            snapshots: AutoSnapshotsChange {
                every_s: self.snapshot_every_s,
                keep: self.keep,
                on_destroy: self.snapshot_on_destroy,
            },
            snapshot: self
                .snapshot
                .as_deref()
                .map(SnapshotId::parse)
                .transpose()
                .map_err(|error| ApiError::bad_field("snapshot", &error.to_string()))?,
            class: class(self.class.as_deref())?,
            as_root: false,
        })
    }
}

/// The class that a request names.
fn class(word: Option<&str>) -> Result<SandboxClass, ApiError> {
    let Some(word) = word else { return Ok(SandboxClass::default()) };
    let class = SandboxClass::of_word(word);
    class.ok_or_else(|| ApiError::bad_field("class", "must be \"node\" or \"store\""))
}

/// Changes to a sandbox. Fields that are left out keep their value.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = UpdateSandbox)]
pub(crate) struct ChangeSandbox {
    /// The lifetime in seconds, counted from now. 0 means no limit.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
    /// Replaces the data of the client.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<Object>, nullable = false)]
    metadata: Option<Object>,
    /// Environment variables to set, or with `null` to remove. Applies to shells and programs that
    /// are started later.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// The memory limit, in MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    memory_mib: Option<u64>,
    /// The CPU limit, in thousandths of one core.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cpu_millis: Option<u64>,
    /// The limit on processes and threads.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    pids: Option<u64>,
    #[schema(ignore)]
    network: NotImplemented,
    #[schema(ignore)]
    disk_mib: NotImplemented,
    /// The idle time in seconds after which the sandbox falls asleep, counted from now. 0 or `null`
    /// means never.
    #[serde(deserialize_with = "null_as_zero")]
    sleep_after_s: Option<u64>,
    /// Whether a call that works in the sandbox resumes it when it is paused.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    auto_resume: Option<bool>,
    /// The interval in seconds at which the server takes a snapshot, at least 60 unless the server is
    /// configured otherwise. 0 or `null` means never. A snapshot at an interval is no use of the
    /// sandbox, and none is taken while nothing has run since the last one.
    #[serde(deserialize_with = "null_as_zero")]
    snapshot_every_s: Option<u64>,
    /// How many snapshots at intervals exist, 1 to 100. The server deletes the oldest ones.
    #[serde(deserialize_with = "not_null")]
    #[schema(minimum = 1, maximum = 100, nullable = false)]
    keep: Option<u64>,
    /// Whether the server takes a snapshot before it deletes the sandbox: for `DELETE`, and at the
    /// end of `ttl_s`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    snapshot_on_destroy: Option<bool>,
}

/// A sandbox of this server as a response has it.
pub(crate) fn view(app: &App, caller: &Caller, info: SandboxInfo) -> SandboxView {
    let placement = app.placement_of(caller, &info.id);
    SandboxView::from(info).placed(placement)
}

/// Create a sandbox
///
/// Answers once the agent inside the sandbox is ready. You rarely need this call to get started:
/// `exec`, `shell`, `sessions` and other calls that work in a sandbox create it with default
/// settings when it does not exist.
#[utoipa::path(
    post, path = "/v1/sandboxes", operation_id = "sandboxes_create", tag = "sandboxes",
    params(
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = CreateSandbox, example = json!({"id": "demo", "memory_mib": 1024, "network": {"allow": ["api.example.com"]}, "metadata": {"purpose": "docs"}, "env": {"LANG": "C.UTF-8"}})),
    responses(
        (status = 201, description = "The sandbox was created.", body = SandboxView, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")), example = json!({"id": "demo", "state": "running", "image": "host", "image_resolved": "host", "memory_mib": 1024, "cpu_millis": 1000, "pids": 512, "disk_mib": 10240, "network": "none", "persistent": true, "auto_resume": false, "snapshot_every_s": null, "keep": 5, "snapshot_on_destroy": false, "class": "node", "ttl_s": null, "expires_at_ms": null, "sleep_after_s": 600, "metadata": {"purpose": "docs"}, "env_names": ["LANG"], "created_at_ms": 1700000000000_i64, "create_ms": 4.2, "boots": 1, "agent_version": 5, "agent_outdated": false}))
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    claimed: Option<Extension<ClaimedId>>,
    headers: HeaderMap,
    body: StrictJson<CreateSandbox>,
) -> Result<Response, ApiError> {
    let once = idempotency_key(&headers, "POST /v1/sandboxes", &body.raw)?;
    let wish = body.value.wish(&app, &caller).await?;
    let wish = ClaimedId::complete(claimed, wish);
    let created_now = app.service.create(&caller.tenant, wish, once).await?;
    let location = format!("/v1/sandboxes/{}", created_now.info.id);
    let view = view(&app, &caller, created_now.info);
    Ok(created(&location, created_now.replayed, Json(view)))
}

/// List sandboxes
///
/// Returns the caller's sandboxes, sorted by id.
#[utoipa::path(
    get, path = "/v1/sandboxes", operation_id = "sandboxes_list", tag = "sandboxes",
    params(
        ("limit" = Option<u64>, Query),
        ("cursor" = Option<String>, Query)
    ),
    responses(
        (status = 200, description = "One page of sandboxes.", body = Vec<SandboxView>, headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one."), ("Isolet-Unreachable-Nodes" = String, description = "In a fleet: the nodes that did not answer, separated by commas. Their sandboxes are missing."), ("Isolet-Missing" = String, description = "`stored`: in a fleet whose etcd cannot be reached, sandboxes that only the object store has are missing.")))
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    let paging = Pagination::of(&uri, PAGE)?;
    let page = lists::stored::page(&app, &caller, &paging).await?;
    let is_incomplete = page.is_incomplete;
    let shown = page.items.into_iter().map(|one| match one {
        Listed::Here(info) => view(&app, &caller, info),
        Listed::Stored(away) => SandboxView::from(away.info).in_store(away.region),
    });
    let page = IdPage { items: shown.collect(), last: page.last };
    let mut response = paging.answer::<SandboxView, SandboxView>("/v1/sandboxes", page);
    if is_incomplete {
        response.headers_mut().insert(lists::MISSING, lists::STORED);
    }
    Ok(response)
}

/// Get a sandbox
///
/// A running or paused sandbox is returned with its current resource usage. Does not wake a sleeping
/// sandbox, and does not resume a paused one.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}", operation_id = "sandboxes_get", tag = "sandboxes",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The sandbox.", body = SandboxView, example = json!({"id": "demo", "state": "running", "image": "host", "image_resolved": "host", "memory_mib": 1024, "cpu_millis": 1000, "pids": 512, "disk_mib": 10240, "network": "none", "persistent": true, "auto_resume": false, "snapshot_every_s": null, "keep": 5, "snapshot_on_destroy": false, "class": "node", "ttl_s": null, "expires_at_ms": null, "sleep_after_s": 600, "metadata": {"purpose": "docs"}, "env_names": ["LANG"], "created_at_ms": 1700000000000_i64, "create_ms": 4.2, "boots": 1, "agent_version": 5, "agent_outdated": false}))
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SandboxView>, ApiError> {
    let info = app.service.get(&caller.tenant, &ids.sandbox).await?;
    // To reach a sandbox that is being created would wait for its creation.
    if !matches!(info.state, SandboxState::Running | SandboxState::Paused) {
        return Ok(Json(view(&app, &caller, info)));
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
    Ok(Json(view(&app, &caller, info).using(usage)))
}

/// Update a sandbox
///
/// Changes every field in the body, or none of them if one is refused. Fields that are left out
/// keep their value.
#[utoipa::path(
    patch, path = "/v1/sandboxes/{id}", operation_id = "sandboxes_update", tag = "sandboxes",
    params(
        ("id" = String, Path)
    ),
    request_body = ChangeSandbox,
    responses(
        (status = 200, description = "The sandbox after the change.", body = SandboxView)
    )
)]
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
        stop_lifetime: false,
        sleep_after_s: change.sleep_after_s,
        auto_resume: change.auto_resume,
        pause_on_expiry: None,
        metadata: change.metadata.map(|new| Metadata::parse(new.0)).transpose()?,
        env: EnvironmentChange::parse(change.env.0)?,
        memory_mib: change.memory_mib,
        cpu_millis: change.cpu_millis,
        pids: change.pids,
        snapshots: AutoSnapshotsChange {
            every_s: change.snapshot_every_s,
            keep: change.keep,
            on_destroy: change.snapshot_on_destroy,
        },
    };
    let info = app.service.patch(&caller.tenant, &ids.sandbox, patch).await?;
    Ok(Json(view(&app, &caller, info)))
}

/// Delete a sandbox
///
/// Ends everything in the sandbox and removes its files. Does not wait for running commands.
/// Answers with the last state of the sandbox and the resources that it used. If its
/// `snapshot_on_destroy` is set, a snapshot is taken first, which `snapshot` names; if that fails, the
/// sandbox is not deleted. In a fleet, a sandbox whose node was declared dead is only forgotten: the
/// answer then has nothing but `id` and `state`.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}", operation_id = "sandboxes_delete", tag = "sandboxes",
    params(
        ("id" = String, Path),
        ("force" = Option<bool>, Query, description = "Delete the sandbox without a snapshot.")
    ),
    responses(
        (status = 200, description = "The deleted sandbox, in state `destroyed`.", body = SandboxView)
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<SandboxView>, ApiError> {
    let force = Query::of(&uri, &["force"])?.flag("force")?;
    let placement = app.placement_of(&caller, &ids.sandbox);
    let ended = match force {
        true => app.service.delete_without_snapshot(&caller.tenant, &ids.sandbox).await?,
        false => app.service.delete(&caller.tenant, &ids.sandbox).await?,
    };
    Ok(Json(SandboxView::from(ended).placed(placement)))
}

/// Recover a failed sandbox
///
/// Puts a failed sandbox to sleep, with its files and the saved state of its shells. The next call
/// that works in it wakes it. A sandbox that has not failed stays as it is. A sandbox that is not
/// persistent cannot be recovered (409); its files can be read until it is deleted.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/recover", operation_id = "sandboxes_recover", tag = "sandboxes",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The sandbox, and what is lost.", body = RecoveredView)
    )
)]
pub(crate) async fn recover(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<RecoveredView>, ApiError> {
    let recovered = app.service.recover(&caller.tenant, &ids.sandbox).await?;
    Ok(Json(RecoveredView::from(recovered)))
}

/// Pause a sandbox
///
/// Freezes all processes of the sandbox and answers once none of them runs. They keep their memory,
/// and connections of clients stay open. Timeouts of commands do not count the pause; `ttl_s` does.
/// Calls that work in the sandbox answer 409 `sandbox_paused`, or resume it if its `auto_resume` is
/// set. A paused sandbox stays as it is.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/pause", operation_id = "sandboxes_pause", tag = "sandboxes",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The sandbox, in state `paused`.", body = SandboxView)
    )
)]
pub(crate) async fn pause(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SandboxView>, ApiError> {
    let info = app.service.pause(&caller.tenant, &ids.sandbox).await?;
    Ok(Json(view(&app, &caller, info)))
}

/// Resume a paused sandbox
///
/// Lets all its processes continue where they were frozen. A running or sleeping sandbox stays as it
/// is.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/resume", operation_id = "sandboxes_resume", tag = "sandboxes",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The sandbox, in state `running` unless it was asleep.", body = SandboxView)
    )
)]
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SandboxView>, ApiError> {
    let info = app.service.resume(&caller.tenant, &ids.sandbox).await?;
    Ok(Json(view(&app, &caller, info)))
}

/// Put a sandbox to sleep
///
/// Answers once nothing runs in the sandbox. Shells and background jobs end; the files of a
/// persistent sandbox stay. The next call that works in the sandbox wakes it, and its answer lists
/// in `lost` what the sleep ended. Refused with 409 `sandbox_in_use` while a command runs or a
/// client is attached, unless `force` is set: what runs is then killed, and calls in it answer 409
/// `sandbox_slept`. The files stay as they are at that moment, and a shell in which a command runs
/// comes back with the state that was saved last. A paused sandbox continues for the moment that saving its shells takes; if it
/// is in use, it is paused again.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/sleep", operation_id = "sandboxes_sleep", tag = "sandboxes",
    params(
        ("id" = String, Path),
        ("force" = Option<bool>, Query, description = "Sleep although commands run or clients are attached.")
    ),
    responses(
        (status = 200, description = "The sandbox, in state `sleeping`.", body = SandboxView)
    )
)]
pub(crate) async fn sleep(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<SandboxView>, ApiError> {
    let force = Query::of(&uri, &["force"])?.flag("force")?;
    let how = if force { SleepMode::Forced } else { SleepMode::Unused };
    let info = app.service.sleep(&caller.tenant, &ids.sandbox, how).await?;
    Ok(Json(view(&app, &caller, info)))
}
