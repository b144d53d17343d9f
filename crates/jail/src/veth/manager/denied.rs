//! Counts the denials of sandboxes, and collects them for the server.

use super::VethManager;
use crate::veth::denials::denying_rule;
use isolet_wire::network::NetworkDenial;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A denial, with the name of the sandbox.
pub(crate) struct Denial {
    pub(crate) sandbox: String,
    pub(crate) refused: NetworkDenial,
}

impl VethManager {
    /// Reads the packets that the kernel refused.
    pub(crate) fn read_denied_packets(&mut self) {
        for packet in self.gateway.nflog.packets() {
            let Some(id) = self.by_interface.get(&packet.interface) else { continue };
            let Some(veth) = self.veths.get_mut(id) else { continue };
            veth.denied += 1;
            self.denials.add(*id, &packet, denying_rule(&packet, &veth.policy, &self.guard));
        }
    }

    /// The time until [`Self::take_denials`] is due.
    pub(crate) fn denials_due_in(&self) -> Option<Duration> {
        self.denials.due_in()
    }

    /// Takes the collected denials.
    pub(crate) fn take_denials(&mut self) -> Vec<Denial> {
        let denials = self.denials.take().into_iter();
        let denials = denials.filter_map(|(id, refused)| {
            let sandbox = self.veths.get(&id)?.sandbox()?.clone();
            Some(Denial { sandbox, refused })
        });
        denials.collect()
    }

    /// Counts denials of the egress proxy; returns the sandbox with this address.
    pub(crate) fn count_denied(&mut self, address: Ipv4Addr, times: u32) -> Option<String> {
        let id = self.gateway.range.id(address)?;
        let veth = self.veths.get_mut(&id)?;
        veth.denied += u64::from(times);
        veth.sandbox().cloned()
    }
}
