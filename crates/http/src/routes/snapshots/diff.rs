//! What differs between two snapshots.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::pagination::with_next_link;
use crate::foundation::query::{self, Query};
use crate::routes::files::view::FileView;
use crate::routes::snapshots::parse_id;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isolet_sandbox::SnapshotChange;
use serde::Serialize;
use utoipa::ToSchema;

/// The default number of changes on a page.
const PAGE: usize = 1000;
/// The most changes on a page.
const PAGE_MAX: usize = 10_000;

/// A path that differs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SnapshotChange)]
pub(crate) struct ChangeView {
    /// `added`, `changed` or `removed`.
    change: &'static str,
    #[serde(flatten)]
    file: FileView,
}

/// One page of the difference between two snapshots.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SnapshotDiff)]
pub(crate) struct DiffView {
    /// The paths that differ, sorted by their components. A file is the one in the second snapshot,
    /// or in the first one if it was removed.
    changes: Vec<ChangeView>,
    /// The value of `cursor` for the next page. `null` on the last page. A page can have no changes
    /// and still a next page.
    #[schema(required = true)]
    next_cursor: Option<String>,
}

impl From<SnapshotChange> for ChangeView {
    fn from(SnapshotChange { file, change }: SnapshotChange) -> Self {
        let path = [b"/", file.path.as_slice()].concat();
        Self { change, file: FileView::of(&path, file) }
    }
}

/// Compare two snapshots
///
/// Lists the paths that differ: whose type, mode, owner, size, content or extended attributes are
/// not the same. A new time of modification alone is no change. A page ends after `limit` changes or
/// after about 10 seconds.
#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}/diff/{other}", operation_id = "snapshots_diff", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id or the name of the first snapshot."),
        ("other" = String, Path, description = "The id or the name of the second snapshot."),
        ("limit" = Option<u32>, Query, description = "The most changes in a page: 1 to 10000. Defaults to 1000."),
        ("cursor" = Option<String>, Query)
    ),
    responses(
        (status = 200, description = "One page of changes.", body = DiffView, headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one.")))
    )
)]
pub(crate) async fn diff(
    State(app): State<App>,
    caller: Caller,
    Path((from, to)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, ApiError> {
    caller.check_key()?;
    let query = Query::of(&uri, &["limit", "cursor"])?;
    let limit = match query.text("limit")? {
        None => Some(PAGE),
        Some(text) => text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit)),
    };
    let limit = limit.ok_or_else(|| query::bad_parameter("limit", "1 to 10000"))?;
    let after = query.bytes("cursor").map(|cursor| URL_SAFE_NO_PAD.decode(cursor)).transpose();
    let after = after
        .map_err(|_| query::bad_parameter("cursor", "must be the cursor of the previous page"))?;
    let from = parse_id(&from)?;
    let to = parse_id(&to)?;
    let page = app.service.snapshot_diff(&caller.tenant, &from, &to, after, limit).await?;
    let next_cursor = page.next.map(|next| URL_SAFE_NO_PAD.encode(next));
    let link = next_cursor
        .as_ref()
        .map(|cursor| format!("<{}?limit={limit}&cursor={cursor}>; rel=\"next\"", uri.path()));
    let changes = page.changes.into_iter().map(ChangeView::from).collect();
    Ok(with_next_link(link, Json(DiffView { changes, next_cursor })))
}
