//! The socket to the process that owns the links: its orders, and what is told.

use crate::state::freed_memory::Rounds;
use crate::state::table::Links;
use isolet_wire::launch::encode;
use isolet_wire::network::{EdgeOrder, EdgeTell, PACKET_BYTES_MAX};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{MissedTickBehavior, interval};

/// How long refusals wait for equal ones.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// How often carried bytes are told, in these rounds.
const CARRIED_EVERY: u32 = 10;

/// Works off orders until the other end is gone.
///
/// # Errors
/// Those of the socket; a packet that is no order.
pub(crate) async fn serve(links: &Links, control: OwnedFd) -> Result<()> {
    // Every read and write of a packet socket is one packet.
    let control = std::os::unix::net::UnixStream::from(control);
    control.set_nonblocking(true)?;
    let control = UnixStream::from_std(control)?;
    tell(&control, &EdgeTell::Ready).await?;
    let mut packet = vec![0_u8; PACKET_BYTES_MAX];
    let mut rounds = interval(TELL_EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut round = 0_u32;
    let mut freeing = Rounds::default();
    loop {
        tokio::select! {
            length = take(&control, &mut packet) => {
                let length = length?;
                if length == 0 {
                    return Ok(());
                }
                let order = isolet_wire::frame::decode(&packet[..length])
                    .map_err(|_| Error::new(ErrorKind::InvalidData, "no order"))?;
                follow(links, &control, order).await?;
            }
            _ = rounds.tick() => {
                round = (round + 1) % CARRIED_EVERY;
                let carried = if round == 0 { links.carried() } else { Vec::new() };
                if round == 0 && freeing.burst_ended(&links.freed) {
                    isolet_sys::heap::trim();
                }
                for one in links.tells().into_iter().chain(carried) {
                    tell(&control, &one).await?;
                }
            }
        }
    }
}

async fn follow(links: &Links, control: &UnixStream, order: EdgeOrder) -> Result<()> {
    match order {
        EdgeOrder::Guard { guard, resolvers } => links.guarded(guard, resolvers),
        EdgeOrder::Set { address, policy } => links.set(address, policy),
        EdgeOrder::Lend { address, credentials, tls } => {
            if let Some(authority) = links.lend(address, credentials, tls) {
                tell(control, &authority).await?;
            }
        }
        EdgeOrder::Forget { address } => links.forget(address),
        EdgeOrder::Settle { number } => {
            for one in links.tells() {
                tell(control, &one).await?;
            }
            tell(control, &EdgeTell::Settled { number }).await?;
        }
    }
    Ok(())
}

async fn take(control: &UnixStream, packet: &mut [u8]) -> Result<usize> {
    loop {
        control.readable().await?;
        match control.try_read(packet) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(0),
            result => return result,
        }
    }
}

async fn tell(control: &UnixStream, what: &EdgeTell) -> Result<()> {
    let packet = encode(what);
    loop {
        control.writable().await?;
        match control.try_write(&packet) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result.map(drop),
        }
    }
}
