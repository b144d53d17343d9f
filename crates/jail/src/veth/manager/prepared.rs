//! Pairs that are prepared in advance.

use super::{Owner, Veth, VethManager};
use crate::kernel::netns::{self, within};
use crate::veth::addresses::{FIRST_ID, LAST_ID, SANDBOX_INTERFACE, interface_name};
use crate::veth::gateway::{Failure, failed};
use crate::veth::netlink::rtnetlink::Peer;
use crate::veth::nft_ruleset::VethRules;
use crate::veth::policy::{PolicyMode, policy_mode};
use crate::veth::sandbox_end;
use isolet_wire::network::Policy;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

/// How many pairs are prepared, of those with an open policy and of those with a closed one.
const OPEN_PREPARED: usize = 4;
const CLOSED_PREPARED: usize = 2;
/// The most pairs that are prepared in one transaction of the packet filter.
const BATCH_MAX: usize = 3;

/// How many pairs are to be prepared.
#[derive(Default)]
struct Shortage {
    open: usize,
    closed: usize,
}

/// A pair that is in no set yet, so the packet filter drops its packets.
struct NewVeth {
    id: u32,
    interface: u32,
    policy: Policy,
    netns: OwnedFd,
}

impl VethManager {
    /// The id of a prepared pair for this policy. Prepares one if there is none.
    pub(super) fn prepared_for(&mut self, policy: &Policy) -> Result<u32, Failure> {
        let is_open = policy_mode(policy) == PolicyMode::Open;
        if self.prepared(is_open).next().is_none() {
            let missing = match is_open {
                true => Shortage { open: 1, closed: 0 },
                false => Shortage { open: 0, closed: 1 },
            };
            self.prepare(missing)?;
        }
        self.prepared(is_open).next().ok_or_else(|| "no veth pair is prepared".into())
    }

    fn prepared(&self, is_open: bool) -> impl Iterator<Item = u32> {
        let policy = if is_open { Policy::open() } else { Policy::default() };
        let prepared = self.veths.iter().filter(|(_, veth)| veth.sandbox().is_none());
        prepared.filter(move |(_, veth)| veth.policy == policy).map(|(id, _)| *id)
    }

    fn shortage(&self) -> Shortage {
        Shortage {
            open: OPEN_PREPARED.saturating_sub(self.prepared(true).count()),
            closed: CLOSED_PREPARED.saturating_sub(self.prepared(false).count()),
        }
    }

    /// Whether more pairs should be prepared.
    pub(crate) fn needs_prepared(&self) -> bool {
        let Shortage { open, closed } = self.shortage();
        open > 0 || closed > 0
    }

    /// Prepares some of the pairs that are missing.
    pub(crate) fn prepare_some(&mut self) -> Result<(), Failure> {
        let shortage = self.shortage();
        let open = shortage.open.min(BATCH_MAX);
        let closed = shortage.closed.min(BATCH_MAX - open);
        self.prepare(Shortage { open, closed })
    }

    fn prepare(&mut self, shortage: Shortage) -> Result<(), Failure> {
        let open = std::iter::repeat_n(Policy::open(), shortage.open);
        let policies = open.chain(std::iter::repeat_n(Policy::default(), shortage.closed));
        let mut created = Vec::new();
        let mut elements = BTreeSet::new();
        for policy in policies {
            let netns = netns::create(self.gateway.host_netns.as_fd(), sandbox_end::prepare_netns)
                .map_err(|errno| failed("create a network namespace", errno))?;
            let veth = self.create_pair(policy, netns)?;
            elements.extend(self.rules_of(&veth).elements());
            created.push(veth);
        }
        self.change_elements(&BTreeSet::new(), &elements)?;
        for veth in created {
            let rules = self.rules_of(&veth);
            let NewVeth { id, interface, policy, netns } = veth;
            let owner = Owner::Prepared(netns);
            self.by_interface.insert(interface, id);
            let veth = Veth { interface, policy, rules, owner, denied: 0, credentials: Vec::new() };
            self.veths.insert(id, veth);
        }
        Ok(())
    }

    fn rules_of(&self, veth: &NewVeth) -> VethRules {
        VethRules::new(self.gateway.range, veth.id, &veth.policy, false)
    }

    fn create_pair(&mut self, policy: Policy, netns: OwnedFd) -> Result<NewVeth, Failure> {
        let id = self.free_id()?;
        let name = interface_name(id);
        let address = self.gateway.range.address(id);
        let rtnetlink = &mut self.gateway.rtnetlink;
        rtnetlink
            .create_pair(&name, None, Peer { netns: netns.as_fd(), name: SANDBOX_INTERFACE })
            .map_err(|errno| failed("create a veth pair", errno))?;
        let interface =
            rtnetlink.index_of(&name).map_err(|errno| failed("find a veth pair", errno))?;
        let configured = rtnetlink.add_route((address, 32), &name).and_then(|()| {
            let home = self.gateway.host_netns.as_fd();
            within(home, netns.as_fd(), || sandbox_end::configure(address))
        });
        if let Err(errno) = configured {
            let _ = self.gateway.rtnetlink.remove(&name);
            return Err(failed("set up a veth pair", errno));
        }
        Ok(NewVeth { id, interface, policy, netns })
    }

    /// The next id that no pair has. Ids are reused as late as possible.
    fn free_id(&mut self) -> Result<u32, Failure> {
        if self.has_stale_elements() && self.next_id == FIRST_ID {
            self.remove_stale_elements()?;
        }
        for _ in FIRST_ID..=LAST_ID {
            let id = self.next_id;
            self.next_id = if id == LAST_ID { FIRST_ID } else { id + 1 };
            if !self.veths.contains_key(&id) {
                return Ok(id);
            }
        }
        Err("no address of the range is free".into())
    }
}
