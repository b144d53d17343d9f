//! Files of a run, by `?path=`. They are streamed, so that large files need no memory.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::binary::Binary;
use crate::foundation::error::ApiError;
use crate::foundation::input::{self, PathIds};
use crate::foundation::json::reject_content_encoding;
use crate::foundation::query::Query;
use crate::routes::files::content::raw;
use crate::routes::files::upload::receive;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use isolet_sandbox::Sandbox;
use isolet_sandbox::files::ENTRIES_MAX;
use isolet_sandbox::service::Access;
use isolet_wire::request::{ByteRange, WriteOptions};
use serde::Serialize;
use utoipa::ToSchema;

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

/// Write a file of a run
///
/// Creates missing parent directories.
#[utoipa::path(
    post, path = "/v1/runs/{id}/files/upload", operation_id = "runs_files_upload", tag = "isorun",
    params(
        ("id" = String, Path),
        ("path" = String, Query, description = "The absolute path, or one that starts in `/workspace`.")
    ),
    request_body(content = inline(Binary), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The file was written.")
    )
)]
pub(crate) async fn upload(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let path = path(request.uri())?;
    reject_content_encoding(request.headers())?;
    let sandbox = reach(&app, &caller, &ids, Access::MustExist).await?;
    let mut writer = sandbox.file_save(&path, WriteOptions::default()).await?;
    receive(request.into_body(), &mut writer).await?;
    writer.save().await?;
    Ok(StatusCode::OK)
}

/// Read a file of a run
#[utoipa::path(
    get, path = "/v1/runs/{id}/files/download", operation_id = "runs_files_download", tag = "isorun",
    params(
        ("id" = String, Path),
        ("path" = String, Query, description = "The absolute path, or one that starts in `/workspace`.")
    ),
    responses(
        (status = 200, description = "The bytes of the file.", content_type = "application/octet-stream", body = inline(Binary))
    )
)]
pub(crate) async fn download(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Response, ApiError> {
    let sandbox = reach(&app, &caller, &ids, Access::Read).await?;
    let reader = sandbox.file_read(&path(&uri)?, ByteRange::WHOLE).await?;
    Ok(raw(reader))
}

/// The names in a directory.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunFileNames)]
pub(crate) struct Names {
    /// The names of the entries.
    entries: Vec<String>,
}

/// List a directory of a run
#[utoipa::path(
    get, path = "/v1/runs/{id}/files", operation_id = "runs_files_list", tag = "isorun",
    params(
        ("id" = String, Path),
        ("path" = String, Query, description = "The absolute path, or one that starts in `/workspace`.")
    ),
    responses(
        (status = 200, description = "The names in the directory.", body = Names)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Names>, ApiError> {
    let sandbox = reach(&app, &caller, &ids, Access::Read).await?;
    let entries = sandbox.file_list(&path(&uri)?, ENTRIES_MAX).await?;
    let entries = entries.iter().map(|e| String::from_utf8_lossy(&e.path).into_owned());
    Ok(Json(Names { entries: entries.collect() }))
}
