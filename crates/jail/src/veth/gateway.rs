//! The gateway between sandboxes and host: its network namespace, the pair that connects it to the
//! host (the uplink), and the packet filter's tables in both. Created once, and repaired when other
//! programs change it.

mod setup;
mod tables;

pub(super) use tables::{HOST_TABLE, TABLE};

use super::addresses::{AddressRange, GATEWAY_UPLINK, HOST_UPLINK};
use super::egress_proxy::ProxyListeners;
use super::netlink::NetlinkSocket;
use super::netlink::nflog::NfLog;
use super::netlink::rtnetlink::{InterfaceMonitor, Peer, Rtnetlink};
use super::{host_firewall, nft};
use crate::kernel::netns::{self, within, write_setting_if_present};
use isolet_wire::network::{Guard, RESOLVER_ADDRESS};
use rustix::io::Errno;
use rustix::net::netlink;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use tables::{NFTABLES_EVENTS, WatchedTable};

/// The description of a failure, for the operator.
pub(super) type Failure = String;

pub(super) fn failed(action: &str, errno: Errno) -> Failure {
    format!("cannot {action}: {}", std::io::Error::from(errno))
}

/// [`failed`], as an argument of `map_err`.
fn failed_to(action: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| failed(action, errno)
}

/// The configuration of the gateway.
pub(super) struct GatewayOptions {
    /// The path of the program `nft`.
    pub(super) nft: PathBuf,
    /// The alias of the uplink, by which a later process of this data directory recognises it.
    pub(super) alias: String,
    pub(super) range: AddressRange,
    /// The most connections of one sandbox at the same time.
    pub(super) connections_max: u32,
}

/// The gateway. It has more than twelve fields, because a socket is needed for each protocol and
/// namespace.
#[derive(Debug)]
pub(super) struct Gateway {
    nft: PathBuf,
    alias: String,
    pub(super) range: AddressRange,
    pub(super) connections_max: u32,
    pub(super) host_netns: OwnedFd,
    pub(super) netns: OwnedFd,
    host_rtnetlink: Rtnetlink,
    pub(super) rtnetlink: Rtnetlink,
    pub(super) host_events: InterfaceMonitor,
    pub(super) interface_events: InterfaceMonitor,
    pub(super) nflog: NfLog,
    pub(super) proxy_listeners: ProxyListeners,
    /// The index of the host's end of the uplink.
    uplink_index: u32,
    host_table: WatchedTable,
    table: WatchedTable,
    /// Changes elements of the gateway's table.
    nf_tables: NetlinkSocket,
}

/// The sockets that are opened in the gateway's namespace.
struct Sockets {
    rtnetlink: Rtnetlink,
    interface_events: InterfaceMonitor,
    nflog: NfLog,
    table_events: NetlinkSocket,
    nf_tables: NetlinkSocket,
}

impl Sockets {
    fn open() -> Result<Self, Errno> {
        Ok(Self {
            table_events: NetlinkSocket::open(Some(netlink::NETFILTER), NFTABLES_EVENTS)?,
            nf_tables: NetlinkSocket::open(Some(netlink::NETFILTER), 0)?,
            rtnetlink: Rtnetlink::open()?,
            interface_events: InterfaceMonitor::open()?,
            nflog: NfLog::open()?,
        })
    }
}

impl Gateway {
    /// Creates the namespace, which is not connected to the host yet.
    ///
    /// # Errors
    /// A requirement that this machine does not meet, with what to do.
    pub(super) fn create(options: GatewayOptions) -> Result<Self, Failure> {
        let GatewayOptions { nft, alias, range, connections_max } = options;
        let host_netns = netns::current().map_err(failed_to("find the host's network"))?;
        let mut host_rtnetlink = Rtnetlink::open().map_err(failed_to("open a netlink socket"))?;
        setup::claim_uplink(&mut host_rtnetlink, &alias, range)?;
        let netns = netns::create(host_netns.as_fd(), setup::configure_netns)
            .map_err(failed_to("create a network namespace (CAP_SYS_ADMIN is needed)"))?;
        let mut sockets = within(host_netns.as_fd(), netns.as_fd(), Sockets::open)
            .map_err(failed_to("subscribe to netlink events"))?;
        for address in BTreeSet::from([range.gateway(), RESOLVER_ADDRESS]) {
            sockets
                .rtnetlink
                .add_address("lo", address)
                .map_err(failed_to("assign the gateway's address"))?;
        }
        let listen = || ProxyListeners::open(range.gateway());
        let proxy_listeners = within(host_netns.as_fd(), netns.as_fd(), listen)
            .map_err(failed_to("listen on the gateway's address"))?;
        let host_events =
            InterfaceMonitor::open().map_err(failed_to("subscribe to netlink events"))?;
        let host_table_events = NetlinkSocket::open(Some(netlink::NETFILTER), NFTABLES_EVENTS)
            .map_err(failed_to("subscribe to netlink events"))?;
        Ok(Self {
            nft,
            alias,
            range,
            connections_max,
            host_netns,
            netns,
            host_rtnetlink,
            rtnetlink: sockets.rtnetlink,
            host_events,
            interface_events: sockets.interface_events,
            nflog: sockets.nflog,
            proxy_listeners,
            uplink_index: 0,
            host_table: WatchedTable::new(host_table_events),
            table: WatchedTable::new(sockets.table_events),
            nf_tables: sockets.nf_tables,
        })
    }

