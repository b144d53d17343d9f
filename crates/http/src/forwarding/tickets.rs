//! Redeems a ticket at the node that issued it.

use crate::auth::caller::{Caller, bad_ticket};
use crate::auth::tickets::TicketTarget;
use crate::fleet::joined::JoinedFleet;
use crate::forwarding::lookup::peer_named;
use crate::forwarding::node_call::{self, NodeCall};
use crate::foundation::error::ApiError;
use axum::http::{HeaderMap, Method, Uri};

/// A ticket that another node has issued.
pub(crate) struct ForeignTicket {
    node: String,
    call: NodeCall,
}

impl ForeignTicket {
    /// `None` when the request has no ticket, or one of this node.
    pub(crate) fn of(
        joined: &JoinedFleet,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<Self> {
        let target = TicketTarget::of(method, uri, headers)?;
        let node = target.node().filter(|node| *node != joined.fleet.here().as_str())?;
        let call = NodeCall::RedeemTicket {
            ticket: target.ticket()?.to_owned(),
            sandbox: target.sandbox().clone(),
            purpose: target.purpose,
        };
        Some(Self { node: node.to_owned(), call })
    }

    /// The caller that the ticket stands for. The ticket is used up.
    ///
    /// # Errors
    /// 401 when it opens something else, was used or has expired, and 503 `node_unreachable`.
    pub(crate) async fn redeem(self, joined: &JoinedFleet) -> Result<Caller, ApiError> {
        let fleet = &*joined.fleet;
        let peer = peer_named(fleet, &self.node).ok_or_else(bad_ticket)?;
        let answer = node_call::ask(fleet, &peer, &self.call).await?;
        let caller = answer.caller.ok_or_else(bad_ticket)?;
        // This node received the request, so it serves the caller.
        Ok(Caller { forwarded: false, ..caller.into() })
    }
}
