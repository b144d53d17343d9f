//! What servers ask: one at a time is listened to, and each order is answered.

use super::{EventLoop, PAUSE};
use crate::veth::client_conn::ClientConn;
use crate::veth::gateway::Failure;
use isolet_wire::links::{LinkAsk, LinkOrder, LinkTell, Settings};
use isolet_wire::network::Guard;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl EventLoop {
    pub(super) fn accept(&mut self) {
        if let Some(peer) = ClientConn::accept(&self.listener) {
            self.candidate = Some(peer);
        }
    }

    /// Who begins is the server from now on: the one before was killed, or should not be there.
    pub(super) fn hear_candidate(&mut self) {
        let Some(peer) = self.candidate.take() else { return };
        match peer.next() {
            Ok(Some((order, fd))) if matches!(order.ask, LinkAsk::Begin(_)) => {
                self.peer = Some(peer);
                self.order(order, fd);
            }
            Ok(None) => self.candidate = Some(peer),
            _ => {}
        }
    }

    pub(super) fn orders(&mut self) {
        loop {
            let Some(peer) = &self.peer else { return };
            match peer.next() {
                Ok(Some((order, fd))) => self.order(order, fd),
                Ok(None) => return,
                Err(_) => self.peer = None,
            }
        }
    }

    pub(super) fn order(&mut self, order: LinkOrder, fd: Option<OwnedFd>) {
        let number = order.number;
        let done = |done: Result<(), Failure>| done.map(|()| LinkTell::Done);
        let answer = match order.ask {
            LinkAsk::Begin(settings) => self.begun_anew(settings),
            LinkAsk::Take { name, policy } => match self.keeper.take(name, policy) {
                Ok((standing, space)) => {
                    self.say(number, &LinkTell::Taken(standing), Some(&space));
                    self.fill = Some(Instant::now() + PAUSE);
                    return;
                }
                Err(failure) => Err(failure),
            },
            LinkAsk::Attach { name, policy } => match fd {
                Some(fd) => self.keeper.attach(name, policy, &fd).map(LinkTell::Taken),
                None => Err("no descriptor of a network namespace came with it".into()),
            },
            LinkAsk::Set { id, policy } => done(self.keeper.set(id, policy)),
            LinkAsk::Release { id } => done(self.keeper.release(id)),
            LinkAsk::List { after } => Ok(LinkTell::Listed(self.keeper.list(after))),
            LinkAsk::Counters { id } => self.keeper.counters(id).map(LinkTell::Counted),
            LinkAsk::Lend { id, credentials } => self.lend(id, credentials),
            LinkAsk::Settle => {
                self.settle();
                Ok(LinkTell::Done)
            }
        };
        let answer = answer.unwrap_or_else(|why| LinkTell::Failed { why });
        self.answer(number, answer);
    }

    /// Another server: it may have been told otherwise by its operator.
    pub(super) fn begun_anew(&mut self, settings: Settings) -> Result<LinkTell, Failure> {
        let guard = Guard { opened: settings.opened, ..self.keeper.guard.clone() };
        let changed = guard != self.keeper.guard || settings.resolvers != self.resolvers;
        let max = settings.connections_max;
        if guard != self.keeper.guard || max != self.keeper.base.connections_max {
            let kept = self.keeper.elements();
            self.keeper.base.connections_max = max;
            self.keeper.base.tables(&kept, &guard)?;
            self.keeper.guard = guard;
        }
        self.resolvers = settings.resolvers;
        if changed {
            self.keeper.brief_edge(&self.resolvers);
        }
        Ok(self.ready())
    }
}
