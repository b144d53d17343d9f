//! The owner of a sandbox that can answer. A sandbox of the class `store` whose node has failed, and one
//! that only the object store has, such as after an eviction or a move that did not end, is taken over and
//! restored before the handler of the request runs: by the node that received the request, or by one that
//! placement chooses.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::fleet::{Fleet, Presence, Rescue, Whereabouts};
use crate::forwarding::errors;
use crate::forwarding::lookup::owner_of;
use crate::forwarding::node_call::{self, NodeCall};
use crate::foundation::error::ApiError;
use axum::Json;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::audit::AuditEntry;
use isolet_sandbox::{RestoredFrom, SandboxId, SnapshotId, TenantId};
use serde_json::json;

/// The snapshot from which the sandbox of this response has just been restored.
const RESTORED_FROM: HeaderName = HeaderName::from_static("isolet-restored-from");
/// What it lost, as a structured field: `seconds=37, processes`.
const LOST: HeaderName = HeaderName::from_static("isolet-lost");
/// The route that deletes a sandbox.
const DELETING: &str = "/v1/sandboxes/{id}";
/// How often the owner of one sandbox is looked up, because it has changed in the meantime.
const LOOKS: usize = 3;

/// The owner of a sandbox, and whether it has just been restored.
pub(crate) struct Settled {
    pub(crate) owner: Whereabouts,
    pub(crate) restored: Option<Box<RestoredFrom>>,
}

/// The owner of a sandbox, which has it if it is this node.
///
/// # Errors
/// Those of the fleet: 410 `node_dead`, 503 `node_unreachable`, `restoring`, `not_restored`,
/// `owner_moved`.
pub(crate) async fn settled_owner(
    fleet: &dyn Fleet,
    tenant: &TenantId,
    sandbox: &SandboxId,
) -> Result<Settled, ApiError> {
    settled(fleet, tenant, sandbox, true, None).await
}

/// The owner of a sandbox, as [`settled_owner`], or that only the object store has it, if `restores` is
/// `false`. If it has to be restored, it is from the snapshot `called`, if its record names that one.
///
/// # Errors
/// As [`settled_owner`].
pub(crate) async fn settled(
    fleet: &dyn Fleet,
    tenant: &TenantId,
    sandbox: &SandboxId,
    restores: bool,
    called: Option<&SnapshotId>,
) -> Result<Settled, ApiError> {
    for _ in 0..LOOKS {
        let mut owner = owner_of(fleet, tenant, sandbox).await?;
        let has_no_node = match &owner {
            Whereabouts::There { peer, .. } => fleet.has_failed(peer),
            Whereabouts::Stored { .. } if !restores => {
                return Ok(Settled { owner, restored: None });
            }
            Whereabouts::Stored { .. } => true,
            Whereabouts::Here { .. } | Whereabouts::Nowhere => false,
        };
        if has_no_node {
            owner = match fleet.rescue(tenant, sandbox).await? {
                Rescue::Owner(owner) => owner,
                Rescue::Ask(peer) => {
                    let call =
                        NodeCall::TakeOver { tenant: tenant.clone(), sandbox: sandbox.clone() };
                    node_call::ask(fleet, &peer, &call).await?;
                    fleet.find(tenant, sandbox).await?
                }
            };
        }
        let epoch = match owner {
            Whereabouts::Here { epoch } => epoch,
            // The node that was asked has not taken it over.
            Whereabouts::Stored { .. } => continue,
            owner => return Ok(Settled { owner, restored: None }),
        };
        if let Presence::Here(restored) = present(fleet, tenant, sandbox, called).await? {
            return Ok(Settled { owner, restored });
        }
        fleet.forget(tenant, sandbox, epoch);
    }
    Err(errors::owner_moved(sandbox))
}

/// Restores a sandbox that this node owns and lacks.
///
/// # Errors
/// As [`settled_owner`].
pub(crate) async fn present(
    fleet: &dyn Fleet,
    tenant: &TenantId,
    sandbox: &SandboxId,
    called: Option<&SnapshotId>,
) -> Result<Presence, ApiError> {
    match fleet.lacks(tenant, sandbox) {
        true => Ok(fleet.restore(tenant, sandbox, called).await?),
        false => Ok(Presence::Here(None)),
    }
}

/// Adds what was restored to the headers of a response.
pub(crate) fn write(restored: Option<&RestoredFrom>, headers: &mut HeaderMap) {
    let Some(restored) = restored else { return };
    if let Ok(snapshot) = HeaderValue::try_from(restored.snapshot.as_str()) {
        headers.insert(RESTORED_FROM, snapshot);
    }
    let Some(lost) = &restored.lost else { return };
    let mut words: Vec<&str> = lost.items.iter().map(isolet_sandbox::Lost::word).collect();
    words.dedup();
    let seconds = format!("seconds={}", lost.seconds);
    let text = std::iter::once(seconds.as_str()).chain(words).collect::<Vec<_>>().join(", ");
    if let Ok(lost) = HeaderValue::try_from(text) {
        headers.insert(LOST, lost);
    }
}

/// Whether a request deletes its sandbox.
pub(crate) fn deletes(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    *request.method() == Method::DELETE && route == Some(DELETING)
}

/// Gives up the id of a sandbox whose node was declared dead, as the answer to its deletion. Nothing
/// else is known of the sandbox.
///
/// # Errors
/// 503 `fleet_unavailable`.
pub(crate) async fn abandon(
    app: &App,
    fleet: &dyn Fleet,
    caller: &Caller,
    sandbox: &SandboxId,
) -> Result<Response, ApiError> {
    fleet.abandon(&caller.tenant, sandbox).await?;
    let key = caller.key.as_deref().unwrap_or("ISOLET_API_KEY");
    let entry = AuditEntry::now(caller.tenant.as_str(), Some(sandbox.as_str()), "sandbox.abandon");
    app.service.audit().put(entry.with("key", key));
    Ok(Json(json!({"id": sandbox.as_str(), "state": "destroyed"})).into_response())
}
