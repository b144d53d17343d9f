//! Decides for each request which node answers it. Runs behind the authentication and the limits of
//! the node that received the request, and before its audit log: the node that does the work records
//! it.

mod stored_away;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::error_response;
use crate::fleet::creating::CreatingRequest;
use crate::fleet::joined::JoinedFleet;
use crate::fleet::{Fleet, PlacedSandbox, PlacementWish, Whereabouts};
use crate::forwarding::arrival::Arrived;
use crate::forwarding::forward::{self, NotAnswered};
use crate::forwarding::locate::{self, SnapshotPlace};
use crate::forwarding::lookup::rescue::{self, Settled, settled};
use crate::forwarding::outgoing::Outgoing;
use crate::forwarding::peer_head::PeerTarget;
use crate::forwarding::route_table::{Routing, routing};
use crate::forwarding::sandbox_of::{self, NamedSandbox};
use crate::forwarding::{errors, events, lists};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::{ClaimedId, JustRestored};
use crate::limits::kind::ConnectionKind;
use crate::limits::limiter::Permit;
use crate::middleware::connection_use::kind_of;
use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use isolet_sandbox::{RestoredFrom, SandboxId, SessionId, SnapshotId};
use isolet_wire::node::NodeName;
use std::sync::Arc;
use stored_away::StoredAnswer;

/// How many nodes a request is sent to. The second is the one that owns the sandbox now.
const NODES_MAX: usize = 2;
/// How many nodes may refuse a new sandbox for want of room before the client gets the answer of one.
const REFUSALS_MAX: usize = 8;

/// Answers a request here, or sends it to the node that owns its sandbox.
pub(crate) async fn dispatch(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let answered = answer(&app, request, next).await;
    answered.unwrap_or_else(|failure| error_response(failure, &path))
}

async fn answer(app: &App, mut request: Request, next: Next) -> Result<Response, ApiError> {
    let extensions = request.extensions();
    let (Some(joined), Some(route), Some(caller)) =
        (&app.fleet, extensions.get::<MatchedPath>(), extensions.get::<Caller>())
    else {
        return Ok(next.run(request).await);
    };
    let routing = routing(request.method(), route.as_str());
    let caller = caller.clone();
    if let Some(arrived) = extensions.get::<Arrived>().cloned() {
        arrived.check(&mut request, routing).await?;
        let creating = arrived
            .sandbox()
            .filter(|_| routing.may_create())
            .map(|sandbox| CreatingRequest::begin(joined, &caller.tenant, sandbox));
        // It came from another node, so it never goes on to a third one.
        let registration = joined.fleet.registration();
        let response = next.run(request).await;
        let is_refused =
            creating.is_some() && response.status() == StatusCode::INSUFFICIENT_STORAGE;
        drop(creating);
        if let Some(sandbox) = arrived.sandbox().filter(|_| is_refused) {
            // Before the answer: the node that has placed it here then places it elsewhere.
            joined.fleet.give_up(&caller.tenant, sandbox).await;
        }
        let may_answer = arrived
            .sandbox()
            .is_none_or(|sandbox| joined.fleet.may_answer(&caller.tenant, sandbox, registration));
        return if may_answer { Ok(response) } else { Err(too_late(arrived.sandbox())) };
    }
    let work = Work { app, joined, caller: &caller };
    match routing {
        Routing::Local => Ok(next.run(request).await),
        Routing::List(shape) => lists::answer(joined, &caller, shape, request, next).await,
        Routing::Events => events::answer(app, joined, &caller, request, next).await,
        Routing::Sandbox(creates) => {
            let mut named = sandbox_of::in_path(&mut request, &caller, creates).await;
            let (request, called) = sandbox_of::called_snapshot(request).await?;
            if let Some(named) = &mut named {
                named.called = called;
            }
            work.by_owner(named, request, next).await
        }
        Routing::Body(field) => {
            let (request, named) = sandbox_of::in_body(request, &caller.tenant, field).await?;
            work.by_owner(named, request, next).await
        }
        Routing::Session => {
            let session = sandbox_of::path_parameter(&mut request, "sid").await;
            let session = session.and_then(|id| SessionId::parse(&id).ok());
            let sandbox = match &session {
                Some(id) => locate::sandbox_of_session(app, joined, &caller.tenant, id).await?,
                None => None,
            };
            work.by_owner(sandbox.map(NamedSandbox::existing), request, next).await
        }
        Routing::Snapshot => {
            let snapshot = sandbox_of::path_parameter(&mut request, "snapshot").await;
            let snapshot = snapshot.and_then(|id| SnapshotId::parse(&id).ok());
            work.by_snapshot(snapshot, request, next).await
        }
        Routing::BodySnapshot => {
            let (request, snapshot) = sandbox_of::snapshot_in_body(request).await?;
            work.by_snapshot(snapshot, request, next).await
        }
    }
}

