//! `ListDir`: the entries of a directory, down to a depth.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::RpcError;
use crate::dialects::e2b::connect::unary::Unary;
use crate::dialects::e2b::filesystem::entry::{EntryInfo, about, absolute};
use crate::dialects::e2b::filesystem::reach;
use crate::dialects::e2b::metadata;
use crate::dialects::e2b::templates::started::Defaults;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use isolet_sandbox::files::PAGE_MAX;
use isolet_wire::request::{FileAttributes, WalkOptions};
use isolet_wire::response::{FileKind, FoundFile};
use serde::{Deserialize, Serialize};

/// How many entries are looked at. A directory with more is refused.
const ENTRIES_MAX: usize = 100_000;
/// How many entries are returned: about 3 MiB of JSON.
const RETURNED_MAX: usize = 10_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListRequest {
    path: String,
    depth: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct ListResponse {
    entries: Vec<EntryInfo>,
}

/// Lists a directory.
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    Unary(wish): Unary<ListRequest>,
) -> Result<Json<ListResponse>, RpcError> {
    let sandbox = reach(&app, &caller, &ids).await?;
    let path = Defaults::user(&sandbox, &headers)?.resolve(&wish.path)?;
    let found = sandbox.file_look(path.as_bytes(), true).await.map_err(|e| about(&path, e))?;
    if found.stat.kind != FileKind::Directory {
        return Err(RpcError::invalid(format!("path is not a directory: {path}")));
    }
    let depth = usize::try_from(wish.depth.max(1)).unwrap_or(usize::MAX);
    let mut options =
        WalkOptions { recursive: depth > 1, hidden: true, glob: None, after: None, max: PAGE_MAX };
    let mut entries = Vec::new();
    let mut seen = 0;
    loop {
        let page = sandbox.file_walk(path.as_bytes(), options.clone()).await;
        let page = page.map_err(|error| about(&path, error))?;
        seen += page.found.len();
        options.after = page.found.last().map(|file| file.path.clone());
        let near = |file: &FoundFile| file.path.split(|byte| *byte == b'/').count() <= depth;
        let found: Vec<FoundFile> = page.found.into_iter().filter(near).collect();
        let paths = found.iter().map(|file| below(&path, file).into_bytes()).collect();
        let all = metadata::read(&sandbox, paths).await?;
        let both = found.into_iter().zip(all);
        entries.extend(both.map(|(file, metadata)| entry(&path, file, metadata)));
        let excess = match (entries.len() > RETURNED_MAX, seen > ENTRIES_MAX) {
            (true, _) => Some(format!("more than {RETURNED_MAX} entries")),
            (_, true) => Some(format!("more than {ENTRIES_MAX} files below it")),
            _ => None,
        };
        if let Some(excess) = excess {
            let message =
                format!("{path} has {excess}: use a lower depth, or a command such as find");
            return Err(RpcError::invalid(message));
        }
        if !page.more || options.after.is_none() {
            return Ok(Json(ListResponse { entries }));
        }
    }
}

/// The path of a file in a directory.
fn below(directory: &str, file: &FoundFile) -> String {
    let name = String::from_utf8_lossy(&file.path);
    format!("{}/{name}", directory.trim_end_matches('/'))
}

fn entry(directory: &str, file: FoundFile, metadata: FileAttributes) -> EntryInfo {
    let path = below(directory, &file);
    let target = file.target.map(|target| absolute(&path, &String::from_utf8_lossy(&target)));
    EntryInfo::new(path, &file.stat, target, metadata)
}
