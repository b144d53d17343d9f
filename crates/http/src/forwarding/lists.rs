//! Makes one list of the lists of all nodes.
//!
//! Every list is sorted by id, so the id after which a page begins is the position in the list of
//! each node. A node that does not answer is named in the response; its entries are missing.

pub(crate) mod stored;

use crate::auth::caller::Caller;
use crate::dialects::e2b::routes::{NEXT_TOKEN, started_token};
use crate::fleet::joined::JoinedFleet;
use crate::fleet::{Fleet, Peer};
use crate::forwarding::peer_head::{AnswerKind, PeerHead};
use crate::forwarding::route_table::ListShape;
use crate::foundation::error::ApiError;
use crate::foundation::pagination::{Pagination, with_next_link};
use crate::foundation::request_id::{REQUEST_ID, current_request_id};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The header of a response that names the nodes that did not answer.
pub(crate) const UNREACHABLE_NODES: HeaderName =
    HeaderName::from_static("isolet-unreachable-nodes");
/// The header of a response without entries that no node has; see [`STORED`].
pub(crate) const MISSING: HeaderName = HeaderName::from_static("isolet-missing");
/// Sandboxes that only the object store has are missing, because etcd cannot be read.
pub(crate) const STORED: HeaderValue = HeaderValue::from_static("stored");
/// How long a node may take to answer with its list.
const LIST_WAIT: Duration = Duration::from_secs(5);
/// How long all nodes together may take. Those that have not answered by then are named.
const LISTS_WAIT: Duration = Duration::from_secs(15);
/// The longest list of one node: a page of 1000 sandboxes with 16 KiB of metadata each.
const LIST_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How many nodes answer at the same time, which bounds the memory for their lists.
const ASKED_AT_ONCE: usize = 8;

/// Answers a request for a list.
///
/// # Errors
/// When the request is malformed. Nodes that fail are named in the response.
pub(crate) async fn answer(
    joined: &JoinedFleet,
    caller: &Caller,
    shape: ListShape,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if *request.method() != Method::GET {
        return Ok(next.run(request).await);
    }
    let uri = request.uri().clone();
    let head = PeerHead::of(request.extensions(), Some(caller));
    let own = next.run(request).await;
    if own.status() != StatusCode::OK {
        return Ok(own);
    }
    let mut merged = Merged::new(shape, &uri)?;
    let (parts, body) = own.into_parts();
    let missing = parts.headers.get(MISSING).cloned();
    let own = Part { more: continues(&parts.headers), text: collect(body).await? };
    merged.add(own).ok_or_else(unreadable)?;
    let fleet = &*joined.fleet;
    let until = Instant::now() + LISTS_WAIT;
    let asked = stream::iter(fleet.peers()).map(|peer| {
        let request = copy(&uri, &head);
        async move {
            let wait = LIST_WAIT.min(until.saturating_duration_since(Instant::now()));
            let part = timeout(wait, ask(fleet, &peer, request)).await;
            (peer, part.ok().flatten())
        }
    });
    let mut answers = asked.buffer_unordered(ASKED_AT_ONCE);
    let mut unreachable = Vec::new();
    while let Some((peer, part)) = answers.next().await {
        if part.and_then(|part| merged.add(part)).is_none() {
            unreachable.push(peer.node.to_string());
        }
    }
    unreachable.sort();
    let mut response = merged.into_response(&uri, unreachable);
    if let Some(missing) = missing {
        response.headers_mut().insert(MISSING, missing);
    }
    Ok(response)
}

/// The request for the list of another node.
fn copy(uri: &Uri, head: &PeerHead) -> Request {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() =
        uri.path_and_query().map_or_else(|| uri.clone(), |path| path.clone().into());
    head.write(request.headers_mut());
    if let Some(Ok(id)) = current_request_id().map(HeaderValue::try_from) {
        request.headers_mut().insert(REQUEST_ID, id);
    }
    request
}

/// The list of one node.
struct Part {
    /// Whether the node has more entries after this page.
    more: bool,
    text: Bytes,
}

async fn ask(fleet: &dyn Fleet, peer: &Peer, request: Request) -> Option<Part> {
    let response = fleet.send(peer, request).await.ok()?.response;
    let (mut parts, body) = response.into_parts();
    let node = AnswerKind::take(&mut parts.headers) == Some(AnswerKind::Node);
    if !node || parts.status != StatusCode::OK {
        return None;
    }
    let more = continues(&parts.headers);
    Some(Part { more, text: collect(body).await.ok()? })
}

/// Whether a response says that entries follow after its page.
fn continues(headers: &HeaderMap) -> bool {
    headers.contains_key(header::LINK) || headers.contains_key(NEXT_TOKEN)
}

