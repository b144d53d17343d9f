//! A request on its way to another node.

use crate::auth::API_KEY;
use crate::auth::caller::Caller;
use crate::auth::tickets;
use crate::connection::connections::ClientConnection;
use crate::forwarding::peer_head::{PeerHead, PeerTarget};
use crate::forwarding::replay_body::ReplayBody;
use crate::foundation::request_id::{REQUEST_ID, current_request_id};
use crate::foundation::trace;
use crate::limits::limiter::SocketPermit;
use crate::proxy::headers;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, header};
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;
use tracing::Span;

/// Headers that hold what the client proves its rights with, and those that only this node answers.
const STRIPPED: [HeaderName; 4] =
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::FORWARDED, header::EXPECT];
/// Further headers that are not for a program below this server's own origin.
const STRIPPED_WITHOUT_HOST: [HeaderName; 2] = [header::COOKIE, header::REFERER];

/// A request, until some node has answered it.
pub(crate) struct Outgoing {
    parts: Parts,
    body: ReplayBody,
    /// What the other node learns about the client.
    pub(crate) head: PeerHead,
    /// Whether `Authorization` is for the program behind a port.
    keep_authorization: bool,
    /// The client's connection after a switch of protocols.
    upgrade: Option<OnUpgrade>,
    pub(crate) socket_permit: Option<SocketPermit>,
    pub(crate) connection: Option<Arc<ClientConnection>>,
}

impl Outgoing {
    pub(crate) fn new(request: Request<Body>, caller: Option<&Caller>) -> Self {
        let (mut parts, body) = request.into_parts();
        let head = PeerHead::of(&parts.extensions, caller);
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let upgrade = upgrade.filter(|_| headers::upgrades(&parts.method, &parts.headers));
        let socket_permit = parts.extensions.remove();
        let connection = parts.extensions.remove();
        let keep_authorization = false;
        let body = ReplayBody::new(body);
        Self { parts, body, head, keep_authorization, upgrade, socket_permit, connection }
    }

    /// For a request that came by the host name of a port.
    pub(crate) fn by_port_host(mut self, label: &str, keep_authorization: bool) -> Self {
        self.head.port_label = Some(label.to_owned());
        self.keep_authorization = keep_authorization;
        self
    }

    /// Whether the request only reads, so that it may be carried out twice.
    pub(crate) fn only_reads(&self) -> bool {
        self.parts.method.is_safe() && self.upgrade.is_none()
    }

