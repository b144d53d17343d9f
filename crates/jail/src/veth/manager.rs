//! Who owns the links: what stands, what is ready, and how both change.
//!
//! A link is a pair: `l<id>` in the namespace between, `eth0` in the sandbox's. Links are made
//! ahead, each with a namespace to be born in, so that nothing of it is on a create's way. Nobody
//! here holds the namespace of a link that was taken: it ends with its sandbox, the pair goes with
//! it, and the kernel's news of that are how a link is given back.

use super::denials::{PendingDenials, rule};
use super::egress_proxy::EgressProxy;
use super::gateway::{Failure, Gateway, TABLE, failed};
use super::netlink::rtnetlink::Routes;
use super::nft_ruleset::Kept;
use super::policy::{END, FIRST, LAST, Mode, mode, name};
use super::sandbox_end;
use super::set_element::Element;
use crate::kernel::netns::{self, within};
use isolet_wire::lend::Credential;
use isolet_wire::links::{Counters, LIST_MAX, Standing};
use isolet_wire::network::{EdgeOrder, Guard, Policy, Refused};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

/// Links made ahead that are open, and that are closed.
const READY: [usize; 2] = [4, 2];
/// Links made in one go: `nft` is asked once for all of them.
const AT_ONCE: usize = 3;

/// One link.
#[derive(Debug)]
struct Link {
    /// The kernel's number of our end.
    index: u32,
    policy: Policy,
    kept: Kept,
    /// Of the sandbox that has it; `None`: it is ready, with this namespace.
    taken: Result<String, OwnedFd>,
    refused: u64,
    /// Here too, since an edge may end.
    lent: Vec<Credential>,
}

/// All links.
#[derive(Debug)]
pub(crate) struct VethManager {
    pub(crate) base: Gateway,
    links: BTreeMap<u32, Link>,
    by_index: HashMap<u32, u32>,
    next: u32,
    /// What sets hold of links that are gone.
    stale: BTreeSet<Element>,
    pub(crate) guard: Guard,
    told: PendingDenials,
    /// What was put right, and is not told yet.
    pub(crate) mended: Option<String>,
    /// Where names are known, if anywhere.
    pub(crate) edge: Option<EgressProxy>,
}

impl VethManager {
    pub(crate) fn new(base: Gateway, guard: Guard, first: u32) -> Self {
        let next = FIRST + first % (LAST - FIRST);
        Self {
            base,
            links: BTreeMap::new(),
            by_index: HashMap::new(),
            next,
            stale: BTreeSet::new(),
            guard,
            told: PendingDenials::default(),
            mended: None,
            edge: None,
        }
    }

    /// What sets hold, all of it.
    pub(crate) fn elements(&self) -> BTreeSet<Element> {
        let all = self.links.values().flat_map(|link| link.kept.elements());
        all.chain(self.stale.iter().cloned()).collect()
    }

    /// One transaction: from some elements to others, and those away of links that are gone.
    fn apply(&mut self, was: &BTreeSet<Element>, is: &BTreeSet<Element>) -> Result<(), Failure> {
        let before: BTreeSet<Element> = was.union(&self.stale).cloned().collect();
        if self.base.elements(&before, is).is_err() {
            // Somebody else has changed a set: what is to be there is said whole.
            let standing = self.links.values().flat_map(|link| link.kept.elements());
            let mut whole: BTreeSet<Element> = standing.filter(|it| !was.contains(it)).collect();
            whole.extend(is.iter().cloned());
            self.base.tables(&whole, &self.guard)?;
            self.mended = Some(Gateway::was_changed(TABLE));
        }
        self.stale.clear();
        Ok(())
    }

    /// Takes elements of links that are gone out of the sets.
    pub(crate) fn sweep(&mut self) -> Result<(), Failure> {
        self.apply(&BTreeSet::new(), &BTreeSet::new())
    }

