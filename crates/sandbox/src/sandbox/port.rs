//! Connections to ports inside a sandbox, and the list of listening ports.
//!
//! The agent connects within the sandbox's network and passes the socket to the server. From then
//! on, the bytes flow only between that socket and the caller. The agent is not trusted: the server
//! checks that the descriptor is a connection within the agent's own network.

use crate::agent_client::wire::Wire;
use crate::live::entry::CONNECTIONS_MAX;
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use crate::model::state::State;
use crate::sandbox::Sandbox;
use isolet_metrics::{Meter, Stream};
use isolet_wire::port::{LISTENERS_MAX, Listener};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, RefusalReason};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
/// Timeout of a dial. The agent itself gives up after ten seconds.
const DIAL_WAIT: Duration = Duration::from_secs(12);

/// A connection to a port of a sandbox. It does not keep the sandbox awake, so the caller must hold
/// the [`Sandbox`].
#[derive(Debug)]
pub struct PortConnection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    meter: Arc<Meter>,
}

impl PortConnection {
    fn written(&self, done: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &done {
            self.meter.bytes(Stream::PortsIn, *bytes);
        }
        done
    }
}

impl AsyncRead for PortConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.meter.bytes(Stream::PortsOut, buf.filled().len() - before);
        done
    }
}

impl AsyncWrite for PortConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Sandbox {
    /// The internal name of the sandbox, which differs between sandboxes that used the same id.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Connects to a TCP port on the sandbox's loopback interface. Use [`crate::Access::Awake`] for
    /// the handle, because no program of a sleeping sandbox could listen.
    ///
    /// # Errors
    /// [`Error::Refused`] with `NotListening`, `NoAnswer`, `ResourcesExhausted` or `TooMany`;
    /// [`Error::Link`], [`Error::Failed`], [`Error::Unreachable`].
    pub async fn dial(&self, port: u16) -> Result<PortConnection, Error> {
        let Ok(_place) = Arc::clone(&self.entry.ports).try_acquire_owned() else {
            let message = format!("at most {CONNECTIONS_MAX} connections to ports of a sandbox");
            return Err(Error::Refused { reason: RefusalReason::TooMany, message });
        };
        let mut wire = self.wire(None).await?;
        let answer = timeout(DIAL_WAIT, wire.dial(port)).await;
        let fd = match answer.map_err(|_| AgentError::Silent)?? {
            Ok(fd) => fd,
            Err((reason, message)) => {
                self.entry.pool.park(wire);
                return Err(Error::Refused { reason, message });
            }
        };
        self.entry.pool.park(wire);
        let stream = checked(fd, port)?;
        Ok(PortConnection { stream, _place, meter: Arc::clone(&self.entry.meter) })
    }

    /// The sockets on which programs in the sandbox listen, sorted. A sleeping sandbox has none and
    /// is not woken.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`], [`Error::Unreachable`].
    pub async fn listening(&self) -> Result<Vec<Listener>, Error> {
        match self.ask_listening().await {
            Err(_) if self.entry.state() == State::Sleeping => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn ask_listening(&self) -> Result<Vec<Listener>, Error> {
        let mut wire: Wire = self.wire(None).await?;
        wire.send(&AgentRequest::Listening).await?;
        let AgentResponse::Listening(mut all) = wire.answer().await? else {
            return Err(AgentError::Turn("unexpected answer to who listens").into());
        };
        self.entry.pool.park(wire);
        all.truncate(LISTENERS_MAX);
        Ok(all)
    }
}

/// Checks that a socket from an agent is a TCP connection to that port on a loopback address. Such
/// a socket can only belong to the network in which the agent runs.
fn checked(fd: OwnedFd, port: u16) -> Result<TcpStream, Error> {
    const OTHER: AgentError = AgentError::Turn("another descriptor than a connection to the port");
    let kind = sockopt::socket_type(&fd).map_err(|_| OTHER)?;
    let family = sockopt::socket_domain(&fd).map_err(|_| OTHER)?;
    let tcp = sockopt::socket_protocol(&fd).ok().flatten() == Some(rustix::net::ipproto::TCP);
    let inet = matches!(family, AddressFamily::INET | AddressFamily::INET6);
    if kind != SocketType::STREAM || !inet || !tcp {
        return Err(OTHER.into());
    }
    let stream = std::net::TcpStream::from(fd);
    let right = |peer: SocketAddr| peer.port() == port && peer.ip().is_loopback();
    if !stream.peer_addr().is_ok_and(right) {
        return Err(OTHER.into());
    }
    let made = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
    let stream = made.map_err(AgentError::from)?;
    // Writes are complete messages, so waiting for more data would only add latency.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    /// Promises: O5.
    #[tokio::test]
    async fn only_a_connection_to_the_port_asked_for_is_taken_from_an_agent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let port = address.port();
        let open = || OwnedFd::from(std::net::TcpStream::connect(address).expect("connected"));
        assert!(checked(open(), port).is_ok());
        let other = port.checked_add(1).unwrap_or(1);
        assert!(checked(open(), other).is_err(), "another port");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        udp.connect(address).expect("connected");
        let file = std::fs::File::open("/dev/null").expect("opened");
        let (unix, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let hostile: [(OwnedFd, &str); 4] = [
            (udp.into(), "UDP"),
            (file.into(), "a file"),
            (unix.into(), "a unix socket"),
            (listener.into(), "a listening socket"),
        ];
        for (fd, description) in hostile {
            assert!(checked(fd, port).is_err(), "{description}");
        }
    }
}
