//! Uploads of forms with several files.

use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::transfer::{Target, WrittenFile, about, written};
use crate::foundation::error::ApiError;
use crate::foundation::form::{Form, FormField};
use crate::foundation::json::reject_content_encoding;
use axum::extract::Request;
use isolet_sandbox::Sandbox;
use isolet_wire::request::WriteOptions;
use multer::Constraints;
use std::collections::HashSet;

/// How many files one form may have.
const FILES_MAX: usize = 10_000;
/// How many bytes the paths and the metadata of the files of one form may have: they are held until the
/// answer, while the contents are streams.
const NAMES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The name of the fields that are files.
const FILE: &str = "file";

/// Writes the files of a form. The name of each is its path, unless the query has one.
pub(super) async fn save(
    sandbox: &Sandbox,
    target: &Target,
    request: Request,
) -> Result<Vec<WrittenFile>, E2bError> {
    reject_content_encoding(request.headers())?;
    let (head, body) = request.into_parts();
    let mut form = Form::new(&head.headers, body, Constraints::new())?;
    let mut files = Vec::new();
    let mut paths = HashSet::new();
    let metadata_bytes: usize = target.metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
    let mut names_bytes = 0;
    while let Some(field) = form.next().await? {
        if field.name() != Some(FILE) {
            field.skip().await?;
            continue;
        }
        let path = match (&target.path, field.file_name()) {
            (Some(path), _) => target.resolve(path)?,
            (None, Some(name)) => target.resolve(name)?,
            (None, None) => return Err(ApiError::bad_field("file", "has no name").into()),
        };
        if !paths.insert(path.clone()) {
            let reason = "two files of one upload have the same path";
            return Err(ApiError::bad_field("file", reason).into());
        }
        if paths.len() > FILES_MAX {
            return Err(ApiError::bad_field("file", "at most 10000 files in one upload").into());
        }
        names_bytes += path.len() + metadata_bytes;
        if names_bytes > NAMES_BYTES_MAX {
            let reason = "at most 4 MiB of paths and metadata in one upload";
            return Err(ApiError::bad_field("file", reason).into());
        }
        save_field(sandbox, &path, field).await?;
        files.push(written(sandbox, target, path).await?);
    }
    if files.is_empty() {
        return Err(ApiError::bad_field("file", "the form contains no file").into());
    }
    Ok(files)
}

async fn save_field(sandbox: &Sandbox, path: &str, mut field: FormField) -> Result<(), E2bError> {
    let writer = sandbox.file_save(path.as_bytes(), WriteOptions::default()).await;
    let mut writer = writer.map_err(|error| about(path, error))?;
    while let Some(bytes) = field.chunk().await? {
        writer.write(&bytes).await.map_err(|error| about(path, error))?;
    }
    writer.save().await.map_err(|error| about(path, error))?;
    Ok(())
}
