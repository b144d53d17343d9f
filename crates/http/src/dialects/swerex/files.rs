//! `read_file` and `write_file`: text files.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::swerex::error::SwerexError;
use crate::dialects::swerex::sessions::Nothing;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::json::StrictJson;
use crate::foundation::json_text::{self, OutputText};
use crate::routes::files::target::checked;
use crate::stream::captured_output::{CapturedOutput, OUTPUT_BYTES_MAX};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use isolet_sandbox::service::Access;
use isolet_wire::request::{ByteRange, WriteOptions};
use serde::{Deserialize, Serialize};

/// A file to read.
#[derive(Debug, Deserialize)]
pub(super) struct ReadFile {
    path: String,
    #[serde(default)]
    encoding: Option<String>,
    #[serde(default)]
    errors: Option<String>,
}

#[derive(Serialize)]
struct FileContent<'a> {
    content: OutputText<'a>,
}

/// A file to write.
#[derive(Debug, Deserialize)]
pub(super) struct WriteFile {
    path: String,
    content: String,
}

/// What to do with bytes that are not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Strict,
    Replace,
}

impl ReadFile {
    fn invalid(&self) -> Result<Invalid, SwerexError> {
        let encoding = self.encoding.as_deref().unwrap_or("utf-8").to_ascii_lowercase();
        if !matches!(&*encoding, "utf-8" | "utf8" | "utf_8" | "ascii") {
            return Err(SwerexError::unsupported("encoding must be utf-8"));
        }
        match self.errors.as_deref() {
            None | Some("strict") => Ok(Invalid::Strict),
            Some("replace") => Ok(Invalid::Replace),
            Some(_) => Err(SwerexError::unsupported("errors must be strict or replace")),
        }
    }
}

/// Reads a text file, whose line ends stay as they are.
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<ReadFile>,
) -> Result<Response, SwerexError> {
    let wish = body.value;
    let invalid = wish.invalid()?;
    let path = checked("path", wish.path.as_bytes())?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Read).await?;
    let about = |error: isolet_sandbox::Error| SwerexError::about(&wish.path, error);
    let mut reader = sandbox.file_read(&path, ByteRange::WHOLE).await.map_err(about)?;
    let share = app.response_memory.share(&caller.tenant);
    let mut content = CapturedOutput::new(OUTPUT_BYTES_MAX, share);
    while let Some(bytes) = reader.next().await.map_err(about)? {
        content.push(1, &bytes);
        if content.is_truncated() {
            // The rest would be thrown away.
            break;
        }
    }
    let fields = content.fields();
    if fields.truncated.is_some() {
        let message = format!("{} is larger than one answer may be", wish.path);
        let hint = "read a part of it with a command, or GET /v1/sandboxes/ID/files/PATH";
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Err(ApiError::new(status, "too_large", message, hint).into());
    }
    if invalid == Invalid::Strict && fields.stdout_b64.is_some() {
        let message = format!("'utf-8' codec can't decode {}", wish.path);
        return Err(SwerexError::raise("builtins.UnicodeError", message));
    }
    let length = fields.stdout.0.len();
    Ok(json_text::response(&FileContent { content: fields.stdout }, length))
}

/// Writes a text file with its missing parents.
pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<WriteFile>,
) -> Result<Json<Nothing>, SwerexError> {
    let WriteFile { path: name, content } = body.value;
    let path = checked("path", name.as_bytes())?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let about = |error: isolet_sandbox::Error| SwerexError::about(&name, error);
    let mut writer = sandbox.file_save(&path, WriteOptions::default()).await.map_err(about)?;
    writer.write(content.as_bytes()).await.map_err(about)?;
    writer.save().await.map_err(about)?;
    Ok(Json(Nothing {}))
}
