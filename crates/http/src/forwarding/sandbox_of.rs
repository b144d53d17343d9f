//! Finds what a request names: a sandbox in its path or its body, or a snapshot.

use crate::auth::caller::Caller;
use crate::forwarding::route_table::{BodyField, Creates, MissingField};
use crate::foundation::error::ApiError;
use crate::foundation::json;
use axum::RequestExt;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, Method, Uri};
use isolet_sandbox::{HOME, SandboxClass, SandboxId, SnapshotId, TenantId, ids};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The sandbox that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedSandbox {
    pub(crate) id: SandboxId,
    /// Whether the request creates it if it does not exist.
    pub(crate) creates: bool,
    /// What the new sandbox needs, as far as the request says so.
    pub(crate) wish: Wish,
    /// The snapshot that the request restores into the sandbox.
    pub(crate) called: Option<SnapshotId>,
}

/// What a body says about a new sandbox. Other members are for the handler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Wish {
    id: Option<String>,
    sandbox_id: Option<String>,
    sandbox: Option<String>,
    #[serde(alias = "snapshot_id")]
    pub(crate) snapshot: Option<String>,
    pub(crate) image: Option<String>,
    #[serde(alias = "mem_mib")]
    pub(crate) memory_mib: Option<u64>,
    pub(crate) disk_mib: Option<u64>,
    // Of any type: these fields may mean something else in other bodies than `POST /v1/sandboxes`.
    region: Option<Value>,
    labels: Option<Value>,
    class: Option<Value>,
}

impl Wish {
    /// The region that the node must be in.
    pub(crate) fn region(&self) -> Option<String> {
        Some(self.region.as_ref()?.as_str()?.to_owned())
    }

    /// The labels that the node must have.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let all = self.labels.iter().filter_map(Value::as_object).flatten();
        all.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
    }

    /// The class of the sandbox. Another word is for the handler, which refuses it.
    pub(crate) fn class(&self) -> SandboxClass {
        let word = self.class.as_ref().and_then(Value::as_str);
        word.and_then(SandboxClass::of_word).unwrap_or_default()
    }
}

impl NamedSandbox {
    pub(crate) fn existing(id: SandboxId) -> Self {
        Self { id, creates: false, wish: Wish::default(), called: None }
    }
}

/// The parameter of a path; `None` when the path has none, or a malformed one.
pub(crate) async fn path_parameter(request: &mut Request, name: &str) -> Option<String> {
    let all = request.extract_parts::<RawPathParams>().await.ok()?;
    all.iter().find(|(own, _)| *own == name).map(|(_, value)| value.to_owned())
}

/// The sandbox in the path; `None` when its id is malformed, which the handler refuses.
pub(crate) async fn in_path(
    request: &mut Request,
    caller: &Caller,
    creates: Creates,
) -> Option<NamedSandbox> {
    let id = SandboxId::parse(&path_parameter(request, "id").await?).ok()?;
    // A ticket for an existing sandbox never creates another one.
    let of_one = caller.ticket_scope.as_ref().is_some_and(|scope| scope.incarnation.is_some());
    let creates = !of_one
        && match creates {
            Creates::Never => false,
            Creates::IfMissing => true,
            Creates::Terminal => !caller.read_only && !only_attaches(request.uri()),
        };
    Some(NamedSandbox { creates, ..NamedSandbox::existing(id) })
}

/// Whether the query of a terminal says that only a running one is attached to.
fn only_attaches(uri: &Uri) -> bool {
    let closed = |pair| matches!(pair, "open=0" | "open=false");
    uri.query().is_some_and(|query| query.split('&').any(closed))
}

