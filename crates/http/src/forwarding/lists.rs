//! Makes one list of the lists of all nodes.
//!
//! Every list is sorted by id, so the id after which a page begins is the position in the list of
//! each node. A node that does not answer is named in the response; its entries are missing.

use crate::auth::caller::Caller;
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
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// The header of a response that names the nodes that did not answer.
pub(crate) const UNREACHABLE_NODES: HeaderName =
    HeaderName::from_static("isolet-unreachable-nodes");
/// How long a node may take to answer with its list.
const LIST_WAIT: Duration = Duration::from_secs(5);
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
    let own = Part { more: parts.headers.contains_key(header::LINK), text: collect(body).await? };
    merged.add(own).ok_or_else(unreadable)?;
    let fleet = &*joined.fleet;
    let asked = stream::iter(fleet.peers()).map(|peer| {
        let request = copy(&uri, &head);
        async move {
            let part = ask(fleet, &peer, request).await;
            (peer, part)
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
    Ok(merged.into_response(&uri, unreachable))
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
    let asked = async {
        let response = fleet.send(peer, request).await.ok()?.response;
        let (mut parts, body) = response.into_parts();
        let node = AnswerKind::take(&mut parts.headers) == Some(AnswerKind::Node);
        if !node || parts.status != StatusCode::OK {
            return None;
        }
        let more = parts.headers.contains_key(header::LINK);
        Some(Part { more, text: collect(body).await.ok()? })
    };
    timeout(LIST_WAIT, asked).await.ok().flatten()
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

/// Entries of all nodes so far, by their ids.
struct Merged {
    shape: ListShape,
    paging: Option<Pagination>,
    entries: BTreeMap<String, Box<RawValue>>,
    /// Whether entries follow after this page.
    more: bool,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
}

impl Merged {
    fn new(shape: ListShape, uri: &Uri) -> Result<Self, ApiError> {
        let paging = match shape {
            ListShape::Pages(default) => Some(Pagination::of(uri, default)?),
            ListShape::Member(_) => None,
        };
        Ok(Self { shape, paging, entries: BTreeMap::new(), more: false })
    }

    /// Adds the list of a node; `None` when it is malformed.
    fn add(&mut self, part: Part) -> Option<()> {
        let list: Vec<Box<RawValue>> = match self.shape {
            ListShape::Pages(_) => serde_json::from_slice(&part.text).ok()?,
            ListShape::Member(name) => {
                let object: BTreeMap<String, &RawValue> =
                    serde_json::from_slice(&part.text).ok()?;
                serde_json::from_str(object.get(name)?.get()).ok()?
            }
        };
        for entry in list {
            let id = serde_json::from_str::<Entry>(entry.get()).ok()?.id;
            // A node that has just lost a sandbox may still list it.
            self.entries.entry(id).or_insert(entry);
        }
        self.more |= part.more;
        let limit = self.paging.as_ref().map_or(usize::MAX, |paging| paging.limit);
        while self.entries.len() > limit {
            self.entries.pop_last();
            self.more = true;
        }
        Some(())
    }

    fn into_response(self, uri: &Uri, unreachable: Vec<String>) -> Response {
        let last = self.entries.last_key_value().map(|(id, _)| id.clone()).filter(|_| self.more);
        let next = self.paging.zip(last).map(|(paging, last)| paging.next_link(uri.path(), &last));
        let names = HeaderValue::try_from(unreachable.join(", "));
        let some = !unreachable.is_empty();
        let entries: Vec<_> = self.entries.into_values().collect();
        let body = match self.shape {
            ListShape::Pages(_) => Json(entries).into_response(),
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
