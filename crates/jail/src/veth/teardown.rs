//! Ends the process that owns the veth pairs, when no server needs it.

use super::addresses::HOST_UPLINK;
use super::gateway::HOST_TABLE;
use super::netlink::rtnetlink::Rtnetlink;
use super::nft;
use crate::identity::directory_id;
use crate::kernel::helper_socket::HelperSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How long the process may take to notice that its sandboxes have ended, and afterwards to die of
/// a signal.
const END_WAIT: Duration = Duration::from_secs(3);

/// Waits for the end of the process, or kills it, and removes the uplink and the packet filter's
/// table that a killed one leaves in the host's namespace. An uplink of another data directory
/// stays. Blocks for some seconds.
///
/// # Errors
/// The kernel's, or the message of `nft`.
pub(crate) fn end_owner(data_dir: &Path) -> io::Result<()> {
    if let Some(owner) = owner(data_dir)?
        && !ends(&owner)?
    {
        let _ = pidfd_send_signal(&owner, Signal::KILL);
        if !ends(&owner)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
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

/// The process, if it runs.
fn owner(data_dir: &Path) -> io::Result<Option<OwnedFd>> {
    // Without a process, the socket is missing or refuses the connection.
    let Ok(socket) = HelperSocket::VETH.connect(data_dir) else { return Ok(None) };
    let Some(pid) = Pid::from_raw(isolet_sys::peer::pid(&socket)?) else { return Ok(None) };
    Ok(pidfd_open(pid, PidfdFlags::empty()).ok())
}

/// Whether a process ends in time.
fn ends(process: &OwnedFd) -> io::Result<bool> {
    let limit = Timespec::try_from(END_WAIT).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit))? > 0)
}
