//! `upload`: a file, or a directory as a ZIP archive.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::swerex::error::SwerexError;
use crate::dialects::swerex::run::{self, Finished};
use crate::dialects::swerex::sessions::Nothing;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::json::reject_content_encoding;
use crate::routes::files::target::checked;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use isolet_sandbox::service::Access;
use isolet_sandbox::{Argv, Program, ProgramSpec, Sandbox, ids};
use isolet_wire::request::WriteOptions;
use multer::{Constraints, Field, Multipart, SizeLimit};
use std::time::Duration;
use tokio::time::timeout;

/// How long an upload may stall.
const STILL: Duration = Duration::from_secs(60);
/// The longest value of a field other than the file, in bytes.
const FIELD_BYTES_MAX: u64 = 8192;
/// How long the sandbox may take to unpack an archive, in ms.
const PLACE_TIMEOUT_MS: u64 = 600_000;
/// Moves the file `$1` to `$2`.
const MOVE: &str = "mkdir -p -- \"$(dirname -- \"$2\")\" && mv -f -- \"$1\" \"$2\"; s=$?; rm -f -- \"$1\"; exit $s";
/// Unpacks the archive `$1` into the directory `$2`. Without Python it needs `unzip`.
const UNPACK: &str = "mkdir -p -- \"$2\" && \
    if command -v python3 >/dev/null; then python3 -m zipfile -e \"$1\" \"$2\"; \
    else unzip -qo \"$1\" -d \"$2\"; fi; s=$?; rm -f -- \"$1\"; exit $s";

/// A form that was received. Its file is in the sandbox, at a path of its own.
struct Form {
    at: String,
    target: Option<String>,
    unzip: bool,
}

/// Writes a file, or unpacks an archive into a directory.
pub(super) async fn upload(
    State(app): State<App>,
    caller: Caller,
    path: PathIds,
    request: Request,
) -> Result<Json<Nothing>, SwerexError> {
    reject_content_encoding(request.headers())?;
    let sandbox = app.service.reach(&caller.tenant, &path.sandbox, Access::MustExist).await?;
    let at = format!("/tmp/.swerex-upload-{}", ids::random());
    let form = match receive(&sandbox, request, at.clone()).await {
        Ok(form) => form,
        Err(failure) => {
            // The form may have ended after its file.
            let _ = sandbox.file_remove(at.as_bytes(), false).await;
            return Err(failure);
        }
    };
    let Some(target) = form.target.filter(|path| checked("target_path", path.as_bytes()).is_ok())
    else {
        let _ = sandbox.file_remove(form.at.as_bytes(), false).await;
        return Err(
            ApiError::bad_field("target_path", "must be 1 to 4095 bytes without NUL").into()
        );
    };
    let script = if form.unzip { UNPACK } else { MOVE };
    let words = ["/bin/sh", "-c", script, "sh", &form.at, &target].map(str::to_owned).to_vec();
    let start = ProgramSpec {
        program: Program::Argv(Argv::parse(words)?),
        timeout_ms: PLACE_TIMEOUT_MS,
        ..ProgramSpec::default()
    };
    let Finished { exit, output } = run::program(&app, &caller, &sandbox, start, None).await?;
    if exit.code != 0 {
        let [_, said] = output.texts();
        let message = format!("cannot write {}: {}", run::shown(&target), run::shown(&said.0));
        return Err(SwerexError::raise("builtins.OSError", message));
    }
    Ok(Json(Nothing {}))
}

/// Receives a form. The file comes before the path that it is for, so it goes to the file `at`, which
/// may be there after an error.
async fn receive(sandbox: &Sandbox, request: Request, at: String) -> Result<Form, SwerexError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default());
    let boundary = boundary.map_err(|error| malformed(&error))?;
    let limits = SizeLimit::new()
        .for_field("target_path", FIELD_BYTES_MAX)
        .for_field("unzip", FIELD_BYTES_MAX);
    let constraints =
        Constraints::new().size_limit(limits).allowed_fields(vec!["file", "target_path", "unzip"]);
    let body = request.into_body().into_data_stream();
    let mut fields = Multipart::with_constraints(body, boundary, constraints);
    let mut form = Form { at, target: None, unzip: false };
    let mut has_file = false;
    loop {
        let field = timeout(STILL, fields.next_field()).await.map_err(|_| stalled())?;
        let Some(field) = field.map_err(|error| malformed(&error))? else { break };
        match field.name() {
            Some("file") if has_file => {
                return Err(ApiError::bad_field("file", "must be one file").into());
            }
            Some("file") => {
                save(sandbox, &form.at, field).await?;
                has_file = true;
            }
            Some("target_path") => form.target = Some(text(field).await?),
            _ => form.unzip = matches!(&*text(field).await?, "true" | "True" | "1"),
        }
    }
    if !has_file {
        return Err(ApiError::bad_field("file", "the form contains no file").into());
    }
    Ok(form)
}

async fn text(field: Field<'static>) -> Result<String, SwerexError> {
    let text = timeout(STILL, field.text()).await.map_err(|_| stalled())?;
    Ok(text.map_err(|error| malformed(&error))?)
}

async fn save(sandbox: &Sandbox, at: &str, mut field: Field<'static>) -> Result<(), SwerexError> {
    let mut writer = sandbox.file_save(at.as_bytes(), WriteOptions::default()).await?;
    loop {
        let chunk = timeout(STILL, field.chunk()).await.map_err(|_| stalled())?;
        match chunk.map_err(|error| malformed(&error))? {
            None => break,
            Some(bytes) => writer.write(&bytes).await?,
        }
    }
    writer.save().await?;
    Ok(())
}

fn malformed(error: &multer::Error) -> ApiError {
    ApiError::bad_request(format!("the form is malformed: {error}"))
}

fn stalled() -> ApiError {
    let message = "the upload stalled for 60 seconds";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "deadline_exceeded", message, "send it again")
}
