//! What a node does with a sandbox when it gains, loses and regains the right to run it.
//!
//! [`step`] is a pure function of the node's view of one sandbox and of an event; it returns the next
//! view and actions. [`Guard`] (in `isolet-wire`) is the state of the process that outlives the server: it alone lets
//! sandboxes of the class `store` run, and freezes them when the node's lease may end. The test
//! `model` checks both together with etcd, two nodes, drifting clocks, and servers that stop at any
//! point.
//!
//! ```mermaid
//! stateDiagram-v2
//!   [*] --> Absent
//!   Absent --> Claimed: owned / admit
//!   Claimed --> Running: admitted
//!   Claimed --> Suspended: lease lost, guard expired, not admitted / suspend
//!   Running --> Suspended: lease lost, guard expired, declared dead / suspend
//!   Suspended --> Suspended: lease regained / compare
//!   Suspended --> Claimed: compared, same epoch / admit
//!   Suspended --> Superseded: compared, other epoch / end
//!   Running --> Superseded: compared, other epoch, or a fenced write was refused / end
//!   Superseded --> Absent: ended
//!   Running --> Stopping: delete / stop
//!   Suspended --> Stopping: delete / stop
//!   Stopping --> Released: stopped / release
//!   Released --> Absent: released
//! ```
//!
//! A sandbox of the class `node` ignores the loss of the lease, because nobody can take it over. It is
//! suspended only when its node learns that it was declared dead, and its epoch is compared whenever
//! the node has a new registration.
//!
//! # Rules for the driver that performs the actions
//!
//! - The view is recorded before its actions are performed. After a restart, [`Event::Restarted`]
//!   returns the actions that may have been lost.
//! - `Admit` is a request to the guard, which refuses it if the registration is not the one that it
//!   knows or if the deadline has passed ([`Guard::admits`]). A request that a stopped server sent
//!   long ago can therefore do no harm. Each new process tree of a sandbox of the class `store` is
//!   admitted just before it starts. One that a server starts although the deadline has passed since,
//!   because the server was stopped in between, is frozen by the guard within 100 ms.
//! - If the node holds its lease when the guard refuses, the driver repeats [`Event::LeaseRegained`]
//!   after [`Event::NotAdmitted`], so that the epoch is compared.
//! - When its deadline passes, the guard freezes all sandboxes of the class `store` and cuts their
//!   egress. They stay frozen, each until it is admitted again, also when the deadline is renewed.
//! - Events about an epoch other than the current one are answers to outdated questions, and ignored.

mod state;

pub use isolet_wire::lease::Guard;
pub use state::{Action, Event, Phase, View, step};
