//! The veth pairs of all sandboxes: which exist, which are prepared, and how both change.
//!
//! A pair has one end in the gateway's namespace (`l<id>`) and one in the sandbox's (`eth0`). Pairs
//! are prepared in advance, each with a network namespace to create a sandbox in, so that creating
//! a sandbox does not wait for them. This process does not hold the namespace of a claimed pair:
//! the namespace ends with its sandbox, the kernel removes the pair, and the event frees the id.

mod denied;
mod prepared;
mod proxy;

use super::addresses::{FIRST_ID, LAST_ID, SANDBOX_INTERFACE, interface_name};
use super::denials::PendingDenials;
use super::egress_proxy::EgressProxy;
use super::gateway::{Failure, Gateway, TABLE, failed};
use super::netlink::rtnetlink::Rtnetlink;
use super::nft_ruleset::VethRules;
use super::policy::{PolicyMode, policy_mode};
use super::sandbox_end;
use super::set_element::Element;
use crate::kernel::netns::{is_same, within};
use isolet_wire::credential::Credential;
use isolet_wire::network::{Guard, Policy, ProxyRequest};
use isolet_wire::veth::{AssignedVeth, Counters, LIST_MAX};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};

#[derive(Debug)]
struct Veth {
    /// The index of the gateway's end.
    interface: u32,
    policy: Policy,
    rules: VethRules,
    owner: Owner,
    /// How many packets and connections were denied.
    denied: u64,
    /// Stored for a proxy that is started again.
    credentials: Vec<Credential>,
}

#[derive(Debug)]
enum Owner {
    /// No sandbox yet; the namespace that a sandbox will be created in.
    Prepared(OwnedFd),
    Sandbox(String),
}

impl Veth {
    /// The name of the sandbox that has it.
    fn sandbox(&self) -> Option<&String> {
        match &self.owner {
            Owner::Prepared(_) => None,
            Owner::Sandbox(name) => Some(name),
        }
    }
}

/// A pair whose sandbox has ended.
pub(super) struct RemovedVeth {
    pub(super) id: u32,
    pub(super) sandbox: String,
}

#[derive(Debug)]
pub(super) struct VethManager {
    pub(super) gateway: Gateway,
    veths: BTreeMap<u32, Veth>,
    by_interface: HashMap<u32, u32>,
    next_id: u32,
    /// Elements of removed pairs that are still in the sets.
    stale_elements: BTreeSet<Element>,
    pub(super) guard: Guard,
    denials: PendingDenials,
    /// The description of a repair that was not reported yet.
    pub(super) unreported_repair: Option<String>,
    /// `None` while the proxy does not run.
    pub(super) proxy: Option<EgressProxy>,
}

impl VethManager {
    /// `seed` decides which ids are used first.
    pub(super) fn new(gateway: Gateway, guard: Guard, seed: u32) -> Self {
        Self {
            gateway,
            veths: BTreeMap::new(),
            by_interface: HashMap::new(),
            next_id: FIRST_ID + seed % (LAST_ID - FIRST_ID),
            stale_elements: BTreeSet::new(),
            guard,
            denials: PendingDenials::default(),
            unreported_repair: None,
            proxy: None,
        }
    }

    /// All elements of the sets.
    pub(super) fn elements(&self) -> BTreeSet<Element> {
        let elements = self.veths.values().flat_map(|veth| veth.rules.elements());
        elements.chain(self.stale_elements.iter().cloned()).collect()
    }

    /// Changes elements from `before` to `after`, and removes stale ones, in one transaction.
    fn change_elements(
        &mut self,
        before: &BTreeSet<Element>,
        after: &BTreeSet<Element>,
    ) -> Result<(), Failure> {
        let with_stale: BTreeSet<Element> = before.union(&self.stale_elements).cloned().collect();
        if self.gateway.change_elements(&with_stale, after).is_err() {
            // Another program has changed a set: all sets are replaced.
            let present = self.veths.values().flat_map(|veth| veth.rules.elements());
            let mut whole: BTreeSet<Element> =
                present.filter(|element| !before.contains(element)).collect();
            whole.extend(after.iter().cloned());
            self.gateway.replace_tables(&whole, &self.guard)?;
            self.unreported_repair = Some(Gateway::table_repair(TABLE));
        }
        self.stale_elements.clear();
        Ok(())
    }

    /// Removes the elements of removed pairs.
    pub(super) fn remove_stale_elements(&mut self) -> Result<(), Failure> {
        self.change_elements(&BTreeSet::new(), &BTreeSet::new())
    }

    pub(super) fn has_stale_elements(&self) -> bool {
        !self.stale_elements.is_empty()
    }

    /// Assigns a prepared pair to a sandbox. Returns the pair and the namespace to create the
    /// sandbox in.
    pub(super) fn claim(
        &mut self,
        sandbox: String,
        policy: Policy,
    ) -> Result<(AssignedVeth, OwnedFd), Failure> {
        let id = self.prepared_for(&policy)?;
        self.apply_policy(id, policy)?;
        let veth = self.veths.get_mut(&id).ok_or("no veth pair is prepared")?;
        match std::mem::replace(&mut veth.owner, Owner::Sandbox(sandbox.clone())) {
            Owner::Prepared(netns) => {
                let address = self.gateway.range.address(id);
                Ok((AssignedVeth { id, address, name: sandbox }, netns))
            }
            Owner::Sandbox(_) => Err("the veth pair belongs to another sandbox".into()),
        }
    }

