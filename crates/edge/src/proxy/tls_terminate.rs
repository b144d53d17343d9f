//! TLS that ends here, for hosts that credentials are lent for: what is within is HTTP, judged as
//! HTTP is, and goes on by TLS of our own.

use super::connection::{Said, Visit};
use super::counted_stream::Inside;
use super::http;
use crate::credentials::authority::Authority;
use isolet_wire::network::BAD_REQUEST;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long the sandbox's side may take.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// Speaks TLS as the host with this name, and serves what is asked.
pub(crate) async fn serve(
    visit: Visit,
    inside: Inside,
    name: &str,
    authority: &Authority,
    changes: &mut watch::Receiver<u64>,
) {
    let Ok(config) = authority.host(name) else { return };
    let accepted = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(inside));
    let accepted = visit.hold(changes, || None, accepted).await;
    match accepted {
        Some(Ok(Ok(stream))) => http::serve(visit, stream, Some(name.to_owned()), changes).await,
        Some(Ok(Err(error))) if speaks_another(&error) => {
            visit.refuse(&Said::Name(name.to_owned()), BAD_REQUEST);
        }
        // It does not know the authority, mostly.
        Some(_) => visit.refuse(&Said::Name(name.to_owned()), "certificate"),
        None => {}
    }
}

/// Whether the client speaks no protocol that is read here: HTTP/2 alone, mostly.
fn speaks_another(error: &std::io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    cause == Some(&rustls::Error::NoApplicationProtocol)
}
