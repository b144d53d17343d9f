//! What becomes of a sandbox whose node has failed.

use crate::fleet::{Peer, Whereabouts};
use isolet_sandbox::RestoredFrom;

/// What a fleet did about a sandbox whose node has no lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rescue {
    /// The sandbox has this owner now. One that waits for its node has the same as before.
    Owner(Whereabouts),
    /// This node may not take it over, and this one may.
    Ask(Peer),
}

/// Whether this node has a sandbox that it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// It has it, or may create it. With what it was restored from, if that has just been done.
    Here(Option<Box<RestoredFrom>>),
    /// It does not own the sandbox any more.
    NotOwner,
}
