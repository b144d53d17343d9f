//! Forwards an interpreter's output to the connection of its run: both streams, and the driver's
//! frames between them, in the order in which they were written.
//!
//! A frame of the driver follows everything that was written before it: when its header arrives,
//! the available bytes of both streams are read first. The driver waits until its frame was read,
//! so nothing that is written later comes before it.

use super::interpreter::READ;
use super::{Context, ContextState, SpareKernels};
use crate::connection::Conn;
use crate::reactor::poll::EventSource;
use crate::reactor::{READ_BYTES, Reactor};
use isolet_wire::context::{ContextResponse, DISPLAY, ERROR, PART_BYTES_MAX, SAID_BYTES_MAX};
use isolet_wire::response::{self, RefusalReason, STDERR, STDOUT};
use rustix::event::epoll::EventFlags;

const READY: u8 = 1;
const DONE: u8 = 4;
const SYNC: u8 = 5;
const UNABLE: u8 = 6;
/// Maximum size of a frame for the agent itself, in bytes.
const OWN_BYTES_MAX: usize = 4096;
/// Maximum amount of output between runs that is kept, in bytes per stream.
const LATE_BYTES_MAX: usize = 64 * 1024;
/// Number of steps of one context per round, so that other contexts get their turn.
const STEPS_MAX: usize = 64;

/// The result of a round.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// The run has ended with this message.
    pub(crate) end: Option<ContextResponse>,
    /// There may be more to do at once.
    pub(crate) more: bool,
}

/// The result of one step.
#[derive(Debug, PartialEq, Eq)]
enum FlowStep {
    Moved,
    Nothing,
}

impl Context {
    /// Starts or stops polling the descriptors, because the client does not read.
    pub(super) fn set_listening(&mut self, reactor: &Reactor, on: bool) {
        let id = self.id;
        let Some(interpreter) =
            self.interpreter.as_mut().filter(|interpreter| interpreter.listening != on)
        else {
            return;
        };
        interpreter.listening = on;
        for (fd, source) in
            interpreter.pipes.iter().zip([EventSource::ContextOut, EventSource::ContextErr])
        {
            match fd {
                Some(fd) if on => drop(reactor.poll.add(fd, source, id, EventFlags::IN)),
                Some(fd) => reactor.poll.remove(fd),
                None => {}
            }
        }
        let Some(control) = &interpreter.control else { return };
        match (on, interpreter.writing) {
            (true, true) => reactor.poll.modify(
                control,
                EventSource::ContextControl,
                id,
                interpreter.interest(),
            ),
            (true, false) => {
                let _ = reactor.poll.add(control, EventSource::ContextControl, id, EventFlags::IN);
            }
            (false, true) => {
                reactor.poll.modify(control, EventSource::ContextControl, id, EventFlags::OUT)
            }
            (false, false) => reactor.poll.remove(control),
        }
    }

    /// Forwards output after every round, as far as `conn` accepts it.
    pub(crate) fn forward_output(
        &mut self,
        reactor: &mut Reactor,
        spares: &mut SpareKernels,
        mut conn: Option<&mut Conn>,
    ) -> Flow {
        if self.bash.is_some() {
            return self.forward_bash_output(reactor, conn);
        }
        let mut flow = Flow::default();
        for steps in 0.. {
            if conn.as_ref().is_some_and(|conn| conn.queued_bytes() > 0) {
                self.set_listening(reactor, false);
                return flow;
            }
            if self.run.as_ref().is_some_and(|run| run.done) {
                flow.end = Some(self.finish(reactor, None));
                return flow;
            }
            if steps >= STEPS_MAX {
                flow.more = true;
                return flow;
            }
            if self.step(reactor, spares, conn.as_deref_mut()) == FlowStep::Nothing {
                break;
            }
        }
        self.set_listening(reactor, true);
        if self.interpreter.as_ref().is_some_and(|interpreter| interpreter.died.is_some()) {
            flow.end = self.on_interpreter_gone(reactor);
        }
        flow
    }

    fn step(
        &mut self,
        reactor: &mut Reactor,
        spares: &mut SpareKernels,
        mut conn: Option<&mut Conn>,
    ) -> FlowStep {
        if self.run.is_some() && self.deliver_late(conn.as_deref_mut()) {
            return FlowStep::Moved;
        }
        let Some(interpreter) = &self.interpreter else { return FlowStep::Nothing };
        for (slot, before) in interpreter.before.into_iter().enumerate() {
            if before > 0 {
                let count = self.pull(reactor, conn, slot, before.min(READ_BYTES));
                if let Some(interpreter) = &mut self.interpreter {
                    interpreter.before[slot] = if count == 0 { 0 } else { before - count };
                }
                return FlowStep::Moved;
            }
        }
        match interpreter.body {
            Some((kind, 0)) => {
                self.on_frame(reactor, spares, kind);
                return FlowStep::Moved;
            }
            Some((kind, left)) => {
                if self.read_frame_body(reactor, conn.as_deref_mut(), kind, left) {
                    return FlowStep::Moved;
                }
            }
            None => {
                if self.read_frame_head(reactor) {
                    return FlowStep::Moved;
                }
            }
        }
        if self.interpreter.as_ref().is_some_and(|interpreter| interpreter.died.is_some()) {
            return FlowStep::Nothing;
        }
        let counts = [0, 1].map(|slot| self.pull(reactor, conn.as_deref_mut(), slot, READ_BYTES));
        if counts == [0, 0] { FlowStep::Nothing } else { FlowStep::Moved }
    }

