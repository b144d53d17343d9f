//! What all links stand on: the namespace between sandboxes and host, the way from there into the
//! host, and the packet filter's tables in both. Made once; looked after for as long as it stands.

use super::egress_proxy::ProxyListeners;
use super::host_firewall;
use super::netlink::nflog::NfLog;
use super::netlink::rtnetlink::{Routes, Watch};
use super::netlink::{Netlink, nf_tables};
use super::nft;
use super::nft_ruleset;
use super::policy::{HOST_END, Range, UPLINK};
use super::set_element::Element;
use crate::kernel::netns::{self, within, write_setting, write_setting_if_present};
use isolet_wire::network::{Guard, RESOLVER_ADDRESS};
use rustix::io::Errno;
use rustix::net::netlink;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Why something was not done.
pub(crate) type Failure = String;

/// How long a link of an earlier one, which was killed, may take to go.
const GOING_WAIT: Duration = Duration::from_millis(500);
/// News of the packet filter's tables.
const GROUP_TABLES: u32 = 1 << 6;
/// The tables' names.
pub(crate) const TABLE: &str = "inet isolet";
const HOST_TABLE: &str = "ip isolet";

pub(crate) fn failed(what: &str, errno: Errno) -> Failure {
    format!("cannot {what}: {}", std::io::Error::from(errno))
}

/// A table that may be changed by others, and is put right then.
#[derive(Debug)]
struct Guarded {
    news: Netlink,
    /// As it was listed when it was made.
    listed: Option<String>,
}

impl Guarded {
    fn heard(&self) -> bool {
        let mut some = false;
        loop {
            match self.news.heard() {
                Ok(Some(_)) => some = true,
                Ok(None) => return some,
                Err(_) => return true,
            }
        }
    }
}

/// All that links stand on.
#[derive(Debug)]
pub(crate) struct Gateway {
    nft: PathBuf,
    alias: String,
    pub(crate) range: Range,
    /// Connections of one sandbox at once.
    pub(crate) connections_max: u32,
    /// The host's network.
    pub(crate) home: OwnedFd,
    /// The namespace between.
    pub(crate) space: OwnedFd,
    host: Routes,
    pub(crate) routes: Routes,
    pub(crate) host_news: Watch,
    pub(crate) link_news: Watch,
    pub(crate) log: NfLog,
    pub(crate) doors: ProxyListeners,
    uplink: u32,
    tables: [Guarded; 2],
    /// Changes elements of the table between.
    filter: Netlink,
}

impl Gateway {
    /// Makes everything.
    ///
    /// # Errors
    /// What this machine lacks, with what to do.
    pub(crate) fn create(
        nft: PathBuf,
        alias: String,
        (range, connections_max): (Range, u32),
    ) -> Result<(Self, Vec<Ipv4Addr>), Failure> {
        let step = |what: &'static str| move |errno| failed(what, errno);
        let home = netns::current().map_err(step("find the host's network"))?;
        let mut host = Routes::open().map_err(step("ask for links"))?;
        claim(&mut host, &alias, range)?;
        let between = netns::create(home.as_fd(), configure_forwarding);
        let between =
            between.map_err(step("make a network namespace (CAP_SYS_ADMIN is needed)"))?;
        let inside = || {
            let tables = Netlink::open(Some(netlink::NETFILTER), GROUP_TABLES)?;
            let filter = Netlink::open(Some(netlink::NETFILTER), 0)?;
            Ok((Routes::open()?, Watch::open()?, NfLog::open()?, tables, filter))
        };
        let (mut routes, link_news, log, tables, filter) =
            within(home.as_fd(), between.as_fd(), inside).map_err(step("listen to the kernel"))?;
        for address in BTreeSet::from([range.gateway(), RESOLVER_ADDRESS]) {
            routes.address("lo", address).map_err(step("give the gateway its address"))?;
        }
        let doors = within(home.as_fd(), between.as_fd(), || ProxyListeners::open(range.gateway()));
        let doors = doors.map_err(step("listen at the gateway"))?;
        let host_news = Watch::open().map_err(step("listen to the kernel"))?;
        let host_tables = Netlink::open(Some(netlink::NETFILTER), GROUP_TABLES);
        let host_tables = host_tables.map_err(step("listen to the kernel"))?;
        let guarded = |news| Guarded { news, listed: None };
        let mut base = Self {
            nft,
            alias,
            range,
            connections_max,
            home,
            space: between,
            host,
            routes,
            host_news,
            link_news,
            log,
            doors,
            uplink: 0,
            tables: [guarded(host_tables), guarded(tables)],
            filter,
        };
        let addresses = base.host.addresses().map_err(step("list the host's addresses"))?;
        Ok((base, addresses))
    }

