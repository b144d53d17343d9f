//! The edge: started, heard, waited for where an answer needs its word.

use super::{EDGE_AGAIN, EventLoop};
use crate::veth::egress_proxy::EgressProxy;
use crate::veth::gateway::Failure;
use isolet_wire::lend::Credential;
use isolet_wire::links::LinkTell;
use isolet_wire::network::{EdgeOrder, EdgeTell};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long it may take to settle.
const SETTLE: Duration = Duration::from_millis(500);
/// How long it may take to make an authority: a key is made in less than a millisecond.
const AUTHORITY: Duration = Duration::from_secs(5);

/// What the edge has said that somebody may wait for.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The last number for which all is told, else 0.
    settled: u64,
    /// Of the link that is waited for: whom it is to trust.
    certificate: Option<String>,
}

impl EventLoop {
    pub(super) fn start_edge(&mut self) {
        self.edge_again = None;
        if !self.options.edge.is_file() {
            return;
        }
        let started =
            EgressProxy::start(&self.options.edge, &self.keeper.base.doors, self.options.edge_user);
        match started {
            Ok(edge) => {
                self.keeper.edge = Some(edge);
                self.keeper.brief_edge(&self.resolvers);
            }
            Err(_) => self.edge_again = Some(Instant::now() + EDGE_AGAIN),
        }
    }

    /// Lends credentials to a link, and says whom its sandbox is to trust.
    pub(super) fn lend(&mut self, id: u32, all: Vec<Credential>) -> Result<LinkTell, Failure> {
        let Some(address) = self.keeper.lend(id, all)? else {
            return Ok(LinkTell::Lent { certificate: None });
        };
        let certificate = self.until(AUTHORITY, Some(address), |heard| heard.certificate);
        match certificate {
            Some(certificate) => Ok(LinkTell::Lent { certificate: Some(certificate) }),
            None => Err("isolet-edge did not say whom the sandbox is to trust".into()),
        }
    }

    /// Everything that was refused until now is told before this comes back.
    pub(super) fn settle(&mut self) {
        self.keeper.hear();
        self.settles += 1;
        let number = self.settles;
        self.keeper.tell_edge(&EdgeOrder::Settle { number });
        self.until(SETTLE, None, |heard| (heard.settled >= number).then_some(()));
        self.tell_refusals();
    }

    /// Hears the edge until it has said something; `None`: it has not in this time, or has ended.
    fn until<T>(
        &mut self,
        time: Duration,
        of: Option<Ipv4Addr>,
        said: impl Fn(Heard) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now() + time;
        while let Some(edge) = &self.keeper.edge {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::from_borrowed_fd(edge.as_fd(), PollFlags::IN)];
            let left = Timespec::try_from(left).ok();
            if !matches!(poll(&mut fds, left.as_ref()), Ok(count) if count > 0) {
                break;
            }
            if let Some(found) = said(self.hear_edge(of)) {
                return Some(found);
            }
        }
        None
    }

    pub(super) fn tell_refusals(&mut self) {
        for (name, refused) in self.keeper.refusals() {
            self.news(LinkTell::Refused { name, refused });
        }
    }

    /// Hears the edge. An authority of the link `of` is given back, others are news.
    pub(super) fn hear_edge(&mut self, of: Option<Ipv4Addr>) -> Heard {
        let mut heard = Heard::default();
        while let Some(edge) = &self.keeper.edge {
            match edge.heard() {
                Ok(Some(EdgeTell::Settled { number })) => heard.settled = number,
                Ok(Some(EdgeTell::Refused { address, refused })) => {
                    if let Some(name) = self.keeper.refused(address, refused.times) {
                        self.news(LinkTell::Refused { name, refused });
                    }
                }
                Ok(Some(EdgeTell::Authority { address, certificate })) if Some(address) == of => {
                    heard.certificate = Some(certificate);
                }
                Ok(Some(EdgeTell::Authority { address, certificate })) => {
                    if let Some(name) = self.keeper.whose(address) {
                        self.news(LinkTell::Authority { name, certificate });
                    }
                }
                Ok(Some(EdgeTell::Ready | EdgeTell::Carried { .. })) => {}
                Ok(None) => break,
                Err(_) => {
                    self.keeper.edge = None;
                    self.edge_again = Some(Instant::now() + EDGE_AGAIN);
                    self.repaired("isolet-edge has ended: it is started anew".into());
                }
            }
        }
        heard
    }
}
