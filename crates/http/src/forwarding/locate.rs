//! Finds sessions and snapshots that a path names without their sandbox: in this node's memory, or by
//! asking the other nodes once.

use crate::app::App;
use crate::fleet::joined::JoinedFleet;
use crate::fleet::{Fleet, Peer};
use crate::forwarding::lookup::peer_named;
use crate::forwarding::node_call::{self, NodeAnswer, NodeCall};
use crate::foundation::error::ApiError;
use futures_util::{StreamExt, stream};
use isolet_sandbox::{SandboxId, SessionId, SnapshotId, TenantId};

/// How many nodes are asked at the same time.
const ASKED_AT_ONCE: usize = 16;

/// Where a snapshot is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SnapshotPlace {
    Here,
    There(Peer),
    /// No node that answered has it.
    Nowhere,
}

/// The sandbox of a session; `None` if no node has the session.
///
/// # Errors
/// 503 when a node that might have it does not answer.
pub(crate) async fn sandbox_of_session(
    app: &App,
    joined: &JoinedFleet,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<SandboxId>, ApiError> {
    if let Ok(own) = app.service.session(tenant, session) {
        return Ok(Some(own.sandbox_id));
    }
    if let Some(known) = joined.sessions.get(tenant, session.as_str()) {
        return Ok(Some(known));
    }
    let call = NodeCall::FindSession { tenant: tenant.clone(), session: session.clone() };
    let found = ask_all(&*joined.fleet, &call, |answer| answer.sandbox).await?;
    let Some((_, sandbox)) = found else { return Ok(None) };
    joined.sessions.put(tenant, session.as_str(), sandbox.clone());
    Ok(Some(sandbox))
}

/// The node of a snapshot.
///
/// # Errors
/// 503 when a node that might have it does not answer.
pub(crate) async fn place_of_snapshot(
    app: &App,
    joined: &JoinedFleet,
    tenant: &TenantId,
    snapshot: &SnapshotId,
) -> Result<SnapshotPlace, ApiError> {
    if app.service.snapshot(tenant, snapshot).is_ok() {
        return Ok(SnapshotPlace::Here);
    }
    let fleet = &*joined.fleet;
    if let Some(node) = joined.snapshots.get(tenant, snapshot.as_str())
        && let Some(peer) = peer_named(fleet, node.as_str())
    {
        return Ok(SnapshotPlace::There(peer));
    }
    let call = NodeCall::FindSnapshot { tenant: tenant.clone(), snapshot: snapshot.clone() };
    let found = ask_all(fleet, &call, |answer| answer.has_snapshot.then_some(())).await?;
    let Some((peer, ())) = found else { return Ok(SnapshotPlace::Nowhere) };
    joined.snapshots.put(tenant, snapshot.as_str(), peer.node.clone());
    Ok(SnapshotPlace::There(peer))
}

/// Asks all nodes, and returns the first one that knows.
///
/// # Errors
/// When no node knows, and some node did not answer.
async fn ask_all<T>(
    fleet: &dyn Fleet,
    call: &NodeCall,
    known: impl Fn(NodeAnswer) -> Option<T>,
) -> Result<Option<(Peer, T)>, ApiError> {
    let asked = stream::iter(fleet.peers()).map(|peer| async move {
        let answer = node_call::ask(fleet, &peer, call).await;
        (peer, answer)
    });
    let mut answers = asked.buffer_unordered(ASKED_AT_ONCE);
    let mut failed = None;
    while let Some((peer, answer)) = answers.next().await {
        match answer.map(&known) {
            Ok(Some(found)) => return Ok(Some((peer, found))),
            Ok(None) => {}
            Err(failure) => failed = Some(failure),
        }
    }
    failed.map_or(Ok(None), Err)
}
