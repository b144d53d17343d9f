//! Moves a sandbox to another node.
//!
//! | step | a failure leaves it |
//! |---|---|
//! | 1. the target is chosen, and asked whether it can take the sandbox | as it was |
//! | 2. a snapshot is pushed, while the sandbox runs, and what has changed since, while it stands still | as it was |
//! | 3. it is removed from its node, but for the copy of that snapshot; values of credentials go to the target, over the connection between nodes only | in the object store, of its node |
//! | 4. its node stores it away | in the object store, of any node |
//! | 5. the target takes it over and restores it | in the object store: its former node restores it from its copy, or the node of the next request does |

use crate::app::App;
use crate::fleet::joined::JoinedFleet;
use crate::fleet::{Fleet, MoveTo, Peer};
use crate::forwarding::node_call::{self, NodeCall, Refused};
use crate::foundation::error::ApiError;
use crate::routes::sandboxes::view::SandboxView;
use axum::http::StatusCode;
use isolet_sandbox::{Arrival, CredentialSpec, Departure, SandboxId, State, TenantId};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long the target may take for one answer: longer than a request waits for a restore.
const RECEIVE_WAIT: Duration = Duration::from_secs(50);
/// How long the target may take to restore the sandbox.
const RECEIVE_MAX: Duration = Duration::from_secs(15 * 60);
/// When to retry after a move that did not end, in seconds.
const RETRY_S: u64 = 2;

/// Moves a sandbox of this node, or one that only the object store has. Returns its record. Continues
/// if the caller is dropped.
///
/// # Errors
/// 404 `no_sandbox`, `no_node`; 409 `no_target`, `moving`; 422 `not_movable`; 501 `no_snapshot_store`; 503
/// `not_moved`; and those of a snapshot and a push.
pub(crate) async fn move_away(
    app: &App,
    joined: &Arc<JoinedFleet>,
    tenant: &TenantId,
    sandbox: &SandboxId,
    to: MoveTo,
) -> Result<Value, ApiError> {
    let app = app.clone();
    let joined = Arc::clone(joined);
    let tenant = tenant.clone();
    let sandbox = sandbox.clone();
    let moving = async move {
        let one = Move { app: &app, fleet: &*joined.fleet, tenant: &tenant, sandbox: &sandbox };
        one.run(&to).await
    };
    let moved = tokio::spawn(moving).await;
    moved.map_err(|error| isolet_sandbox::Error::Fault(error.to_string()))?
}

/// Whether this node can take a sandbox of another one.
///
/// # Errors
/// Why not.
pub(crate) async fn may_arrive(
    app: &App,
    tenant: &TenantId,
    arrival: &Arrival,
) -> Result<(), ApiError> {
    app.service.may_arrive(tenant, arrival).await?;
    if let Some(pushed) = &arrival.pushed {
        // A copy of the store has the same id, and not the same snapshots.
        app.service.stored_snapshot(tenant, pushed).await?;
    }
    Ok(())
}

/// Takes over and restores a sandbox that is moved to this node. Returns its record.
///
/// # Errors
/// 503 `restoring`: it continues; `not_restored`, 409 `no_target`.
pub(crate) async fn receive(
    app: &App,
    tenant: &TenantId,
    sandbox: &SandboxId,
) -> Result<Value, ApiError> {
    let Some(joined) = &app.fleet else {
        return Err(isolet_sandbox::Error::NoSandbox(sandbox.clone()).into());
    };
    joined.fleet.receive(tenant, sandbox).await?;
    record(app, &*joined.fleet, tenant, sandbox).await
}

