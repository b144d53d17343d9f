//! Ends the process that owns the veth pairs, when no server needs it.

use super::addresses::HOST_UPLINK;
use super::gateway::HOST_TABLE;
use super::netlink::rtnetlink::Rtnetlink;
use super::nft;
use crate::identity::directory_id;
use crate::kernel::helper_socket::HelperSocket;
use std::io;
use std::path::Path;

/// Waits for the end of the process, or kills it, and removes the uplink and the packet filter's
/// table that a killed one leaves in the host's namespace. An uplink of another data directory
/// stays. Blocks for some seconds.
///
/// # Errors
/// The kernel's, or the message of `nft`.
pub(crate) fn end_owner(data_dir: &Path) -> io::Result<()> {
    HelperSocket::VETH.end_process(data_dir)?;
    let alias = format!("isolet {}", directory_id(data_dir)?);
    let mut host = Rtnetlink::open()?;
    match host.alias(HOST_UPLINK) {
        Ok(Some(found)) if found == alias => host.remove(HOST_UPLINK)?,
        Ok(_) => return Ok(()),
        Err(_) => {}
    }
    let Some(nft) = nft::find() else { return Ok(()) };
    if nft::list_table(&nft, HOST_TABLE).is_none() {
        return Ok(());
    }
    nft::apply(&nft, &format!("delete table {HOST_TABLE}\n")).map_err(io::Error::other)
}
