//! Errors of requests that another node answers.

use crate::fleet::{FleetError, NodeError, Peer, SendFailure};
use crate::foundation::error::ApiError;
use axum::http::StatusCode;
use isolet_sandbox::SandboxId;

/// When to retry a request for a sandbox that is being restored, in seconds.
const RESTORING_RETRY_S: u64 = 5;

/// 503: the node of a sandbox cannot be reached, or has not answered.
pub(crate) fn node_unreachable(peer: &Peer, failure: &SendFailure) -> ApiError {
    let node = &peer.node;
    let (message, hint) = match failure {
        SendFailure::Unreachable(cause) => (
            format!("node \"{node}\" cannot be reached: {cause}"),
            "nothing was done; retry in a moment, or ask the operator whether the node is down",
        ),
        SendFailure::Lost(cause) => (
            format!("node \"{node}\" stopped answering: {cause}"),
            "the call may have had an effect: look before you repeat it",
        ),
    };
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "node_unreachable", message, hint)
}

/// 502: the node of a sandbox answers something that this version does not know.
pub(crate) fn bad_node(peer: &Peer) -> ApiError {
    ApiError::new(
        StatusCode::BAD_GATEWAY,
        "bad_node_answer",
        format!("node \"{}\" does not speak the protocol of this node", peer.node),
        "the operator must let all nodes run versions that work together",
    )
}

/// 503: the sandbox moved to another node while the request was on its way.
pub(crate) fn owner_moved(sandbox: &SandboxId) -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "owner_moved",
        format!("sandbox \"{sandbox}\" has just moved to another node"),
        "nothing was done; send the request again",
    )
}

/// 421: this node does not own the sandbox. Only other nodes receive it.
pub(crate) fn not_owner(sandbox: &SandboxId) -> ApiError {
    ApiError::new(
        StatusCode::MISDIRECTED_REQUEST,
        "not_owner",
        format!("this node does not own sandbox \"{sandbox}\" at this epoch"),
        "look the owner up again",
    )
}

impl From<FleetError> for ApiError {
    fn from(error: FleetError) -> Self {
        let message = error.to_string();
        match error {
            FleetError::Unavailable(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "fleet_unavailable",
                message,
                "retry in a moment; sandboxes that this node knows still work",
            ),
            FleetError::BadWish { field, reason } => Self::bad_field(field, &reason),
            FleetError::Full { retry_after_s, .. } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "fleet_full",
                message,
                format!("retry in {retry_after_s} s, or delete sandboxes that nobody needs"),
            )
            .retry_after(retry_after_s),
            FleetError::NodeDead { .. } => Self::new(
                StatusCode::GONE,
                "node_dead",
                message,
                "it comes back only if that node does; DELETE frees the id",
            ),
            FleetError::NoSnapshot { .. } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "node_unreachable",
                message,
                "nothing was done; it continues when its node is back",
            ),
            FleetError::Restoring(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "restoring",
                message,
                "nothing was done; retry in a moment",
            )
            .retry_after(RESTORING_RETRY_S),
            FleetError::NotRestored { .. } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "not_restored",
                message,
                "nothing was done, and its snapshots stay in the store; retry, ask the operator, or \
                 restore another snapshot that the message names: POST /v1/sandboxes/{id}/restore",
            )
            .retry_after(RESTORING_RETRY_S),
            FleetError::NoNode(_) => Self::new(
                StatusCode::NOT_FOUND,
                "no_node",
                message,
                "GET /v1/nodes lists all nodes",
            ),
            FleetError::NoTarget(_) => Self::new(
                StatusCode::CONFLICT,
                "no_target",
                message,
                "choose another node or region; GET /v1/nodes lists them",
            ),
            FleetError::TooManySandboxes { max } => {
                isolet_sandbox::Error::TooManySandboxes { max }.into()
            }
            FleetError::TooManyProfiles { max } => {
                isolet_sandbox::Error::TooManyProfiles { max }.into()
            }
        }
    }
}

/// A server without `[cluster]`: 501 for a route, and 422 for a field of a new sandbox.
pub(crate) fn not_a_fleet(status: StatusCode, message: &str, hint: &str) -> ApiError {
    ApiError::new(status, "not_a_fleet", message, hint)
}

impl From<NodeError> for ApiError {
    fn from(error: NodeError) -> Self {
        let message = error.to_string();
        match error {
            NodeError::Unavailable(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "fleet_unavailable",
                message,
                "retry in a moment",
            ),
            NodeError::Unknown(_) => Self::new(
                StatusCode::NOT_FOUND,
                "no_node",
                message,
                "GET /v1/nodes lists all nodes",
            ),
            NodeError::Alive(_) => Self::new(
                StatusCode::CONFLICT,
                "node_alive",
                message,
                "stop its server, and wait until its lease has ended; cordon it to keep new sandboxes away",
            ),
            NodeError::NotDead(_) => Self::new(
                StatusCode::CONFLICT,
                "node_not_dead",
                message,
                "declare it dead first, if it will not return",
            ),
            NodeError::OwnsSandboxes { .. } => Self::new(
                StatusCode::CONFLICT,
                "node_owns_sandboxes",
                message,
                "give their ids up with ?release=true, or wait until others have taken them over",
            ),
            NodeError::OwnsRestorable { .. } => Self::new(
                StatusCode::CONFLICT,
                "node_owns_restorable",
                message,
                "GET /v1/sandboxes/{id} of each with a key of its tenant restores it on another node, and \
                 DELETE deletes it; then repeat this",
            ),
        }
    }
}
