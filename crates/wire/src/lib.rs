//! The words between server, launcher and agent.
//!
//! One connection carries frames: a length, a kind, a body. [`frame`] cuts them out of bytes and
//! refuses what is too long before it allocates; [`request`] is every message that a server sends to
//! an agent, [`response`] every answer, [`terminal`] the words of both for a PTY, [`process`] those for
//! what runs in the background, [`context`] for code, [`port`] for sockets inside, [`launcher`] what server and launcher say
//! to each other, [`network`] where a sandbox may connect to.
//! No I/O here: whoever owns a socket feeds the bytes.
#![forbid(unsafe_code)]

pub mod activity;
pub mod context;
pub mod credential;
pub mod frame;
pub mod launcher;
pub mod network;
pub mod port;
pub mod process;
pub mod program;
pub mod request;
pub mod response;
pub mod terminal;
pub mod veth;

/// What both sides must say first, equal or refused.
pub const VERSION: u16 = 3;