/// The sandbox that a body names or that the request creates; `None` when the handler refuses the
/// body. Also returns the request, with the body that was read.
///
/// # Errors
/// When the body is too long or does not arrive.
pub(crate) async fn in_body(
    request: Request,
    tenant: &TenantId,
    field: BodyField,
) -> Result<(Request, Option<NamedSandbox>), ApiError> {
    let (request, raw) = read(request).await?;
    let named = raw.and_then(|raw| {
        let mut wish = parse(&raw)?;
        if field.name != Some("id") {
            (wish.region, wish.labels) = (None, None);
        }
        let text = match field.name {
            Some("id") => wish.id.as_deref(),
            Some("sandbox_id") => wish.sandbox_id.as_deref(),
            Some("sandbox") => wish.sandbox.as_deref(),
            _ => None,
        };
        let id = match (text, field.missing) {
            (Some(text), _) => SandboxId::parse(text).ok()?,
            (None, MissingField::Refused) => return None,
            (None, MissingField::Home) => SandboxId::parse(HOME).ok()?,
            (None, MissingField::Generated) => new_id(&request, tenant, "sb_")?,
            (None, MissingField::GeneratedBare) => new_id(&request, tenant, "")?,
        };
        Some(NamedSandbox { creates: field.creates, wish, ..NamedSandbox::existing(id) })
    });
    Ok((request, named))
}

/// The snapshot that a request restores into a sandbox; `None` for other requests. Also returns the request,
/// with the body that was read.
///
/// # Errors
/// When the body is too long or does not arrive.
pub(crate) async fn called_snapshot(
    request: Request,
) -> Result<(Request, Option<SnapshotId>), ApiError> {
    let path = request.uri().path().strip_prefix("/v1/sandboxes/");
    let id = path.and_then(|path| path.strip_suffix("/restore"));
    let restores = id.is_some_and(|id| !id.contains('/')) && *request.method() == Method::POST;
    match restores {
        true => snapshot_in_body(request).await,
        false => Ok((request, None)),
    }
}

/// The snapshot that a body names. Also returns the request, with the body that was read.
///
/// # Errors
/// When the body is too long or does not arrive.
pub(crate) async fn snapshot_in_body(
    request: Request,
) -> Result<(Request, Option<SnapshotId>), ApiError> {
    let (request, raw) = read(request).await?;
    let named = raw.and_then(|raw| SnapshotId::parse(parse(&raw)?.snapshot.as_deref()?).ok());
    Ok((request, named))
}

/// Reads the body of a request with a JSON body; `None` when the handler refuses it.
async fn read(request: Request) -> Result<(Request, Option<Bytes>), ApiError> {
    let (parts, body) = request.into_parts();
    if json::reject_content_encoding(&parts.headers).is_err() {
        return Ok((Request::from_parts(parts, body), None));
    }
    let raw = json::read_body(body, parts.extensions.get()).await?;
    let good = raw.is_empty() || json::require_json_type(&parts.headers).is_ok();
    let request = Request::from_parts(parts, Body::from(raw.clone()));
    Ok((request, good.then_some(raw)))
}

/// A missing body counts as an empty object.
fn parse(raw: &[u8]) -> Option<Wish> {
    serde_json::from_slice(if raw.is_empty() { b"{}" } else { raw }).ok()
}

/// The id of a new sandbox. With an idempotency key it is the same for every request with the key,
/// so that the node that remembers the first one gets them all.
fn new_id(request: &Request, tenant: &TenantId, prefix: &str) -> Option<SandboxId> {
    let Some(key) = idempotency_key(request.headers()) else {
        let id = SandboxId::parse(&format!("{prefix}{}", ids::random())).ok()?;
        return Some(id);
    };
    let mut hash = Sha256::new();
    for part in [request.uri().path().as_bytes(), tenant.as_str().as_bytes(), key] {
        // Neither a path nor a tenant contains NUL.
        hash.update(part);
        hash.update([0]);
    }
    let text = format!("{prefix}{}", letters(&hash.finalize().into()));
    SandboxId::parse(&text).ok()
}

/// The key, if there is one. The handler refuses a malformed one.
fn idempotency_key(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get("idempotency-key").map(|key| key.as_bytes())
}

