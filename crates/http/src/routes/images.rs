//! Images: pull, list, import, export, make from snapshots, remove.

pub(crate) mod names;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::cancellation::Cancellation;
use crate::foundation::binary::Binary;
use crate::foundation::creation::{created, idempotency_key};
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::accepts_event_stream;
use crate::foundation::json::{SmallJson, StrictJson, not_null, reject_content_encoding};
use crate::foundation::query::{Query, decode_path};
use crate::foundation::upload_body::UploadBody;
use crate::routes::snapshots::parse_id;
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream};
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::image::{
    self, Image, ImageChanges, LayerFrom, LayerProgress, Origin, Platform, PrivateFileKind,
    Progress,
};
use isolet_sandbox::{CommitSpec, Error};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

/// The shortest interval of progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// An image to pull.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PullImage {
    /// The name of the image, as Docker writes it: `python:3.12-slim`, `ghcr.io/a/b@sha256:…`.
    image: String,
    /// The platform, such as `linux/amd64`. Defaults to the platform of the server.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    platform: Option<String>,
}

/// An image to make from a snapshot.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommitImage {
    /// The id or the name of the snapshot.
    snapshot: String,
    /// The name of the image: `tools:1`, `registry.example/a/b:1`. An image of the caller that has
    /// this name loses it.
    name: String,
    /// Make the files of the workspace the first content of the workspaces of sandboxes from the
    /// image.
    #[serde(default = "yes")]
    #[schema(default = true)]
    workspace: bool,
    /// Make the variables of the sandbox those of the image. They may hold secrets.
    #[serde(default)]
    env: bool,
    /// Let sandboxes from the image start with the sessions of the snapshot and the saved states of
    /// their shells: working directory, variables, functions, aliases, options. Variables may hold
    /// secrets.
    #[serde(default)]
    shells: bool,
}

fn yes() -> bool {
    true
}

/// Which images to remove.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CollectImages {
    /// Also remove images that have a name, if no sandbox uses them. Affects every tenant, so only
    /// the tenant `default` may set it.
    all: bool,
}

/// A container image that sandboxes can use.
// More than 12 fields: one for each member of the JSON object.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Image)]
pub(crate) struct ImageView {
    /// The digest of its manifest.
    digest: String,
    /// The names that the tenant has for it.
    names: Vec<String>,
    /// The platform that it is for.
    platform: String,
    /// Its size as pulled or imported, in bytes.
    bytes: u64,
    /// Its unpacked size, in bytes.
    unpacked_bytes: u64,
    /// The number of layers.
    layers: usize,
    /// The number of entries that were left out: device nodes and entries of unknown kinds.
    skipped: u64,
    /// The number of entries whose owner cannot exist in a sandbox. They belong to `nobody`.
    strangers: u64,
    /// Where its bash comes from: `own`, or the static bash of the host placed in `bin` or
    /// `usr_bin`.
    shell: String,
    /// Where shells and programs start. `null` means `/workspace`.
    #[schema(required = true)]
    working_dir: Option<String>,
    /// The user that runs shells and programs.
    user: String,
    /// The id of that user.
    uid: u32,
    /// The group id of that user.
    gid: u32,
    /// The tenant whose names it has: the caller, or the one whose images everyone may use.
    owner: String,
    /// Where it comes from: `registry`, `archive` or `snapshot`.
    source: &'static str,
    /// Whether its lowest layer is the programs of the server's machine.
    on_host: bool,
    /// Whether sandboxes from it start with files in their workspace.
    workspace: bool,
    /// Whether sandboxes from it start with sessions and the saved states of their shells.
    shells: bool,
    /// When it was pulled, imported or made, in milliseconds since 1970.
    pulled_at_ms: i64,
}

/// An image that was made from a snapshot.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CommittedImage)]
pub(crate) struct CommitView {
    /// The image.
    #[serde(flatten)]
    image: ImageView,
    /// The name under which it was recorded, in full.
    name: String,
    /// The id of the snapshot.
    snapshot: String,
    /// Files in the image that usually hold secrets, found by their names; at most 100.
    warnings: Vec<PrivateFileView>,
    /// How many such files there are.
    warnings_total: u64,
}

/// A file in an image that usually holds secrets.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PrivateFile)]
pub(crate) struct PrivateFileView {
    /// Its path in the image.
    path: String,
    /// What it usually holds: `credentials` or `history`.
    kind: &'static str,
}

