//! What changed in a directory since a version.

use crate::foundation::error::ApiError;
use crate::foundation::query::{self, Query};
use crate::routes::files::listing::LIST_GLOB;
use crate::routes::files::target::whole;
use crate::routes::files::view::{kind_name, text};
use crate::routes::files::watch::joined;
use crate::routes::files::watch_filter::WatchFilter;
use isolet_sandbox::Sandbox;
use isolet_sandbox::files::{ChangeKind, ChangeQuery, ChangedFile, Version};
use isolet_wire::request::WalkOptions;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The query parameter with the version.
pub(super) const CHANGES_SINCE: &str = "changes_since";
/// The value that asks for the current version.
const NOW: &str = "now";

/// The changes in a directory since a version.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileChanges)]
pub(crate) struct ChangesView {
    /// The version to continue from.
    version: String,
    /// At most one change for each path, sorted by path.
    changes: Vec<ChangedView>,
    /// Whether there are more changes: continue from `version` at once.
    more: bool,
}

/// A path that changed since a version.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChangedFile)]
struct ChangedView {
    /// The absolute path inside the sandbox.
    path: String,
    /// The exact bytes in base64. Present only if they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    path_b64: Option<String>,
    /// `created`, `modified` (content, attributes, or another file of the same name) or `deleted`.
    change: &'static str,
    /// `file`, `directory`, `symlink` or `other`; of a deleted path, what it was.
    #[serde(rename = "type")]
    kind: &'static str,
}

impl ChangedView {
    fn of(base: &[u8], changed: &ChangedFile) -> Self {
        let (path, path_b64) = text(&joined(base, &changed.path));
        let change = match changed.change {
            ChangeKind::Created => "created",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
        };
        Self { path, path_b64, change, kind: kind_name(changed.kind) }
    }
}

/// Parses which changes a client wants; `None` if it wants none.
pub(super) fn wanted(
    query: &Query<'_>,
    path: &[u8],
    options: &WalkOptions,
) -> Result<Option<ChangeQuery>, ApiError> {
    let Some(since) = query.text(CHANGES_SINCE)? else { return Ok(None) };
    for name in ["watch", "hidden", LIST_GLOB, "cursor", "tar", "type"] {
        if query.bytes(name).is_some() {
            return Err(query::bad_parameter(name, "cannot be combined with changes_since"));
        }
    }
    let since = match since {
        NOW => None,
        text => Some(Version::parse(text).ok_or_else(|| {
            let reason = "must be `now`, or the `version` of an earlier answer";
            query::bad_parameter(CHANGES_SINCE, reason)
        })?),
    };
    let limit = options.max as usize;
    Ok(Some(ChangeQuery { path: whole(path), recursive: options.recursive, since, limit }))
}

/// Finds the changes that the filter admits.
pub(super) async fn find(
    sandbox: &Sandbox,
    query: ChangeQuery,
    filter: WatchFilter,
) -> Result<ChangesView, ApiError> {
    let base = query.path.clone();
    let admits = Arc::new(move |path: &[u8]| filter.admits_path(path));
    let found = sandbox.file_changes(query, admits).await?;
    let changes = found.changes.iter().map(|one| ChangedView::of(&base, one)).collect();
    Ok(ChangesView { version: found.version.to_string(), changes, more: found.more })
}