/// The lease of this node has ended while it answered: another node may have restored an earlier state
/// of the sandbox since.
fn too_late(sandbox: Option<&SandboxId>) -> ApiError {
    let sandbox = sandbox.map(SandboxId::as_str).unwrap_or_default();
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "suspended",
        format!("this node has lost its lease before sandbox \"{sandbox}\" has answered"),
        "the call may have had an effect that is lost: look before you repeat it",
    )
    .retry_after(1)
}

/// Where a sandbox is.
struct Located {
    owner: Whereabouts,
    /// Whether this request has placed it.
    is_new: bool,
    /// From what this node has just restored it.
    restored: Option<Box<RestoredFrom>>,
}

/// A request of one caller.
struct Work<'a> {
    app: &'a App,
    joined: &'a Arc<JoinedFleet>,
    caller: &'a Caller,
}

impl Work<'_> {
    fn fleet(&self) -> &dyn Fleet {
        &*self.joined.fleet
    }

    /// Has the owner of a sandbox answer. Without a sandbox, the handler of this node refuses the
    /// request.
    async fn by_owner(
        &self,
        named: Option<NamedSandbox>,
        request: Request,
        next: Next,
    ) -> Result<Response, ApiError> {
        let Some(named) = named else { return Ok(next.run(request).await) };
        let shows_stored = stored_away::answers(&request);
        let mut located = match self.owner(&named, !shows_stored).await {
            Err(failure) if failure.code == "node_dead" && rescue::deletes(&request) => {
                return rescue::abandon(self.app, self.fleet(), self.caller, &named.id).await;
            }
            located => located?,
        };
        if matches!(located.owner, Whereabouts::Stored { .. }) {
            if !shows_stored {
                // It was stored away while this request was about to create it.
                return Err(errors::owner_moved(&named.id));
            }
            let work = (self.app, self.fleet(), self.caller);
            match stored_away::answer(work, &named.id, request, next).await? {
                StoredAnswer::Answered(response) => return Ok(response),
                StoredAnswer::Restore(request, next) => {
                    return Box::pin(self.by_restored(named, request, next)).await;
                }
            }
        }
        if !matches!(located.owner, Whereabouts::There { .. }) {
            return Ok(self.here(&named, &located, request, next).await);
        }
        let permit = self.port_permit(&request)?;
        let mut outgoing = Outgoing::new(request, Some(self.caller));
        let mut failed = None;
        let mut refused = Vec::new();
        let mut attempt = 0;
        while attempt < NODES_MAX {
            attempt += 1;
            let Whereabouts::There { peer, epoch } = &located.owner else {
                // Its handler counts the request itself.
                drop(permit);
                return Ok(self.here(&named, &located, outgoing.into_request(), next).await);
            };
            let target = PeerTarget {
                tenant: self.caller.tenant.clone(),
                sandbox: named.id.clone(),
                epoch: *epoch,
            };
            let lost = self.fleet().until_lost(&self.caller.tenant, &named.id, peer);
            let cancellation = self.app.cancellations.subscribe(self.caller).with_owner(lost);
            let had_failed = self.fleet().has_failed(peer);
            let sent =
                forward::send(self.fleet(), peer, &mut outgoing, Some(target), cancellation).await;
            let sent = match sent {
                Ok(sent) => sent,
                Err(failure) => {
                    // A sandbox that was placed for this request goes to another node.
                    let mut again = self.unanswered(&named, &located, &failure).await;
                    // That its lease has ended was learned by this attempt: another node may take the
                    // sandbox over.
                    again |= failure.is_unsent && !had_failed && self.fleet().has_failed(peer);
                    // The next owner may answer it as well.
                    again |= failure.is_owner_lost && outgoing.only_reads();
                    failed = Some(failure.error);
                    if !again || attempt == NODES_MAX || !outgoing.is_repeatable() {
                        break;
                    }
                    located = self.owner(&named, true).await?;
                    continue;
                }
            };
            match sent {
                Some(answer) => {
                    if located.is_new
                        && answer.status() == StatusCode::INSUFFICIENT_STORAGE
                        && outgoing.is_repeatable()
                        && refused.len() < REFUSALS_MAX
                    {
                        refused.push(peer.node.clone());
                        self.fleet().forget(&self.caller.tenant, &named.id, *epoch);
                        if let Some(next) = self.elsewhere(&named, &refused).await {
                            located = next;
                            attempt = 0;
                            continue;
                        }
                    }
                    return answer.relay(peer, &mut outgoing, permit);
                }
                None => {
                    failed = None;
                    self.fleet().forget(&self.caller.tenant, &named.id, *epoch);
                    if !outgoing.is_repeatable() {
                        break;
                    }
                    located = self.owner(&named, true).await?;
                }
            }
        }
        Err(failed.unwrap_or_else(|| errors::owner_moved(&named.id)))
    }

    /// Answers a request for a sandbox that only the object store has after it was restored.
    async fn by_restored(
        &self,
        named: NamedSandbox,
        request: Request,
        next: Next,
    ) -> Result<Response, ApiError> {
        let located = self.owner(&named, true).await?;
        let Whereabouts::There { peer, epoch } = &located.owner else {
            return Ok(self.here(&named, &located, request, next).await);
        };
        let tenant = self.caller.tenant.clone();
        let target = PeerTarget { tenant, sandbox: named.id.clone(), epoch: *epoch };
        let mut outgoing = Outgoing::new(request, Some(self.caller));
        let cancellation = self.app.cancellations.subscribe(self.caller);
        let target = Some(target);
        match forward::send(self.fleet(), peer, &mut outgoing, target, cancellation).await? {
            Some(answer) => answer.relay(peer, &mut outgoing, None),
            None => Err(errors::owner_moved(&named.id)),
        }
    }

    /// The owner of a sandbox, which the request may create.
    async fn owner(&self, named: &NamedSandbox, restores: bool) -> Result<Located, ApiError> {
        let tenant = &self.caller.tenant;
        let Settled { owner, restored } =
            settled(self.fleet(), tenant, &named.id, restores, named.called.as_ref()).await?;
        if owner != Whereabouts::Nowhere || !named.creates {
            return Ok(Located { owner, is_new: false, restored });
        }
        let wish = self.placement(named).await?;
        let PlacedSandbox { owner, is_new } = self.fleet().place(tenant, &named.id, &wish).await?;
        Ok(Located { owner, is_new, restored: None })
    }

    /// Places a new sandbox again that some nodes have refused for want of room. `None`: there is no other
    /// node, or the sandbox was created after all.
    async fn elsewhere(&self, named: &NamedSandbox, refused: &[NodeName]) -> Option<Located> {
        let tenant = &self.caller.tenant;
        let settled = settled(self.fleet(), tenant, &named.id, true, None).await.ok()?;
        if settled.owner != Whereabouts::Nowhere {
            return None;
        }
        let wish = self.placement(named).await.ok()?;
        if wish.node.is_some() {
            return None;
        }
        let wish = PlacementWish { without: refused.to_vec(), ..wish };
        let placed = self.fleet().place(tenant, &named.id, &wish).await.ok()?;
        Some(Located { owner: placed.owner, is_new: placed.is_new, restored: None })
    }

    /// Answers here.
    async fn here(
        &self,
        named: &NamedSandbox,
        located: &Located,
        mut request: Request,
        next: Next,
    ) -> Response {
        request.extensions_mut().insert(ClaimedId(named.id.clone()));
        if let Some(restored) = &located.restored {
            request.extensions_mut().insert(JustRestored(restored.clone()));
        }
        let path = request.uri().path().to_owned();
        let tenant = &self.caller.tenant;
        let creating =
            named.creates.then(|| CreatingRequest::begin(self.joined, tenant, &named.id));
        let registration = self.fleet().registration();
        let mut response = next.run(request).await;
        drop(creating);
        if !self.fleet().may_answer(tenant, &named.id, registration) {
            return error_response(too_late(Some(&named.id)), &path);
        }
        rescue::write(located.restored.as_deref(), response.headers_mut());
        response
    }

    /// After a node gave no answer: forgets it, so that the next request looks the owner up again.
    /// Returns whether the sandbox can be placed again: it was placed for this request, and the node
    /// got nothing of it.
    async fn unanswered(
        &self,
        named: &NamedSandbox,
        located: &Located,
        failure: &NotAnswered,
    ) -> bool {
        let Whereabouts::There { epoch, .. } = located.owner else { return false };
        let tenant = &self.caller.tenant;
        if located.is_new && failure.is_unsent {
            return self.fleet().unplace(tenant, &named.id, epoch).await;
        }
        if failure.error.code == "node_unreachable" {
            self.fleet().forget(tenant, &named.id, epoch);
        }
        false
    }

    async fn placement(&self, named: &NamedSandbox) -> Result<PlacementWish, ApiError> {
        let wish = &named.wish;
        let snapshot = wish.snapshot.as_deref().and_then(|id| SnapshotId::parse(id).ok());
        let node = match snapshot {
            None => None,
            Some(snapshot) => {
                let place = locate::place_of_snapshot(
                    self.app,
                    self.joined,
                    &self.caller.tenant,
                    &snapshot,
                );
                match place.await? {
                    SnapshotPlace::Here => Some(self.fleet().here().clone()),
                    SnapshotPlace::There(peer) => Some(peer.node),
                    SnapshotPlace::Nowhere => None,
                }
            }
        };
        Ok(PlacementWish {
            image: wish.image.clone(),
            memory_mib: wish.memory_mib,
            disk_mib: wish.disk_mib,
            class: wish.class(),
            node,
            region: wish.region(),
            labels: wish.labels(),
            without: Vec::new(),
        })
    }

    /// Has the node of a snapshot answer.
    async fn by_snapshot(
        &self,
        snapshot: Option<SnapshotId>,
        request: Request,
        next: Next,
    ) -> Result<Response, ApiError> {
        let Some(snapshot) = snapshot else { return Ok(next.run(request).await) };
        let tenant = &self.caller.tenant;
        let place = locate::place_of_snapshot(self.app, self.joined, tenant, &snapshot).await?;
        let SnapshotPlace::There(peer) = place else { return Ok(next.run(request).await) };
        let mut outgoing = Outgoing::new(request, Some(self.caller));
        let cancellation = self.app.cancellations.subscribe(self.caller);
        match forward::send(self.fleet(), &peer, &mut outgoing, None, cancellation).await? {
            Some(answer) => {
                if answer.status() == StatusCode::NOT_FOUND {
                    self.joined.snapshots.remove(tenant, snapshot.as_str());
                }
                answer.relay(&peer, &mut outgoing, None)
            }
            None => Err(errors::bad_node(&peer)),
        }
    }

    /// Counts a request to a port, which its handler counts on the owner. All other requests are
    /// counted already.
    fn port_permit(&self, request: &Request) -> Result<Option<Permit>, ApiError> {
        let extensions = request.extensions();
        let Some(route) = extensions.get::<MatchedPath>() else { return Ok(None) };
        let kind = kind_of(request.method(), route.as_str(), request.uri(), request.headers());
        if kind.is_some() {
            return Ok(None);
        }
        let limiter = &self.app.limiter;
        let tenant = &self.caller.tenant;
        Ok(Some(limiter.acquire(tenant, ConnectionKind::Port, extensions.get())?))
    }
}