/// How much was removed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CollectedImages)]
pub(crate) struct Collected {
    /// The number of removed images.
    images: u64,
    /// The number of removed layers.
    layers: u64,
}

impl ImageView {
    fn of(image: &Image, tenant: &str) -> Self {
        let names = image.names.get(tenant).into_iter().flatten().cloned().collect();
        let shell = serde_json::to_value(image.shell).ok();
        Self {
            digest: image.digest.clone(),
            names,
            platform: image.platform.clone(),
            bytes: image.bytes,
            unpacked_bytes: image.unpacked_bytes,
            layers: image.root.layers.len().saturating_sub(1),
            source: source(image, tenant),
            owner: tenant.to_owned(),
            on_host: image.root.is_on_host(),
            workspace: image.root.workspace.is_some(),
            shells: image.sessions.is_some(),
            skipped: image.stats.skipped,
            strangers: image.stats.unmapped_owners,
            shell: shell.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default(),
            working_dir: image.root.cwd.clone(),
            user: image.root.user.name.clone(),
            uid: image.root.user.uid,
            gid: image.root.user.gid,
            pulled_at_ms: image.pulled_at_ms,
        }
    }
}

fn source(image: &Image, tenant: &str) -> &'static str {
    match image.origin(tenant) {
        Origin::Registry => "registry",
        Origin::Archive => "archive",
        Origin::Snapshot => "snapshot",
    }
}

/// List images
///
/// Returns the caller's images, newest first.
#[utoipa::path(
    get, path = "/v1/images", operation_id = "images_list", tag = "images",
    responses(
        (status = 200, description = "The images.", body = Vec<ImageView>)
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Json<Vec<ImageView>> {
    let all = app.service.images(&caller.tenant);
    Json(all.iter().map(|image| ImageView::of(image, caller.tenant.as_str())).collect())
}

/// Make an image from a snapshot
///
/// The image has the layers of the sandbox's image, or the programs of the server's machine, and one
/// new layer with what the sandbox changed. Only the caller's tenant can use it. It contains sessions
/// and the states of shells only with `shells`; the files that the snapshot has may hold secrets:
/// `warnings` lists those whose names say so. Answers when the image is complete.
#[utoipa::path(
    post, path = "/v1/images", operation_id = "images_commit", tag = "images",
    params(
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = CommitImage, example = json!({"snapshot": "installed", "name": "tools:1"})),
    responses(
        (status = 201, description = "The image is complete.", body = CommitView, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")))
    )
)]
pub(crate) async fn commit(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: StrictJson<CommitImage>,
) -> Result<Response, ApiError> {
    let once = idempotency_key(&headers, "POST /v1/images", &body.raw)?;
    let CommitImage { snapshot, name, workspace, env, shells } = body.value;
    let snapshot = parse_id(&snapshot)?;
    let spec = CommitSpec {
        snapshot,
        name,
        workspace,
        env,
        shells,
        changes: ImageChanges::default(),
        more_names: Vec::new(),
    };
    let (info, replayed) = app.service.commit_image(&caller.tenant, spec, once).await?;
    let location = format!("/v1/images/{}", info.name);
    let warnings = info.private_files.into_iter().map(|file| PrivateFileView {
        path: file.path,
        kind: match file.kind {
            PrivateFileKind::Credentials => "credentials",
            PrivateFileKind::History => "history",
        },
    });
    let view = CommitView {
        image: ImageView::of(&info.image, caller.tenant.as_str()),
        name: info.name,
        snapshot: info.snapshot.into(),
        warnings: warnings.collect(),
        warnings_total: info.private_files_count,
    };
    Ok(created(&location, replayed, Json(view)))
}

/// The image name in the path, percent-encoded or not, with its slashes.
fn name(uri: &Uri) -> Result<String, ApiError> {
    let text = uri.path().strip_prefix("/v1/images/").unwrap_or_default();
    let bytes = decode_path(text)
        .ok_or_else(|| ApiError::bad_request("the path contains a malformed % escape"))?;
    String::from_utf8(bytes).map_err(|_| ApiError::bad_request("the image's name must be UTF-8"))
}