    /// Moves a prepared pair into the namespace of a running sandbox.
    pub(super) fn attach(
        &mut self,
        sandbox: String,
        policy: Policy,
        netns: &OwnedFd,
    ) -> Result<AssignedVeth, Failure> {
        if is_same(netns, &self.gateway.host_netns) || is_same(netns, &self.gateway.netns) {
            return Err("the descriptor is not the network namespace of a sandbox".into());
        }
        // This removes an earlier pair of the sandbox. The removal is reported as an event.
        within(self.gateway.host_netns.as_fd(), netns.as_fd(), sandbox_end::remove)
            .map_err(|errno| failed("enter the sandbox's network namespace", errno))?;
        let (standing, prepared) = self.claim(sandbox, policy)?;
        let home = self.gateway.host_netns.as_fd();
        let address = standing.address;
        let moved = within(home, prepared.as_fd(), || {
            Rtnetlink::open()?.move_to_netns(SANDBOX_INTERFACE, netns.as_fd())
        })
        .and_then(|()| within(home, netns.as_fd(), || sandbox_end::configure(address)));
        if let Err(errno) = moved {
            self.release(standing.id)?;
            return Err(failed("move a veth pair into the sandbox's network namespace", errno));
        }
        Ok(standing)
    }

    /// Changes the policy of a sandbox's pair.
    pub(super) fn set_policy(&mut self, id: u32, policy: Policy) -> Result<(), Failure> {
        if self.veths.get(&id).is_none_or(|veth| veth.sandbox().is_none()) {
            return Err(no_such_veth(id));
        }
        self.apply_policy(id, policy)
    }

    fn apply_policy(&mut self, id: u32, policy: Policy) -> Result<(), Failure> {
        if policy_mode(&policy) == PolicyMode::Names && self.proxy.is_none() {
            return Err(
                "rules with names are not available: isolet-egress-proxy does not run".into()
            );
        }
        let veth = self.veths.get(&id).ok_or_else(|| no_such_veth(id))?;
        let injects = !veth.credentials.is_empty();
        self.set_rules(id, VethRules::new(self.gateway.range, id, &policy, injects))?;
        let address = self.gateway.range.address(id);
        self.send_to_proxy(&ProxyRequest::Set { address, policy: policy.clone() });
        if let Some(veth) = self.veths.get_mut(&id) {
            veth.policy = policy;
        }
        Ok(())
    }

    /// Replaces the rules in force.
    fn set_rules(&mut self, id: u32, rules: VethRules) -> Result<(), Failure> {
        let veth = self.veths.get(&id).ok_or_else(|| no_such_veth(id))?;
        let before = veth.rules.elements();
        let after = rules.elements();
        if before != after {
            self.change_elements(&before, &after)?;
        }
        if let Some(veth) = self.veths.get_mut(&id) {
            veth.rules = rules;
        }
        Ok(())
    }

    /// Removes a pair. One that does not exist is no error.
    pub(super) fn release(&mut self, id: u32) -> Result<(), Failure> {
        if let Some(veth) = self.veths.get(&id) {
            let interface = veth.interface;
            let removed = self.gateway.rtnetlink.remove(&interface_name(id));
            removed.map_err(|errno| failed("remove a veth pair", errno))?;
            self.forget(interface);
        }
        Ok(())
    }

    /// Forgets a pair whose interface was removed. Returns the pair if a sandbox had it.
    pub(super) fn forget(&mut self, interface: u32) -> Option<RemovedVeth> {
        let id = self.by_interface.remove(&interface)?;
        let veth = self.veths.remove(&id)?;
        self.stale_elements.extend(veth.rules.elements());
        self.send_to_proxy(&ProxyRequest::Forget { address: self.gateway.range.address(id) });
        let sandbox = veth.sandbox()?.clone();
        Some(RemovedVeth { id, sandbox })
    }

    /// Forgets pairs whose interface no longer exists, in case events were lost.
    pub(super) fn forget_removed(&mut self) -> Vec<RemovedVeth> {
        let rtnetlink = &self.gateway.rtnetlink;
        let interfaces = self.by_interface.keys().copied();
        let removed: Vec<u32> =
            interfaces.filter(|interface| rtnetlink.name_of(*interface).is_err()).collect();
        removed.into_iter().filter_map(|interface| self.forget(interface)).collect()
    }

    /// Whether any sandbox has a pair.
    pub(super) fn in_use(&self) -> bool {
        self.veths.values().any(|veth| veth.sandbox().is_some())
    }

    /// Pairs of sandboxes, from the first id after `after` on.
    pub(super) fn list(&self, after: u32) -> Vec<AssignedVeth> {
        let claimed = self.veths.range(after + 1..).filter_map(|(id, veth)| {
            let name = veth.sandbox()?.clone();
            Some(AssignedVeth { id: *id, address: self.gateway.range.address(*id), name })
        });
        claimed.take(LIST_MAX).collect()
    }

    pub(super) fn counters(&mut self, id: u32) -> Result<Counters, Failure> {
        let refused = self.veths.get(&id).map(|veth| veth.denied);
        let refused = refused.ok_or_else(|| no_such_veth(id))?;
        let counted = self.gateway.rtnetlink.counters(&interface_name(id));
        let counted = counted.map_err(|errno| failed("count", errno))?;
        Ok(Counters { refused, ..counted })
    }
}

fn no_such_veth(id: u32) -> Failure {
    format!("veth pair {id} does not exist")
}
