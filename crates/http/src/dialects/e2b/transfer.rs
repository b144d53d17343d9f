//! `/files`: the content of files, in both directions.

mod gzip;
mod multipart;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::address::or_gone;
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::file_signature::PARAMETERS;
use crate::dialects::e2b::metadata;
use crate::dialects::e2b::templates::started::Defaults;
use crate::dialects::e2b::user::User;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::query::Query;
use crate::routes::files::content::raw;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Error, Sandbox};
use isolet_wire::request::{ByteRange, FileAttributes, WriteOptions};
use isolet_wire::response::RefusalReason;
use serde::Serialize;

/// A file that was written.
#[derive(Debug, Serialize)]
pub(super) struct WrittenFile {
    path: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "FileAttributes::is_empty")]
    metadata: FileAttributes,
}

impl WrittenFile {
    fn new(path: String, metadata: FileAttributes) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        Self { path, name, kind: "file", metadata }
    }
}

/// The user and the path of a request.
struct Target {
    user: User,
    path: Option<String>,
    metadata: FileAttributes,
}

impl Target {
    fn of(sandbox: &Sandbox, uri: &Uri, headers: &HeaderMap) -> Result<Self, E2bError> {
        let query = Query::of(uri, &PARAMETERS)?;
        let user = match query.text("username")? {
            Some(name) if !name.is_empty() => User::parse(name),
            _ => Defaults::user(sandbox, headers),
        };
        let user = user.map_err(ApiError::from)?;
        let path = query.text("path")?.map(str::to_owned);
        Ok(Self { user, path, metadata: metadata::of_headers(headers)? })
    }

    fn resolve(&self, path: &str) -> Result<String, E2bError> {
        if path.is_empty() {
            return Err(ApiError::bad_field("path", "is needed").into());
        }
        Ok(self.user.resolve(path).map_err(ApiError::from)?)
    }
}

/// Sends the content of a file.
pub(super) async fn download(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, E2bError> {
    let content = read(&app, &caller, &ids, &uri, &headers).await;
    content.map_err(|failure| failure.map(|cause| or_gone(cause, &ids.sandbox)))
}

async fn read(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, E2bError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let target = Target::of(&sandbox, uri, headers)?;
    let path = target.resolve(target.path.as_deref().unwrap_or_default())?;
    let reader = sandbox.file_read(path.as_bytes(), ByteRange::WHOLE).await;
    Ok(raw(reader.map_err(|error| about(&path, error))?))
}

/// Writes files, with their missing parents: the body is one file, or a form of them.
pub(super) async fn upload(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Result<Json<Vec<WrittenFile>>, E2bError> {
    let files = save(&app, &caller, &ids, request).await;
    files.map(Json).map_err(|failure| failure.map(|cause| or_gone(cause, &ids.sandbox)))
}

async fn save(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    request: Request,
) -> Result<Vec<WrittenFile>, E2bError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let target = Target::of(&sandbox, request.uri(), request.headers())?;
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    if kind.starts_with("multipart/form-data") {
        return multipart::save(&sandbox, &target, request).await;
    }
    if kind.split(';').next().unwrap_or_default().trim() != "application/octet-stream" {
        let reason = "must be application/octet-stream or multipart/form-data";
        return Err(ApiError::bad_field("Content-Type", reason).into());
    }
    let path = target.resolve(target.path.as_deref().unwrap_or_default())?;
    save_whole(&sandbox, &path, request).await?;
    Ok(vec![written(&sandbox, &target, path).await?])
}

/// Gives a file that was written its metadata, which replaces that of an earlier one.
async fn written(
    sandbox: &Sandbox,
    target: &Target,
    path: String,
) -> Result<WrittenFile, E2bError> {
    let set = metadata::write(sandbox, &path, &target.metadata).await;
    set.map_err(|error| about(&path, error))?;
    Ok(WrittenFile::new(path, target.metadata.clone()))
}

async fn save_whole(sandbox: &Sandbox, path: &str, request: Request) -> Result<(), E2bError> {
    let encoding = request.headers().get(header::CONTENT_ENCODING).cloned();
    let encoding = encoding.as_ref().map_or("identity", |name| name.to_str().unwrap_or("?"));
    let writer = sandbox.file_save(path.as_bytes(), WriteOptions::default()).await;
    let mut writer = writer.map_err(|error| about(path, error))?;
    match encoding {
        "identity" => {
            crate::routes::files::upload::receive(request.into_body(), &mut writer).await?;
        }
        "gzip" => gzip::receive(request.into_body(), &mut writer).await?,
        _ => {
            let reason = "must be gzip or identity";
            return Err(ApiError::bad_field("Content-Encoding", reason).into());
        }
    }
    writer.save().await.map_err(|error| about(path, error))?;
    Ok(())
}

/// Adds the path to an error, in the words of E2B where it has some.
fn about(path: &str, error: Error) -> E2bError {
    let shown: String = path.chars().take(200).collect();
    let bad = |message: String| ApiError::new(StatusCode::BAD_REQUEST, "wrong_kind", message, "");
    match error {
        Error::Refused { reason: RefusalReason::NotFound, .. } => {
            let message = format!("path '{shown}' does not exist");
            ApiError::new(StatusCode::NOT_FOUND, "not_found", message, "").into()
        }
        Error::Refused { reason: RefusalReason::WrongKind, .. } => {
            bad(format!("path '{shown}' is a directory, or leads through a file")).into()
        }
        other => other.into(),
    }
}
