//! Starts the egress proxy, reads its messages, and waits for those that an answer depends on.

use super::{EventLoop, RETRY_PAUSE};
use crate::veth::egress_proxy::EgressProxy;
use crate::veth::gateway::Failure;
use isolet_wire::credential::Credential;
use isolet_wire::network::{ProxyRequest, ProxyResponse};
use isolet_wire::veth::VethResponseBody;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long the proxy may take to report all denials.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the proxy may take to create an authority; a key takes less than a millisecond.
const AUTHORITY_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages of the proxy that a request waits for.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// The last `Settle` command whose denials were all reported; 0 for none.
    settled: u64,
    /// The certificate of the authority of the awaited address, as PEM.
    certificate: Option<String>,
}

impl EventLoop {
    pub(super) fn start_proxy(&mut self) {
        self.start_proxy_at = None;
        if !self.options.egress_proxy.is_file() {
            return;
        }
        let listeners = &self.manager.gateway.proxy_listeners;
        match EgressProxy::start(
            &self.options.egress_proxy,
            listeners,
            self.options.egress_proxy_user,
        ) {
            Ok(proxy) => {
                self.manager.proxy = Some(proxy);
                self.manager.configure_proxy(&self.resolvers);
            }
            Err(_) => self.start_proxy_at = Some(Instant::now() + RETRY_PAUSE),
        }
    }

    /// Replaces the credentials of a pair. Answers with the certificate of the authority that the
    /// sandbox has to trust for them.
    pub(super) fn set_credentials(
        &mut self,
        id: u32,
        credentials: Vec<Credential>,
    ) -> Result<VethResponseBody, Failure> {
        let Some(address) = self.manager.set_credentials(id, credentials)? else {
            return Ok(VethResponseBody::CredentialsSet { certificate: None });
        };
        let certificate =
            self.wait_for_proxy(AUTHORITY_TIMEOUT, Some(address), |received| received.certificate);
        match certificate {
            Some(certificate) => {
                Ok(VethResponseBody::CredentialsSet { certificate: Some(certificate) })
            }
            None => {
                Err("isolet-egress-proxy did not report a certificate authority in time".into())
            }
        }
    }

    /// Sends every denial until now to the server.
    pub(super) fn settle(&mut self) {
        self.manager.read_denied_packets();
        self.settle_number += 1;
        let number = self.settle_number;
        self.manager.send_to_proxy(&ProxyRequest::Settle { number });
        self.wait_for_proxy(SETTLE_TIMEOUT, None, |received| {
            (received.settled >= number).then_some(())
        });
        self.send_denials();
    }

    /// Reads the proxy's messages until `find` returns a value. `None` after `timeout`, or
    /// when the proxy has ended.
    fn wait_for_proxy<T>(
        &mut self,
        timeout: Duration,
        address: Option<Ipv4Addr>,
        find: impl Fn(Received) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now() + timeout;
        while let Some(proxy) = &self.manager.proxy {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::from_borrowed_fd(proxy.as_fd(), PollFlags::IN)];
            let left = Timespec::try_from(left).ok();
            if !matches!(poll(&mut fds, left.as_ref()), Ok(count) if count > 0) {
                break;
            }
            if let Some(found) = find(self.read_proxy(address)) {
                return Some(found);
            }
        }
        None
    }

    pub(super) fn send_denials(&mut self) {
        for denial in self.manager.take_denials() {
            self.send_event(VethResponseBody::Refused {
                name: denial.sandbox,
                refused: denial.refused,
            });
        }
    }

    /// Reads all messages of the proxy. The certificate of `awaited` is returned; those of other
    /// addresses are sent to the server as events.
    pub(super) fn read_proxy(&mut self, awaited: Option<Ipv4Addr>) -> Received {
        let mut received = Received::default();
        while let Some(proxy) = &self.manager.proxy {
            match proxy.try_receive() {
                Ok(Some(ProxyResponse::Settled { number })) => received.settled = number,
                Ok(Some(ProxyResponse::Refused { address, refused })) => {
                    if let Some(name) = self.manager.count_denied(address, refused.times) {
                        self.send_event(VethResponseBody::Refused { name, refused });
                    }
                }
                Ok(Some(ProxyResponse::Authority { address, certificate })) => {
                    if Some(address) == awaited {
                        received.certificate = Some(certificate);
                    } else if let Some(name) = self.manager.sandbox_at(address) {
                        self.send_event(VethResponseBody::Authority { name, certificate });
                    }
                }
                Ok(Some(ProxyResponse::Ready | ProxyResponse::Carried { .. })) => {}
                Ok(None) => break,
                Err(_) => {
                    self.manager.proxy = None;
                    self.start_proxy_at = Some(Instant::now() + RETRY_PAUSE);
                    self.send_event(VethResponseBody::ProxyRestarted);
                }
            }
        }
        received
    }
}