    /// Connects the gateway to the host, once the rules are in force.
    pub(super) fn connect(&mut self, guard: &Guard) -> Result<(), Failure> {
        self.replace_tables(&BTreeSet::new(), guard)?;
        setup::enable_forwarding()?;
        self.ensure_uplink()
    }

    /// Creates the missing parts of the uplink and the routes over it.
    fn ensure_uplink(&mut self) -> Result<(), Failure> {
        if self.host_rtnetlink.name_of(self.uplink_index).is_err() {
            let peer = Peer { netns: self.netns.as_fd(), name: GATEWAY_UPLINK };
            self.host_rtnetlink
                .create_pair(HOST_UPLINK, Some(&self.alias), peer)
                .map_err(failed_to("create the interface isolet0"))?;
            self.uplink_index = self
                .host_rtnetlink
                .index_of(HOST_UPLINK)
                .map_err(failed_to("find the interface isolet0"))?;
            let setting = format!("ipv6/conf/{HOST_UPLINK}/disable_ipv6");
            let _ = write_setting_if_present(&setting, "1");
        }
        let unless_present = |added: Result<(), Errno>| match added {
            Err(Errno::EXIST) => Ok(()),
            added => added,
        };
        self.rtnetlink
            .set_up(GATEWAY_UPLINK)
            .map_err(failed_to("bring up the gateway's end of the uplink"))?;
        let sandboxes = self.range.network();
        unless_present(self.host_rtnetlink.add_route(sandboxes, HOST_UPLINK))
            .map_err(failed_to("add the route to sandboxes"))?;
        let everywhere = (Ipv4Addr::UNSPECIFIED, 0);
        unless_present(self.rtnetlink.add_route(everywhere, GATEWAY_UPLINK))
            .map_err(failed_to("add the route to the host"))
    }

    /// Repairs the uplink if another program changed it. Returns a description of the repair.
    pub(super) fn reconcile_uplink(&mut self) -> Result<Option<String>, Failure> {
        let repair = match self.host_rtnetlink.name_of(self.uplink_index) {
            Ok(name) if name == HOST_UPLINK => None,
            Ok(name) => {
                self.host_rtnetlink
                    .rename(self.uplink_index, HOST_UPLINK)
                    .map_err(failed_to("rename the interface isolet0"))?;
                Some(format!("the interface {HOST_UPLINK} was renamed to {name}: renamed it back"))
            }
            Err(_) => Some(format!("the interface {HOST_UPLINK} was removed: recreated it")),
        };
        let is_missing = self.host_rtnetlink.set_up(HOST_UPLINK).is_err();
        self.ensure_uplink()?;
        let missing = || format!("the interface {HOST_UPLINK} was missing: recreated it");
        Ok(repair.or_else(|| is_missing.then(missing)))
    }

    /// Warnings about the host's own firewall, each with what to do.
    pub(super) fn firewall_warnings(&self) -> Vec<String> {
        host_firewall::warnings(&self.nft)
    }

    pub(super) fn host_addresses(&mut self) -> Result<Vec<Ipv4Addr>, Failure> {
        self.host_rtnetlink.addresses().map_err(failed_to("list the host's addresses"))
    }

    /// Removes the uplink and our table from the host's namespace.
    pub(super) fn remove(&mut self) {
        let _ = self.host_rtnetlink.remove(HOST_UPLINK);
        let _ = nft::apply(&self.nft, "table ip isolet\ndelete table ip isolet\n");
    }
}
