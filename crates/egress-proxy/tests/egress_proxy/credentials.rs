//! Credentials: with the host that they are for, and never inside.

use crate::servers::{Certificates, Heard, always, resolver, trusting, web};
use crate::world::{EVIL, GOOD, SANDBOX, World};
use isolet_wire::credential::{Credential, Secret};
use isolet_wire::network::{ProxyRequest, ProxyResponse, Rule};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::sync::Arc;

pub(crate) const VALUE: &str = "canary-71f0c2";

pub(crate) fn credential(to: &str, header: Option<&str>, placeholder: Option<&str>) -> Credential {
    Credential {
        to: Rule::parse(to).expect("a rule"),
        header: header.map(str::to_owned),
        placeholder: placeholder.map(str::to_owned),
        value: Secret::new(VALUE.to_owned()),
    }
}

/// Lends; a client that trusts the authority that is told then.
pub(crate) fn lend(
    world: &World,
    credentials: Vec<Credential>,
    tls: bool,
) -> Option<Arc<ClientConfig>> {
    authority(world, credentials, tls).map(trusting)
}

/// Lends; the authority that is told then.
pub(crate) fn authority(
    world: &World,
    credentials: Vec<Credential>,
    tls: bool,
) -> Option<CertificateDer<'static>> {
    world.order(&ProxyRequest::Lend { address: SANDBOX, credentials, tls });
    let told = world.heard();
    assert!(!format!("{told:?}").contains(VALUE));
    told.into_iter().find_map(|tell| match tell {
        ProxyResponse::Authority { address: SANDBOX, certificate } => {
            assert!(!certificate.contains("PRIVATE"));
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
            Some(certificate.expect("a certificate"))
        }
        _ => None,
    })
}

/// What is answered within TLS to a sandbox that trusts this.
pub(crate) fn asked(
    world: &World,
    trust: &Arc<ClientConfig>,
    at: Ipv4Addr,
    name: &str,
    request: &str,
) -> String {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let client = ClientConnection::new(trust.clone(), name).expect("a client");
    let mut stream = rustls::StreamOwned::new(client, world.connect(at, 443));
    if let Err(error) = stream.write_all(request.as_bytes()) {
        return format!("{error}");
    }
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).unwrap_or(0);
    let _ = stream.sock.shutdown(Shutdown::Both);
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

pub(crate) fn heads(heard: &Heard) -> String {
    heard.lock().expect("nobody panics with it").concat()
}

/// A world with two web servers within TLS, of which the host trusts one.
pub(crate) fn world() -> (World, Certificates, Heard, Heard, tempfile::NamedTempFile) {
    let known = Certificates::new(&["api.example", "other.example"]);
    let unknown = Certificates::new(&["false.example"]);
    let mut roots = tempfile::NamedTempFile::new().expect("a file");
    roots.write_all(known.pem.as_bytes()).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(roots.path(), mode).expect("ours");
    let world = World::trusting(roots.path(), &["*.example"], &[]);
    resolver(
        &world,
        vec![
            ("api.example", always(GOOD)),
            ("other.example", always(GOOD)),
            ("false.example", always(EVIL)),
        ],
    );
    let good = known.web(&world, GOOD, 443);
    let evil = unknown.web(&world, EVIL, 443);
    (world, known, good, evil, roots)
}

