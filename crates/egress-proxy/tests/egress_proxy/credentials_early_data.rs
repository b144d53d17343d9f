//! Early data: what a client of TLS 1.3 sends before it knows who answers.

use crate::lent::{VALUE, authority, credential, heads, world as lent_world};
use crate::servers::{Captured, Certificates, always, line, resolver, trusting_all};
use crate::world::{EVIL, GOOD, RESOLVER, World};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

const GET: &str = "GET /early HTTP/1.1\r\nHost: api.example\r\nX-Key: ISOLET_KEY\r\n\r\n";

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn eager(trust: &Arc<ClientConfig>) -> Arc<ClientConfig> {
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
fn visited(world: &World, config: &Arc<ClientConfig>, at: Ipv4Addr, name: &str) {
    let mut stream = tls(world, config, at, name);
    stream.write_all(b"visit").expect("it reads");
    assert_eq!(line(&mut stream), Ok("hello".to_owned()));
    assert_eq!(line(&mut stream), Ok("kept".to_owned()));
}

/// Puts the request into the first flight, then speaks on; whether it was taken, and the answer.
fn early(world: &World, config: &Arc<ClientConfig>, at: Ipv4Addr, name: &str) -> (bool, String) {
    let mut stream = tls(world, config, at, name);
    let mut first = stream.conn.early_data().expect("it has a ticket");
    first.write_all(GET.as_bytes()).expect("short enough");
    if let Err(error) = stream.flush().and_then(|()| complete(&mut stream)) {
        return (false, error.to_string());
    }
    let taken = stream.conn.is_early_data_accepted();
    if !taken {
        stream.write_all(GET.as_bytes()).expect("it reads");
    }
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).unwrap_or(0);
    (taken, String::from_utf8_lossy(&answer[..length]).into_owned())
}

fn complete(stream: &mut Tls) -> std::io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}

fn kept(heard: &Captured) -> String {
    String::from_utf8_lossy(&heard.lock().expect("nobody panics with it")).into_owned()
}

/// The proxy takes no early data, which somebody could repeat: a client that has a ticket of the
/// host itself sends its request again within the handshake's keys, and it goes on once.
/// Promises: R12.
#[test]
fn where_tls_ends_at_the_proxy_early_data_is_not_taken_and_a_request_goes_on_once() {
    let (world, _, good, _, _roots) = lent_world();
    let tickets = Certificates::new(&["api.example"]);
    // While nothing is lent the sandbox speaks with a host that gives such tickets.
    tickets.keep(&world, RESOLVER, 443, &[]);
    world.rules(&["198.51.100.1:443"], &[]);
    let proxy = authority(&world, Vec::new(), true).expect("an authority");
    let both = eager(&trusting_all([proxy, tickets.certificate.clone()]));
    visited(&world, &both, RESOLVER, "api.example");
    world.rules(&["*.example"], &[]);
    authority(&world, vec![credential("api.example", None, Some("ISOLET_KEY"))], true);
    let (taken, answer) = early(&world, &both, GOOD, "api.example");
    assert!(!taken && answer.starts_with("HTTP/1.1 200"), "{taken} {answer}");
    let heads = heads(&good);
    assert_eq!(heads.matches("GET /early").count(), 1, "{heads}");
    assert_eq!(heads.matches(VALUE).count(), 1, "{heads}");
}

/// Promises: R12.
#[test]
fn where_tls_goes_through_early_data_goes_with_the_name_and_nowhere_else() {
    let world = World::new(&["good.example"], &[]);
    let certificates = Certificates::new(&["good.example", "evil.example"]);
    let good = certificates.keep(&world, GOOD, 443, &[]);
    let evil = certificates.keep(&world, EVIL, 443, &[]);
    resolver(&world, vec![("good.example", always(GOOD)), ("evil.example", always(EVIL))]);
    let config = eager(&certificates.trust());
    visited(&world, &config, GOOD, "good.example");
    let (taken, answer) = early(&world, &config, GOOD, "good.example");
    assert!(taken && answer.starts_with("hello"), "{taken} {answer}");
    assert_eq!(kept(&good), format!("visitearly:{GET}"));
    // With a ticket of a host that the rules do not allow any longer.
    world.rules(&["*.example"], &[]);
    visited(&world, &config, EVIL, "evil.example");
    world.rules(&["good.example"], &[]);
    let (taken, answer) = early(&world, &config, EVIL, "evil.example");
    assert!(!taken && answer.contains("AccessDenied"), "{taken} {answer}");
    assert_eq!(kept(&evil), "visit");
    assert_eq!(kept(&good), format!("visitearly:{GET}"));
    assert_eq!(world.refused(), ["tcp evil.example:443 default"]);
}
