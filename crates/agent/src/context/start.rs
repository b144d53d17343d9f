//! Starts the interpreter of a context, and sends messages to its driver.

use super::interpreter::{BEGIN, Interpreter, START_MAX, program};
use super::{Context, ContextState, SpareKernels};
use crate::launch::Refusal;
use crate::reactor::poll::EventSource;
use crate::reactor::{ChildOwner, Reactor, Timer};
use isolet_sys::spawn::Stage;
use isolet_wire::context::{KERNEL, Language};
use isolet_wire::response::RefusalReason;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

impl Context {
    /// Starts an interpreter; there must be none.
    pub(super) fn start(
        &mut self,
        reactor: &mut Reactor,
        spares: &mut SpareKernels,
    ) -> Result<(), Refusal> {
        if self.open.language == Language::Bash {
            self.start_bash(reactor);
            return Ok(());
        }
        let ready = spares.take(reactor, &self.open);
        let mut interpreter =
            ready.map_or_else(|| Interpreter::launch(reactor, self.id, &self.open), Ok)?;
        self.state = ContextState::Starting;
        interpreter.ready_by = reactor.now + START_MAX;
        reactor.set_timer(interpreter.ready_by, Timer::Context(self.id));
        reactor.children.insert(interpreter.pid, ChildOwner::Context(self.id));
        if let Some(child) = &interpreter.child {
            let _ = reactor.poll.add(
                &child.started,
                EventSource::ContextExecStatus,
                self.id,
                EventFlags::IN,
            );
        }
        self.interpreter = Some(interpreter);
        self.set_listening(reactor, true);
        if self.open.env.contains_key(KERNEL) {
            let cwd = self.open.cwd.clone().into_bytes();
            self.send_to_driver(reactor, BEGIN, &cwd);
        }
        Ok(())
    }

    /// Replaces an interpreter that has ended.
    pub(super) fn restart_gone(&mut self, reactor: &mut Reactor, spares: &mut SpareKernels) {
        self.restarts += 1;
        self.fresh = true;
        if let Err((reason, message)) = self.start(reactor, spares) {
            self.refuse_queue(reason, &message);
            let openers = std::mem::take(&mut self.openers);
            self.refusals.extend(openers.into_iter().map(|one| (one, (reason, message.clone()))));
            self.state = ContextState::Gone;
        }
    }

    /// The exec status is available.
    pub(crate) fn on_exec_status(&mut self, reactor: &mut Reactor) {
        let name = program(&self.open).0;
        let Some(interpreter) = &mut self.interpreter else { return };
        let Some(result) =
            interpreter.child.as_mut().and_then(isolet_sys::spawn::Child::exec_result)
        else {
            return;
        };
        interpreter.child = None;
        let Err((stage, errno)) = result else { return };
        let refusal = match (stage, errno) {
            (Stage::Cwd, _) => {
                (RefusalReason::BadCwd, format!("cannot enter the start directory: {errno}"))
            }
            (Stage::Exec, Errno::NOENT) => (
                RefusalReason::Unsupported,
                format!("there is no {name} in the image of this sandbox"),
            ),
            (Stage::Exec, _) => (RefusalReason::Failed, format!("cannot execute {name}: {errno}")),
            (Stage::Confine | Stage::Terminal, _) => {
                (RefusalReason::NoProcess, format!("cannot confine: {errno}"))
            }
        };
        self.fail_to_start(reactor, refusal);
    }

    /// The interpreter will never be ready.
    pub(super) fn fail_to_start(&mut self, reactor: &mut Reactor, refusal: Refusal) {
        let first = self.restarts == 0 && self.number == 0;
        self.refuse_queue(refusal.0, &refusal.1);
        let openers = std::mem::take(&mut self.openers);
        self.refusals.extend(openers.into_iter().map(|one| (one, refusal.clone())));
        if first {
            self.failed = Some(refusal);
        }
        self.kill(reactor);
    }

    /// Queues a message for the driver.
    pub(super) fn send_to_driver(&mut self, reactor: &mut Reactor, kind: u8, body: &[u8]) {
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.out.extend_from_slice(&(body.len() as u32).to_be_bytes());
            interpreter.out.push(kind);
            interpreter.out.extend_from_slice(body);
        }
        self.write_to_driver(reactor);
    }

    /// Sends as much as the driver accepts.
    pub(crate) fn write_to_driver(&mut self, reactor: &mut Reactor) {
        let id = self.id;
        let Some(interpreter) = &mut self.interpreter else { return };
        let Some(control) = &interpreter.control else { return interpreter.out.clear() };
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        match rustix::net::send(control, &interpreter.out, flags) {
            Ok(count) => drop(interpreter.out.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The end of the driver is detected by reading.
            Err(_) => interpreter.out.clear(),
        }
        if interpreter.writing == interpreter.out.is_empty() {
            interpreter.writing = !interpreter.out.is_empty();
            if interpreter.listening {
                reactor.poll.modify(
                    control,
                    EventSource::ContextControl,
                    id,
                    interpreter.interest(),
                );
            } else if interpreter.writing {
                let _ = reactor.poll.add(control, EventSource::ContextControl, id, EventFlags::OUT);
            } else {
                reactor.poll.remove(control);
            }
        }
    }
}
