//! The connection to the server: open, or lost and being reconnected.

use super::attached_terminal::Reattach;
use super::socket::{TerminalFrame, TerminalSocket};
use crate::client::ApiClient;
use anyhow::Result;
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

type Attempt = Pin<Box<dyn Future<Output = Result<(TerminalSocket, Value)>>>>;

/// The connection to the server.
pub(super) enum ServerConnection {
    /// The connection is open.
    Open {
        socket: Box<TerminalSocket>,
        /// When the server last sent something.
        last_received: Instant,
    },
    /// The connection was lost; the client retries until it is open again.
    Lost {
        /// When the connection was lost.
        since: Instant,
        /// How often it was tried.
        attempts: u32,
        /// The attempt under way.
        attempt: Attempt,
        /// Whether a line on the screen reports the lost connection.
        announced: bool,
    },
}

/// What happened on the connection.
pub(super) enum ConnectionEvent {
    /// The message was sent.
    Sent,
    Received(TerminalFrame),
    /// An attempt has ended: the new socket and the first message of the server, or the error.
    Reconnected(Box<Result<(TerminalSocket, Value)>>),
}

impl ServerConnection {
    pub(super) fn open(socket: TerminalSocket) -> Self {
        Self::Open { socket: Box::new(socket), last_received: Instant::now() }
    }

    /// A connection that was lost just now.
    pub(super) fn lost(server: &Rc<ApiClient>, reattach: Reattach) -> Self {
        let attempt = attempt_after(Duration::ZERO, server, reattach);
        Self::Lost { since: Instant::now(), attempts: 0, attempt, announced: false }
    }

    /// Schedules the next attempt, after an exponential backoff.
    pub(super) fn retry(&mut self, server: &Rc<ApiClient>, reattach: Reattach) {
        let Self::Lost { attempts, attempt, .. } = self else { return };
        *attempts += 1;
        let pause = Duration::from_millis(100 << (*attempts).min(6)).min(PAUSE_MAX);
        // Jitter: clients that were lost together do not reconnect together.
        let jitter = pause.mul_f64(f64::from(std::process::id() % 64) / 256.0);
        *attempt = attempt_after(pause + jitter, server, reattach);
    }

    /// Restarts the timeout of the server.
    pub(super) fn mark_alive(&mut self) {
        if let Self::Open { last_received, .. } = self {
            *last_received = Instant::now();
        }
    }

    /// The next event; frames only with `read`. Cancel safe.
    pub(super) async fn next(&mut self, read: bool) -> ConnectionEvent {
        match self {
            Self::Open { socket, last_received } => {
                let Some(frame) = socket.next(read).await else { return ConnectionEvent::Sent };
                *last_received = Instant::now();
                ConnectionEvent::Received(frame)
            }
            Self::Lost { attempt, .. } => ConnectionEvent::Reconnected(Box::new(attempt.await)),
        }
    }
}

fn attempt_after(pause: Duration, server: &Rc<ApiClient>, reattach: Reattach) -> Attempt {
    let server = Rc::clone(server);
    Box::pin(async move {
        sleep(pause).await;
        reattach.open(&server).await
    })
}
