//! Loads the packet filter's tables into a new network namespace.

use super::child::in_child;
use crate::child::step_error::StepError;
use crate::veth::preview;
use rustix::io::Errno;
use std::net::Ipv4Addr;

/// Loads the tables of the gateway and of the host.
///
/// # Errors
/// A description of the problem: `nft` is missing, or its first message.
pub fn packet_filter() -> Result<(), String> {
    let nft = preview::program().ok_or("the program nft is missing")?;
    let loaded = in_child(libc::CLONE_NEWNET as u64, || {
        preview::load_tables(&nft).map_err(|error| StepError::new(error, Errno::IO))
    });
    loaded.map_err(|error| match error.errno {
        // The step is the message of nft.
        Errno::IO => error.step.into_owned(),
        _ => error.to_string(),
    })
}

/// Whether no route of this machine leads into the addresses of sandboxes, which begin with
/// `first`.
///
/// # Errors
/// The kernel's.
pub fn range_is_free(first: Ipv4Addr) -> Result<bool, Errno> {
    preview::range_is_free(first)
}

/// A sentence for each chain of the host's firewall that drops packets of sandboxes, with the
/// commands that let them through. Needs root.
#[must_use]
pub fn firewall_warnings() -> Vec<String> {
    preview::program().map(|nft| preview::firewall_warnings(&nft)).unwrap_or_default()
}
