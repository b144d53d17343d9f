//! Parses how a directory is to be listed.

use crate::foundation::error::ApiError;
use crate::foundation::error::agent::agent_code;
use crate::foundation::query::{self, Query};
use crate::routes::files::target::FileTarget;
use crate::routes::files::view::FileView;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isolet_sandbox::files::{GLOB_BYTES_MAX, PAGE_MAX, Page};
use isolet_wire::request::WalkOptions;
use isolet_wire::response::FoundFile;

/// The default number of entries on a page.
const PAGE: u32 = 1000;

/// The pattern for names and paths, in lists and searches.
pub(super) const LIST_GLOB: &str = "glob";

/// Query parameters that only apply to directories.
pub(super) const LIST: [&str; 7] =
    ["recursive", "hidden", LIST_GLOB, "limit", "cursor", "tar", "watch"];

/// Parses the options of a list.
pub(crate) fn wish(query: &Query<'_>) -> Result<WalkOptions, ApiError> {
    let limit = match query.text("limit")? {
        None => PAGE,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=PAGE_MAX).contains(limit))
            .ok_or_else(|| query::bad_parameter("limit", "1 to 10000"))?,
    };
    let bad = || {
        query::bad_parameter(
            "cursor",
            "must be the cursor from the Link header of the previous page",
        )
    };
    let glob = glob(query)?;
    Ok(WalkOptions {
        recursive: query.flag("recursive")?,
        hidden: query.flag("hidden")?,
        glob,
        after: match query.bytes("cursor") {
            None => None,
            Some(cursor) => Some(URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?),
        },
        max: limit,
    })
}

pub(super) fn glob(query: &Query<'_>) -> Result<Option<Vec<u8>>, ApiError> {
    let glob = query.bytes(LIST_GLOB).map(<[u8]>::to_vec);
    if glob.as_ref().is_some_and(|glob| glob.is_empty() || glob.len() > GLOB_BYTES_MAX) {
        return Err(query::bad_parameter(LIST_GLOB, "1 to 1024 bytes"));
    }
    Ok(glob)
}

/// The `Link` to the next page: the same query with another cursor.
pub(super) fn next_link(target: &FileTarget, query: &Query<'_>, last: &[u8]) -> String {
    let mut link = format!("<{}?", target.uri.path());
    let same = target.uri.query().unwrap_or("").split('&').filter(|pair| !pair.is_empty());
    for pair in same.filter(|pair| pair.split('=').next() != Some("cursor")) {
        link.push_str(pair);
        link.push('&');
    }
    if query.bytes("limit").is_none() {
        link.push_str(&format!("limit={PAGE}&"));
    }
    link.push_str(&format!("cursor={}>; rel=\"next\"", URL_SAFE_NO_PAD.encode(last)));
    link
}

/// The entries of a page for clients. `base` is the directory that was listed.
pub(super) fn views(base: &[u8], page: Page) -> Vec<FileView> {
    let Page { found, unread, .. } = page;
    let view = |one: FoundFile| {
        let reason = unread.get(&one.path).map(|reason| agent_code(*reason));
        FileView::below(base, one).unread(reason)
    };
    found.into_iter().map(view).collect()
}
