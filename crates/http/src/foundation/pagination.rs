//! Pages of lists: how many entries, after which one, and where the next page begins.

use crate::foundation::error::ApiError;
use crate::foundation::query::{self, Query};
use axum::Json;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isolet_sandbox::SandboxId;
use serde::Serialize;

/// The most entries on a page.
pub(crate) const PAGE_MAX: usize = 1000;

/// Selects a page of a list that is sorted by id.
#[derive(Debug)]
pub(crate) struct Pagination {
    /// The largest number of entries on the page.
    pub(crate) limit: usize,
    /// The last id of the previous page. Ids of all kinds have the same syntax.
    pub(crate) after: Option<SandboxId>,
}

/// One page of a list.
pub(crate) struct IdPage<T> {
    pub(crate) items: Vec<T>,
    /// The id of the last entry, if more entries follow.
    pub(crate) last: Option<String>,
}

impl Pagination {
    /// Parses `?limit=` (1 to 1000) and `?cursor=`; other parameters are refused.
    pub(crate) fn of(uri: &Uri, default: usize) -> Result<Self, ApiError> {
        let query = Query::of(uri, &["limit", "cursor"])?;
        let limit = match query.text("limit")? {
            None => Some(default),
            Some(text) => text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit)),
        };
        let limit = limit.ok_or_else(|| query::bad_parameter("limit", "1 to 1000"))?;
        Ok(Self { limit, after: query.text("cursor")?.map(decode_cursor).transpose()? })
    }

    /// Cuts the page out of the whole list.
    pub(crate) fn cut<T>(&self, mut all: Vec<T>, id: fn(&T) -> &str) -> IdPage<T> {
        let after = self.after.as_ref();
        let from = after.map_or(0, |after| all.partition_point(|one| id(one) <= after.as_str()));
        let mut page = all.split_off(from);
        let more = page.len() > self.limit;
        page.truncate(self.limit);
        let last = page.last().filter(|_| more).map(|last| id(last).to_owned());
        IdPage { items: page, last }
    }

    /// The `Link` to the page after this entry.
    pub(crate) fn next_link(&self, path: &str, last: &str) -> String {
        let cursor = URL_SAFE_NO_PAD.encode(last);
        format!("<{path}?limit={}&cursor={cursor}>; rel=\"next\"", self.limit)
    }

    /// The response: the entries, and a `Link` to the next page at `path`.
    pub(crate) fn answer<T, V: From<T> + Serialize>(
        &self,
        path: &str,
        page: IdPage<T>,
    ) -> Response {
        let next = page.last.map(|last| self.next_link(path, &last));
        with_next_link(next, Json(page.items.into_iter().map(V::from).collect::<Vec<_>>()))
    }
}

/// Decodes the cursor of a `Link`.
fn decode_cursor(text: &str) -> Result<SandboxId, ApiError> {
    let id = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let id = id.and_then(|id| SandboxId::parse(&id).ok());
    id.ok_or_else(|| {
        query::bad_parameter(
            "cursor",
            "must be the cursor from the Link header of the previous page",
        )
    })
}

/// Adds a `Link` to the next page.
pub(crate) fn with_next_link(next: Option<String>, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    if let Some(link) = next.and_then(|link| HeaderValue::try_from(link).ok()) {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(query: &str) -> Result<Pagination, ApiError> {
        Pagination::of(&format!("/list{query}").parse().unwrap(), 2)
    }

    #[test]
    fn pages_follow_one_another_to_the_end() {
        let all = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let mut seen = Vec::new();
        let mut query = String::new();
        loop {
            let IdPage { items: page, last } = paging(&query).unwrap().cut(all.clone(), |id| id);
            assert!(page.len() <= 2);
            seen.extend(page);
            let Some(last) = last else { break };
            query = format!("?cursor={}", URL_SAFE_NO_PAD.encode(last));
        }
        assert_eq!(seen, all);
        // Entries that were removed in between shift nothing.
        let IdPage { items: page, last } = paging("?cursor=YmI").unwrap().cut(all, |id| id);
        assert_eq!(
            (page.as_slice(), last.as_deref()),
            (&["c".to_owned(), "d".into()][..], Some("d"))
        );
    }

    #[test]
    fn an_invalid_page_is_refused() {
        for bad in
            ["?limit=0", "?limit=1001", "?limit=-1", "?limit=", "?cursor=%00", "?cursor=Li4v"]
        {
            assert!(paging(bad).is_err(), "{bad}");
        }
        assert_eq!(paging("?limit=1000").unwrap().limit, 1000);
    }
}