    pub(crate) fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    fn id(&mut self) -> Result<u32, Failure> {
        if !self.stale.is_empty() && self.next == FIRST {
            self.sweep()?;
        }
        for _ in FIRST..=LAST {
            let id = self.next;
            self.next = if id == LAST { FIRST } else { id + 1 };
            if !self.links.contains_key(&id) {
                return Ok(id);
            }
        }
        Err("no address is free".into())
    }

    /// Makes a link into a namespace; not yet in any set, so that nothing leaves by it.
    fn pair(&mut self, namespace: &OwnedFd) -> Result<(u32, u32), Failure> {
        let id = self.id()?;
        let step = |what: &'static str| move |errno| failed(what, errno);
        let ours = name(id);
        let routes = &mut self.base.routes;
        routes.pair(&ours, None, (namespace.as_fd(), END)).map_err(step("make a link"))?;
        let index = routes.index(&ours).map_err(step("find a link"))?;
        let made = routes.route((self.base.range.address(id), 32), &ours, None).and_then(|()| {
            within(self.base.home.as_fd(), namespace.as_fd(), || {
                sandbox_end::configure(self.base.range.address(id))
            })
        });
        if let Err(errno) = made {
            let _ = self.base.routes.remove(&ours);
            return Err(failed("set up a link", errno));
        }
        Ok((id, index))
    }

    fn keep(&mut self, (id, index): (u32, u32), policy: Policy, taken: Result<String, OwnedFd>) {
        let kept = Kept::of(self.base.range, id, &policy, false);
        self.by_index.insert(index, id);
        self.links.insert(id, Link { index, policy, kept, taken, refused: 0, lent: Vec::new() });
    }

    fn ready(&self, mode: Mode) -> impl Iterator<Item = u32> {
        let policy = if mode == Mode::Open { Policy::open() } else { Policy::default() };
        let ready = self.links.iter().filter(|(_, link)| link.taken.is_err());
        let ready = ready.filter(move |(_, link)| link.policy == policy).map(|(id, _)| *id);
        ready.collect::<Vec<_>>().into_iter()
    }

    /// How many are missing of those made ahead: open, closed.
    fn short(&self) -> [usize; 2] {
        let count = |mode, want: usize| want.saturating_sub(self.ready(mode).count());
        [count(Mode::Open, READY[0]), count(Mode::Closed, READY[1])]
    }

    pub(crate) fn is_short(&self) -> bool {
        self.short() != [0, 0]
    }

