//! The parts of egress that can be tried before a sandbox needs it, for [`crate::probe`].

use super::addresses::{AddressRange, HOST_UPLINK};
use super::netlink::rtnetlink::Rtnetlink;
use super::{host_firewall, nft, nft_ruleset};
use isolet_wire::network::Guard;
use isolet_wire::veth::VethSettings;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The path of `nft`, if it is installed.
pub(crate) fn program() -> Option<PathBuf> {
    nft::find()
}

/// Loads both tables into the network namespace that this process is in.
///
/// # Errors
/// The message of `nft`.
pub(crate) fn load_tables(nft: &Path) -> Result<(), String> {
    let settings = VethSettings::default();
    let range = AddressRange::new(settings.range);
    nft::apply(nft, &nft_ruleset::host_table(range))?;
    let none = BTreeSet::new();
    let guard = Guard::default();
    nft::apply(nft, &nft_ruleset::gateway_table(range, settings.connections_max, &none, &guard))
}

/// Whether no route leads into the range that begins with `first`, except our own.
pub(crate) fn range_is_free(first: Ipv4Addr) -> Result<bool, Errno> {
    let range = AddressRange::new(first);
    Rtnetlink::open()?.overlaps(range.network(), HOST_UPLINK).map(|overlaps| !overlaps)
}

/// See [`host_firewall::warnings`].
pub(crate) fn firewall_warnings(nft: &Path) -> Vec<String> {
    host_firewall::warnings(nft)
}
