//! `upload`: a file, or a directory as a ZIP archive.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::swerex::error::SwerexError;
use crate::dialects::swerex::run::{self, Finished};
use crate::dialects::swerex::sessions::Nothing;
use crate::foundation::error::ApiError;
use crate::foundation::form::{Form, FormField};
use crate::foundation::input::PathIds;
use crate::foundation::json::reject_content_encoding;
use crate::routes::files::target::checked;
use axum::Json;
use axum::extract::{Request, State};
use isolet_sandbox::service::Access;
use isolet_sandbox::{Argv, Program, ProgramSpec, Sandbox, ids};
use isolet_wire::request::WriteOptions;
use multer::Constraints;

/// The longest value of a field other than the file, in bytes.
const FIELD_BYTES_MAX: usize = 8192;
/// How long the sandbox may take to unpack an archive, in ms.
const PLACE_TIMEOUT_MS: u64 = 600_000;
/// Moves the file `$1` to `$2`.
const MOVE: &str = "mkdir -p -- \"$(dirname -- \"$2\")\" && mv -f -- \"$1\" \"$2\"; s=$?; rm -f -- \"$1\"; exit $s";
/// Unpacks the archive `$1` into the directory `$2`. Without Python it needs `unzip`.
const UNPACK: &str = "mkdir -p -- \"$2\" && \
    if command -v python3 >/dev/null; then python3 -m zipfile -e \"$1\" \"$2\"; \
    else unzip -qo \"$1\" -d \"$2\"; fi; s=$?; rm -f -- \"$1\"; exit $s";

/// A form that was received. Its file is in the sandbox, at a path of its own.
struct Upload {
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
async fn receive(sandbox: &Sandbox, request: Request, at: String) -> Result<Upload, SwerexError> {
    let (head, body) = request.into_parts();
    let constraints = Constraints::new().allowed_fields(vec!["file", "target_path", "unzip"]);
    let mut fields = Form::new(&head.headers, body, constraints)?;
    let mut form = Upload { at, target: None, unzip: false };
    let mut has_file = false;
    while let Some(field) = fields.next().await? {
        match field.name() {
            Some("file") if has_file => {
                return Err(ApiError::bad_field("file", "must be one file").into());
            }
            Some("file") => {
                save(sandbox, &form.at, field).await?;
                has_file = true;
            }
            Some("target_path") => form.target = Some(field.text(FIELD_BYTES_MAX).await?),
            _ => {
                let text = field.text(FIELD_BYTES_MAX).await?;
                form.unzip = matches!(&*text, "true" | "True" | "1");
            }
        }
    }
    if !has_file {
        return Err(ApiError::bad_field("file", "the form contains no file").into());
    }
    Ok(form)
}

async fn save(sandbox: &Sandbox, at: &str, mut field: FormField) -> Result<(), SwerexError> {
    let mut writer = sandbox.file_save(at.as_bytes(), WriteOptions::default()).await?;
    while let Some(bytes) = field.chunk().await? {
        writer.write(&bytes).await?;
    }
    writer.save().await?;
    Ok(())
}
