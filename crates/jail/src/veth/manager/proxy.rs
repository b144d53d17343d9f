//! Sends the policies and credentials of the pairs to the egress proxy.

use super::{VethManager, no_such_veth};
use crate::veth::gateway::Failure;
use crate::veth::nft_ruleset::VethRules;
use isolet_wire::credential::Credential;
use isolet_wire::network::ProxyRequest;
use std::net::{Ipv4Addr, SocketAddr};

impl VethManager {
    /// Replaces the credentials of a sandbox's pair. Returns the address of the sandbox if the
    /// proxy will answer with the certificate of an authority.
    pub(crate) fn set_credentials(
        &mut self,
        id: u32,
        credentials: Vec<Credential>,
    ) -> Result<Option<Ipv4Addr>, Failure> {
        let veth = self.veths.get(&id).filter(|veth| veth.sandbox().is_some());
        let veth = veth.ok_or_else(|| no_such_veth(id))?;
        if !credentials.is_empty() && self.proxy.is_none() {
            return Err("credentials are not available: isolet-egress-proxy does not run".into());
        }
        let injects = !credentials.is_empty();
        let rules = VethRules::new(self.gateway.range, id, &veth.policy, injects);
        self.set_rules(id, rules)?;
        if let Some(veth) = self.veths.get_mut(&id) {
            veth.credentials = credentials;
        }
        Ok(self.send_credentials(id))
    }

    fn send_credentials(&self, id: u32) -> Option<Ipv4Addr> {
        let address = self.gateway.range.address(id);
        let credentials = &self.veths.get(&id)?.credentials;
        let tls = credentials.iter().any(Credential::within_tls);
        self.send_to_proxy(&ProxyRequest::SetCredentials {
            address,
            credentials: credentials.clone(),
            tls,
        });
        tls.then_some(address)
    }

    /// The sandbox with this address.
    pub(crate) fn sandbox_at(&self, address: Ipv4Addr) -> Option<String> {
        self.veths.get(&self.gateway.range.id(address)?)?.sandbox().cloned()
    }

    pub(crate) fn send_to_proxy(&self, command: &ProxyRequest) {
        if let Some(proxy) = &self.proxy {
            proxy.send(command);
        }
    }

    /// Sends all policies and credentials to a proxy that was just started.
    pub(crate) fn configure_proxy(&self, resolvers: &[SocketAddr]) {
        let guard = self.guard.clone();
        self.send_to_proxy(&ProxyRequest::Guard { guard, resolvers: resolvers.to_vec() });
        for (id, veth) in self.veths.iter().filter(|(_, veth)| veth.sandbox().is_some()) {
            let address = self.gateway.range.address(*id);
            self.send_to_proxy(&ProxyRequest::Set { address, policy: veth.policy.clone() });
            if !veth.credentials.is_empty() {
                self.send_credentials(*id);
            }
        }
    }
}
