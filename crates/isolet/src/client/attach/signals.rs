//! Signals of the kernel: the window changed its size, or this program must end.

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that `attach` handles.
pub(super) struct Signals {
    /// SIGWINCH: the window changed its size.
    pub(super) window: Signal,
    /// A signal that ends this program.
    pub(super) ended: ExitSignals,
}

/// The signals that end a program, each with its exit code.
pub(super) struct ExitSignals([(Signal, i64); 4]);

impl Signals {
    /// Starts to listen for the signals.
    pub(super) fn new() -> Result<Self> {
        let of =
            |kind: SignalKind| anyhow::Ok((signal(kind)?, 128 + i64::from(kind.as_raw_value())));
        let ended = [
            of(SignalKind::terminate())?,
            of(SignalKind::hangup())?,
            of(SignalKind::interrupt())?,
            of(SignalKind::quit())?,
        ];
        Ok(Self { window: signal(SignalKind::window_change())?, ended: ExitSignals(ended) })
    }
}

impl ExitSignals {
    /// Waits for a signal that ends this program, and returns the exit code.
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
