//! What the kernel tells this program: its window changed, or it is to end.

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Everything that is listened for.
pub(super) struct Signals {
    /// The window has another size.
    pub(super) window: Signal,
    /// This program is to end.
    pub(super) ended: Ended,
}

/// Signals that end a program, each with the exit code for that.
pub(super) struct Ended([(Signal, i64); 4]);

impl Signals {
    /// Listens from now on.
    pub(super) fn new() -> Result<Self> {
        let of =
            |kind: SignalKind| anyhow::Ok((signal(kind)?, 128 + i64::from(kind.as_raw_value())));
        let ended = [
            of(SignalKind::terminate())?,
            of(SignalKind::hangup())?,
            of(SignalKind::interrupt())?,
            of(SignalKind::quit())?,
        ];
        Ok(Self { window: signal(SignalKind::window_change())?, ended: Ended(ended) })
    }
}

impl Ended {
    /// Waits for one; the exit code.
    pub(super) async fn recv(&mut self) -> i64 {
        let [(a, term), (b, hangup), (c, interrupt), (d, quit)] = &mut self.0;
        tokio::select! {
            _ = a.recv() => *term,
            _ = b.recv() => *hangup,
            _ = c.recv() => *interrupt,
            _ = d.recv() => *quit,
        }
    }
}
