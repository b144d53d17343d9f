//! The lease of a node of a fleet, as all programs of the node see it: epochs, the deadline, and the
//! rules of the process that guards sandboxes. A model checker tries the protocol of takeovers with
//! this [`Guard`] (crate `isolet-cluster`).

mod boot_time;
mod epoch;
mod guard;

pub use boot_time::{BootTime, LeaseDeadline};
pub use epoch::Epoch;
pub use guard::Guard;
