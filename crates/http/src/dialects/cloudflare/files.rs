//! `/v1/sandbox/{id}/file/…`: reads and writes files.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::cloudflare::address::{sandbox, session, within};
use crate::dialects::cloudflare::error::{BridgeError, Done};
use crate::foundation::binary::Binary;
use crate::foundation::error::ApiError;
use crate::foundation::query::{Query, decode_path};
use crate::routes::files::content::raw;
use crate::routes::files::target::checked;
use crate::routes::files::upload::save;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use isolet_sandbox::Sandbox;
use isolet_sandbox::service::Access;
use isolet_wire::request::{ByteRange, WriteOptions};

/// Finds the sandbox, as its session sees it, and parses the path.
async fn open(
    app: &App,
    caller: &Caller,
    uri: &Uri,
    headers: &HeaderMap,
    reach: Access,
) -> Result<(Sandbox, Vec<u8>), BridgeError> {
    let mut parts = uri.path().splitn(6, '/').skip(3);
    let id = sandbox(parts.next().unwrap_or_default())?;
    let path = decode_path(parts.nth(1).unwrap_or_default());
    let path =
        path.ok_or_else(|| ApiError::bad_request("the path contains a malformed % escape"))?;
    let path =
        within(&[b"/", path.as_slice()].concat()).ok_or_else(|| BridgeError::outside("path"))?;
    let path = checked("path", &path)?;
    Query::of(uri, &[])?;
    let session = session(headers)?;
    let found = app.service.reach(&caller.tenant, &id, reach).await;
    let sandbox = found.map_err(|error| not_found(error.into()))?;
    let Some(session) = session else { return Ok((sandbox, path)) };
    sandbox.session_reach(&session).await?;
    Ok((sandbox.within(&session).await?, path))
}

/// Reports anything that is missing as a missing file.
fn not_found(failure: ApiError) -> BridgeError {
    let missing = failure.status() == StatusCode::NOT_FOUND;
    let same = BridgeError::from(failure);
    if missing { same.coded("workspace_read_not_found") } else { same }
}

/// Read a file in the workspace
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/file/{*path}", operation_id = "cloudflare_files_read", tag = "cloudflare",
    params(
        ("id" = String, Path),
        ("path" = String, Path, description = "An absolute path below `/workspace`, without its first slash."),
        ("Session-Id" = Option<String>, Header, description = "The session to use.")
    ),
    responses(
        (status = 200, description = "The bytes of the file.", content_type = "application/octet-stream", body = inline(Binary))
    )
)]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, BridgeError> {
    let (sandbox, path) = open(&app, &caller, &uri, &headers, Access::Read).await?;
    let reader = sandbox.file_read(&path, ByteRange::WHOLE).await;
    Ok(raw(reader.map_err(|error| not_found(error.into()))?))
}

/// Write a file in the workspace
///
/// Creates missing parent directories, and the sandbox if it does not exist.
#[utoipa::path(
    put, path = "/v1/sandbox/{id}/file/{*path}", operation_id = "cloudflare_files_write", tag = "cloudflare",
    params(
        ("id" = String, Path),
        ("path" = String, Path, description = "An absolute path below `/workspace`, without its first slash."),
        ("Session-Id" = Option<String>, Header, description = "The session to use.")
    ),
    request_body(content = inline(Binary), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The file was written.", body = Done)
    )
)]
pub(crate) async fn write(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> Result<Json<Done>, BridgeError> {
    let (sandbox, path) =
        open(&app, &caller, request.uri(), request.headers(), Access::CreateIfMissing).await?;
    save(&sandbox, &path, WriteOptions::default(), None, request).await?;
    Ok(Done::OK)
}