    /// Makes some of the links that are missing.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        let [open, closed] = self.short();
        let open = open.min(AT_ONCE);
        self.make(open, closed.min(AT_ONCE - open))
    }

    fn make(&mut self, open: usize, closed: usize) -> Result<(), Failure> {
        let policies = std::iter::repeat_n(Policy::open(), open);
        let policies = policies.chain(std::iter::repeat_n(Policy::default(), closed));
        let mut made = Vec::new();
        let mut is = BTreeSet::new();
        for policy in policies {
            let space = netns::create(self.base.home.as_fd(), sandbox_end::prepare_netns);
            let space = space.map_err(|errno| failed("make a namespace", errno))?;
            let link = self.pair(&space)?;
            is.extend(Kept::of(self.base.range, link.0, &policy, false).elements());
            made.push((link, policy, space));
        }
        self.apply(&BTreeSet::new(), &is)?;
        for (link, policy, space) in made {
            self.keep(link, policy, Err(space));
        }
        Ok(())
    }

    /// Gives a link away, and the namespace to be born in.
    pub(crate) fn take(
        &mut self,
        sandbox: String,
        policy: Policy,
    ) -> Result<(Standing, OwnedFd), Failure> {
        let kind = if mode(&policy) == Mode::Open { Mode::Open } else { Mode::Closed };
        if self.ready(kind).next().is_none() {
            self.make(usize::from(kind == Mode::Open), usize::from(kind == Mode::Closed))?;
        }
        let id = self.ready(kind).next().ok_or("no link is ready")?;
        self.judge(id, policy)?;
        let link = self.links.get_mut(&id).ok_or("no link is ready")?;
        match std::mem::replace(&mut link.taken, Ok(sandbox.clone())) {
            Err(space) => {
                Ok((Standing { id, address: self.base.range.address(id), name: sandbox }, space))
            }
            Ok(_) => Err("the link was taken".into()),
        }
    }

    /// Moves a link that is ready into the namespace of a sandbox that runs.
    pub(crate) fn attach(
        &mut self,
        sandbox: String,
        policy: Policy,
        space: &OwnedFd,
    ) -> Result<Standing, Failure> {
        if netns::is_same(space, &self.base.home) || netns::is_same(space, &self.base.space) {
            return Err("not the namespace of a sandbox".into());
        }
        // What it had is gone with this, and that is told.
        within(self.base.home.as_fd(), space.as_fd(), sandbox_end::remove)
            .map_err(|errno| failed("enter the sandbox's network", errno))?;
        let (standing, from) = self.take(sandbox, policy)?;
        let (home, address) = (self.base.home.as_fd(), standing.address);
        let moved = within(home, from.as_fd(), || Routes::open()?.hand_over(END, space.as_fd()))
            .and_then(|()| within(home, space.as_fd(), || sandbox_end::configure(address)));
        if let Err(errno) = moved {
            self.release(standing.id)?;
            return Err(failed("move a link into the sandbox's network", errno));
        }
        Ok(standing)
    }

    /// Other rules for a link, from now on.
    pub(crate) fn set(&mut self, id: u32, policy: Policy) -> Result<(), Failure> {
        if self.links.get(&id).is_none_or(|link| link.taken.is_err()) {
            return Err(format!("there is no link {id}"));
        }
        self.judge(id, policy)
    }

    fn judge(&mut self, id: u32, policy: Policy) -> Result<(), Failure> {
        if mode(&policy) == Mode::Names && self.edge.is_none() {
            return Err("rules with names are not available: isolet-edge does not run".into());
        }
        let link = self.links.get(&id).ok_or_else(|| format!("there is no link {id}"))?;
        let kept = Kept::of(self.base.range, id, &policy, !link.lent.is_empty());
        let (was, is) = (link.kept.elements(), kept.elements());
        if was != is {
            self.apply(&was, &is)?;
        }
        self.tell_edge(&EdgeOrder::Set {
            address: self.base.range.address(id),
            policy: policy.clone(),
        });
        if let Some(link) = self.links.get_mut(&id) {
            (link.policy, link.kept) = (policy, kept);
        }
        Ok(())
    }

    /// Lends credentials to a link in place of those that it had; its address, where the edge will
    /// say whom to trust.
    pub(crate) fn lend(
        &mut self,
        id: u32,
        credentials: Vec<Credential>,
    ) -> Result<Option<Ipv4Addr>, Failure> {
        let link = self.links.get(&id).filter(|link| link.taken.is_ok());
        let link = link.ok_or_else(|| format!("there is no link {id}"))?;
        if !credentials.is_empty() && self.edge.is_none() {
            return Err("credentials are not available: isolet-edge does not run".into());
        }
        let kept = Kept::of(self.base.range, id, &link.policy, !credentials.is_empty());
        let (was, is) = (link.kept.elements(), kept.elements());
        if was != is {
            self.apply(&was, &is)?;
        }
        if let Some(link) = self.links.get_mut(&id) {
            (link.lent, link.kept) = (credentials, kept);
        }
        Ok(self.tell_lent(id))
    }

    fn tell_lent(&self, id: u32) -> Option<Ipv4Addr> {
        let (address, link) = (self.base.range.address(id), self.links.get(&id)?);
        let tls = link.lent.iter().any(Credential::within_tls);
        self.tell_edge(&EdgeOrder::Lend { address, credentials: link.lent.clone(), tls });
        tls.then_some(address)
    }

    /// Who has the link with this address.
    pub(crate) fn whose(&self, address: Ipv4Addr) -> Option<String> {
        self.links.get(&self.base.range.id(address)?)?.taken.as_ref().ok().cloned()
    }

    /// Takes a link away.
    pub(crate) fn release(&mut self, id: u32) -> Result<(), Failure> {
        if let Some(link) = self.links.get(&id) {
            let index = link.index;
            let removed = self.base.routes.remove(&name(id));
            removed.map_err(|errno| failed("remove a link", errno))?;
            self.forget(index);
        }
        Ok(())
    }

    /// A link is gone; who had it.
    pub(crate) fn forget(&mut self, index: u32) -> Option<(u32, String)> {
        let id = self.by_index.remove(&index)?;
        let link = self.links.remove(&id)?;
        self.stale.extend(link.kept.elements());
        self.tell_edge(&EdgeOrder::Forget { address: self.base.range.address(id) });
        Some((id, link.taken.ok()?))
    }

    /// Links whose end here is gone, though nobody said so; who had them.
    pub(crate) fn look(&mut self) -> Vec<(u32, String)> {
        let routes = &self.base.routes;
        let gone: Vec<u32> =
            self.by_index.keys().copied().filter(|index| routes.name(*index).is_err()).collect();
        gone.into_iter().filter_map(|index| self.forget(index)).collect()
    }

    /// Whether any sandbox has a link.
    pub(crate) fn used(&self) -> bool {
        self.links.values().any(|link| link.taken.is_ok())
    }

    pub(crate) fn list(&self, after: u32) -> Vec<Standing> {
        let taken = self.links.range(after + 1..).filter_map(|(id, link)| {
            let name = link.taken.as_ref().ok()?.clone();
            Some(Standing { id: *id, address: self.base.range.address(*id), name })
        });
        taken.take(LIST_MAX).collect()
    }

    pub(crate) fn counters(&mut self, id: u32) -> Result<Counters, Failure> {
        let refused = self.links.get(&id).map(|link| link.refused);
        let refused = refused.ok_or_else(|| format!("there is no link {id}"))?;
        let counted = self.base.routes.counters(&name(id));
        let counted = counted.map_err(|errno| failed("count", errno))?;
        Ok(Counters { refused, ..counted })
    }

    /// Hears what the kernel has refused.
    pub(crate) fn hear(&mut self) {
        for packet in self.base.log.heard() {
            let Some(id) = self.by_index.get(&packet.index) else { continue };
            let Some(link) = self.links.get_mut(id) else { continue };
            link.refused += 1;
            self.told.add(*id, &packet, rule(&packet, &link.policy, &self.guard));
        }
    }

    pub(crate) fn told_left(&self) -> Option<std::time::Duration> {
        self.told.left()
    }

    /// What was refused until now, and to whom that is told.
    pub(crate) fn refusals(&mut self) -> Vec<(String, Refused)> {
        let told = self.told.take().into_iter();
        told.filter_map(|(id, refused)| {
            Some((self.links.get(&id)?.taken.as_ref().ok()?.clone(), refused))
        })
        .collect()
    }

    /// The edge has refused something to this address: who has it.
    pub(crate) fn refused(&mut self, of: Ipv4Addr, times: u32) -> Option<String> {
        let id = self.base.range.id(of)?;
        let link = self.links.get_mut(&id)?;
        link.refused += u64::from(times);
        link.taken.as_ref().ok().cloned()
    }

    pub(crate) fn tell_edge(&self, order: &EdgeOrder) {
        if let Some(edge) = &self.edge {
            edge.tell(order);
        }
    }

    /// Everything that a new edge must know.
    pub(crate) fn brief_edge(&self, resolvers: &[std::net::SocketAddr]) {
        let (guard, resolvers) = (self.guard.clone(), resolvers.to_vec());
        self.tell_edge(&EdgeOrder::Guard { guard, resolvers });
        for (id, link) in self.links.iter().filter(|(_, link)| link.taken.is_ok()) {
            let (address, policy) = (self.base.range.address(*id), link.policy.clone());
            self.tell_edge(&EdgeOrder::Set { address, policy });
            if !link.lent.is_empty() {
                self.tell_lent(*id);
            }
        }
    }
}
