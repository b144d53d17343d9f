//! Bytes that the server moves between clients and sandboxes.

use crate::labels::described;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

/// A stream, with the direction as seen from the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output of commands, programs, background processes and code.
    Stdout,
    /// The standard error of commands and programs.
    Stderr,
    /// What clients typed into terminals.
    TerminalIn,
    /// What terminals wrote for clients.
    TerminalOut,
    /// Contents of files that clients write, and archives that they unpack.
    FilesIn,
    /// Contents of files and archives that clients read.
    FilesOut,
    /// Bytes to programs that listen on ports.
    PortsIn,
    /// Bytes from programs that listen on ports.
    PortsOut,
}

/// The label values of each [`Stream`], in the order of the enum.
const LABELS: [(&str, &str); 8] = [
    ("stdout", "out"),
    ("stderr", "out"),
    ("terminal", "in"),
    ("terminal", "out"),
    ("files", "in"),
    ("files", "out"),
    ("ports", "in"),
    ("ports", "out"),
];

/// A counter for each stream.
#[derive(Debug)]
pub struct StreamBytes([Counter; 8]);

impl StreamBytes {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        type Labels = [(&'static str, &'static str); 2];
        let family = described(
            "isolet_stream",
            "Bytes between clients and sandboxes by stream, into (in) or out of (out) the sandbox",
        )
        .unit(Unit::Bytes)
        .register(registry, Family::<Labels, Counter>::default());
        Self(LABELS.map(|(stream, direction)| {
            family.get_or_create_owned(&[("stream", stream), ("direction", direction)])
        }))
    }

    /// Adds the bytes of one frame, read or write.
    pub fn add(&self, stream: Stream, bytes: u64) {
        self.0[stream as usize].inc_by(bytes);
    }
}
