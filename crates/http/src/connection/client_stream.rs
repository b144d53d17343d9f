//! The bytes of a client's connection: TCP, TLS over TCP, or a connection through another node.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// `Left` is plain TCP. The other kinds are large, so they are boxed: a plain connection takes
/// neither their memory nor a pointer to it.
pub(crate) type ClientStream = Either<TcpStream, WrappedStream>;

/// TLS of the server itself, or a connection that another node forwards.
pub(crate) type WrappedStream = Either<Box<TlsStream<TcpStream>>, Box<TokioIo<Upgraded>>>;

/// The TCP connection, for its options; `None` for a connection that another node forwards, which
/// sets the options of its client's connection itself.
pub(crate) fn tcp(stream: &ClientStream) -> Option<&TcpStream> {
    match stream {
        Either::Left(tcp) => Some(tcp),
        Either::Right(Either::Left(tls)) => Some(tls.get_ref().0),
        Either::Right(Either::Right(_)) => None,
    }
}
