//! Detects changes that other programs make to our network, repairs them, and reports them.

use super::EventLoop;
use crate::veth::addresses::HOST_UPLINK;
use crate::veth::manager::RemovedVeth;
use crate::veth::netlink::rtnetlink::InterfaceEvent;
use crate::veth::nft_ruleset::replace_host_addresses;
use isolet_wire::network::{Guard, ProxyRequest};
use isolet_wire::veth::VethResponseBody;

impl EventLoop {
    pub(super) fn report_repair(&mut self, description: String) {
        self.send_event(VethResponseBody::Repaired { description });
    }

    fn report_removed(&mut self, removed: RemovedVeth) {
        self.send_event(VethResponseBody::Gone { name: removed.sandbox, id: removed.id });
    }

    pub(super) fn handle_interface_events(&mut self) {
        for event in self.manager.gateway.interface_events.events() {
            match event {
                InterfaceEvent::Removed(interface) => {
                    if let Some(removed) = self.manager.forget(interface) {
                        self.report_removed(removed);
                    }
                }
                InterfaceEvent::Overflow => self.reconcile_veths(),
                InterfaceEvent::Changed | InterfaceEvent::Address => {}
            }
        }
    }

    pub(super) fn reconcile_veths(&mut self) {
        for removed in self.manager.forget_removed() {
            self.report_removed(removed);
        }
    }

    pub(super) fn handle_host_events(&mut self) {
        let events = self.manager.gateway.host_events.events();
        let concerns_addresses = |event: &InterfaceEvent| {
            matches!(event, InterfaceEvent::Address | InterfaceEvent::Overflow)
        };
        if events.iter().any(concerns_addresses) {
            self.reconcile_host_addresses();
        }
        if events.iter().any(|event| *event != InterfaceEvent::Address) {
            self.reconcile_uplink();
        }
    }

    pub(super) fn reconcile_host_addresses(&mut self) {
        let Ok(host) = self.manager.gateway.host_addresses() else { return };
        if host == self.manager.guard.host {
            return;
        }
        let guard = Guard { host, ..self.manager.guard.clone() };
        let applied = self.manager.gateway.apply_ruleset(&replace_host_addresses(&guard));
        if let Err(failure) = applied {
            let description = format!("cannot close the host's new addresses: {failure}");
            return self.report_repair(description);
        }
        self.manager.guard = guard.clone();
        let resolvers = self.resolvers.clone();
        self.manager.send_to_proxy(&ProxyRequest::Guard { guard, resolvers });
    }

    pub(super) fn reconcile_uplink(&mut self) {
        match self.manager.gateway.reconcile_uplink() {
            Ok(None) => {}
            Ok(Some(repair)) => self.report_repair(repair),
            Err(failure) => {
                self.report_repair(format!("cannot repair {HOST_UPLINK}: {failure}"));
            }
        }
        // Discards the events of our own changes.
        let events = self.manager.gateway.host_events.events();
        if events.contains(&InterfaceEvent::Address) {
            self.reconcile_host_addresses();
        }
    }

    pub(super) fn reconcile_tables(&mut self) {
        let elements = self.manager.elements();
        let guard = self.manager.guard.clone();
        match self.manager.gateway.reconcile_tables(&elements, &guard) {
            Ok(None) => {}
            Ok(Some(repair)) => self.report_repair(repair),
            Err(failure) => {
                let description = format!("cannot repair the packet filter: {failure}");
                self.report_repair(description);
            }
        }
    }
}
