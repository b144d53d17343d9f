//! The bytes of a client's connection: TCP, or TLS over TCP.

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// `Left` is plain TCP. The state of TLS is large, so it is boxed: a plain connection takes neither
/// its memory nor a pointer to it.
pub(crate) type ClientStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The TCP connection, for its options.
pub(crate) fn tcp(stream: &ClientStream) -> &TcpStream {
    match stream {
        Either::Left(tcp) => tcp,
        Either::Right(tls) => tls.get_ref().0,
    }
}
