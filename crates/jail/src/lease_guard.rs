//! The lease guard of a node: a process that stops sandboxes when the lease of the node ends.
//!
//! Another node may take over a sandbox of the class `store` when the lease of its node has ended.
//! Until then the first node must have stopped it, also if its server was killed, hangs or cannot
//! reach etcd. So the server tells this process the deadline with each extension of the lease, and
//! which sandboxes it must stop then. The process (`isolet-launcher --lease-guard`, one thread)
//! outlives the server, as agents do, and ends when neither a server nor a sandbox needs it. The
//! next server finds it at `DATA/lease-guard/guard.sock`. [`client`] is the server's side.
//!
//! ```mermaid
//! stateDiagram-v2
//!   [*] --> Watched: Admit, before the deadline of the registration
//!   [*] --> Stopped: Stop
//!   Watched --> [*]: Release, Free
//!   Watched --> Stopped: the deadline passes, another registration, Stop
//!   Watched --> Killed: it cannot be frozen or cut off
//!   Stopped --> Watched: Admit, under the current registration
//!   Stopped --> Killed: a process ran again and cannot be frozen
//!   Stopped --> [*]: Release, Free
//!   Killed --> Watched: Admit, when nothing is left
//!   Killed --> [*]: Release
//! ```
//!
//! - [`isolet_wire::lease::Guard`] decides, which the model checker of the protocol tries: a deadline
//!   belongs to a registration, late messages neither extend nor revive it, and what was admitted
//!   under a former registration is stopped.
//! - A process tree is admitted before it starts. `Free` is for sandboxes of the class `node`, which
//!   are stopped only while their node knows that it was declared dead.
//! - The deadline is a time of `CLOCK_BOOTTIME`, which the wall clock does not move. It counts from
//!   before the extension was sent, so it is earlier than the end of the lease in etcd.
//! - All sandboxes are frozen first, then those that do not freeze within [`FREEZE_WAIT`] are
//!   killed. Packets that the kernel still sends for frozen processes, such as repetitions, are
//!   dropped by a table of the packet filter in the network namespace of the sandbox.
//! - A server that was stopped and continues may thaw a sandbox, or start one that was admitted
//!   before. So the guard looks at stopped sandboxes every [`ENFORCE_INTERVAL`], and freezes again
//!   what runs.
//! - The process is locked in memory, and runs before normal processes. One that stands still for 3 s
//!   although it owes an answer is killed and replaced.
//! - A server that starts must ask which sandboxes still belong to the node before it resumes them.
//! - If the guard is killed, the server starts another one, and announces all sandboxes again. If both
//!   are killed at the same time, nothing stops the sandboxes until the next server has started.

pub(crate) mod client;
mod event_loop;
mod guarded;
mod stop;

pub use event_loop::{GuardOptions, run};

use std::time::Duration;

/// How long freezing all sandboxes may take before those that still run are killed.
const FREEZE_WAIT: Duration = Duration::from_secs(1);
/// The interval at which stopped sandboxes are checked.
const ENFORCE_INTERVAL: Duration = Duration::from_millis(100);