async fn collect(body: Body) -> Result<Bytes, ApiError> {
    let body = Limited::new(body, LIST_BYTES_MAX).collect().await;
    Ok(body.map_err(|_| unreadable())?.to_bytes())
}

fn unreadable() -> ApiError {
    let hint = "ask for a shorter page";
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    ApiError::new(status, "internal_error", "the list of this node cannot be read", hint)
}

/// Entries of all nodes so far.
struct Merged {
    shape: ListShape,
    paging: Option<Pagination>,
    /// The most entries of a page.
    limit: usize,
    /// Whether a page begins with the last entry.
    descending: bool,
    /// By their ids, or by what else they are sorted by.
    entries: BTreeMap<String, Box<RawValue>>,
    /// Whether entries follow after this page.
    more: bool,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(alias = "sandboxID", alias = "snapshotID")]
    id: String,
    #[serde(default, rename = "startedAt")]
    started_at: String,
}

/// A parameter of a query that a handler has already accepted.
fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(own, _)| *own == name).map(|(_, value)| value)
}

impl Merged {
    fn new(shape: ListShape, uri: &Uri) -> Result<Self, ApiError> {
        let paging = match shape {
            ListShape::Pages(default) => Some(Pagination::of(uri, default)?),
            _ => None,
        };
        let mut limit = paging.as_ref().map_or(usize::MAX, |paging| paging.limit);
        let mut descending = false;
        if let ListShape::Started(default) = shape {
            limit = parameter(uri, "limit").and_then(|text| text.parse().ok()).unwrap_or(default);
            descending = parameter(uri, "order") != Some("asc");
        }
        Ok(Self { shape, paging, limit, descending, entries: BTreeMap::new(), more: false })
    }

    /// Adds the list of a node; `None` when it is malformed.
    fn add(&mut self, part: Part) -> Option<()> {
        let list: Vec<Box<RawValue>> = match self.shape {
            ListShape::Pages(_) | ListShape::Array | ListShape::Started(_) => {
                serde_json::from_slice(&part.text).ok()?
            }
            ListShape::Member(name) => {
                let object: BTreeMap<String, &RawValue> =
                    serde_json::from_slice(&part.text).ok()?;
                serde_json::from_str(object.get(name)?.get()).ok()?
            }
        };
        for entry in list {
            let Entry { id, started_at } = serde_json::from_str(entry.get()).ok()?;
            let key = match self.shape {
                ListShape::Started(_) => started_token(&started_at, &id),
                _ => id,
            };
            // A node that has just lost a sandbox may still list it.
            self.entries.entry(key).or_insert(entry);
        }
        self.more |= part.more;
        while self.entries.len() > self.limit {
            match self.descending {
                true => self.entries.pop_first(),
                false => self.entries.pop_last(),
            };
            self.more = true;
        }
        Some(())
    }

