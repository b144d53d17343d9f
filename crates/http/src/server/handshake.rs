//! The TLS handshake of a new connection. The configuration is the one at its beginning, so a new
//! certificate changes nothing for connections that are open.

use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take for the handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// The TLS configuration for the next connection.
pub(crate) type CurrentTls = watch::Receiver<Arc<ServerConfig>>;

/// What a client of a TLS port speaks.
pub(super) enum Handshake {
    Tls(Box<TlsStream<TcpStream>>),
    /// Plain HTTP. Its request gets an answer that says what is wrong.
    PlainHttp(TcpStream),
}

/// # Errors
/// When the client speaks neither, accepts none of the server's algorithms, or is too slow.
pub(super) async fn accept(stream: TcpStream, tls: &CurrentTls) -> io::Result<Handshake> {
    let config = Arc::clone(&tls.borrow());
    timeout(HANDSHAKE_WAIT, accept_within(stream, config)).await?
}

async fn accept_within(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Handshake> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    // A request begins with its method. TLS begins with 22.
    if first[0].is_ascii_uppercase() {
        return Ok(Handshake::PlainHttp(stream));
    }
    let accepted = TlsAcceptor::from(config).accept(stream).await?;
    Ok(Handshake::Tls(Box::new(accepted)))
}
