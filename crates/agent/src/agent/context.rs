//! Handles requests about code contexts and flushes them at the end of a round.

use super::Agent;
use crate::connection::{Conn, Role};
use crate::context::Context;
use crate::reactor::poll::{EventSource, Ready};
use isolet_wire::context::{
    CONTEXTS_MAX, ContextRequest, ContextResponse, LABEL_BYTES_MAX, OpenContext,
};
use isolet_wire::response::{self, RefusalReason};

/// Maximum length of a context's id, in bytes.
const ID_BYTES_MAX: usize = 128;

impl Agent {
    pub(super) fn context(&mut self, id: u64, request: ContextRequest) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "this connection has another use",
            );
        }
        match request {
            ContextRequest::Open(open) => self.open_context(id, open),
            ContextRequest::List => {
                let stays = |one: &&Context| !one.is_over() && one.failed.is_none();
                let mut all: Vec<_> = self.contexts.values().filter(stays).collect();
                all.sort_by(|a, b| a.open.context.cmp(&b.open.context));
                let all: Vec<_> = all.into_iter().map(|one| one.describe(false)).collect();
                all.into_iter()
                    .for_each(|state| self.send(id, &response::AgentResponse::Context(state)));
                self.send(id, &response::AgentResponse::Done);
            }
            ContextRequest::Close(name) => match self.named(&name) {
                None => self.send(id, &response::AgentResponse::Done),
                Some(of) => self.with_context(of, |context, reactor| context.close(reactor, id)),
            },
            ContextRequest::Interrupt(name) => {
                let Some(of) = self.named(&name) else { return self.no_context(id, &name) };
                let mut any = false;
                self.with_context(of, |context, reactor| any = context.interrupt(reactor));
                self.send(id, &response::AgentResponse::Context(ContextResponse::Interrupted(any)));
            }
            ContextRequest::Restart(name) => {
                let Some(of) = self.named(&name) else { return self.no_context(id, &name) };
                self.with_context(of, |context, reactor| context.restart(reactor, id));
            }
            ContextRequest::Run(run) => {
                let Some(of) = self.named(&run.context) else {
                    return self.no_context(id, &run.context);
                };
                let mut put = Ok(());
                self.with_context(of, |context, _| put = context.enqueue(id, run));
                match (put, self.conns.get_mut(&id)) {
                    (Ok(()), Some(conn)) => conn.role = Role::Context(of),
                    (Err((reason, message)), _) => self.refuse(id, None, reason, message),
                    _ => {}
                }
            }
        }
    }

    fn open_context(&mut self, id: u64, open: OpenContext) {
        let long = open.context.is_empty() || open.context.len() > ID_BYTES_MAX;
        if long || open.label.len() > LABEL_BYTES_MAX {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "a context's id or label is too long",
            );
        }
        if let Some(of) = self.named(&open.context) {
            if open.reuse {
                return self.with_context(of, |context, _| context.openers.push(id));
            }
            let message = format!("context {} exists", open.context);
            return self.refuse(id, None, RefusalReason::Exists, message);
        }
        if self.contexts.len() >= CONTEXTS_MAX {
            let message = format!("at most {CONTEXTS_MAX} contexts; delete one of them");
            return self.refuse(id, None, RefusalReason::TooMany, message);
        }
        let of = self.reactor.next_id();
        match Context::open(&mut self.reactor, &mut self.spares, of, open) {
            Ok(mut context) => {
                context.openers.push(id);
                self.contexts.insert(of, context);
                self.reactor.pending.contexts.mark(of);
            }
            Err((reason, message)) => self.refuse(id, None, reason, message),
        }
    }

    /// Finds a context by its id, unless it is being deleted.
    fn named(&self, name: &str) -> Option<u64> {
        let fits =
            |one: &&Context| one.open.context == name && !one.closing && one.failed.is_none();
        self.contexts.values().find(fits).map(|context| context.id)
    }

    fn no_context(&mut self, id: u64, name: &str) {
        self.refuse(id, None, RefusalReason::NoShell, format!("there is no context {name}"));
    }

    fn with_context(
        &mut self,
        of: u64,
        work: impl FnOnce(&mut Context, &mut crate::reactor::Reactor),
    ) {
        if let Some(context) = self.contexts.get_mut(&of) {
            work(context, &mut self.reactor);
            self.reactor.pending.contexts.mark(of);
        }
    }

    pub(super) fn context_event(&mut self, ready: Ready) {
        self.with_context(ready.id, |context, reactor| match ready.source {
            EventSource::ContextExecStatus => context.on_exec_status(reactor),
            EventSource::ContextControl => context.write_to_driver(reactor),
            // Output is read at the end of the round, in its order.
            _ => {}
        });
    }

    pub(super) fn context_tick(&mut self, id: u64) {
        self.with_context(id, Context::on_timer);
    }

    pub(super) fn context_died(&mut self, id: u64, pid: i32, code: Option<i32>, sig: Option<i32>) {
        if self.contexts.get(&id).is_some_and(|context| context.is(pid)) {
            self.with_context(id, |context, reactor| context.on_exit(reactor, code, sig));
        }
    }

    /// The connection no longer needs its running or queued run.
    pub(super) fn context_cancel(&mut self, id: u64) -> bool {
        let Some(Role::Context(of)) = self.conns.get(&id).map(|conn| &conn.role) else {
            return false;
        };
        let of = *of;
        self.with_context(of, |context, reactor| context.cancel(reactor, id));
        true
    }

    /// A connection has disconnected.
    pub(super) fn leave_contexts(&mut self, id: u64) {
        for context in self.contexts.values_mut() {
            context.on_disconnect(id);
            self.reactor.pending.contexts.mark(context.id);
        }
    }

    /// After every round: forwards output, starts the next run, answers, and removes ended
    /// contexts.
    pub(super) fn flush_context(&mut self, id: u64) {
        self.flow_context(id);
        let Some(context) = self.contexts.get_mut(&id) else { return };
        for (conn, (reason, message)) in std::mem::take(&mut context.refusals) {
            self.free(conn);
            self.refuse(conn, None, reason, message);
        }
        let Some(context) = self.contexts.get_mut(&id) else { return };
        context.restart_if_wanted(&mut self.reactor, &mut self.spares);
        if let Some((conn, began)) = context.start_next_run(&mut self.reactor) {
            self.reactor.pending.contexts.mark(id);
            self.send(conn, &response::AgentResponse::Context(began));
        }
        let Some(context) = self.contexts.get_mut(&id) else { return };
        if context.is_ready() {
            let new = context.take_unannounced();
            let state = context.describe(new);
            for conn in std::mem::take(&mut context.openers) {
                self.send(conn, &response::AgentResponse::Context(state.clone()));
            }
        }
        let Some(context) = self.contexts.get_mut(&id) else { return };
        if context.is_over() {
            let closers = std::mem::take(&mut context.closers);
            self.report_context_end(id);
            self.contexts.remove(&id);
            closers.into_iter().for_each(|conn| self.send(conn, &response::AgentResponse::Done));
        }
    }

    fn flow_context(&mut self, id: u64) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        let conn_id = context.client();
        let mut conn = conn_id.and_then(|conn| self.conns.get_mut(&conn));
        if let Some(conn) = &mut conn {
            let _ = conn.flush();
        }
        let flow = context.forward_output(&mut self.reactor, &mut self.spares, conn.as_deref_mut());
        if let Some(conn) = conn {
            if let Some(end) = &flow.end {
                conn.queue_message(&response::AgentResponse::Context(end.clone()));
                conn.role = Role::Ready;
            }
            let waited = conn.queued_bytes() > 0;
            let _ = conn.flush();
            if waited && conn.queued_bytes() == 0 && flow.end.is_none() {
                // No event reports room in a socket that was full only briefly.
                self.reactor.pending.contexts.mark(id);
            }
            conn.update_interest(&self.reactor.poll);
            if conn.take_resumable() {
                conn_id.into_iter().for_each(|id| self.reactor.pending.connections.mark(id));
            }
        }
        if flow.more || flow.end.is_some() {
            self.reactor.pending.contexts.mark(id);
        }
    }

    fn free(&mut self, conn: u64) {
        let conn = self.conns.get_mut(&conn);
        if let Some(Conn { role, .. }) = conn.filter(|conn| matches!(conn.role, Role::Context(_))) {
            *role = Role::Ready;
        }
    }

    /// Reports a context to watchers one last time before it is removed.
    fn report_context_end(&mut self, id: u64) {
        self.reactor.notify_watchers(id);
        if !self.watchers.is_empty() {
            self.report_to_watchers();
        }
    }
}
