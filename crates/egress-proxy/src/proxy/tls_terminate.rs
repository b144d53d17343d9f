//! Terminates TLS for hosts that credentials are injected for. The requests inside are handled
//! like plain HTTP, and the proxy sends them to the host over a TLS connection of its own.

use super::connection::{SandboxConnection, TlsHost};
use super::counted_stream::CountedStream;
use super::http;
use crate::policy::Destination;
use isolet_wire::network::BAD_REQUEST;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long the sandbox may take for its side of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Performs the TLS handshake as the host, and serves the requests.
pub(crate) async fn serve(
    connection: SandboxConnection,
    stream: CountedStream,
    host: TlsHost,
    rule_changes: &mut watch::Receiver<u64>,
) {
    let TlsHost { name, authority } = host;
    let Ok(config) = authority.server_config(&name) else { return };
    let handshake = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream));
    let accepted = connection.run_while_allowed(rule_changes, || None, handshake).await;
    match accepted {
        Some(Ok(Ok(stream))) => http::serve(connection, stream, Some(name), rule_changes).await,
        Some(Ok(Err(error))) if is_unsupported_protocol(&error) => {
            connection.log_denied(&Destination::Name(name), BAD_REQUEST);
        }
        // Mostly a client that does not trust the authority.
        Some(_) => connection.log_denied(&Destination::Name(name), "certificate"),
        None => {}
    }
}

/// Whether the client supports none of our protocols; mostly it insists on HTTP/2.
fn is_unsupported_protocol(error: &std::io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    cause == Some(&rustls::Error::NoApplicationProtocol)
}