    fn into_response(self, uri: &Uri, unreachable: Vec<String>) -> Response {
        let last = match self.descending {
            true => self.entries.first_key_value(),
            false => self.entries.last_key_value(),
        };
        let last = last.map(|(key, _)| key.clone()).filter(|_| self.more);
        let token = last.as_ref().filter(|_| matches!(self.shape, ListShape::Started(_)));
        let token = token.and_then(|token| HeaderValue::try_from(token.as_str()).ok());
        let next = self.paging.zip(last).map(|(paging, last)| paging.next_link(uri.path(), &last));
        let names = HeaderValue::try_from(unreachable.join(", "));
        let some = !unreachable.is_empty();
        let mut entries: Vec<_> = self.entries.into_values().collect();
        if self.descending {
            entries.reverse();
        }
        let body = match self.shape {
            ListShape::Pages(_) | ListShape::Array | ListShape::Started(_) => {
                Json(entries).into_response()
            }
            ListShape::Member(name) => {
                let raw = |value| to_raw_value(value).unwrap_or_default();
                let mut object = BTreeMap::from([(name, raw(&entries))]);
                if some {
                    let names = to_raw_value(&unreachable).unwrap_or_default();
                    object.insert("unreachable_nodes", names);
                }
                Json(object).into_response()
            }
        };
        let mut response = with_next_link(next, body);
        if let Some(token) = token {
            response.headers_mut().insert(NEXT_TOKEN, token);
        }
        if let Some(Ok(names)) = some.then_some(names) {
            response.headers_mut().insert(UNREACHABLE_NODES, names);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &'static str, more: bool) -> Part {
        Part { more, text: Bytes::from_static(text.as_bytes()) }
    }

    async fn text(response: Response) -> String {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn pages_are_merged_by_id_and_cut() {
        let uri: Uri = "/v1/sandboxes?limit=3".parse().unwrap();
        let mut merged = Merged::new(ListShape::Pages(100), &uri).unwrap();
        merged.add(part(r#"[{"id":"a","n":1},{"id":"d","n":1}]"#, false)).unwrap();
        merged.add(part(r#"[{"id":"b","n":2},{"id":"c","n":2}]"#, false)).unwrap();
        merged.add(part(r#"[{"id":"a","n":3}]"#, false)).unwrap();
        assert!(merged.add(part(r#"[{"n":3}]"#, false)).is_none());
        let response = merged.into_response(&uri, vec!["n3".into()]);
        assert_eq!(response.headers()[UNREACHABLE_NODES], "n3");
        let link = response.headers()[header::LINK].to_str().unwrap().to_owned();
        assert_eq!(link, "</v1/sandboxes?limit=3&cursor=Yw>; rel=\"next\"");
        assert_eq!(text(response).await, r#"[{"id":"a","n":1},{"id":"b","n":2},{"id":"c","n":2}]"#);
    }

    #[tokio::test]
    async fn pages_by_time_begin_with_the_latest_and_have_a_token() {
        let merged = |query: &str| {
            let uri: Uri = format!("/v2/sandboxes?limit=2{query}").parse().unwrap();
            let mut merged = Merged::new(ListShape::Started(100), &uri).unwrap();
            let one = r#"[{"sandboxID":"a","startedAt":"3"},{"sandboxID":"b","startedAt":"1"}]"#;
            merged.add(part(one, false)).unwrap();
            merged.add(part(r#"[{"sandboxID":"c","startedAt":"2"}]"#, false)).unwrap();
            merged.into_response(&uri, Vec::new())
        };
        let latest = merged("");
        assert_eq!(latest.headers()[NEXT_TOKEN], "2_c");
        let all = r#"[{"sandboxID":"a","startedAt":"3"},{"sandboxID":"c","startedAt":"2"}]"#;
        assert_eq!(text(latest).await, all);
        let earliest = merged("&order=asc");
        assert_eq!(earliest.headers()[NEXT_TOKEN], "2_c");
        let all = r#"[{"sandboxID":"b","startedAt":"1"},{"sandboxID":"c","startedAt":"2"}]"#;
        assert_eq!(text(earliest).await, all);
        let uri: Uri = "/snapshots".parse().unwrap();
        let mut merged = Merged::new(ListShape::Array, &uri).unwrap();
        merged.add(part(r#"[{"snapshotID":"b"}]"#, false)).unwrap();
        merged.add(part(r#"[{"snapshotID":"a"}]"#, false)).unwrap();
        let all = text(merged.into_response(&uri, Vec::new())).await;
        assert_eq!(all, r#"[{"snapshotID":"a"},{"snapshotID":"b"}]"#);
    }

    #[tokio::test]
    async fn a_list_without_pages_names_the_nodes_that_are_missing() {
        let uri: Uri = "/v1/snapshots".parse().unwrap();
        let merged = |unreachable| {
            let mut merged = Merged::new(ListShape::Member("snapshots"), &uri).unwrap();
            merged.add(part(r#"{"snapshots":[{"id":"b"}]}"#, false)).unwrap();
            merged
                .add(part(r#"{"snapshots":[{"id":"a"}],"unreachable_nodes":[]}"#, false))
                .unwrap();
            merged.into_response(&uri, unreachable)
        };
        let all = merged(Vec::new());
        assert!(!all.headers().contains_key(UNREACHABLE_NODES));
        assert_eq!(text(all).await, r#"{"snapshots":[{"id":"a"},{"id":"b"}]}"#);
        let some = r#"{"snapshots":[{"id":"a"},{"id":"b"}],"unreachable_nodes":["n2"]}"#;
        assert_eq!(text(merged(vec!["n2".into()])).await, some);
    }

    #[test]
    fn a_page_that_a_node_continues_has_a_next_one() {
        let uri: Uri = "/v1/sandboxes".parse().unwrap();
        let mut merged = Merged::new(ListShape::Pages(100), &uri).unwrap();
        merged.add(part("[]", false)).unwrap();
        let last = merged.into_response(&uri, Vec::new());
        assert!(!last.headers().contains_key(header::LINK));
        let mut merged = Merged::new(ListShape::Pages(100), &uri).unwrap();
        merged.add(part(r#"[{"id":"a"}]"#, true)).unwrap();
        assert!(merged.into_response(&uri, Vec::new()).headers().contains_key(header::LINK));
    }
}
