//! File operations that transfer no contents: stat, mkdir, move, copy, chmod.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::json::{SmallJson, not_null};
use crate::routes::files::target::{CreateMode, FileTarget, checked, mode, open_sandbox};
use crate::routes::files::view::FileView;
use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_sandbox::{Error, Sandbox};
use isolet_wire::request::PathPair;
use isolet_wire::response::RefusalReason;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = FileOperationKind)]
pub(crate) enum Op {
    /// Return information about `path`; with `follow`, about the target of a symbolic link.
    Stat,
    /// Return whether `path` exists. A symbolic link counts if its target exists.
    Exists,
    /// Create a directory with its parents. Succeeds if it exists.
    Mkdir,
    /// Rename `path` to `to`. Creates the parents of `to`.
    Move,
    /// Copy `path` to `to`: a file, a symbolic link, or a directory with everything in it.
    Copy,
    /// Set the permission bits to `mode`.
    Chmod,
}

/// A file operation. A path is given as text, or as bytes in base64 (`path_b64`, `to_b64`).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FileOperation)]
pub(crate) struct FileOrder {
    /// The kind of the operation.
    op: Op,
    /// The path, relative to `/workspace` or absolute.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    path: Option<String>,
    /// The path in base64, instead of `path`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    path_b64: Option<String>,
    /// `move` and `copy`: the new path itself, not the directory to put it in.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    to: Option<String>,
    /// The new path in base64, instead of `to`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    to_b64: Option<String>,
    /// `move` and `copy`: whether an existing file is replaced. Defaults to `true`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    replace: Option<bool>,
    /// `stat`: return the target of a symbolic link instead of the link.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    follow: Option<bool>,
    /// `chmod`: the permission bits in octal, such as `"0755"`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    mode: Option<String>,
}

/// Whether a path exists.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileExistence)]
pub(super) struct Existence {
    /// Whether the path exists.
    exists: bool,
}

/// The answer to an operation.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum OperationResult {
    Exists(Existence),
    File(Box<FileView>),
}

/// Inspect, move, copy or change a file
///
/// Performs one operation: `stat`, `exists`, `mkdir`, `move`, `copy` or `chmod`. Answers with the
/// entry as it is afterwards; `exists` answers with `{"exists": true}` or `{"exists": false}`.
#[utoipa::path(
    post, path = "/files", operation_id = "files_operate", tag = "files",
    params(
        ("id" = String, Path)
    ),
    request_body(content = FileOrder, example = json!({"op": "move", "path": "draft.txt", "to": "done/final.txt"})),
    responses(
        (status = 200, description = "The entry after the operation, or whether it exists.", body = inline(OperationResult))
    )
)]
pub(super) async fn order(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    body: SmallJson<FileOrder>,
) -> Result<Json<OperationResult>, ApiError> {
    let order = body.value;
    let task = order.task()?;
    let making = match &task {
        Task::Stat { .. } | Task::Exists { .. } => target.reading(&app, &caller),
        _ => CreateMode::Create,
    };
    let sandbox = open_sandbox(&app, &caller, &target, making).await?;
    Ok(Json(task.run(&sandbox).await?))
}

/// An operation whose fields were checked.
enum Task {
    Stat { path: Vec<u8>, follow: bool },
    Exists { path: Vec<u8> },
    Mkdir { path: Vec<u8> },
    Move(PathPair),
    Copy(PathPair),
    Chmod { path: Vec<u8>, mode: u32 },
}

impl FileOrder {
    fn task(self) -> Result<Task, ApiError> {
        let op = self.op;
        let path = bytes("path", self.path, self.path_b64)?
            .ok_or_else(|| ApiError::bad_field("path", "is required"))?;
        let to = bytes("to", self.to, self.to_b64)?;
        let pair = matches!(op, Op::Move | Op::Copy);
        let idle = [
            ("to", to.is_some() && !pair),
            ("replace", self.replace.is_some() && !pair),
            ("follow", self.follow.is_some() && op != Op::Stat),
            ("mode", self.mode.is_some() && op != Op::Chmod),
        ];
        if let Some((name, _)) = idle.iter().find(|(_, idle)| *idle) {
            return Err(ApiError::bad_field(name, "is not a field of this op"));
        }
        let pair = |from, to: Option<Vec<u8>>| {
            let to = to.ok_or_else(|| ApiError::bad_field("to", "is required"))?;
            Ok::<_, ApiError>(PathPair { from, to, replace: self.replace.unwrap_or(true) })
        };
        Ok(match op {
            Op::Stat => Task::Stat { path, follow: self.follow.unwrap_or(false) },
            Op::Exists => Task::Exists { path },
            Op::Mkdir => Task::Mkdir { path },
            Op::Move => Task::Move(pair(path, to)?),
            Op::Copy => Task::Copy(pair(path, to)?),
            Op::Chmod => {
                let text = self.mode.ok_or_else(|| ApiError::bad_field("mode", "is required"))?;
                Task::Chmod { path, mode: mode("mode", &text)? }
            }
        })
    }
}

impl Task {
    async fn run(self, sandbox: &Sandbox) -> Result<OperationResult, Error> {
        let (path, follow) = match self {
            Self::Exists { path } => {
                let exists = match sandbox.file_look(&path, true).await {
                    Ok(_) => true,
                    Err(Error::Refused {
                        reason: RefusalReason::NotFound | RefusalReason::WrongKind,
                        ..
                    }) => false,
                    Err(error) => return Err(error),
                };
                return Ok(OperationResult::Exists(Existence { exists }));
            }
            Self::Stat { path, follow } => (path, follow),
            Self::Mkdir { path } => {
                sandbox.file_mkdir(&path).await?;
                (path, true)
            }
            Self::Move(pair) => {
                sandbox.file_move(pair.clone()).await?;
                (pair.to, false)
            }
            Self::Copy(pair) => {
                sandbox.file_copy(pair.clone()).await?;
                (pair.to, false)
            }
            Self::Chmod { path, mode } => {
                sandbox.file_chmod(&path, mode).await?;
                (path, true)
            }
        };
        let found = sandbox.file_look(&path, follow).await?;
        let stat = found.stat.clone();
        Ok(OperationResult::File(Box::new(FileView::of(&path, found).tagged(&stat))))
    }
}

/// Decodes a path from text or base64.
fn bytes(
    name: &str,
    text: Option<String>,
    exact: Option<String>,
) -> Result<Option<Vec<u8>>, ApiError> {
    let path = match (text, exact) {
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_field(name, "must be given as text or in base64, not both"));
        }
        (Some(text), None) => text.into_bytes(),
        (None, Some(exact)) => STANDARD
            .decode(exact)
            .map_err(|_| ApiError::bad_field(&format!("{name}_b64"), "must be base64"))?,
        (None, None) => return Ok(None),
    };
    checked(name, &path).map(Some)
}
