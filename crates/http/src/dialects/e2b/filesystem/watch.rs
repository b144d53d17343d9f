//! Watches of directories: as a stream, and as a watcher that the client polls.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::envelope::{EnvelopeReader, Envelopes};
use crate::dialects::e2b::connect::stream::{MessageSource, Pace, respond};
use crate::dialects::e2b::connect::unary::Unary;
use crate::dialects::e2b::connect::{RpcError, timeout};
use crate::dialects::e2b::filesystem::changes::FilesystemEvent;
use crate::dialects::e2b::filesystem::directory_watch::DirectoryWatch;
use crate::dialects::e2b::filesystem::entry::about;
use crate::dialects::e2b::filesystem::reach;
use crate::dialects::e2b::filesystem::watchers::WatcherOwner;
use crate::dialects::e2b::templates::started::Defaults;
use crate::dialects::e2b::user::User;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use isolet_sandbox::Sandbox;
use isolet_wire::response::FileKind;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WatchRequest {
    path: String,
    recursive: bool,
    #[serde(alias = "include_entry")]
    include_entry: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum WatchMessage {
    Start {},
    Filesystem(Box<FilesystemEvent>),
    Keepalive {},
}

/// Streams the changes in a directory.
pub(super) async fn watch(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Response {
    let cancellation = app.cancellations.subscribe(&caller);
    respond(begin(&app, &caller, &ids, request).await, cancellation)
}

async fn begin(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    request: Request,
) -> Result<(Changes, Envelopes, Pace), RpcError> {
    let (parts, body) = request.into_parts();
    let timeout = timeout(&parts.headers)?;
    let wish: WatchRequest = EnvelopeReader::new(&parts, body)?.only().await?;
    let sandbox = reach(app, caller, ids).await?;
    let user = Defaults::user(&sandbox, &parts.headers)?;
    let watcher = open(&sandbox, user, &wish).await?;
    let mut first = Envelopes::default();
    first.message(&WatchMessage::Start {});
    Ok((Changes(watcher), first, Pace::new(&parts.headers, timeout)))
}

async fn open(
    sandbox: &Sandbox,
    user: User,
    wish: &WatchRequest,
) -> Result<DirectoryWatch, RpcError> {
    let path = user.resolve(&wish.path)?;
    let found = sandbox.file_look(path.as_bytes(), true).await.map_err(|e| about(&path, e))?;
    if found.stat.kind != FileKind::Directory {
        return Err(RpcError::invalid(format!("path {path} is not a directory")));
    }
    let watcher = sandbox.file_watch(path.as_bytes(), wish.recursive).await;
    let watcher = watcher.map_err(|error| about(&path, error))?;
    Ok(DirectoryWatch::new(watcher, sandbox.clone(), path, wish.include_entry))
}

struct Changes(DirectoryWatch);

impl MessageSource for Changes {
    /// `None` when the directory is gone.
    type Item = Option<Vec<FilesystemEvent>>;

    async fn next(&mut self) -> Result<Self::Item, RpcError> {
        self.0.next().await
    }

    fn write(
        &mut self,
        item: Self::Item,
        out: &mut Envelopes,
    ) -> ControlFlow<Result<(), RpcError>> {
        let Some(events) = item else { return ControlFlow::Break(Ok(())) };
        for event in events {
            out.message(&WatchMessage::Filesystem(Box::new(event)));
        }
        ControlFlow::Continue(())
    }

    fn keep_alive(&self, out: &mut Envelopes) {
        out.message(&WatchMessage::Keepalive {});
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WatcherId {
    #[serde(alias = "watcher_id")]
    watcher_id: String,
}

#[derive(Debug, Serialize)]
pub(super) struct EventsResponse {
    events: Vec<FilesystemEvent>,
}

#[derive(Debug, Serialize)]
pub(super) struct Empty {}

fn owner(caller: &Caller, ids: &PathIds) -> WatcherOwner {
    WatcherOwner { tenant: caller.tenant.clone(), sandbox: ids.sandbox.clone() }
}

/// Creates a watcher, whose events the client polls.
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    Unary(wish): Unary<WatchRequest>,
) -> Result<Json<WatcherId>, RpcError> {
    let sandbox = reach(&app, &caller, &ids).await?;
    let user = Defaults::user(&sandbox, &headers)?;
    app.e2b_watchers.check(&owner(&caller, &ids))?;
    let watcher = open(&sandbox, user, &wish).await?;
    let watcher_id = app.e2b_watchers.add(owner(&caller, &ids), watcher)?;
    Ok(Json(WatcherId { watcher_id }))
}

/// Returns the events since the last call.
pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Unary(wish): Unary<WatcherId>,
) -> Result<Json<EventsResponse>, RpcError> {
    let events = app.e2b_watchers.take(&owner(&caller, &ids), &wish.watcher_id).await?;
    Ok(Json(EventsResponse { events }))
}

/// Ends a watcher.
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Unary(wish): Unary<WatcherId>,
) -> Result<Json<Empty>, RpcError> {
    app.e2b_watchers.remove(&owner(&caller, &ids), &wish.watcher_id)?;
    Ok(Json(Empty {}))
}
