//! Files of a run, by `?path=`. They are streamed, so that no size costs memory.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        error::ApiError,
        input::{self, PathIds},
        json::reject_content_encoding,
        query::Query,
    },
    routes::files::{content::raw, upload::receive},
};
use axum::{
    Json,
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::Response,
};
use isolet_sandbox::{Sandbox, files::ENTRIES_MAX, service::Access};
use serde::Serialize;
use utoipa::ToSchema;

/// The permission bits of a new file.
const MODE: u32 = 0o644;

async fn reach(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    reach: Access,
) -> Result<Sandbox, ApiError> {
    Ok(app.service.reach(&caller.tenant, &ids.sandbox, reach).await?)
}

fn path(uri: &Uri) -> Result<Vec<u8>, ApiError> {
    input::path(Query::of(uri, &["path"])?.bytes("path"))
}

/// Writes a whole file; its parents are made.
#[utoipa::path(post, path = "/v1/runs/{id}/files/upload", tag = "isorun",
    params(("id" = String, Path), ("path" = String, Query)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200), (status = "4XX", body = ApiError)))]
pub(crate) async fn upload(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let path = path(request.uri())?;
    reject_content_encoding(request.headers())?;
    let sandbox = reach(&app, &caller, &ids, Access::MustExist).await?;
    let mut writer = sandbox.file_write(&path, MODE).await?;
    receive(request.into_body(), &mut writer).await?;
    writer.finish().await?;
    Ok(StatusCode::OK)
}

/// Reads a whole file.
#[utoipa::path(get, path = "/v1/runs/{id}/files/download", tag = "isorun",
    params(("id" = String, Path), ("path" = String, Query)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>), (status = "4XX", body = ApiError)))]
pub(crate) async fn download(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Response, ApiError> {
    let sandbox = reach(&app, &caller, &ids, Access::Read).await?;
    let reader = sandbox.file_read(&path(&uri)?, 0, None).await?;
    Ok(raw(reader))
}

/// Names in a directory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Names {
    entries: Vec<String>,
}

/// Lists a directory.
#[utoipa::path(get, path = "/v1/runs/{id}/files", tag = "isorun",
    params(("id" = String, Path), ("path" = String, Query)),
    responses((status = 200, body = Names), (status = "4XX", body = ApiError)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Names>, ApiError> {
    let sandbox = reach(&app, &caller, &ids, Access::Read).await?;
    let entries = sandbox.file_list(&path(&uri)?, ENTRIES_MAX).await?;
    let entries = entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned());
    Ok(Json(Names { entries: entries.collect() }))
}
