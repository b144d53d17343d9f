//! Files that a template copies. The SDKs ask for a URL, and send the archive to it without a key.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::templates::catalog::TemplateName;
use crate::foundation::base_url::BaseUrl;
use crate::foundation::error::ApiError;
use crate::foundation::query::Query;
use crate::routes::builds::receive;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use isolet_build::{FilesName, UploadGrant};
use serde::Serialize;

/// How long a URL for an upload is valid, in milliseconds. The upload itself may take longer.
const VALID_MS: i64 = 3600 * 1000;
/// The parameter that holds the token.
const TOKEN: &str = "token";

#[derive(Debug, Serialize)]
pub(super) struct UploadLink {
    present: bool,
    url: String,
}

fn files_name(hash: &str) -> Result<FilesName, ApiError> {
    FilesName::parse(hash).ok_or_else(|| ApiError::bad_field("hash", "64 digits of 0-9a-f"))
}

/// Whether the server has files, and the URL for their upload.
pub(super) async fn link(
    State(app): State<App>,
    caller: Caller,
    base: BaseUrl,
    Path((template, hash)): Path<(String, String)>,
) -> Result<(StatusCode, Json<UploadLink>), E2bError> {
    let name = TemplateName::parse(&template)?.name;
    let files = files_name(&hash)?;
    if caller.read_only {
        let hint = "use a key that may write";
        let message = "the key may only read";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "read_only", message, hint).into());
    }
    let found = app.builder.files(&caller.tenant, &files).await?;
    let grant = UploadGrant {
        tenant: caller.tenant.clone(),
        key: caller.key.clone(),
        expires_ms: isolet_clock::now_ms() + VALID_MS,
    };
    let token = app.builder.upload_token(&grant, &files);
    let origin = base.origin(None);
    let name = name.replace('/', "%2F");
    let url = format!("{origin}/templates/{name}/files/{hash}?{TOKEN}={token}");
    Ok((StatusCode::CREATED, Json(UploadLink { present: found.is_some(), url })))
}

/// The caller of an upload, by the token in its URL.
///
/// # Errors
/// 401 without a valid one.
pub(crate) fn authenticate(app: &App, uri: &Uri) -> Result<Caller, ApiError> {
    let refused = || {
        let message = "the URL of the upload is invalid, has expired, or was revoked";
        let hint = "request another one";
        ApiError::new(StatusCode::UNAUTHORIZED, "bad_link", message, hint)
    };
    let hash = uri.path().rsplit('/').next().unwrap_or_default();
    let files = FilesName::parse(hash).ok_or_else(refused)?;
    let query = Query::of(uri, &[TOKEN])?;
    let token = query.text(TOKEN)?.unwrap_or_default();
    let grant = app.builder.verify_upload(token, &files).ok_or_else(refused)?;
    let keys = app.service.keys();
    let is_valid = grant.key.as_deref().is_none_or(|key| keys.is_valid(key).unwrap_or(false));
    if !is_valid {
        return Err(refused());
    }
    Ok(Caller {
        tenant: grant.tenant,
        read_only: false,
        key: grant.key,
        ticket_scope: None,
        forwarded: false,
    })
}

/// Receives an archive.
pub(super) async fn put(
    State(app): State<App>,
    caller: Caller,
    Path((_, hash)): Path<(String, String)>,
    request: Request,
) -> Result<StatusCode, E2bError> {
    let upload = app.builder.receive(&caller.tenant, files_name(&hash)?).await?;
    receive(&app, upload, request.into_body()).await?;
    Ok(StatusCode::OK)
}
