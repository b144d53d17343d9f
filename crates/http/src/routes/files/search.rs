//! Searches files for lines that match a pattern.

use crate::foundation::error::ApiError;
use crate::foundation::query::{self, Query};
use crate::routes::files::listing::glob;
use crate::routes::files::target::whole;
use crate::routes::files::view::text;
use isolet_sandbox::Sandbox;
use isolet_sandbox::files::{CONTEXT_MAX, PAGE_MAX, PATTERN_BYTES_MAX};
use isolet_wire::request::SearchQuery;
use isolet_wire::response::{SearchLine, SearchSummary};
use serde::Serialize;
use utoipa::ToSchema;

/// The default number of matching lines.
const MATCHES: u32 = 1000;
/// The result of a search.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SearchResult)]
pub(crate) struct FoundView {
    /// The lines, sorted by path and line number.
    lines: Vec<LineView>,
    /// Whether there are more matches. Narrow the search, or raise `limit`.
    more: bool,
    /// The number of searched files.
    files: u64,
    /// The number of binary files among them, which were searched up to their first NUL byte only.
    binary: u64,
    /// The number of files that could not be read, or that have a line longer than 8 MiB.
    unread: u64,
}

/// A matching line, or a line near one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SearchLine)]
struct LineView {
    /// The absolute path of its file inside the sandbox.
    path: String,
    /// The exact bytes in base64. Present only if they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    path_b64: Option<String>,
    /// The line number, from 1.
    line: u64,
    /// The text of the line.
    text: String,
    /// The exact bytes in base64. Present only if they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    text_b64: Option<String>,
    /// Whether only the first 2048 bytes are returned. Absent if `false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// The matches, as byte offsets in the line: start and end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Vec<u32>>)]
    spans: Vec<(u32, u32)>,
    /// Whether the line does not match but is near a match. Absent if `false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    context: bool,
}

/// Parses a search; `None` when the query asks for none.
pub(super) fn wish(query: &Query<'_>) -> Result<Option<SearchQuery>, ApiError> {
    let Some(pattern) = query.text("search")? else {
        for name in ["literal", "ignore_case", "ignored", "context"] {
            if query.bytes(name).is_some() {
                return Err(query::bad_parameter(name, "requires search"));
            }
        }
        return Ok(None);
    };
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
        return Err(query::bad_parameter("search", "1 to 4096 bytes"));
    }
    for name in ["recursive", "cursor", "tar", "watch", "changes_since"] {
        if query.bytes(name).is_some() {
            return Err(query::bad_parameter(name, "cannot be combined with search"));
        }
    }
    let number = |name: &str, min: u32, max: u32, default: u32| match query.text(name)? {
        None => Ok(default),
        Some(text) => text
            .parse()
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| query::bad_parameter(name, &format!("{min} to {max}"))),
    };
    Ok(Some(SearchQuery {
        pattern: pattern.to_owned(),
        literal: query.flag("literal")?,
        ignore_case: query.flag("ignore_case")?,
        hidden: query.flag("hidden")?,
        ignored: query.flag("ignored")?,
        glob: glob(query)?,
        context: number("context", 0, CONTEXT_MAX, 0)?,
        max: number("limit", 1, PAGE_MAX, MATCHES)?,
    }))
}

/// Searches, and converts the result.
pub(super) async fn search(
    sandbox: &Sandbox,
    path: &[u8],
    wish: SearchQuery,
) -> Result<FoundView, ApiError> {
    let (lines, end) = sandbox.file_search(path, wish).await?;
    let base = whole(path);
    let SearchSummary { files, binary, unread, more } = end;
    let lines = lines.into_iter().map(|line| LineView::of(&base, line)).collect();
    Ok(FoundView { lines, more, files, binary, unread })
}

impl LineView {
    fn of(base: &[u8], line: SearchLine) -> Self {
        let path = match line.path.as_slice() {
            b"" => base.to_vec(),
            below if base == b"/" => [b"/", below].concat(),
            below => [base, b"/", below].concat(),
        };
        let (path, path_b64) = text(&path);
        // A character that the limit has cut does not make the text binary.
        let whole = match std::str::from_utf8(&line.text) {
            Err(error) if line.cut && error.error_len().is_none() => {
                &line.text[..error.valid_up_to()]
            }
            _ => &line.text,
        };
        let (text, text_b64) = text(whole);
        let SearchLine { number, cut, spans, context, .. } = line;
        Self { path, path_b64, line: number, text, text_b64, cut, spans, context }
    }
}
