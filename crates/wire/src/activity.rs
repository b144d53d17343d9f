//! What runs in a sandbox under a name: shells, terminals, code contexts and spare kernels.
//!
//! On the wire, a name is a text with a prefix, and every activity has the fields of a shell. This
//! module is the only place that knows this form: everything above it uses [`ShellKey`] and
//! [`Activity`].

mod closed;
mod frame;
mod key;

use serde::{Deserialize, Serialize};

pub use closed::{CloseCause, Closed};
pub use frame::BadActivity;
pub use key::{BadKey, KEY_BYTES_MAX, ShellKey};

/// A shell, terminal, code context or spare kernel, as watchers of the agent see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "frame::ActivityFrame", into = "frame::ActivityFrame")]
pub enum Activity {
    /// The shell of a session, or a private shell.
    Shell {
        /// The shell: [`ShellKey::Session`] or [`ShellKey::Private`].
        key: ShellKey,
        /// Process id of bash inside the sandbox; 0 while there is none.
        pid: i32,
        /// A command is running.
        busy: bool,
        /// Number of commands in the queue.
        queued: u32,
        /// Number of attached clients.
        clients: u32,
        /// Set once bash has ended.
        closed: Option<Closed>,
    },
    /// The terminal of a session. Agents report one when it opens, when it ends, and when its
    /// visible clients change.
    Terminal {
        /// The id of the session that the terminal belongs to.
        session: String,
        /// Process id of the terminal's program inside the sandbox.
        pid: i32,
        /// Number of attached clients that are not hidden.
        clients: u32,
        /// Set once the program has ended.
        closed: Option<Closed>,
    },
    /// A code context with an interpreter.
    Context {
        /// The id of the code context.
        id: String,
        /// Process id of the interpreter inside the sandbox; 0 while there is none.
        pid: i32,
        /// A run is in progress.
        busy: bool,
        /// Number of runs in the queue.
        queued: u32,
        /// Number of threads of the interpreter, and of its Jupyter kernel where it has one.
        threads: u32,
        /// The context has been deleted, or its interpreter never became ready.
        ended: bool,
    },
    /// A Jupyter kernel that the agent started in advance and that no context has taken yet.
    SpareKernel {
        /// Process id of the kernel's driver inside the sandbox.
        pid: i32,
        /// Number of threads of the driver.
        threads: u32,
    },
}

impl Activity {
    /// The name under which the agent reports it.
    #[must_use]
    pub fn key(&self) -> ShellKey {
        match self {
            Self::Shell { key, .. } => key.clone(),
            Self::Terminal { session, .. } => ShellKey::Terminal(session.clone()),
            Self::Context { id, .. } => ShellKey::Context(id.clone()),
            Self::SpareKernel { .. } => ShellKey::SpareKernel,
        }
    }

    /// Whether a command or a run is in progress or in the queue.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Shell { busy, queued, .. } | Self::Context { busy, queued, .. } => {
                *busy || *queued > 0
            }
            Self::Terminal { .. } | Self::SpareKernel { .. } => false,
        }
    }

    /// Whether this is the last report under its name.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Shell { closed, .. } | Self::Terminal { closed, .. } => closed.is_some(),
            Self::Context { ended, .. } => *ended,
            Self::SpareKernel { .. } => false,
        }
    }
}