/// Get an image
///
/// Finds the image by one of the names that the caller has for it.
#[utoipa::path(
    get, path = "/v1/images/{*image}", operation_id = "images_get", tag = "images",
    params(
        ("image" = String, Path, description = "A name of the image, such as `ghcr.io/a/b:1`. Slashes may be sent as they are or percent-encoded.")
    ),
    responses(
        (status = 200, description = "The image.", body = ImageView)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<ImageView>, ApiError> {
    let image = app.service.find_image(&caller.tenant, &name(&uri)?)?;
    let mut view = ImageView::of(&image, caller.tenant.as_str());
    if !image.names.contains_key(caller.tenant.as_str())
        && let Some(shared) = app.service.shared_images()
    {
        view.source = source(&image, shared);
        view.owner = shared.to_owned();
    }
    Ok(Json(view))
}

/// Remove a name of an image
///
/// The image itself is removed with its last name. Refused with 409 `image_in_use` while a sandbox
/// uses it.
#[utoipa::path(
    delete, path = "/v1/images/{*image}", operation_id = "images_delete", tag = "images",
    params(
        ("image" = String, Path, description = "A name of the image, such as `ghcr.io/a/b:1`. Slashes may be sent as they are or percent-encoded.")
    ),
    responses(
        (status = 204, description = "The name was removed.")
    )
)]
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    app.service.remove_image(&caller.tenant, &name(&uri)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pull an image from a registry
///
/// Answers when the image is available. With `Accept: text/event-stream`, the server reports the
/// progress as events: `progress` with `{phase, done, total, layers: [{digest, done, total,
/// ready, from, node}]}`, then `done` with the image, or `error`. A pull continues when its client disconnects.
/// A second pull of the same image waits for the first one.
#[utoipa::path(
    post, path = "/v1/images/pull", operation_id = "images_pull", tag = "images",
    request_body(content = PullImage, example = json!({"image": "python:3.12-slim"})),
    responses(
        (status = 200, description = "The image, or with `Accept: text/event-stream` a stream of progress events.", content((ImageView = "application/json"), (String = "text/event-stream")))
    )
)]
pub(crate) async fn pull(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: SmallJson<PullImage>,
) -> Result<Response, ApiError> {
    let platform = match &body.value.platform {
        Some(text) => Platform::parse(text).ok_or_else(|| {
            ApiError::bad_field("platform", "must be a platform such as linux/amd64")
        })?,
        None => Platform::own(),
    };
    let mut progress = app.service.pull(&caller.tenant, &body.value.image, platform)?;
    let tenant = caller.tenant.to_string();
    if accepts_event_stream(&headers).is_some() {
        let cancellation = app.cancellations.subscribe(&caller);
        return Ok(pull_events(progress, tenant, cancellation));
    }
    let ended = progress.wait_for(|now| now.end.is_some()).await;
    let end = ended.map_err(|_| fault())?.end.clone();
    let (image, _) = end.ok_or_else(fault)?.map_err(Error::from)?;
    Ok(Json(ImageView::of(&image, &tenant)).into_response())
}

fn fault() -> ApiError {
    Error::Fault("the task of the pull failed".into()).into()
}

/// The progress of a pull.
struct PullEvents {
    progress: watch::Receiver<Progress>,
    tenant: String,
    /// When the next event may be sent; `None` before the first.
    next_at: Option<Instant>,
}

/// Streams progress events up to the end of the pull.
fn pull_events(
    progress: watch::Receiver<Progress>,
    tenant: String,
    cancellation: Cancellation,
) -> Response {
    let events = PullEvents { progress, tenant, next_at: None };
    EventStream::new(Some(events), EventBuffer::default(), cancellation).into_response()
}

impl EventSource for PullEvents {
    type Item = Progress;

    async fn next(&mut self) -> Result<Progress, ApiError> {
        if let Some(next_at) = self.next_at {
            sleep_until(next_at).await;
            self.progress.changed().await.map_err(|_| fault())?;
        }
        self.next_at = Some(Instant::now() + PROGRESS_INTERVAL);
        Ok(self.progress.borrow_and_update().clone())
    }

    fn write(&mut self, now: Progress, out: &mut EventBuffer) -> ControlFlow<()> {
        out.event(None, "progress", &ProgressEvent::from(&now));
        match &now.end {
            None => return ControlFlow::Continue(()),
            Some(Ok((image, _))) => out.event(None, "done", &ImageView::of(image, &self.tenant)),
            Some(Err(error)) => self.write_error(&Error::from(error.clone()).into(), out),
        }
        ControlFlow::Break(())
    }
}

/// The data of `progress`. Sizes are in bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProgressEvent<'a> {
    /// Bytes of all layers that have arrived.
    done: u64,
    /// The progress of each layer.
    layers: Vec<LayerView<'a>>,
    /// What the server is doing: `resolving`, `layers` or `finishing`.
    phase: &'static str,
    /// The size of all layers, in bytes.
    total: u64,
}