/// Promises: R9.
#[test]
fn a_credential_reaches_its_host_within_tls_and_never_comes_inside() {
    let (world, known, good, evil, _roots) = world();
    let all = vec![
        credential("api.example", Some("X-Api-Key"), None),
        credential("false.example", Some("X-Api-Key"), None),
    ];
    let trust = lend(&world, all, true).expect("an authority");
    let get = |host: &str| format!("GET /me HTTP/1.1\r\nHost: {host}\r\nX-Api-Key: mine\r\n\r\n");
    let answer = asked(&world, &trust, GOOD, "api.example", &get("api.example"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("api.example"), "{answer}");
    let head = heads(&good);
    assert!(head.to_ascii_lowercase().contains(&format!("x-api-key: {VALUE}\r\n")), "{head}");
    assert!(!head.contains("mine"), "{head}");
    // Whoever is asked for within must be whom TLS was spoken with.
    let answer = asked(&world, &trust, GOOD, "api.example", &get("other.example"));
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    // A host that would send back what it was sent.
    let trace = get("api.example").replace("GET", "TRACE");
    world.refused();
    assert!(asked(&world, &trust, GOOD, "api.example", &trace).starts_with("HTTP/1.1 421"));
    assert_eq!(world.refused(), ["tcp api.example:443 trace"]);
    // Nobody is in the place of a host that nothing is lent for.
    let plain = known.greeted(&world, GOOD, "other.example", &get("other.example"));
    assert!(plain.starts_with("HTTP/1.1 200"), "{plain}");
    assert!(
        asked(&world, &trust, GOOD, "other.example", &get("other.example")).contains("certificate")
    );
    // A host that is not proven to be itself gets nothing.
    let answer = asked(&world, &trust, EVIL, "false.example", &get("false.example"));
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(heads(&evil), "");
    world.refused();
    // A sandbox that does not trust the authority is told so.
    let answer = known.greeted(&world, GOOD, "api.example", &get("api.example"));
    assert!(answer.contains("certificate"), "{answer}");
    let mut refused = Vec::new();
    while refused.is_empty() {
        refused = world.refused();
    }
    assert_eq!(refused, ["tcp api.example:443 certificate"]);
    // Taken back.
    assert!(lend(&world, Vec::new(), true).is_some());
    let answer = known.greeted(&world, GOOD, "api.example", &get("api.example"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(heads(&good).matches(VALUE).count(), 1);
}

/// Promises: R9.
#[test]
fn a_rule_still_decides_where_a_credential_is_lent() {
    let (world, _, good, _, _roots) = world();
    let all = vec![credential("api.example", None, Some("KEY"))];
    let trust = lend(&world, all, true).expect("an authority");
    let get = "GET / HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer KEY\r\n\r\n";
    assert!(asked(&world, &trust, GOOD, "api.example", get).starts_with("HTTP/1.1 200"));
    assert!(heads(&good).contains(&format!("Bearer {VALUE}")));
    world.rules(&["other.example"], &[]);
    let answer = asked(&world, &trust, GOOD, "api.example", get);
    assert!(!answer.starts_with("HTTP"), "{answer}");
    assert_eq!(world.refused(), ["tcp api.example:443 default"]);
}

/// Promises: R9.
#[test]
fn plain_http_has_a_credential_only_where_its_port_is_named() {
    let world = World::new(&["*.example"], &[]);
    resolver(&world, vec![("api.example", always(GOOD)), ("near.example", always(EVIL))]);
    let api = web(&world, GOOD, 80);
    let near = web(&world, EVIL, 80);
    let all = vec![
        credential("api.example", Some("X-Api-Key"), None),
        credential("near.example:80", Some("X-Api-Key"), None),
    ];
    assert!(lend(&world, all, false).is_none());
    for (at, host) in [(GOOD, "api.example"), (EVIL, "near.example")] {
        let mut stream = world.connect(at, 80);
        let request =
            format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close, X-Api-Key\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.contains(" 200 ") && !answer.contains(VALUE), "{answer}");
    }
    assert!(!heads(&api).contains(VALUE) && heads(&near).contains(VALUE));
}

/// A sandbox that may connect to any address said the name of a host to another one, and that one
/// was sent what is lent for the host.
/// Promises: Q22.
#[test]
fn what_is_lent_goes_to_no_address_that_the_sandbox_takes_for_its_host() {
    let world = World::new(&["*"], &[]);
    resolver(&world, vec![("api.example", always(GOOD))]);
    let good = web(&world, GOOD, 80);
    let evil = web(&world, EVIL, 80);
    let ask = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n").expect("it reads");
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).expect("it answers");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    let mut before = world.connect(EVIL, 80);
    assert!(ask(&mut before).contains(" 200 "));
    assert_eq!(heads(&evil).matches("api.example").count(), 1, "nothing is lent: it may");
    assert!(lend(&world, vec![credential("api.example:80", Some("X-Key"), None)], false).is_none());
    assert!(ask(&mut before).contains(" 200 "), "a connection that stood");
    assert!(ask(&mut world.connect(EVIL, 80)).contains(" 200 "), "and a new one");
    assert_eq!(heads(&good).matches(VALUE).count(), 2);
    assert!(!heads(&evil).contains(VALUE), "{}", heads(&evil));
}
