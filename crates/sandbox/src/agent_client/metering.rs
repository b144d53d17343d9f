//! Counts the output that an agent sends.

use crate::agent_client::wire::AgentEvent;
use isolet_metrics::{Meter, Stream};
use isolet_wire::frame::DataSize;
use isolet_wire::response::STDERR;

/// Counts the bytes of a data frame with output of a command, a process or code.
pub(crate) fn count_output(meter: &Meter, event: &AgentEvent) {
    let stream = |stream| if stream == STDERR { Stream::Stderr } else { Stream::Stdout };
    count(meter, event, stream);
}

/// Counts the bytes of a data frame with output of a terminal.
pub(crate) fn count_terminal(meter: &Meter, event: &AgentEvent) {
    count(meter, event, |_| Stream::TerminalOut);
}

fn count(meter: &Meter, event: &AgentEvent, stream: impl Fn(u8) -> Stream) {
    let AgentEvent::Data(body) = event else { return };
    if let Some(size) = DataSize::of(body) {
        meter.bytes(stream(size.stream), size.bytes);
    }
}