/// 26 letters and digits (`[a-z2-7]`), as in generated ids.
fn letters(hash: &[u8; 32]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    hash.iter().take(26).map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarding::route_table::{Routing, routing};

    async fn of_body(
        path: &'static str,
        headers: &[(&'static str, &'static str)],
        body: &'static str,
    ) -> Option<NamedSandbox> {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let Routing::Body(field) = routing(&Method::POST, path) else { panic!("{path}") };
        let tenant = TenantId::parse("acme").unwrap();
        let (request, named) = in_body(request, &tenant, field).await.unwrap();
        let bytes = axum::body::to_bytes(request.into_body(), 1024).await.unwrap();
        assert_eq!(bytes, body, "the handler gets the whole body");
        named
    }

    #[tokio::test]
    async fn a_body_names_the_sandbox_that_it_creates() {
        let body = r#"{"id":"box","memory_mib":64,"snapshot":"s","metadata":{"id":1}}"#;
        let named = of_body("/v1/sandboxes", &[], body).await.unwrap();
        assert_eq!((named.id.as_str(), named.creates), ("box", true));
        assert_eq!(named.wish.memory_mib, Some(64));
        assert_eq!(named.wish.snapshot.as_deref(), Some("s"));
        let body = r#"{"region":"eu","labels":{"gpu":"yes"}}"#;
        let of_node = of_body("/v1/sandboxes", &[], body).await.unwrap().wish;
        assert_eq!(of_node.region().as_deref(), Some("eu"));
        assert_eq!(of_node.labels(), BTreeMap::from([("gpu".to_owned(), "yes".to_owned())]));
        let other = of_body("/v1/runs", &[], body).await.unwrap().wish;
        assert_eq!((other.region(), other.labels().len()), (None, 0));
        let ticket = of_body("/v1/tickets", &[], r#"{"sandbox":"box"}"#).await.unwrap();
        assert_eq!((ticket.id.as_str(), ticket.creates), ("box", false));
        let session = of_body("/v1/sessions", &[], "").await.unwrap();
        assert_eq!((session.id.as_str(), session.creates), (HOME, true));
    }

    #[tokio::test]
    async fn a_body_that_the_handler_refuses_names_none() {
        for bad in ["[]", "{", r#"{"id":1}"#, r#"{"id":"a/b"}"#, r#"{"id":"a","id":"b"}"#] {
            assert_eq!(of_body("/v1/sandboxes", &[], bad).await, None, "{bad}");
        }
        let encoded = [("content-encoding", "gzip")];
        assert_eq!(of_body("/v1/sandboxes", &encoded, "{}").await, None);
        let text = [("content-type", "text/plain")];
        assert_eq!(of_body("/v1/sandboxes", &text, "{}").await, None);
        assert_eq!(of_body("/v1/tickets", &[], "{}").await, None);
    }

    #[tokio::test]
    async fn one_idempotency_key_has_one_id() {
        let one = of_body("/v1/runs", &[], "{}").await.unwrap();
        let two = of_body("/v1/runs", &[], "{}").await.unwrap();
        assert_ne!(one.id, two.id);
        let with = |key: &'static str| [("idempotency-key", key)];
        let one = of_body("/v1/runs", &with("k"), "{}").await.unwrap();
        let two = of_body("/v1/runs", &with("k"), "{}").await.unwrap();
        assert_eq!(one, two);
        assert!(one.id.as_str().starts_with("sb_") && one.id.as_str().len() == 29);
        let others = [
            of_body("/v1/runs", &with("l"), "{}").await.unwrap(),
            of_body("/v1/sandboxes", &with("k"), "{}").await.unwrap(),
        ];
        assert!(others.iter().all(|other| other.id != one.id));
        let bare = of_body("/v1/sandbox", &[], "{}").await.unwrap();
        assert!(bare.id.as_str().len() == 26, "{}", bare.id);
    }
}
