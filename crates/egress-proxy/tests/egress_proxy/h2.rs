//! HTTP/2, whose requests name their host in `:authority`. Where the proxy reads requests it speaks
//! only HTTP/1.1, so that no request can name another host than the one that the rules decided
//! about. Where it does not read them, the SNI decides where they go.

use crate::credentials::{credential, heads, set_credentials, world as credential_world};
use crate::names::addresses;
use crate::servers::{Certificates, always, line, resolver, web};
use crate::world::{EVIL, GOOD, World};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

/// The first bytes of a client: the preface, empty settings, and a request with this `:authority`.
fn opening(authority: &str) -> Vec<u8> {
    // Indexed: `:method: GET`, `:scheme: https`, `:path: /`; then a literal of the static
    // table's first name.
    let mut block = vec![0x82, 0x87, 0x84, 0x01, u8::try_from(authority.len()).expect("short")];
    block.extend_from_slice(authority.as_bytes());
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let length = u8::try_from(block.len()).expect("short");
    // HEADERS of stream 1, with END_STREAM and END_HEADERS.
    bytes.extend_from_slice(&[0, 0, length, 1, 5, 0, 0, 0, 1]);
    bytes.extend_from_slice(&block);
    bytes
}

/// Whether these bytes begin with an HTTP/2 frame other than `GOAWAY`.
fn speaks_h2(answer: &[u8]) -> bool {
    const SETTINGS: u8 = 4;
    answer.len() >= 9 && answer[3] == SETTINGS && !answer.starts_with(b"HTTP/")
}

fn everything(stream: &mut impl Read) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The next denials. The proxy reports an invalid request when its connection has ended.
fn next_refusals(world: &World) -> Vec<String> {
    loop {
        let refused = world.denials();
        if !refused.is_empty() {
            return refused;
        }
    }
}

fn offering(trust: &Arc<ClientConfig>, alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = (**trust).clone();
    config.alpn_protocols = alpn.iter().map(|it| it.to_vec()).collect();
    Arc::new(config)
}

fn tls(
    world: &World,
    trust: &Arc<ClientConfig>,
    at: Ipv4Addr,
    name: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let client = ClientConnection::new(trust.clone(), name).expect("a client");
    StreamOwned::new(client, world.connect(at, 443))
}

/// Promises: R12.
#[test]
fn http_2_without_tls_is_no_request_whatever_its_authority() {
    let world = World::new(&["good.example"], &[]);
    let good = web(&world, GOOD, 80);
    let evil = web(&world, EVIL, 80);
    resolver(&world, vec![("good.example", always(GOOD)), ("evil.example", always(EVIL))]);
    addresses(&world, "good.example").expect("answered");
    for authority in ["good.example", "evil.example"] {
        let mut stream = world.connect(GOOD, 80);
        stream.write_all(&opening(authority)).expect("the peer reads");
        let answer = everything(&mut stream);
        assert!(!speaks_h2(&answer), "{answer:?}");
    }
    // After a valid request, and by an upgrade.
    let get = "GET / HTTP/1.1\r\nHost: good.example\r\n";
    let upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n";
    for first in [format!("{get}\r\n"), format!("{get}{upgrade}\r\n")] {
        let mut stream = world.connect(GOOD, 80);
        stream
            .write_all(&[first.as_bytes(), &opening("evil.example")].concat())
            .expect("the peer reads");
        let answer = String::from_utf8_lossy(&everything(&mut stream)).into_owned();
        assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains(" 101 "), "{answer}");
    }
    assert_eq!(heads(&good).matches("GET / ").count(), 2, "{}", heads(&good));
    assert!(!heads(&good).contains("PRI") && heads(&evil).is_empty());
    assert_eq!(next_refusals(&world), ["tcp good.example:80 bad request"]);
}

/// Promises: R12.
#[test]
fn where_tls_ends_at_the_proxy_http_2_is_not_spoken_and_no_authority_has_a_credential() {
    let (world, _, good, evil, _roots) = credential_world();
    let all = vec![
        credential("api.example", Some("X-Key"), None),
        credential("other.example", Some("X-Key"), None),
    ];
    let trust = set_credentials(&world, all, true).expect("an authority");
    // A client that offers only HTTP/2 gets a TLS alert.
    let mut stream = tls(&world, &offering(&trust, &[b"h2"]), GOOD, "api.example");
    let refused = stream.write_all(&opening("api.example")).and_then(|()| line_or_end(&mut stream));
    let said = refused.expect_err("no protocol in common").to_string();
    assert!(said.contains("NoApplicationProtocol"), "{said}");
    assert_eq!(next_refusals(&world), ["tcp api.example:443 bad request"]);
    // A client that offers both gets HTTP/1.1; one that offers nothing may still begin with HTTP/2.
    for alpn in [&[&b"h2"[..], b"http/1.1"][..], &[]] {
        for authority in ["api.example", "other.example", "false.example", "198.51.100.11"] {
            let mut stream = tls(&world, &offering(&trust, alpn), GOOD, "api.example");
            stream.write_all(&opening(authority)).expect("the peer reads");
            let answer = everything(&mut stream);
            assert!(!speaks_h2(&answer), "{authority}: {answer:?}");
            let agreed = stream.conn.alpn_protocol();
            assert_eq!(agreed, (!alpn.is_empty()).then_some(&b"http/1.1"[..]));
        }
    }
    assert_eq!((heads(&good), heads(&evil)), (String::new(), String::new()));
    assert!(next_refusals(&world).iter().all(|line| line.ends_with(":443 bad request")));
}

fn line_or_end(stream: &mut impl Read) -> std::io::Result<()> {
    stream.read(&mut [0; 64]).map(drop)
}

/// The proxy does not read inside TLS: it forwards the connection to the host that the SNI names,
/// so an `:authority` of another host reaches only the host of the SNI.
/// Promises: R12.
#[test]
fn where_tls_goes_through_another_authority_within_reaches_the_named_host_alone() {
    let world = World::new(&["good.example"], &[]);
    let certificates = Certificates::new(&["good.example", "evil.example"]);
    let good = certificates.capture(&world, GOOD, 443, &[b"h2"]);
    let evil = certificates.capture(&world, EVIL, 443, &[b"h2"]);
    resolver(&world, vec![("good.example", always(GOOD)), ("evil.example", always(EVIL))]);
    let trust = offering(&certificates.trust(), &[b"h2"]);
    // Also where the sandbox connects to the address of the other host.
    for at in [GOOD, EVIL] {
        let mut stream = tls(&world, &trust, at, "good.example");
        stream.write_all(&opening("evil.example")).expect("the peer reads");
        assert_eq!(line(&mut stream), Ok("hello".to_owned()));
        assert_eq!(line(&mut stream), Ok("received".to_owned()));
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    }
    let mut stream = tls(&world, &trust, EVIL, "evil.example");
    let refused =
        stream.write_all(&opening("good.example")).and_then(|()| line_or_end(&mut stream));
    assert!(refused.expect_err("an alert").to_string().contains("AccessDenied"));
    let good = good.lock().expect("no thread panicked with the lock").clone();
    assert_eq!(good, [opening("evil.example"), opening("evil.example")].concat());
    assert!(evil.lock().expect("no thread panicked with the lock").is_empty());
    assert_eq!(world.denials(), ["tcp evil.example:443 default"]);
}
