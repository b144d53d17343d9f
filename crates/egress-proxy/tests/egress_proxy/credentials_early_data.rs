//! Early data: what a TLS 1.3 client sends before the server is authenticated.

use crate::credentials::{VALUE, authority, credential, heads, world as credential_world};
use crate::servers::{Captured, Certificates, always, line, resolver, trusting_all};
use crate::world::{EVIL, GOOD, RESOLVER, World};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

const GET: &str = "GET /early HTTP/1.1\r\nHost: api.example\r\nX-Key: ISOLET_KEY\r\n\r\n";

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn with_early_data(trust: &Arc<ClientConfig>) -> Arc<ClientConfig> {
    let mut config = (**trust).clone();
    config.enable_early_data = true;
    Arc::new(config)
}

fn tls(world: &World, config: &Arc<ClientConfig>, at: Ipv4Addr, name: &str) -> Tls {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let client = ClientConnection::new(config.clone(), name).expect("a client");
    StreamOwned::new(client, world.connect(at, 443))
}

/// Visits a host once, so that the client has a ticket that allows early data.
fn get_ticket(world: &World, config: &Arc<ClientConfig>, at: Ipv4Addr, name: &str) {
    let mut stream = tls(world, config, at, name);
    stream.write_all(b"visit").expect("the peer reads");
    assert_eq!(line(&mut stream), Ok("hello".to_owned()));
    assert_eq!(line(&mut stream), Ok("received".to_owned()));
}

/// Sends a request as early data, and once more after the handshake if the server did not accept
/// it; returns whether it was accepted, and the answer.
fn request_early(
    world: &World,
    config: &Arc<ClientConfig>,
    at: Ipv4Addr,
    name: &str,
) -> (bool, String) {
    let mut stream = tls(world, config, at, name);
    let mut first = stream.conn.early_data().expect("it has a ticket");
    first.write_all(GET.as_bytes()).expect("short enough");
    if let Err(error) = stream.flush().and_then(|()| complete_handshake(&mut stream)) {
        return (false, error.to_string());
    }
    let accepted = stream.conn.is_early_data_accepted();
    if !accepted {
        stream.write_all(GET.as_bytes()).expect("the peer reads");
    }
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).unwrap_or(0);
    (accepted, String::from_utf8_lossy(&answer[..length]).into_owned())
}

fn complete_handshake(stream: &mut Tls) -> std::io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}

fn captured(heard: &Captured) -> String {
    String::from_utf8_lossy(&heard.lock().expect("no thread panicked with the lock")).into_owned()
}

/// The proxy accepts no early data, which an attacker could replay: a client with a ticket of the
/// host itself repeats its request after the handshake, and the proxy forwards it once.
/// Promises: R12.
#[test]
fn where_tls_ends_at_the_proxy_early_data_is_not_taken_and_a_request_goes_on_once() {
    let (world, _, good, _, _roots) = credential_world();
    let tickets = Certificates::new(&["api.example"]);
    // Without credentials the sandbox connects to a host that issues such tickets.
    tickets.capture(&world, RESOLVER, 443, &[]);
    world.rules(&["198.51.100.1:443"], &[]);
    let proxy = authority(&world, Vec::new(), true).expect("an authority");
    let both = with_early_data(&trusting_all([proxy, tickets.certificate.clone()]));
    get_ticket(&world, &both, RESOLVER, "api.example");
    world.rules(&["*.example"], &[]);
    authority(&world, vec![credential("api.example", None, Some("ISOLET_KEY"))], true);
    let (accepted, answer) = request_early(&world, &both, GOOD, "api.example");
    assert!(!accepted && answer.starts_with("HTTP/1.1 200"), "{accepted} {answer}");
    let heads = heads(&good);
    assert_eq!(heads.matches("GET /early").count(), 1, "{heads}");
    assert_eq!(heads.matches(VALUE).count(), 1, "{heads}");
}

/// Promises: R12.
#[test]
fn where_tls_goes_through_early_data_goes_with_the_name_and_nowhere_else() {
    let world = World::new(&["good.example"], &[]);
    let certificates = Certificates::new(&["good.example", "evil.example"]);
    let good = certificates.capture(&world, GOOD, 443, &[]);
    let evil = certificates.capture(&world, EVIL, 443, &[]);
    resolver(&world, vec![("good.example", always(GOOD)), ("evil.example", always(EVIL))]);
    let config = with_early_data(&certificates.trust());
    get_ticket(&world, &config, GOOD, "good.example");
    let (accepted, answer) = request_early(&world, &config, GOOD, "good.example");
    assert!(accepted && answer.starts_with("hello"), "{accepted} {answer}");
    assert_eq!(captured(&good), format!("visitearly:{GET}"));
    // With a ticket of a host that the rules no longer allow.
    world.rules(&["*.example"], &[]);
    get_ticket(&world, &config, EVIL, "evil.example");
    world.rules(&["good.example"], &[]);
    let (accepted, answer) = request_early(&world, &config, EVIL, "evil.example");
    assert!(!accepted && answer.contains("AccessDenied"), "{accepted} {answer}");
    assert_eq!(captured(&evil), "visit");
    assert_eq!(captured(&good), format!("visitearly:{GET}"));
    assert_eq!(world.denials(), ["tcp evil.example:443 default"]);
}
