//! Sends one request to another node, and streams its response back.

use crate::auth::cancellation::{Cancellation, CancellationReason};
use crate::fleet::{Fleet, Peer, PeerResponse, SendFailure};
use crate::forwarding::errors;
use crate::forwarding::outgoing::Outgoing;
use crate::forwarding::peer_head::{AnswerKind, PeerTarget};
use crate::forwarding::relay_body::RelayBody;
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::is_event_stream;
use crate::foundation::extensions::Forwarded;
use crate::limits::limiter::Permit;
use crate::limits::permit_body::hold_permit;
use crate::proxy::{headers, tunnel};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, Version, header};
use isolet_sandbox::TRACE_TARGET;
use tracing::{Instrument, info_span};

/// A response that is not relayed yet.
pub(crate) struct GivenAnswer {
    sent: PeerResponse,
    pub(crate) kind: AnswerKind,
    cancellation: Cancellation,
    lost: ApiError,
}

/// A request that got no answer of its node.
pub(crate) struct NotAnswered {
    /// The error for the client.
    pub(crate) error: ApiError,
    /// Whether nothing of the request was sent.
    pub(crate) is_unsent: bool,
    /// Whether the node has lost its lease before it answered.
    pub(crate) is_owner_lost: bool,
}

impl From<NotAnswered> for ApiError {
    fn from(failure: NotAnswered) -> Self {
        failure.error
    }
}

/// Sends a request to a node, and waits for the head of its response. `None`: the node does not own
/// the sandbox at the epoch of the request, and has done nothing.
///
/// # Errors
/// [`NotAnswered`]: 503 `node_unreachable`, 502 when the node does not speak this protocol, and the
/// error of a cancelled request.
pub(crate) async fn send(
    fleet: &dyn Fleet,
    peer: &Peer,
    outgoing: &mut Outgoing,
    target: Option<PeerTarget>,
    mut cancellation: Cancellation,
) -> Result<Option<GivenAnswer>, NotAnswered> {
    outgoing.read_short_body().await;
    let span = info_span!(
        target: TRACE_TARGET, "forward", otel.kind = "client", isolet.node = peer.node.as_str()
    );
    let request = outgoing.request(target, &span);
    let sent = fleet.send(peer, request).instrument(span);
    let sent = tokio::select! {
        sent = sent => sent,
        reason = cancellation.cancelled() => {
            let is_owner_lost = reason == CancellationReason::OwnerLost;
            return Err(NotAnswered { is_owner_lost, ..answered(reason.into()) });
        }
    };
    let mut sent = sent.map_err(|failure| NotAnswered {
        error: errors::node_unreachable(peer, &failure),
        is_unsent: matches!(failure, SendFailure::Unreachable(_)),
        is_owner_lost: false,
    })?;
    let kind = AnswerKind::take(sent.response.headers_mut());
    match kind.ok_or_else(|| answered(errors::bad_node(peer)))? {
        AnswerKind::NotOwner => Ok(None),
        kind => {
            let stopped = SendFailure::Lost("the connection ended".to_owned());
            let lost = errors::node_unreachable(peer, &stopped);
            Ok(Some(GivenAnswer { sent, kind, cancellation, lost }))
        }
    }
}

/// An error after something of the request may have been sent.
fn answered(error: ApiError) -> NotAnswered {
    NotAnswered { error, is_unsent: false, is_owner_lost: false }
}

impl GivenAnswer {
    pub(crate) fn status(&self) -> StatusCode {
        self.sent.response.status()
    }

    /// The response for the client. `permit` is held until its last byte was sent.
    ///
    /// # Errors
    /// 502 when the node switched protocols without being asked.
    pub(crate) fn relay(
        self,
        peer: &Peer,
        outgoing: &mut Outgoing,
        permit: Option<Permit>,
    ) -> Result<Response<Body>, ApiError> {
        let PeerResponse { response, tunnel } = self.sent;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let upgrade = outgoing.take_upgrade().filter(|_| switched);
        if switched && (upgrade.is_none() || tunnel.is_none()) {
            return Err(errors::bad_node(peer));
        }
        // A program's events are its own.
        let own = self.kind == AnswerKind::Node;
        let events = own && is_event_stream(response.headers());
        let (mut head, body) = response.into_parts();
        headers::remove_hop_by_hop(&mut head.headers);
        head.version = Version::HTTP_11;
        head.extensions.clear();
        head.extensions.insert(Forwarded);
        if let AnswerKind::Program(proxied) = self.kind {
            head.extensions.insert(proxied);
        }
        let Some((tunnel, upgrade)) = tunnel.zip(upgrade) else {
            let body = RelayBody::new(body, self.cancellation, events, self.lost);
            let response = Response::from_parts(head, Body::new(body));
            return Ok(match permit {
                Some(permit) => hold_permit(response, permit),
                None => response,
            });
        };
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        let other = async { Some((tunnel.await.ok()?, Vec::new())) };
        let held = (outgoing.socket_permit.take(), permit);
        tunnel::spawn(upgrade, other, self.cancellation, held);
        Ok(Response::from_parts(head, Body::empty()))
    }
}