/// Has another node take over a sandbox that only the object store has, and restore it. If the node cannot
/// restore it, it gives it back.
///
/// # Errors
/// Why the node has not restored it, as text for people.
pub async fn restore_on(
    fleet: &dyn Fleet,
    peer: &Peer,
    tenant: &TenantId,
    sandbox: &SandboxId,
) -> Result<(), String> {
    let call = NodeCall::Receive { tenant: tenant.clone(), sandbox: sandbox.clone() };
    let answer = node_call::ask_within(fleet, peer, &call, RECEIVE_WAIT).await;
    let answer = answer.map_err(|error| error.message)?;
    let Some(Refused { code, message }) = answer.refused else { return Ok(()) };
    match &*code {
        // It continues there, has ended there already, or is on another node or deleted now.
        "restoring" | "no_sandbox" | "no_target" => Ok(()),
        _ => Err(format!("node \"{}\" has not restored it: {message} ({code})", peer.node)),
    }
}

/// The record of a sandbox of this node.
async fn record(
    app: &App,
    fleet: &dyn Fleet,
    tenant: &TenantId,
    sandbox: &SandboxId,
) -> Result<Value, ApiError> {
    let info = app.service.get(tenant, sandbox).await?;
    let placement = fleet.placement_of(tenant, sandbox);
    let view = SandboxView::from(info).placed(Some(placement));
    serde_json::to_value(view)
        .map_err(|error| isolet_sandbox::Error::Fault(error.to_string()).into())
}

/// One move.
struct Move<'a> {
    app: &'a App,
    fleet: &'a dyn Fleet,
    tenant: &'a TenantId,
    sandbox: &'a SandboxId,
}

