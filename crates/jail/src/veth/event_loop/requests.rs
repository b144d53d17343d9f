//! Handles the requests of the server. The process serves one server at a time, and answers each
//! request.

use super::{EventLoop, PREPARE_PAUSE};
use crate::veth::client_conn::{ClientConn, Request};
use crate::veth::gateway::Failure;
use isolet_wire::network::Guard;
use isolet_wire::veth::{VethRequest, VethRequestBody, VethResponseBody, VethSettings};
use std::time::Instant;

impl EventLoop {
    pub(super) fn accept(&mut self) {
        if let Some(candidate) = ClientConn::accept(&self.listener) {
            self.candidate = Some(candidate);
        }
    }

    /// A candidate that sends `Begin` replaces the server: the previous one was killed, or should no
    /// longer run.
    pub(super) fn handle_candidate(&mut self) {
        let Some(candidate) = self.candidate.take() else { return };
        match candidate.try_receive() {
            Ok(Some(request)) if matches!(request.order.body, VethRequestBody::Begin(_)) => {
                self.client = Some(candidate);
                self.handle_request(request);
            }
            Ok(Some(Request {
                order: VethRequest { number, body: VethRequestBody::Hello { version } },
                ..
            })) => {
                self.candidate = candidate.greet(number, version).then_some(candidate);
            }
            Ok(None) => self.candidate = Some(candidate),
            _ => {}
        }
    }

    pub(super) fn handle_requests(&mut self) {
        loop {
            let Some(client) = &self.client else { return };
            match client.try_receive() {
                Ok(Some(request)) => self.handle_request(request),
                Ok(None) => return,
                Err(_) => self.client = None,
            }
        }
    }

    fn handle_request(&mut self, request: Request) {
        let Request { order, fd } = request;
        let number = order.number;
        let done = |result: Result<(), Failure>| result.map(|()| VethResponseBody::Done);
        let answer = match order.body {
            VethRequestBody::Begin(settings) => self.reconfigure(settings),
            VethRequestBody::Take { name, policy } => match self.manager.claim(name, policy) {
                Ok((standing, netns)) => {
                    self.send(number, &VethResponseBody::Taken(standing), Some(&netns));
                    self.prepare_at = Some(Instant::now() + PREPARE_PAUSE);
                    return;
                }
                Err(failure) => Err(failure),
            },
            VethRequestBody::Attach { name, policy } => match fd {
                Some(fd) => self.manager.attach(name, policy, &fd).map(VethResponseBody::Taken),
                None => Err("the request has no descriptor of a network namespace".into()),
            },
            VethRequestBody::Set { id, policy } => done(self.manager.set_policy(id, policy)),
            VethRequestBody::Release { id } => done(self.manager.release(id)),
            VethRequestBody::List { after } => {
                Ok(VethResponseBody::Listed(self.manager.list(after)))
            }
            VethRequestBody::Counters { id } => {
                self.manager.counters(id).map(VethResponseBody::Counted)
            }
            VethRequestBody::SetCredentials { id, credentials } => {
                self.set_credentials(id, credentials)
            }
            VethRequestBody::Settle => {
                self.settle();
                Ok(VethResponseBody::Done)
            }
            VethRequestBody::Hello { .. } => Err("hello comes before begin".into()),
        };
        let answer = answer.unwrap_or_else(|reason| VethResponseBody::Failed { reason });
        self.answer(number, answer);
    }

    /// Applies the settings of a server, which may differ from those of the earlier one.
    fn reconfigure(&mut self, settings: VethSettings) -> Result<VethResponseBody, Failure> {
        let current = &self.manager.guard;
        let guard = Guard { opened: settings.opened, ..current.clone() };
        let guard_changed = guard != *current;
        let resolvers_changed = settings.resolvers != self.resolvers;
        let connections_max = settings.connections_max;
        if guard_changed || connections_max != self.manager.gateway.connections_max {
            let elements = self.manager.elements();
            self.manager.gateway.connections_max = connections_max;
            self.manager.gateway.replace_tables(&elements, &guard)?;
            self.manager.guard = guard;
        }
        self.resolvers = settings.resolvers;
        if guard_changed || resolvers_changed {
            self.manager.configure_proxy(&self.resolvers);
        }
        Ok(self.ready())
    }
}