/// The progress of one layer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LayerView<'a> {
    /// The digest of the compressed layer.
    digest: &'a str,
    /// Bytes that have arrived.
    done: u64,
    /// Where the layer comes from: `disk` if the server had it, `registry`, or `node` for another node of
    /// the fleet; missing until that is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    /// The name of that node.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    /// Whether the layer is unpacked.
    ready: bool,
    /// Its size, in bytes.
    total: u64,
}

impl<'a> From<&'a Progress> for ProgressEvent<'a> {
    fn from(now: &'a Progress) -> Self {
        let arrived = |one: &LayerProgress| if one.ready { one.total } else { one.done };
        let layer = |one: &'a LayerProgress| LayerView {
            digest: &one.digest,
            done: one.done,
            from: one.from.as_ref().map(|from| match from {
                LayerFrom::Disk => "disk",
                LayerFrom::Registry => "registry",
                LayerFrom::Node(_) => "node",
            }),
            node: match &one.from {
                Some(LayerFrom::Node(node)) => Some(node),
                _ => None,
            },
            ready: one.ready,
            total: one.total,
        };
        Self {
            done: now.layers.iter().map(arrived).sum(),
            layers: now.layers.iter().map(layer).collect(),
            phase: now.phase.word(),
            total: now.layers.iter().map(|one| one.total).sum(),
        }
    }
}

/// Import an image from an archive
///
/// The body is a tar archive in the OCI layout or as written by `docker save`, also compressed.
#[utoipa::path(
    post, path = "/v1/images/import", operation_id = "images_import", tag = "images",
    params(
        ("name" = Option<String>, Query, description = "The name of the imported image. Defaults to the names in the archive.")
    ),
    request_body(content = inline(Binary), content_type = "application/x-tar"),
    responses(
        (status = 201, description = "The imported image.", body = ImageView)
    )
)]
pub(crate) async fn import(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let uri = request.uri().clone();
    let query = Query::of(&uri, &["name"])?;
    let name = query.text("name")?;
    reject_content_encoding(request.headers())?;
    let mut spool = app.service.spool_image(&caller.tenant).await?;
    let mut body = UploadBody::new(request.into_body(), app.service.pull_timeout());
    while let Some(bytes) = body.next().await? {
        spool.write(&bytes).await.map_err(Error::from)?;
    }
    let image = app.service.import_image(&caller.tenant, spool, name).await?;
    let view = ImageView::of(&image, caller.tenant.as_str());
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

/// Export an image as an archive
///
/// The answer is a tar archive with an OCI image layout, which `POST /v1/images/import` and tools
/// such as podman read. The server packs the layers before it answers, which takes time; their
/// digests are not those of a registry. The archive of an image on the programs of the server's
/// machine contains these, without their data.
#[utoipa::path(
    get, path = "/v1/images/export", operation_id = "images_export", tag = "images",
    params(
        ("name" = String, Query, description = "A name of the image.")
    ),
    responses(
        (status = 200, description = "The archive.", content_type = "application/x-tar", body = inline(Binary))
    )
)]
pub(crate) async fn export(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = Query::of(&uri, &["name"])?;
    let name = query.text("name")?.ok_or_else(|| ApiError::bad_field("name", "is missing"))?;
    let archive = app.service.export_image(&caller.tenant, name).await?;
    let length = archive.bytes();
    let pieces = futures_util::stream::try_unfold(archive, |mut archive| async move {
        let piece = archive.next().await?;
        Ok::<_, image::Error>(piece.map(|piece| (piece, archive)))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar")),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Remove unused images
///
/// Removes images without a name, and layers that no image uses.
#[utoipa::path(
    post, path = "/v1/images/gc", operation_id = "images_collect_garbage", tag = "images",
    request_body = CollectImages,
    responses(
        (status = 200, description = "How much was removed.", body = Collected)
    )
)]
pub(crate) async fn gc(
    State(app): State<App>,
    caller: Caller,
    body: SmallJson<CollectImages>,
) -> Result<Json<Collected>, ApiError> {
    if body.value.all && caller.tenant.as_str() != "default" {
        let hint = "remove your own images with DELETE /v1/images/{image}";
        let message = "`all` removes images of every tenant";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "not_yours", message, hint));
    }
    let (images, layers) = app.service.collect_images(body.value.all).await?;
    Ok(Json(Collected { images, layers }))
}
