//! Sandboxes of the class `store`: the records of their snapshots, their takeover, and their restore on
//! this node.

pub(crate) mod away;
mod clock;
mod discard_worker;
pub(crate) mod discards;
pub(crate) mod endings;
pub(crate) mod pushed;
mod rescue;
pub(crate) mod restorer;