    /// Forwards output that was written between runs. Returns whether there was any.
    pub(super) fn deliver_late(&mut self, mut conn: Option<&mut Conn>) -> bool {
        for slot in [0, 1] {
            let late = std::mem::take(&mut self.late[slot]);
            if !late.is_empty() {
                self.deliver(conn.as_deref_mut(), slot, &late);
                return true;
            }
        }
        false
    }

    /// Forwards output to the connection of the current run, or keeps it for the next.
    pub(super) fn deliver(&mut self, conn: Option<&mut Conn>, slot: usize, bytes: &[u8]) {
        let Some(run) = &mut self.run else {
            let late = &mut self.late[slot];
            late.extend_from_slice(bytes);
            let over = late.len().saturating_sub(LATE_BYTES_MAX);
            late.drain(..over);
            self.late_lost += over as u64;
            return;
        };
        let (stream, count) = match slot {
            0 => (STDOUT, &mut run.end.out),
            _ => (STDERR, &mut run.end.err),
        };
        let offset = *count;
        *count += bytes.len() as u64;
        if let Some(conn) = conn {
            // A disconnected peer is detected by its own event.
            let _ = conn.send_data(stream, offset, bytes);
        }
    }

    fn pull(
        &mut self,
        reactor: &mut Reactor,
        conn: Option<&mut Conn>,
        slot: usize,
        max: usize,
    ) -> usize {
        let Some(interpreter) = &mut self.interpreter else { return 0 };
        let Some(fd) = &interpreter.pipes[slot] else { return 0 };
        match reactor.read(fd, max) {
            Ok(bytes) => {
                let bytes = bytes.to_vec();
                self.deliver(conn, slot, &bytes);
                bytes.len()
            }
            Err(()) => {
                interpreter.pipes[slot] = None;
                0
            }
        }
    }

    /// Reads the header of a frame. Returns whether anything arrived.
    fn read_frame_head(&mut self, reactor: &mut Reactor) -> bool {
        let Some(interpreter) = &mut self.interpreter else { return false };
        let Some(control) = &interpreter.control else { return false };
        match reactor.read(control, 5 - interpreter.held.len()) {
            Ok([]) => return false,
            Ok(bytes) => interpreter.held.extend_from_slice(bytes),
            Err(()) => {
                // The driver or the code has closed the socket.
                self.on_driver_lost(reactor);
                return true;
            }
        }
        let [a, b, c, d, kind] = interpreter.held[..] else { return true };
        interpreter.held.clear();
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let max = if kind == DISPLAY || kind == ERROR { SAID_BYTES_MAX } else { OWN_BYTES_MAX };
        if length > max || !(READY..=UNABLE).contains(&kind) {
            self.on_driver_lost(reactor);
            return true;
        }
        interpreter.body = Some((kind, length));
        interpreter.count_output_before_frame();
        true
    }

    /// The driver has closed its socket, or has sent what is no frame.
    fn on_driver_lost(&mut self, reactor: &mut Reactor) {
        let Some(interpreter) = &mut self.interpreter else { return };
        interpreter.control = None;
        // Unless it is being replaced.
        interpreter.never_ready = self.state == ContextState::Starting && self.killing.is_none();
        self.kill(reactor);
    }

    /// Reads more of a frame's body. Returns whether anything arrived.
    fn read_frame_body(
        &mut self,
        reactor: &mut Reactor,
        conn: Option<&mut Conn>,
        kind: u8,
        left: usize,
    ) -> bool {
        let Some(interpreter) = &mut self.interpreter else { return false };
        let Some(control) = &interpreter.control else { return false };
        match reactor.read(control, left.min(PART_BYTES_MAX)) {
            Ok([]) => false,
            Ok(bytes) => {
                let left = left - bytes.len();
                interpreter.body = Some((kind, left));
                if kind != DISPLAY && kind != ERROR {
                    interpreter.held.extend_from_slice(bytes);
                } else if let Some(conn) = conn
                    && self.run.is_some()
                {
                    let part =
                        ContextResponse::Part { kind, bytes: bytes.to_vec(), last: left == 0 };
                    conn.queue_message(&response::AgentResponse::Context(part));
                    let _ = conn.flush();
                }
                true
            }
            Err(()) => {
                self.on_driver_lost(reactor);
                true
            }
        }
    }

    /// Handles a complete frame.
    fn on_frame(&mut self, reactor: &mut Reactor, spares: &mut SpareKernels, kind: u8) {
        let Some(interpreter) = &mut self.interpreter else { return };
        interpreter.body = None;
        let said = std::mem::take(&mut interpreter.held);
        match (kind, self.state) {
            (READY, ContextState::Starting) => {
                self.state = ContextState::Idle;
                self.kernel = match said[..] {
                    [a, b, c, d] => Some(i32::from_be_bytes([a, b, c, d]).max(0)),
                    _ => None,
                };
                if self.kernel.is_some() && self.spare {
                    spares.count_start(reactor, &self.open);
                }
                // Output during the start is discarded.
                self.late = [Vec::new(), Vec::new()];
                reactor.notify_watchers(self.id);
            }
            (UNABLE, ContextState::Starting) => {
                let text = String::from_utf8_lossy(&said).into_owned();
                self.fail_to_start(reactor, (RefusalReason::Unsupported, text));
            }
            (DISPLAY | SYNC, _) => self.send_to_driver(reactor, READ, &[]),
            // A frame that names another run comes from the tenant's code or is too late.
            (DONE, ContextState::Running) if said == self.number.to_be_bytes() => {
                if let Some(run) = &mut self.run {
                    run.done = true;
                }
            }
            _ => {}
        }
    }
}
