//! Forwards requests to the node that owns their sandbox, and answers forwarded ones.
//!
//! A node that receives a request checks its key, its limits and its origin as always. Then
//! [`dispatch`] finds the sandbox that the request names and the node that owns it, and either the
//! handler of this node answers or [`forward`] sends the request on. The owner ([`arrival`]) trusts
//! what the other node says about the caller, checks that it owns the sandbox at the epoch that the
//! other node knows, and never sends a request on again, so that no request travels in a circle.
//!
//! A server without a fleet uses nothing of this.

pub(crate) mod arrival;
pub(crate) mod dispatch;
pub(crate) mod errors;
mod event_cursor;
mod event_frames;
pub(crate) mod events;
pub(crate) mod forward;
mod lingering_body;
pub(crate) mod links;
pub(crate) mod lists;
pub(crate) mod locate;
pub(crate) mod lookup;
pub(crate) mod node_call;
pub(crate) mod outgoing;
pub(crate) mod peer_head;
pub(crate) mod relay_body;
pub(crate) mod replay_body;
pub(crate) mod route_table;
pub(crate) mod sandbox_of;
pub(crate) mod tickets;
