//! The control socket to the process that owns the veth pairs: its requests, and the reports to it.

use crate::state::freed_memory::BurstDetector;
use crate::state::table::SandboxTable;
use isolet_wire::launcher::encode;
use isolet_wire::network::{PACKET_BYTES_MAX, ProxyRequest, ProxyResponse};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{MissedTickBehavior, interval};

/// How often denials are reported; equal ones in between are counted.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Traffic is reported with every n-th report of denials.
const ROUNDS_PER_TRAFFIC_REPORT: u32 = 10;

/// Executes requests until the server closes the socket.
///
/// # Errors
/// The socket fails, or a packet cannot be decoded.
pub(crate) async fn serve(sandboxes: &SandboxTable, control: OwnedFd) -> Result<()> {
    // Each read and write of a SOCK_SEQPACKET socket is one packet.
    let control = std::os::unix::net::UnixStream::from(control);
    control.set_nonblocking(true)?;
    let control = UnixStream::from_std(control)?;
    send(&control, &ProxyResponse::Ready).await?;
    let mut packet = vec![0_u8; PACKET_BYTES_MAX];
    let mut rounds = interval(REPORT_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut round = 0_u32;
    let mut bursts = BurstDetector::default();
    loop {
        tokio::select! {
            length = receive(&control, &mut packet) => {
                let length = length?;
                if length == 0 {
                    return Ok(());
                }
                let order = isolet_wire::frame::decode(&packet[..length])
                    .map_err(|_| Error::new(ErrorKind::InvalidData, "no order"))?;
                execute(sandboxes, &control, order).await?;
            }
            _ = rounds.tick() => {
                round = (round + 1) % ROUNDS_PER_TRAFFIC_REPORT;
                let traffic = if round == 0 { sandboxes.take_traffic() } else { Vec::new() };
                if round == 0 && bursts.burst_ended(&sandboxes.freed_memory) {
                    isolet_sys::heap::trim();
                }
                for report in sandboxes.take_denials().into_iter().chain(traffic) {
                    send(&control, &report).await?;
                }
            }
        }
    }
}

async fn execute(
    sandboxes: &SandboxTable,
    control: &UnixStream,
    order: ProxyRequest,
) -> Result<()> {
    match order {
        ProxyRequest::Guard { guard, resolvers } => sandboxes.set_guard(guard, resolvers),
        ProxyRequest::Set { address, policy } => sandboxes.set_policy(address, policy),
        ProxyRequest::SetCredentials { address, credentials, tls } => {
            if let Some(authority) = sandboxes.set_credentials(address, credentials, tls) {
                send(control, &authority).await?;
            }
        }
        ProxyRequest::Forget { address } => sandboxes.remove(address),
        ProxyRequest::Settle { number } => {
            for denial in sandboxes.take_denials() {
                send(control, &denial).await?;
            }
            send(control, &ProxyResponse::Settled { number }).await?;
        }
    }
    Ok(())
}

async fn receive(control: &UnixStream, packet: &mut [u8]) -> Result<usize> {
    loop {
        control.readable().await?;
        match control.try_read(packet) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(0),
            result => return result,
        }
    }
}

async fn send(control: &UnixStream, message: &ProxyResponse) -> Result<()> {
    let packet = encode(message);
    loop {
        control.writable().await?;
        match control.try_write(&packet) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result.map(drop),
        }
    }
}
