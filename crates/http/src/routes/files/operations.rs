//! File operations that transfer no contents: stat, mkdir, move, copy, chmod.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        error::ApiError,
        json::{StrictJson, not_null},
    },
    routes::files::{
        target::{CreateMode, FileTarget, checked, mode, open_sandbox},
        view::FileView,
    },
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use isolet_sandbox::{Error, Sandbox};
use isolet_wire::{request::Pair, response::RefusalReason};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// Tell what is known of `path`; with `follow` of what a link leads to.
    Stat,
    /// Tell whether something of that name is there; a link counts when it leads somewhere.
    Exists,
    /// Make a directory and its parents; no error where it is there.
    Mkdir,
    /// Give `path` the name `to`; the parents of `to` are made.
    Move,
    /// Copy `path` to `to`: a file or a link, or a directory with all it holds.
    Copy,
    /// Set the permission bits to `mode`.
    Chmod,
}

/// One thing to do. A path is text, or bytes in base64 (`path_b64`, `to_b64`).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileOrder {
    op: Op,
    /// Below `/workspace`, or from the root of the sandbox on.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    path: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    path_b64: Option<String>,
    /// Move and copy: the new name itself, not the directory that it is to lie in.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    to: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    to_b64: Option<String>,
    /// Move and copy: whether a file in the way is replaced; true unless told.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    replace: Option<bool>,
    /// Stat: what a symbolic link leads to, rather than the link.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    follow: Option<bool>,
    /// Chmod: octal, such as `"0755"`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    mode: Option<String>,
}

#[derive(Debug, Serialize)]
struct Existing {
    exists: bool,
}

/// Does one thing with files: `stat`, `exists`, `mkdir`, `move`, `copy` or `chmod`.
///
/// The answer tells what is there afterwards; of `exists`, `{"exists": true}` or false.
#[utoipa::path(post, path = "/files", tag = "files", params(("id" = String, Path)),
    request_body = FileOrder,
    responses((status = 200, body = FileView), (status = "4XX", body = ApiError)))]
pub(super) async fn order(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    body: StrictJson<FileOrder>,
) -> Result<Response, ApiError> {
    let order = body.value;
    let task = order.task()?;
    let making = match &task {
        Task::Stat { .. } | Task::Exists { .. } => target.reading(&app, &caller),
        _ => CreateMode::Create,
    };
    let sandbox = open_sandbox(&app, &caller, &target, making).await?;
    match task.run(&sandbox).await? {
        Outcome::Exists(exists) => Ok(Json(Existing { exists }).into_response()),
        Outcome::File(view) => Ok(Json(view).into_response()),
    }
}

/// A validated operation.
enum Task {
    Stat { path: Vec<u8>, follow: bool },
    Exists { path: Vec<u8> },
    Mkdir { path: Vec<u8> },
    Move(Pair),
    Copy(Pair),
    Chmod { path: Vec<u8>, mode: u32 },
}

enum Outcome {
    Exists(bool),
    File(Box<FileView>),
}

impl FileOrder {
    fn task(self) -> Result<Task, ApiError> {
        let op = self.op;
        let path = bytes("path", self.path, self.path_b64)?
            .ok_or_else(|| ApiError::bad_field("path", "is needed"))?;
        let to = bytes("to", self.to, self.to_b64)?;
        let pair = matches!(op, Op::Move | Op::Copy);
        let idle = [
            ("to", to.is_some() && !pair),
            ("replace", self.replace.is_some() && !pair),
            ("follow", self.follow.is_some() && op != Op::Stat),
            ("mode", self.mode.is_some() && op != Op::Chmod),
        ];
        if let Some((name, _)) = idle.iter().find(|(_, idle)| *idle) {
            return Err(ApiError::bad_field(name, "this op does not know it"));
        }
        let pair = |from, to: Option<Vec<u8>>| {
            let to = to.ok_or_else(|| ApiError::bad_field("to", "is needed"))?;
            Ok::<_, ApiError>(Pair { from, to, replace: self.replace.unwrap_or(true) })
        };
        Ok(match op {
            Op::Stat => Task::Stat { path, follow: self.follow.unwrap_or(false) },
            Op::Exists => Task::Exists { path },
            Op::Mkdir => Task::Mkdir { path },
            Op::Move => Task::Move(pair(path, to)?),
            Op::Copy => Task::Copy(pair(path, to)?),
            Op::Chmod => {
                let text = self.mode.ok_or_else(|| ApiError::bad_field("mode", "is needed"))?;
                Task::Chmod { path, mode: mode("mode", &text)? }
            }
        })
    }
}

impl Task {
    async fn run(self, sandbox: &Sandbox) -> Result<Outcome, Error> {
        let (path, follow) = match self {
            Self::Exists { path } => {
                return match sandbox.file_look(&path, true).await {
                    Ok(_) => Ok(Outcome::Exists(true)),
                    Err(Error::Refused {
                        why: RefusalReason::NotFound | RefusalReason::WrongKind,
                        ..
                    }) => Ok(Outcome::Exists(false)),
                    Err(error) => Err(error),
                };
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
        Ok(Outcome::File(Box::new(FileView::of(&path, found))))
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
            return Err(ApiError::bad_field(name, "as text or in base64, not both"));
        }
        (Some(text), None) => text.into_bytes(),
        (None, Some(exact)) => STANDARD
            .decode(exact)
            .map_err(|_| ApiError::bad_field(&format!("{name}_b64"), "is not base64"))?,
        (None, None) => return Ok(None),
    };
    checked(name, &path).map(Some)
}
