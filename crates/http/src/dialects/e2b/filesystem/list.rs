//! `ListDir`: the entries of a directory, down to a depth.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::unary::Unary;
use crate::dialects::e2b::connect::{Code, RpcError};
use crate::dialects::e2b::filesystem::entry::{EntryInfo, about, absolute};
use crate::dialects::e2b::filesystem::reach;
use crate::dialects::e2b::metadata;
use crate::dialects::e2b::templates::started::Defaults;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use isolet_sandbox::files::PAGE_MAX;
use isolet_wire::request::{ATTRIBUTE_PATHS_MAX, FileAttributes, WalkOptions};
use isolet_wire::response::{FileKind, FoundFile};
use serde::{Deserialize, Serialize};

/// How many entries are looked at. A directory with more is refused.
const ENTRIES_MAX: usize = 100_000;
/// How many entries are returned: about 3 MiB of JSON.
const RETURNED_MAX: usize = 10_000;
/// How many bytes of paths, targets and metadata are returned. 10,000 entries could have 12 KiB of
/// them each.
const RETURNED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The memory for an entry besides its texts, in bytes.
const ENTRY_BYTES: usize = 512;

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
    let mut bytes = 0;
    // The answer takes its own share when it is finished.
    let mut memory = app.response_memory.share(&caller.tenant);
    loop {
        let page = sandbox.file_walk(path.as_bytes(), options.clone()).await;
        let page = page.map_err(|error| about(&path, error))?;
        seen += page.found.len();
        options.after = page.found.last().map(|file| file.path.clone());
        let near = |file: &FoundFile| file.path.split(|byte| *byte == b'/').count() <= depth;
        let mut found = page.found.into_iter().filter(near);
        loop {
            // The metadata of few files at a time, because each may have 4 KiB.
            let some: Vec<FoundFile> = found.by_ref().take(ATTRIBUTE_PATHS_MAX).collect();
            let full = some.len() == ATTRIBUTE_PATHS_MAX;
            let paths = some.iter().map(|file| below(&path, file).into_bytes()).collect();
            let all = metadata::read(&sandbox, paths).await?;
            let both = some.into_iter().zip(all);
            let new: Vec<EntryInfo> =
                both.map(|(file, metadata)| entry(&path, file, metadata)).collect();
            let texts: usize = new.iter().map(EntryInfo::text_bytes).sum();
            bytes += texts;
            if !memory.take(texts + new.len() * ENTRY_BYTES) {
                let message = "the tenant's answers hold as much memory as they may: read them, or \
                               close their connections, then try again";
                return Err(RpcError::new(Code::ResourceExhausted, message));
            }
            entries.extend(new);
            if let Some(excess) = excess(entries.len(), bytes, seen) {
                let message =
                    format!("{path} has {excess}: use a lower depth, or a command such as find");
                return Err(RpcError::invalid(message));
            }
            if !full {
                break;
            }
        }
        if !page.more || options.after.is_none() {
            return Ok(Json(ListResponse { entries }));
        }
    }
}

/// Why a directory is not listed.
fn excess(entries: usize, bytes: usize, seen: usize) -> Option<String> {
    if entries > RETURNED_MAX {
        return Some(format!("more than {RETURNED_MAX} entries"));
    }
    if bytes > RETURNED_BYTES_MAX {
        let mib = RETURNED_BYTES_MAX / (1024 * 1024);
        return Some(format!("more than {mib} MiB of names and metadata"));
    }
    (seen > ENTRIES_MAX).then(|| format!("more than {ENTRIES_MAX} files below it"))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 lists of long paths held 1.9 GB.
    ///
    /// Promises: T27.
    #[test]
    fn t21_a_list_is_bounded_by_its_bytes() {
        assert_eq!(excess(RETURNED_MAX, RETURNED_BYTES_MAX, ENTRIES_MAX), None);
        let long = excess(700, RETURNED_BYTES_MAX + 1, 700).unwrap();
        assert_eq!(long, "more than 8 MiB of names and metadata");
        assert!(excess(RETURNED_MAX + 1, 0, 0).unwrap().contains("10000 entries"));
        assert!(excess(0, 0, ENTRIES_MAX + 1).unwrap().contains("100000 files"));
    }
}
