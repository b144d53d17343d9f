//! The packet filter's tables in the namespaces of the gateway and of the host: replaces and
//! changes them, and detects changes of other programs by comparing the listings.

use super::{Failure, Gateway, failed};
use crate::kernel::netns::within;
use crate::veth::netlink::{NetlinkSocket, nf_tables};
use crate::veth::set_element::Element;
use crate::veth::{nft, nft_ruleset};
use isolet_wire::network::Guard;
use std::collections::BTreeSet;
use std::os::fd::AsFd;

/// The netlink group of changes of the packet filter's tables.
pub(super) const NFTABLES_EVENTS: u32 = 1 << (libc::NFNLGRP_NFTABLES - 1);
/// Our tables, as `nft` names them.
pub(crate) const TABLE: &str = "inet isolet";
pub(crate) const HOST_TABLE: &str = "ip isolet";

/// One of our tables, with the events of its namespace's packet filter.
#[derive(Debug)]
pub(super) struct WatchedTable {
    events: NetlinkSocket,
    /// The listing of the table when it was created.
    listing: Option<String>,
}

impl WatchedTable {
    pub(super) fn new(events: NetlinkSocket) -> Self {
        Self { events, listing: None }
    }

    /// Reads all events; returns whether there was one.
    fn drain_events(&self) -> bool {
        let mut any = false;
        loop {
            match self.events.try_receive() {
                Ok(Some(_)) => any = true,
                Ok(None) => return any,
                Err(_) => return true,
            }
        }
    }
}

impl Gateway {
    /// Replaces both tables, and remembers their listings.
    pub(crate) fn replace_tables(
        &mut self,
        elements: &BTreeSet<Element>,
        guard: &Guard,
    ) -> Result<(), Failure> {
        nft::apply(&self.nft, &nft_ruleset::host_table(self.range))?;
        let table = nft_ruleset::gateway_table(self.range, self.connections_max, elements, guard);
        self.apply_ruleset(&table)?;
        self.host_table.listing = nft::list_table(&self.nft, HOST_TABLE);
        self.table.listing = self.list_table();
        // Events of our own changes do not matter.
        self.drain_table_events();
        Ok(())
    }

    fn list_table(&self) -> Option<String> {
        let list = || Ok(nft::list_table(&self.nft, TABLE));
        within(self.host_netns.as_fd(), self.netns.as_fd(), list).ok().flatten()
    }

    /// Changes the gateway's rules.
    pub(crate) fn apply_ruleset(&mut self, ruleset: &str) -> Result<(), Failure> {
        let apply = || Ok(nft::apply(&self.nft, ruleset));
        let applied = within(self.host_netns.as_fd(), self.netns.as_fd(), apply);
        let applied = applied.map_err(|errno| failed("enter the gateway's namespace", errno))?;
        if applied.is_ok() {
            self.table.drain_events();
        }
        applied
    }

    /// Changes the elements of the gateway's table.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub(crate) fn change_elements(
        &mut self,
        before: &BTreeSet<Element>,
        after: &BTreeSet<Element>,
    ) -> Result<(), Failure> {
        match nf_tables::change_elements(&mut self.nf_tables, before, after) {
            Some(Ok(())) => {
                self.table.drain_events();
                Ok(())
            }
            Some(Err(errno)) => Err(failed("change the packet filter", errno)),
            None => self.apply_ruleset(&nft_ruleset::change_elements(before, after)),
        }
    }

    /// Reads the events of both tables; returns whether there was one.
    pub(crate) fn drain_table_events(&self) -> bool {
        let host = self.host_table.drain_events();
        let gateway = self.table.drain_events();
        host || gateway
    }

    /// The sockets of the events of both tables: the host's, the gateway's.
    pub(crate) fn table_events(&self) -> [&NetlinkSocket; 2] {
        [&self.host_table.events, &self.table.events]
    }

    /// Replaces the tables if another program changed them. Returns a description of the repair.
    pub(crate) fn reconcile_tables(
        &mut self,
        elements: &BTreeSet<Element>,
        guard: &Guard,
    ) -> Result<Option<String>, Failure> {
        let host_unchanged = nft::list_table(&self.nft, HOST_TABLE) == self.host_table.listing;
        let unchanged = self.list_table() == self.table.listing;
        let changed = match (host_unchanged, unchanged) {
            (true, true) => return Ok(None),
            (false, true) => HOST_TABLE,
            _ => TABLE,
        };
        self.replace_tables(elements, guard)?;
        Ok(Some(Self::table_repair(changed)))
    }

    /// The description of the repair of a table.
    pub(crate) fn table_repair(table: &str) -> String {
        format!("the packet filter's table {table} was changed: recreated it")
    }
}
