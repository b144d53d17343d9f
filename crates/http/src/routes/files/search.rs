//! Searches files for lines that match a pattern.

use crate::{
    foundation::{
        error::ApiError,
        query::{self, Query},
    },
    routes::files::{listing::glob, target::whole, view::text},
};
use isolet_sandbox::{
    Sandbox,
    files::{CONTEXT_MAX, PAGE_MAX, PATTERN_BYTES_MAX},
};
use isolet_wire::{
    request::Search,
    response::{Line, Searched},
};
use serde::Serialize;
use utoipa::ToSchema;

/// The default number of matching lines.
const MATCHES: u32 = 1000;
/// What a search has found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundView {
    /// Sorted by path, then by number.
    lines: Vec<LineView>,
    /// There is more than that: narrow the search, or raise `limit`.
    more: bool,
    /// Files that were searched.
    files: u64,
    /// Of these, binary ones: what lies behind their first NUL was not looked at.
    binary: u64,
    /// Files that could not be read, or hold a line above 8 MiB.
    unread: u64,
}

/// A line that matches, or one beside it.
#[derive(Debug, Serialize, ToSchema)]
struct LineView {
    /// Of its file, from the root of the sandbox on.
    path: String,
    /// The same in base64, where it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    /// Its number, from 1 on.
    line: u64,
    /// Without its end.
    text: String,
    /// The same in base64, where it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text_b64: Option<String>,
    /// Only its first 2048 bytes are told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// What matched: bytes of the line, from and to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spans: Vec<(u32, u32)>,
    /// It stands beside a match, and is none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    context: bool,
}

/// Parses a search; `None` when the query asks for none.
pub(super) fn wish(query: &Query<'_>) -> Result<Option<Search>, ApiError> {
    let Some(pattern) = query.text("search")? else {
        for name in ["literal", "ignore_case", "ignored", "context"] {
            if query.bytes(name).is_some() {
                return Err(query::bad_parameter(name, "stands with search"));
            }
        }
        return Ok(None);
    };
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
        return Err(query::bad_parameter("search", "1 to 4096 bytes"));
    }
    for name in ["recursive", "cursor", "tar", "watch"] {
        if query.bytes(name).is_some() {
            return Err(query::bad_parameter(name, "does not stand with search"));
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
    Ok(Some(Search {
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
    wish: Search,
) -> Result<FoundView, ApiError> {
    let (lines, end) = sandbox.file_search(path, wish).await?;
    let base = whole(path);
    let Searched { files, binary, unread, more } = end;
    let lines = lines.into_iter().map(|line| LineView::of(&base, line)).collect();
    Ok(FoundView { lines, more, files, binary, unread })
}

impl LineView {
    fn of(base: &[u8], line: Line) -> Self {
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
        let Line { number, cut, spans, context, .. } = line;
        Self { path, path_b64, line: number, text, text_b64, cut, spans, context }
    }
}
