//! Bytes between two sockets, without a copy through this process.

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io::{ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What goes through at a time. Where the kernel gives no such pipe it is smaller.
const PIPE_BYTES: usize = 256 * 1024;
/// What is copied before a pipe is made: most connections say less.
const COPIED_BYTES: u64 = 64 * 1024;
const COPY_BYTES: usize = 16 * 1024;

/// Carries both ways until both have ended, or one has failed.
///
/// # Errors
/// Those of the sockets.
pub(crate) async fn both(
    inside: &TcpStream,
    outside: &TcpStream,
    out: &AtomicU64,
    back: &AtomicU64,
) -> Result<()> {
    tokio::try_join!(one(inside, outside, out), one(outside, inside, back)).map(drop)
}

async fn one(from: &TcpStream, to: &TcpStream, carried: &AtomicU64) -> Result<()> {
    let ended = copied(from, to, carried).await?;
    if !ended {
        spliced(from, to, carried).await?;
    }
    rustix::net::shutdown(to, rustix::net::Shutdown::Write).or_else(|errno| {
        // The other side is gone already.
        if errno == rustix::io::Errno::NOTCONN { Ok(()) } else { Err(errno.into()) }
    })
}

/// The first bytes; whether these were all.
async fn copied(from: &TcpStream, to: &TcpStream, carried: &AtomicU64) -> Result<bool> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut sum = 0;
    while sum < COPIED_BYTES {
        from.readable().await?;
        let length = match from.try_read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            length => length?,
        };
        if length == 0 {
            return Ok(true);
        }
        write_all(to, &buffer[..length]).await?;
        carried.fetch_add(length as u64, Relaxed);
        sum += length as u64;
    }
    Ok(false)
}

/// Writes all of it.
///
/// # Errors
/// Those of the socket.
pub(crate) async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn spliced(from: &TcpStream, to: &TcpStream, carried: &AtomicU64) -> Result<()> {
    let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let _ = fcntl_setpipe_size(&writing, PIPE_BYTES);
    loop {
        // The pipe is empty here: what would block is the socket alone.
        let length = moved(from, Interest::READABLE, || shift(from, &writing, PIPE_BYTES)).await?;
        if length == 0 {
            return Ok(());
        }
        let mut left = length;
        while left > 0 {
            left -= moved(to, Interest::WRITABLE, || shift(&reading, to, left)).await?;
        }
        carried.fetch_add(length as u64, Relaxed);
    }
}

async fn moved(
    socket: &TcpStream,
    interest: Interest,
    mut shift: impl FnMut() -> Result<usize>,
) -> Result<usize> {
    socket.async_io(interest, &mut shift).await
}

fn shift(
    from: &impl std::os::fd::AsFd,
    to: &impl std::os::fd::AsFd,
    length: usize,
) -> Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(splice(from, None, to, None, length, flags)?)
}
