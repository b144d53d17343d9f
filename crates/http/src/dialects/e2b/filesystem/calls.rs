//! Unary calls about single files.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::unary::Unary;
use crate::dialects::e2b::connect::{Code, RpcError};
use crate::dialects::e2b::filesystem::entry::{EntryInfo, about, is_missing};
use crate::dialects::e2b::filesystem::reach;
use crate::dialects::e2b::templates::started::Defaults;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use isolet_wire::request::PathPair;
use isolet_wire::response::FileKind;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PathRequest {
    path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MoveRequest {
    source: String,
    destination: String,
}

#[derive(Debug, Serialize)]
pub(super) struct EntryResponse {
    entry: EntryInfo,
}

#[derive(Debug, Serialize)]
pub(super) struct Empty {}

/// Describes a file; for a symbolic link, its target.
pub(super) async fn stat(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    Unary(wish): Unary<PathRequest>,
) -> Result<Json<EntryResponse>, RpcError> {
    let sandbox = reach(&app, &caller, &ids).await?;
    let path = Defaults::user(&sandbox, &headers)?.resolve(&wish.path)?;
    Ok(Json(EntryResponse { entry: EntryInfo::read(&sandbox, path).await? }))
}

/// Creates a directory with its parents. An existing one is an error.
pub(super) async fn make_dir(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    Unary(wish): Unary<PathRequest>,
) -> Result<Json<EntryResponse>, RpcError> {
    let sandbox = reach(&app, &caller, &ids).await?;
    let path = Defaults::user(&sandbox, &headers)?.resolve(&wish.path)?;
    match sandbox.file_look(path.as_bytes(), true).await.map_err(RpcError::from) {
        Ok(found) if found.stat.kind == FileKind::Directory => {
            let message = format!("directory already exists: {path}");
            return Err(RpcError::new(Code::AlreadyExists, message));
        }
        Ok(_) => {
            let message = format!("path already exists but it is not a directory: {path}");
            return Err(RpcError::invalid(message));
        }
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(about(&path, error)),
    }
    sandbox.file_mkdir(path.as_bytes()).await.map_err(|error| about(&path, error))?;
    Ok(Json(EntryResponse { entry: EntryInfo::read(&sandbox, path).await? }))
}

/// Renames a file or directory, and replaces a file at the destination.
pub(super) async fn rename(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    Unary(wish): Unary<MoveRequest>,
) -> Result<Json<EntryResponse>, RpcError> {
    let sandbox = reach(&app, &caller, &ids).await?;
    let user = Defaults::user(&sandbox, &headers)?;
    let from = user.resolve(&wish.source)?;
    let to = user.resolve(&wish.destination)?;
    let pair = PathPair { from: from.clone().into(), to: to.clone().into(), replace: true };
    sandbox.file_move(pair).await.map_err(|error| about(&from, error))?;
    Ok(Json(EntryResponse { entry: EntryInfo::read(&sandbox, to).await? }))
}

/// Removes a file or a directory with its contents. A missing one is no error.
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    Unary(wish): Unary<PathRequest>,
) -> Result<Json<Empty>, RpcError> {
    let sandbox = reach(&app, &caller, &ids).await?;
    let path = Defaults::user(&sandbox, &headers)?.resolve(&wish.path)?;
    match sandbox.file_remove(path.as_bytes(), true).await.map_err(RpcError::from) {
        Ok(()) => {}
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(about(&path, error)),
    }
    Ok(Json(Empty {}))
}
