//! Copies bytes between two sockets with splice(2), without a copy through this process.

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io::{ErrorKind, Result};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Capacity of the pipe, in bytes; smaller where the kernel refuses this size.
const PIPE_BYTES: usize = 256 * 1024;
/// Bytes that are copied before a pipe is created: most connections transfer less.
const COPIED_BYTES_MAX: u64 = 64 * 1024;
const COPY_BUFFER_BYTES: usize = 16 * 1024;

/// Copies both directions until both have ended, or one has failed.
///
/// # Errors
/// Those of the sockets.
pub(crate) async fn both(
    sandbox: &TcpStream,
    upstream: &TcpStream,
    sent_bytes: &AtomicU64,
    received_bytes: &AtomicU64,
) -> Result<()> {
    let sent = one_direction(sandbox, upstream, sent_bytes);
    let received = one_direction(upstream, sandbox, received_bytes);
    tokio::try_join!(sent, received).map(drop)
}

async fn one_direction(from: &TcpStream, to: &TcpStream, counter: &AtomicU64) -> Result<()> {
    let ended = copy_first(from, to, counter).await?;
    if !ended {
        splice_rest(from, to, counter).await?;
    }
    rustix::net::shutdown(to, rustix::net::Shutdown::Write).or_else(|errno| {
        // The peer has closed its connection.
        if errno == rustix::io::Errno::NOTCONN { Ok(()) } else { Err(errno.into()) }
    })
}

/// Copies the first bytes; returns whether the sender has ended.
async fn copy_first(from: &TcpStream, to: &TcpStream, counter: &AtomicU64) -> Result<bool> {
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    let mut copied_bytes = 0;
    while copied_bytes < COPIED_BYTES_MAX {
        from.readable().await?;
        let length = match from.try_read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            length => length?,
        };
        if length == 0 {
            return Ok(true);
        }
        write_all(to, &buffer[..length]).await?;
        counter.fetch_add(length as u64, Relaxed);
        copied_bytes += length as u64;
    }
    Ok(false)
}

/// Writes all bytes.
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

async fn splice_rest(from: &TcpStream, to: &TcpStream, counter: &AtomicU64) -> Result<()> {
    let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let _ = fcntl_setpipe_size(&writing, PIPE_BYTES);
    loop {
        // The pipe is empty here, so only the socket can block.
        let length =
            when_ready(from, Interest::READABLE, || splice_once(from, &writing, PIPE_BYTES))
                .await?;
        if length == 0 {
            return Ok(());
        }
        let mut left = length;
        while left > 0 {
            left -= when_ready(to, Interest::WRITABLE, || splice_once(&reading, to, left)).await?;
        }
        counter.fetch_add(length as u64, Relaxed);
    }
}

async fn when_ready(
    socket: &TcpStream,
    interest: Interest,
    mut transfer: impl FnMut() -> Result<usize>,
) -> Result<usize> {
    socket.async_io(interest, &mut transfer).await
}

fn splice_once(
    from: &impl std::os::fd::AsFd,
    to: &impl std::os::fd::AsFd,
    length: usize,
) -> Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(splice(from, None, to, None, length, flags)?)
}