    /// Opens the way, once the rules stand.
    pub(crate) fn connect(&mut self, guard: &Guard) -> Result<(), Failure> {
        self.tables(&BTreeSet::new(), guard)?;
        forwarding()?;
        self.way()
    }

    /// Both tables, whole.
    pub(crate) fn tables(
        &mut self,
        kept: &BTreeSet<Element>,
        guard: &Guard,
    ) -> Result<(), Failure> {
        nft::apply(&self.nft, &nft_ruleset::host(self.range))?;
        self.between(&nft_ruleset::table((self.range, self.connections_max), kept, guard))?;
        self.tables[0].listed = nft::listed(&self.nft, HOST_TABLE);
        self.tables[1].listed = self.listed();
        // What was just done is no news.
        self.heard_tables();
        Ok(())
    }

    fn listed(&self) -> Option<String> {
        let listed = || Ok(nft::listed(&self.nft, TABLE));
        within(self.home.as_fd(), self.space.as_fd(), listed).ok().flatten()
    }

    /// Changes the rules between.
    pub(crate) fn between(&mut self, text: &str) -> Result<(), Failure> {
        let said =
            within(self.home.as_fd(), self.space.as_fd(), || Ok(nft::apply(&self.nft, text)));
        let done = said.map_err(|errno| failed("enter the namespace between", errno))?;
        if done.is_ok() {
            self.tables[1].heard();
        }
        done
    }

    /// From some elements of the table between to others.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub(crate) fn elements(
        &mut self,
        was: &BTreeSet<Element>,
        is: &BTreeSet<Element>,
    ) -> Result<(), Failure> {
        match nf_tables::change_elements(&mut self.filter, was, is) {
            Some(Ok(())) => {
                self.tables[1].heard();
                Ok(())
            }
            Some(Err(errno)) => Err(failed("change the packet filter", errno)),
            None => self.between(&nft_ruleset::change(was, is)),
        }
    }

    /// The pair between host and sandboxes, and the routes over it. As far as it is missing.
    fn way(&mut self) -> Result<(), Failure> {
        let step = |what: &'static str| move |errno| failed(what, errno);
        if self.host.name(self.uplink).is_err() {
            let place = (self.space.as_fd(), UPLINK);
            let made = self.host.pair(HOST_END, Some(&self.alias), place);
            made.map_err(step("make the link isolet0"))?;
            self.uplink = self.host.index(HOST_END).map_err(step("find the link isolet0"))?;
            let _ = write_setting_if_present(&format!("ipv6/conf/{HOST_END}/disable_ipv6"), "1");
        }
        let there = |done: Result<(), Errno>| match done {
            Err(Errno::EXIST) => Ok(()),
            done => done,
        };
        self.routes.up(UPLINK).map_err(step("bring the link to the host up"))?;
        let all = (Ipv4Addr::UNSPECIFIED, 0);
        there(self.host.route(self.range.net(), HOST_END, None))
            .map_err(step("route to sandboxes"))?;
        there(self.routes.route(all, UPLINK, None)).map_err(step("route to the host"))
    }

    /// What of the way out is not as it was made is made so; what that was.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(crate) fn look_at_way(&mut self) -> Result<Option<String>, Failure> {
        let found = match self.host.name(self.uplink) {
            Ok(name) if name == HOST_END => None,
            Ok(name) => {
                self.host
                    .call_back(self.uplink, HOST_END)
                    .map_err(|errno| failed("rename the link isolet0", errno))?;
                Some(format!("the link {HOST_END} was renamed to {name}: renamed back"))
            }
            Err(_) => Some(format!("the link {HOST_END} was removed: made anew")),
        };
        let down = self.host.up(HOST_END).is_err();
        self.way()?;
        Ok(found.or_else(|| down.then(|| format!("the link {HOST_END} was not there: made anew"))))
    }

    /// Whether somebody may have changed a table.
    pub(crate) fn heard_tables(&self) -> bool {
        let [host, between] = [self.tables[0].heard(), self.tables[1].heard()];
        host || between
    }

    pub(crate) fn table_news(&self) -> [&Netlink; 2] {
        [&self.tables[0].news, &self.tables[1].news]
    }

    /// Tables that are not as they were made are made anew; which.
    ///
    /// # Errors
    /// Why they cannot be.
    pub(crate) fn look_at_tables(
        &mut self,
        kept: &BTreeSet<Element>,
        guard: &Guard,
    ) -> Result<Option<String>, Failure> {
        let host = nft::listed(&self.nft, HOST_TABLE) == self.tables[0].listed;
        let between = self.listed() == self.tables[1].listed;
        let which = match (host, between) {
            (true, true) => return Ok(None),
            (false, true) => HOST_TABLE,
            _ => TABLE,
        };
        self.tables(kept, guard)?;
        Ok(Some(Self::was_changed(which)))
    }

    /// How that is told.
    pub(crate) fn was_changed(table: &str) -> String {
        format!("the packet filter's table {table} was changed: made anew")
    }

    /// What of the host's own firewall is in the way, with what opens it.
    pub(crate) fn closing(&self) -> Vec<String> {
        host_firewall::closing(&self.nft)
    }

    /// The host's addresses now.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn addresses(&mut self) -> Result<Vec<Ipv4Addr>, Failure> {
        self.host.addresses().map_err(|errno| failed("list the host's addresses", errno))
    }

    /// Takes away what the host has of it.
    pub(crate) fn remove(&mut self) {
        let _ = self.host.remove(HOST_END);
        let _ = nft::apply(&self.nft, "table ip isolet\ndelete table ip isolet\n");
    }
}