impl Move<'_> {
    async fn run(&self, to: &MoveTo) -> Result<Value, ApiError> {
        let service = &self.app.service;
        let is_here = service.local_sandbox(self.tenant, self.sandbox).is_some();
        let arrival = match is_here {
            true => {
                service.may_depart(self.tenant, self.sandbox).await?;
                service.arrival(self.tenant, self.sandbox).await?
            }
            false => self.stored_arrival().await?,
        };
        let memory_mib = if arrival.asleep { 0 } else { arrival.memory_mib };
        let target = self.fleet.target(self.tenant, self.sandbox, memory_mib, to).await?;
        let Some(peer) = target else {
            return record(self.app, self.fleet, self.tenant, self.sandbox).await;
        };
        let is_self = peer.node == *self.fleet.here();
        if is_self {
            may_arrive(self.app, self.tenant, &arrival).await?;
        } else {
            let tenant = self.tenant.clone();
            let call = NodeCall::MayArrive { tenant, arrival };
            let answer = node_call::ask(self.fleet, &peer, &call).await?;
            if let Some(refused) = answer.refused {
                return Err(no_target(&peer, &refused));
            }
        }
        if !is_here {
            return match is_self {
                true => receive(self.app, self.tenant, self.sandbox).await,
                false => self.hand_over(&peer).await.map_err(|refused| {
                    let kept = "it stays in the object store, and the next request restores it";
                    not_moved(&peer, &refused, kept)
                }),
            };
        }
        self.send(&peer).await
    }

    /// What is to be moved of a sandbox that only the object store has.
    async fn stored_arrival(&self) -> Result<Arrival, ApiError> {
        let away = self.fleet.stored(self.tenant, self.sandbox).await?;
        let none = || isolet_sandbox::Error::NoSandbox(self.sandbox.clone());
        let info = away.ok_or_else(none)?.info;
        Ok(Arrival {
            id: info.id,
            pushed: info.pushed.map(|pushed| pushed.id),
            store: self.app.service.store_id().await?,
            network: info.network,
            // Their values are lost already.
            has_credentials: false,
            class: info.class,
            image: info.image,
            image_resolved: info.image_resolved,
            memory_mib: info.limits.memory_mib,
            disk_mib: info.limits.disk_mib,
            asleep: info.state == State::Sleeping,
        })
    }

    /// Steps 2 to 5.
    async fn send(&self, peer: &Peer) -> Result<Value, ApiError> {
        let moving = self.fleet.begin_move(self.tenant, self.sandbox, &peer.node);
        let Some(moving) = moving else {
            let message = format!("sandbox \"{}\" is being moved already", self.sandbox);
            let hint = "wait for that move; GET /v1/sandboxes/{id} names its node";
            return Err(ApiError::new(StatusCode::CONFLICT, "moving", message, hint));
        };
        let departed = self.app.service.depart(self.tenant, self.sandbox, Departure::Moved).await?;
        self.expect(peer, departed.credentials.clone()).await;
        if !self.fleet.store_away(&departed.sandbox).await {
            let reason = "the records of the fleet cannot be written".to_owned();
            let refused = Refused { code: "fleet_unavailable".to_owned(), message: reason };
            let kept = "all of it is in the object store, and the next request restores it";
            return Err(not_moved(peer, &refused, kept));
        }
        let received = self.hand_over(peer).await;
        let refused = match received {
            Ok(record) => {
                drop(moving);
                self.app.service.forget_departed(&departed).await;
                info!(sandbox = %self.sandbox, tenant = %self.tenant, to = %peer.node, "moved");
                return Ok(record);
            }
            Err(refused) => refused,
        };
        drop(moving);
        warn!(sandbox = %self.sandbox, tenant = %self.tenant, to = %peer.node, reason = refused.message, "not moved; its former node restores it");
        self.fleet.expect(self.tenant, self.sandbox, departed.credentials.clone());
        let kept = match self.fleet.receive(self.tenant, self.sandbox).await {
            Ok(()) => {
                self.app.service.forget_departed(&departed).await;
                "it is back on its former node, as after a sleep"
            }
            Err(error) => {
                warn!(sandbox = %self.sandbox, %error, "not restored on its former node");
                "all of it is in the object store, and the next request restores it"
            }
        };
        Err(not_moved(peer, &refused, kept))
    }

    /// Sends values of credentials. Without them, the restore reports that they are lost.
    async fn expect(&self, peer: &Peer, credentials: Vec<CredentialSpec>) {
        if credentials.is_empty() {
            return;
        }
        let tenant = self.tenant.clone();
        let sandbox = self.sandbox.clone();
        let call = NodeCall::Expect { tenant, sandbox, credentials };
        if let Err(error) = node_call::ask(self.fleet, peer, &call).await {
            warn!(sandbox = %self.sandbox, to = %peer.node, error = error.message, "values of credentials did not arrive");
        }
    }

    /// Step 5.
    async fn hand_over(&self, peer: &Peer) -> Result<Value, Refused> {
        let tenant = self.tenant.clone();
        let sandbox = self.sandbox.clone();
        let call = NodeCall::Receive { tenant, sandbox };
        let until = Instant::now() + RECEIVE_MAX;
        loop {
            let answer = node_call::ask_within(self.fleet, peer, &call, RECEIVE_WAIT).await;
            let answer = answer.map_err(Refused::from)?;
            match (answer.record, answer.refused) {
                (Some(record), _) => return Ok(record),
                (None, Some(refused)) if refused.code == "restoring" && Instant::now() < until => {}
                (None, Some(refused)) => return Err(refused),
                (None, None) => return Err(crate::forwarding::errors::bad_node(peer).into()),
            }
        }
    }
}

/// 409: the target does not take the sandbox.
fn no_target(peer: &Peer, refused: &Refused) -> ApiError {
    let Refused { code, message } = refused;
    ApiError::new(
        StatusCode::CONFLICT,
        "no_target",
        format!("node \"{}\" cannot take the sandbox: {message} ({code})", peer.node),
        "nothing was done; choose another node, or change what is missing there",
    )
}

/// 503: the target has not taken the sandbox.
fn not_moved(peer: &Peer, refused: &Refused, kept: &str) -> ApiError {
    let Refused { code, message } = refused;
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "not_moved",
        format!("node \"{}\" has not taken the sandbox; {kept}: {message} ({code})", peer.node),
        "nothing is lost; GET /v1/sandboxes/{id} says where it is",
    )
    .retry_after(RETRY_S)
}
