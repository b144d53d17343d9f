//! HTTP connections to programs in sandboxes, and the pool of idle ones.
//!
//! The task that waits for a response drives the connection; there is no other task. Nothing drives
//! an idle connection, so it is polled once before it is used again.
//!
//! A task per connection, as is usual, would cost two wake-ups per request. A connection whose
//! response was read stays idle for at most 2 s.

use axum::body::Body;
use axum::http::Request;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use isolet_sandbox::{PortConnection, Sandbox};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The longest head of a response, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most headers of a response.
const HEADERS_MAX: usize = 256;
/// The size of the read buffer, which bounds the memory for a response whose client does not read.
const READ_BYTES_MAX: usize = 256 * 1024;
/// How long a connection may idle: shorter than any server keeps one (Node: 5 s).
const IDLE: Duration = Duration::from_secs(2);
/// How often expired idle connections are closed.
const SWEEP: Duration = Duration::from_millis(500);
/// A program that closes the connection silently after a response has done so by then.
const SETTLED: Duration = Duration::from_millis(100);
/// The most idle connections of one port, and of all ports.
const PORT_MAX: usize = 16;
const ALL_MAX: usize = 512;

type Conn = Connection<TokioIo<PortConnection>, Body>;

/// A connection to a program.
#[derive(Debug)]
pub(crate) struct Upstream {
    sender: SendRequest<Body>,
    conn: ConnectionState,
    /// The number of requests that it has carried.
    asked: u32,
}

#[derive(Debug)]
enum ConnectionState {
    Live(Conn),
    /// HTTP has ended on the connection by a protocol switch or a clean close.
    Over(Conn),
    Gone,
}

/// The program sent no response.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) error: hyper::Error,
    /// The request, when nothing of it was sent.
    pub(crate) unsent: Option<Request<Body>>,
}

impl Upstream {
    pub(crate) async fn open(link: PortConnection) -> Result<Self, hyper::Error> {
        let (sender, conn) = http1::Builder::new()
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(READ_BYTES_MAX)
            .handshake(TokioIo::new(link))
            .await?;
        Ok(Self { sender, conn: ConnectionState::Live(conn), asked: 0 })
    }

    /// Sends a request and returns the head of the response. After that, the reader of the body
    /// drives the connection.
    pub(crate) async fn send(
        mut self,
        request: Request<Body>,
    ) -> Result<(Response<Incoming>, Self), SendError> {
        self.asked = self.asked.saturating_add(1);
        let answer = {
            let mut asked = pin!(self.sender.try_send_request(request));
            let conn = &mut self.conn;
            poll_fn(|cx| {
                conn.drive(cx);
                let answer = asked.as_mut().poll(cx);
                if answer.is_ready() || matches!(conn, ConnectionState::Live(_)) {
                    return answer;
                }
                // Closed before it accepted the request: dropping the connection wakes the waiting
                // request.
                *conn = ConnectionState::Gone;
                asked.as_mut().poll(cx)
            })
            .await
        };
        match answer {
            Ok(answer) => Ok((answer, self)),
            Err(mut lost) => {
                let unsent = lost.take_message();
                Err(SendError { unsent, error: lost.into_error() })
            }
        }
    }

    /// Makes progress on the connection.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        self.conn.drive(cx);
    }

    /// The bare connection after a protocol switch, and the bytes that were read beyond the head.
    pub(crate) async fn into_upgraded(mut self) -> Option<(PortConnection, Vec<u8>)> {
        poll_fn(|cx| {
            self.conn.drive(cx);
            if matches!(self.conn, ConnectionState::Live(_)) {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        let ConnectionState::Over(conn) = self.conn else { return None };
        let parts = conn.into_parts();
        Some((parts.io.into_inner(), parts.read_buf.to_vec()))
    }

    /// Whether it can take the next request. Does not wait.
    fn idle(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.drive(&mut cx);
        let live = matches!(self.conn, ConnectionState::Live(_));
        live && matches!(self.sender.poll_ready(&mut cx), Poll::Ready(Ok(())))
    }
}

impl ConnectionState {
    fn drive(&mut self, cx: &mut Context<'_>) {
        let Self::Live(conn) = self else { return };
        let Poll::Ready(ended) = conn.poll_without_shutdown(cx) else { return };
        if let Self::Live(conn) = std::mem::replace(self, Self::Gone)
            && ended.is_ok()
        {
            *self = Self::Over(conn);
        }
    }
}

/// Idle connections, by the incarnation of a sandbox and the port.
#[derive(Debug, Default)]
pub(crate) struct UpstreamPool(Mutex<Idle>);

#[derive(Debug, Default)]
struct Idle {
    held: HashMap<(String, u16), Vec<(Instant, Upstream)>>,
    count: usize,
}

impl UpstreamPool {
    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle connection that is still open. With `once`, for a request that must not be
    /// sent twice, it skips those that the program may be about to close.
    pub(crate) fn acquire(&self, sandbox: &Sandbox, port: u16, once: bool) -> Option<Upstream> {
        loop {
            let (since, mut one) = self.lock().pop(&(sandbox.name().to_owned(), port), once)?;
            if since.elapsed() < IDLE && one.idle() {
                return Some(one);
            }
        }
    }

    /// Returns a connection whose response was read to the end, if it can be used again.
    pub(crate) fn release(&self, sandbox: &Sandbox, port: u16, mut one: Upstream) {
        if !one.idle() {
            return;
        }
        let mut idle = self.lock();
        if idle.count >= ALL_MAX {
            return;
        }
        let own = idle.held.entry((sandbox.name().to_owned(), port)).or_default();
        if own.len() < PORT_MAX {
            own.push((Instant::now(), one));
            idle.count += 1;
        }
    }

    /// Closes connections that have idled for too long, until it is dropped.
    pub(crate) async fn sweep(&self) {
        let mut clock = tokio::time::interval(SWEEP);
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            let mut idle = self.lock();
            if idle.count == 0 {
                continue;
            }
            idle.held.retain(|_, own| {
                own.retain(|(since, _)| since.elapsed() < IDLE);
                !own.is_empty()
            });
            idle.count = idle.held.values().map(Vec::len).sum();
        }
    }
}

impl Idle {
    fn pop(&mut self, key: &(String, u16), once: bool) -> Option<(Instant, Upstream)> {
        let own = self.held.get_mut(key)?;
        let sure = |(since, one): &(Instant, Upstream)| one.asked > 1 || since.elapsed() >= SETTLED;
        let at = own.iter().rposition(|held| !once || sure(held))?;
        let one = own.remove(at);
        if own.is_empty() {
            self.held.remove(key);
        }
        self.count -= 1;
        Some(one)
    }
}