/// Nobody else may have what is ours; what an earlier one has left is removed.
fn claim(host: &mut Routes, alias: &str, range: Range) -> Result<(), Failure> {
    let range = range.net();
    let until = Instant::now() + GOING_WAIT;
    let mut found = host.alias(HOST_END);
    // That of one that was just killed says nothing while it goes.
    while matches!(found, Ok(None)) && Instant::now() < until {
        std::thread::sleep(GOING_WAIT / 100);
        found = host.alias(HOST_END);
    }
    match found {
        Ok(Some(other)) if other == alias => {
            host.remove(HOST_END).map_err(|errno| failed("remove an old link isolet0", errno))?;
        }
        Ok(_) => {
            return Err(format!(
                "a link {HOST_END} exists that is not ours: one server of a machine has egress; \
                 if no other runs, remove it with: ip link del {HOST_END}"
            ));
        }
        Err(_) => {}
    }
    match host.overlaps(range, HOST_END) {
        Ok(true) => Err(format!(
            "this machine has routes into {}/{}, which sandboxes use: set another [network] range",
            range.0, range.1
        )),
        Ok(false) => Ok(()),
        Err(errno) => Err(failed("list routes", errno)),
    }
}

/// The host must forward.
fn forwarding() -> Result<(), Failure> {
    let now = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default();
    if now.trim() == "1" {
        return Ok(());
    }
    write_setting("ipv4/ip_forward", "1").map_err(|errno| {
        format!(
            "cannot switch forwarding on ({}): sysctl -w net.ipv4.ip_forward=1",
            std::io::Error::from(errno)
        )
    })
}

/// What the namespace between sandboxes and host needs to forward, and no more.
fn configure_forwarding() -> Result<(), Errno> {
    write_setting("ipv4/ip_forward", "1")?;
    for place in ["all", "default"] {
        write_setting(&format!("ipv4/conf/{place}/rp_filter"), "0")?;
        write_setting(&format!("ipv4/conf/{place}/send_redirects"), "0")?;
        write_setting(&format!("ipv4/conf/{place}/accept_redirects"), "0")?;
        write_setting(&format!("ipv4/conf/{place}/accept_source_route"), "0")?;
        write_setting_if_present(&format!("ipv6/conf/{place}/disable_ipv6"), "1")?;
    }
    // All sandboxes share the kernel's table of connections there: what has ended leaves it soon.
    for (what, seconds) in [("time_wait", "10"), ("fin_wait", "30"), ("close_wait", "30")] {
        write_setting_if_present(&format!("netfilter/nf_conntrack_tcp_timeout_{what}"), seconds)?;
    }
    isolet_sys::loopback::bring_up()
}
