//! Messages between the server of a node and its lease guard: the process that stops sandboxes when
//! the lease of the node ends, whatever has become of the server. Each packet of a `SOCK_SEQPACKET`
//! connection holds one postcard value. Every request gets one answer, in order.

use crate::lease::{Epoch, LeaseDeadline};
use serde::{Deserialize, Serialize};

/// Maximum number of sandboxes in one message, so that it fits into a packet.
pub const LIST_MAX: usize = 256;

/// Requests from the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardRequest {
    /// The greeting, which must be the first request.
    Hello {
        /// The highest version that the server speaks; see [`crate::version`].
        version: u16,
    },
    /// The lease of the node was extended. Answered with [`GuardResponse::Extended`]. A deadline of an
    /// earlier registration, or an earlier one of the same registration, changes nothing.
    Extend {
        /// The time at which the guard stops the sandboxes, and the registration.
        deadline: LeaseDeadline,
    },
    /// A sandbox that another node may take over is about to run, or may continue. Refused when the
    /// deadline has passed, when the registration is not the one of the deadline, or when processes
    /// are left that had to be killed.
    Admit {
        /// The internal name of the sandbox.
        name: String,
        /// The registration under which its ownership was last confirmed.
        registration: Epoch,
    },
    /// Another node may own these sandboxes, at most [`LIST_MAX`]: stops them now. Each stays stopped
    /// until it is admitted or freed.
    Stop {
        /// The internal names of the sandboxes.
        names: Vec<String>,
    },
    /// No other node may take the sandbox over: lets it continue if it is stopped, and forgets it. No
    /// error if it is not guarded.
    Free {
        /// The internal name of the sandbox.
        name: String,
    },
    /// The sandbox does not run here any more: forgets it. What is left of it stays as it is. No error
    /// if it is not guarded.
    Release {
        /// The internal name of the sandbox.
        name: String,
    },
    /// List guarded sandboxes whose name is greater than `after`, at most [`LIST_MAX`].
    List {
        /// The last name of the previous page; empty for the first page.
        after: String,
    },
}

/// Answers of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardResponse {
    /// The answer to the greeting.
    Hello {
        /// See [`crate::version::answer`].
        version: u16,
        /// The deadline that the previous server set.
        deadline: Option<LeaseDeadline>,
    },
    /// The deadline is known.
    Extended {
        /// The number of guarded sandboxes that are stopped.
        stopped: u32,
    },
    /// The request was carried out.
    Done,
    /// Refused, because the deadline has passed, was never set, or has another registration.
    Expired,
    /// Refused for another reason.
    Refused {
        /// What happened, for people.
        reason: String,
    },
    /// A page of guarded sandboxes, in the order of their names.
    Listed(Vec<GuardedSandbox>),
}

/// A sandbox that the guard knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedSandbox {
    /// The internal name of the sandbox.
    pub name: String,
    /// What the guard has done with it.
    pub state: GuardedState,
}

/// The state of a guarded sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardedState {
    /// It runs, and is stopped at the deadline.
    Watched,
    /// The deadline has passed: its processes are frozen, and no packet leaves it.
    Stopped,
    /// The deadline has passed, and its processes were killed, because they could not be frozen or
    /// its packets could not be dropped.
    Killed,
}