    /// Whether the request can be sent to another node, or answered here, after it was sent.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.body.is_whole()
    }

    /// Reads a short body, so that it is sent together with the head.
    pub(super) async fn read_short_body(&self) {
        self.body.read_short().await;
    }

    pub(super) fn take_upgrade(&mut self) -> Option<OnUpgrade> {
        self.upgrade.take()
    }

    /// The request as another node receives it.
    pub(super) fn request(&mut self, target: Option<PeerTarget>, span: &Span) -> Request<Body> {
        let mut request = Request::new(self.body.read());
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.uri();
        *request.version_mut() = Version::HTTP_11;
        self.head.target = target;
        *request.headers_mut() = self.headers(span);
        request
    }

    /// The request for a handler of this node, which owns the sandbox after all.
    pub(crate) fn into_request(mut self) -> Request<Body> {
        let extensions = &mut self.parts.extensions;
        if let Some(upgrade) = self.upgrade {
            extensions.insert(upgrade);
        }
        if let Some(permit) = self.socket_permit {
            extensions.insert(permit);
        }
        if let Some(connection) = self.connection {
            extensions.insert(connection);
        }
        Request::from_parts(self.parts, self.body.read())
    }

    /// Path and query, without the ticket that was redeemed.
    fn uri(&self) -> Uri {
        let uri = &self.parts.uri;
        let redeemed = self.head.caller.as_ref().is_some_and(|caller| caller.has_ticket());
        let query = uri.query().map(|query| match redeemed {
            true => headers::query_without(query, tickets::QUERY_NAME),
            false => query.to_owned(),
        });
        let text = match query.filter(|query| !query.is_empty()) {
            Some(query) => format!("{}?{query}", uri.path()),
            None => uri.path().to_owned(),
        };
        PathAndQuery::try_from(text).map_or_else(|_| uri.clone(), Uri::from)
    }

    fn headers(&self, span: &Span) -> HeaderMap {
        let mut sent = self.parts.headers.clone();
        let trailers = headers::accepts_trailers(&sent);
        headers::remove_hop_by_hop(&mut sent);
        let authorization = sent.get(header::AUTHORIZATION).cloned();
        STRIPPED.iter().for_each(|name| drop(sent.remove(name)));
        match &self.head.port_label {
            None => {
                STRIPPED_WITHOUT_HOST.iter().for_each(|name| drop(sent.remove(name)));
                sent.remove(API_KEY);
            }
            Some(_) => {
                if let Some(value) = authorization.filter(|_| self.keep_authorization) {
                    sent.insert(header::AUTHORIZATION, value);
                }
            }
        }
        if trailers {
            sent.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        if self.upgrade.is_some() {
            sent.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            sent.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        if let Some(Ok(id)) = current_request_id().map(HeaderValue::try_from) {
            sent.insert(REQUEST_ID, id);
        }
        trace::propagate(span, &mut sent);
        self.head.write(&mut sent);
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Method;
    use isolet_sandbox::{SandboxId, TenantId};

    fn caller() -> Caller {
        Caller {
            tenant: TenantId::default_tenant(),
            read_only: false,
            key: None,
            ticket_scope: None,
            forwarded: false,
        }
    }

    fn request(headers: &[(&'static str, &'static str)]) -> Request<Body> {
        let mut request = Request::new(Body::from("{}"));
        *request.method_mut() = Method::GET;
        *request.uri_mut() = "/v1/sandboxes/box/files/a%20b?x=1&y=%2f".parse().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        request
    }

    fn sent(headers: &[(&'static str, &'static str)]) -> Request<Body> {
        let target = PeerTarget {
            tenant: TenantId::default_tenant(),
            sandbox: SandboxId::parse("box").unwrap(),
            epoch: 7,
        };
        Outgoing::new(request(headers), Some(&caller())).request(Some(target), &Span::none())
    }

    #[test]
    fn no_secret_of_the_client_reaches_another_node() {
        let request = sent(&[
            ("authorization", "Bearer secret"),
            ("proxy-authorization", "Basic secret"),
            ("cookie", "isolet-port=secret"),
            ("referer", "http://x/v1/links/secret/"),
            ("isolet-peer", "{\"forged\":1}"),
            ("accept", "text/event-stream"),
            ("idempotency-key", "k"),
        ]);
        let text = format!("{:?}", request.headers());
        assert!(!text.contains("secret") && !text.contains("forged"), "{text}");
        assert_eq!(request.headers()["accept"], "text/event-stream");
        assert_eq!(request.headers()["idempotency-key"], "k");
        assert_eq!(request.uri(), "/v1/sandboxes/box/files/a%20b?x=1&y=%2f");
        let mut headers = request.headers().clone();
        let head = PeerHead::take(&mut headers).unwrap();
        assert_eq!(head.target.unwrap().epoch, 7);
    }

    #[test]
    fn hop_by_hop_headers_are_not_sent_on() {
        let request = sent(&[
            ("connection", "close, x-secret"),
            ("x-secret", "1"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
        ]);
        let names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["te", "isolet-peer"]);
        assert_eq!(request.headers()["te"], "trailers");
    }

    #[test]
    fn a_port_with_a_host_name_gets_its_own_cookies_and_authorization() {
        let headers = [("authorization", "Bearer program"), ("cookie", "a=b")];
        for keep in [false, true] {
            let mut outgoing = Outgoing::new(request(&headers), None).by_port_host("80-box", keep);
            let request = outgoing.request(None, &Span::none());
            assert_eq!(request.headers().contains_key("authorization"), keep);
            assert_eq!(request.headers()["cookie"], "a=b");
        }
    }

    #[test]
    fn a_redeemed_ticket_is_removed_from_the_query() {
        let mut with_ticket = request(&[]);
        *with_ticket.uri_mut() = "/v1/sandboxes/box/shell?watch=1&ticket=abc".parse().unwrap();
        let scope = crate::auth::caller::TicketScope {
            sandbox: SandboxId::parse("box").unwrap(),
            incarnation: None,
            session: None,
            purpose: crate::auth::caller::SocketPurpose::Shell,
            port: None,
        };
        let caller = Caller { ticket_scope: Some(scope), ..caller() };
        let mut outgoing = Outgoing::new(with_ticket, Some(&caller));
        let request = outgoing.request(None, &Span::none());
        assert_eq!(request.uri(), "/v1/sandboxes/box/shell?watch=1");
    }
}
