//! Questions of one node to another that are no requests of a client.

pub(crate) mod drain;
pub(crate) mod images;
pub(crate) mod moving;

use crate::app::App;
use crate::auth::caller::SocketPurpose;
use crate::auth::tickets::TicketTarget;
use crate::fleet::draining::{DrainOptions, DrainProgress};
use crate::fleet::{Fleet, Peer, SendFailure};
use crate::forwarding::errors;
use crate::forwarding::peer_head::{AnswerKind, PeerCaller};
use crate::foundation::error::ApiError;
use crate::foundation::json;
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Uri, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use isolet_sandbox::{Arrival, CredentialSpec, SandboxId, SessionId, SnapshotId, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// The path of these calls on the listener for nodes. No route of the API has it.
pub(crate) const PATH: &str = "/fleet/call";
/// How long a node may take to answer. It looks into its memory, or writes a record.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// The longest answer: the indexes of all layers of an image, the record of a sandbox with 16 KiB of metadata, or what a drain has left.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// A question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub(crate) enum NodeCall {
    /// In which sandbox of this node is a session?
    FindSession { tenant: TenantId, session: SessionId },
    /// Is a snapshot on this node?
    FindSnapshot { tenant: TenantId, snapshot: SnapshotId },
    /// Whom does a ticket of this node stand for? The ticket is used up.
    RedeemTicket { ticket: String, sandbox: SandboxId, purpose: SocketPurpose },
    /// Take over a sandbox whose node has failed. The node that asks may not.
    TakeOver { tenant: TenantId, sandbox: SandboxId },
    /// Which of these layers of an image can this node send to the tenant?
    FindLayers { tenant: TenantId, layers: Vec<String> },
    /// Has the tenant an image of this name on this node that no registry has, or with this digest?
    FindImage { tenant: TenantId, image: String },
    /// May a sandbox be moved to this node?
    MayArrive { tenant: TenantId, arrival: Arrival },
    /// A sandbox comes, with these values of credentials, which only this call has.
    Expect { tenant: TenantId, sandbox: SandboxId, credentials: Vec<CredentialSpec> },
    /// Take over and restore a sandbox that was stored away to be moved here.
    Receive { tenant: TenantId, sandbox: SandboxId },
    /// Move all sandboxes of this node away, or say how far that is.
    Drain { begin: Option<DrainOptions> },
}

/// An answer. `None`: there is none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct NodeAnswer {
    pub(crate) sandbox: Option<SandboxId>,
    pub(crate) has_snapshot: bool,
    pub(crate) caller: Option<PeerCaller>,
    /// The layers as indexes of those in the question.
    #[serde(default)]
    pub(crate) layers: Vec<usize>,
    #[serde(default)]
    pub(crate) image: Option<images::FoundImage>,
    /// Why the node does not do it.
    #[serde(default)]
    pub(crate) refused: Option<Refused>,
    /// The record of the sandbox that was moved.
    #[serde(default)]
    pub(crate) record: Option<Value>,
    #[serde(default)]
    pub(crate) drain: Option<DrainProgress>,
}

/// An error of the node that was asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self { code: error.code.to_owned(), message: error.message }
    }
}

/// Asks a node.
///
/// # Errors
/// 503 `node_unreachable`, or 502 when the node does not speak this protocol.
pub(crate) async fn ask(
    fleet: &dyn Fleet,
    peer: &Peer,
    call: &NodeCall,
) -> Result<NodeAnswer, ApiError> {
    ask_within(fleet, peer, call, ANSWER_WAIT).await
}

/// Asks a node for something that takes longer.
///
/// # Errors
/// As of [`ask`].
pub(crate) async fn ask_within(
    fleet: &dyn Fleet,
    peer: &Peer,
    call: &NodeCall,
    wait: Duration,
) -> Result<NodeAnswer, ApiError> {
    let text = serde_json::to_vec(call).unwrap_or_default();
    let mut request = Request::new(Body::from(text));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(PATH);
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::CONTENT_TYPE, json);
    let asked = async {
        let response = fleet.send(peer, request).await?.response;
        let (mut head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| SendFailure::Lost(error.to_string()))?;
        let node = AnswerKind::take(&mut head.headers) == Some(AnswerKind::Node);
        let good = node && head.status.is_success();
        Ok(good.then(|| serde_json::from_slice(&body.to_bytes()).ok()).flatten())
    };
    let late = || SendFailure::Lost(format!("no answer within {} s", wait.as_secs()));
    let answered = timeout(wait, asked).await.unwrap_or_else(|_| Err(late()));
    let answered = answered.map_err(|failure| errors::node_unreachable(peer, &failure))?;
    answered.ok_or_else(|| errors::bad_node(peer))
}

/// Answers a question of another node.
///
/// # Errors
/// 400 when this version does not know the question.
pub(crate) async fn answer(app: &App, request: Request<Body>) -> Result<Response, ApiError> {
    let raw = json::read_body(request.into_body(), None).await?;
    let call: NodeCall = json::parse(&raw)?;
    let mut answer = NodeAnswer::default();
    match call {
        NodeCall::FindSession { tenant, session } => {
            let found = app.service.session(&tenant, &session);
            answer.sandbox = found.ok().map(|session| session.sandbox_id);
        }
        NodeCall::FindSnapshot { tenant, snapshot } => {
            answer.has_snapshot = app.service.snapshot(&tenant, &snapshot).is_ok();
        }
        NodeCall::RedeemTicket { ticket, sandbox, purpose } => {
            let target = TicketTarget::of_socket(sandbox, purpose);
            let caller = app.tickets.redeem(&ticket, &target);
            let valid = |key: &String| app.service.keys().is_valid(key).unwrap_or(false);
            let caller = caller.filter(|caller| caller.key.as_ref().is_none_or(valid));
            answer.caller = caller.as_ref().map(PeerCaller::from);
        }
        NodeCall::TakeOver { tenant, sandbox } => {
            if let Some(joined) = &app.fleet {
                // The node that asks looks up who owns it now.
                joined.fleet.rescue(&tenant, &sandbox).await?;
            }
        }
        NodeCall::FindLayers { tenant, layers } => {
            answer.layers = images::layers(app, tenant, layers).await?;
        }
        NodeCall::FindImage { tenant, image } => {
            answer.image = images::image(app, &tenant, &image);
        }
        NodeCall::MayArrive { tenant, arrival } => {
            answer.refused = moving::may_arrive(app, &tenant, &arrival).await.err().map(Into::into);
        }
        NodeCall::Expect { tenant, sandbox, credentials } => {
            if let Some(joined) = &app.fleet {
                joined.fleet.expect(&tenant, &sandbox, credentials);
            }
        }
        NodeCall::Receive { tenant, sandbox } => {
            match moving::receive(app, &tenant, &sandbox).await {
                Ok(record) => answer.record = Some(record),
                Err(error) => answer.refused = Some(error.into()),
            }
        }
        NodeCall::Drain { begin } => {
            if let Some(joined) = &app.fleet {
                answer.drain = drain::here(app, joined, begin);
            }
        }
    }
    Ok(Json(answer).into_response())
}
