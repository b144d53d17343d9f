//! Credentials reach the host that they are for, and never the sandbox.

use crate::servers::{Certificates, ReceivedHeads, always, resolver, trusting, web};
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

/// Sets the credentials of the sandbox; returns the configuration of a client that trusts the
/// authority that the proxy reports.
pub(crate) fn set_credentials(
    world: &World,
    credentials: Vec<Credential>,
    tls: bool,
) -> Option<Arc<ClientConfig>> {
    authority(world, credentials, tls).map(trusting)
}

/// Sets the credentials of the sandbox; returns the certificate of the authority that the proxy
/// reports.
pub(crate) fn authority(
    world: &World,
    credentials: Vec<Credential>,
    tls: bool,
) -> Option<CertificateDer<'static>> {
    world.send(&ProxyRequest::SetCredentials { address: SANDBOX, credentials, tls });
    let reports = world.reports();
    assert!(!format!("{reports:?}").contains(VALUE));
    reports.into_iter().find_map(|response| match response {
        ProxyResponse::Authority { address: SANDBOX, certificate } => {
            assert!(!certificate.contains("PRIVATE"));
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
            Some(certificate.expect("a certificate"))
        }
        _ => None,
    })
}

/// The answer to a request of the sandbox over TLS, or the error.
pub(crate) fn request_over_tls(
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

pub(crate) fn heads(heard: &ReceivedHeads) -> String {
    heard.lock().expect("no thread panicked with the lock").concat()
}

/// A network with two TLS web servers, of which the proxy trusts one.
pub(crate) fn world() -> (World, Certificates, ReceivedHeads, ReceivedHeads, tempfile::NamedTempFile)
{
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
    let trust = set_credentials(&world, all, true).expect("an authority");
    let get = |host: &str| format!("GET /me HTTP/1.1\r\nHost: {host}\r\nX-Api-Key: mine\r\n\r\n");
    let answer = request_over_tls(&world, &trust, GOOD, "api.example", &get("api.example"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("api.example"), "{answer}");
    let head = heads(&good);
    assert!(head.to_ascii_lowercase().contains(&format!("x-api-key: {VALUE}\r\n")), "{head}");
    assert!(!head.contains("mine"), "{head}");
    // The `Host` of a request must be the SNI of its connection.
    let answer = request_over_tls(&world, &trust, GOOD, "api.example", &get("other.example"));
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    // The host would send back what it received.
    let trace = get("api.example").replace("GET", "TRACE");
    world.denials();
    assert!(
        request_over_tls(&world, &trust, GOOD, "api.example", &trace).starts_with("HTTP/1.1 421")
    );
    assert_eq!(world.denials(), ["tcp api.example:443 trace"]);
    // The proxy terminates TLS for no host without credentials.
    let plain = known.request(&world, GOOD, "other.example", &get("other.example"));
    assert!(plain.starts_with("HTTP/1.1 200"), "{plain}");
    assert!(
        request_over_tls(&world, &trust, GOOD, "other.example", &get("other.example"))
            .contains("certificate")
    );
    // A host whose certificate cannot be verified gets nothing.
    let answer = request_over_tls(&world, &trust, EVIL, "false.example", &get("false.example"));
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(heads(&evil), "");
    world.denials();
    // A sandbox that does not trust the authority gets a certificate error.
    let answer = known.request(&world, GOOD, "api.example", &get("api.example"));
    assert!(answer.contains("certificate"), "{answer}");
    let mut refused = Vec::new();
    while refused.is_empty() {
        refused = world.denials();
    }
    assert_eq!(refused, ["tcp api.example:443 certificate"]);
    // The credentials are removed.
    assert!(set_credentials(&world, Vec::new(), true).is_some());
    let answer = known.request(&world, GOOD, "api.example", &get("api.example"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(heads(&good).matches(VALUE).count(), 1);
}

/// Promises: R9.
#[test]
fn rules_also_decide_about_hosts_with_credentials() {
    let (world, _, good, _, _roots) = world();
    let all = vec![credential("api.example", None, Some("KEY"))];
    let trust = set_credentials(&world, all, true).expect("an authority");
    let get = "GET / HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer KEY\r\n\r\n";
    assert!(request_over_tls(&world, &trust, GOOD, "api.example", get).starts_with("HTTP/1.1 200"));
    assert!(heads(&good).contains(&format!("Bearer {VALUE}")));
    world.rules(&["other.example"], &[]);
    let answer = request_over_tls(&world, &trust, GOOD, "api.example", get);
    assert!(!answer.starts_with("HTTP"), "{answer}");
    assert_eq!(world.denials(), ["tcp api.example:443 default"]);
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
    assert!(set_credentials(&world, all, false).is_none());
    for (at, host) in [(GOOD, "api.example"), (EVIL, "near.example")] {
        let mut stream = world.connect(at, 80);
        let request =
            format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close, X-Api-Key\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("the peer reads");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.contains(" 200 ") && !answer.contains(VALUE), "{answer}");
    }
    assert!(!heads(&api).contains(VALUE) && heads(&near).contains(VALUE));
}

/// A sandbox with access to every address once sent the name of a host to the address of another
/// one, which then received the credential.
/// Promises: Q22.
#[test]
fn a_credential_goes_only_to_addresses_that_its_host_resolves_to() {
    let world = World::new(&["*"], &[]);
    resolver(&world, vec![("api.example", always(GOOD))]);
    let good = web(&world, GOOD, 80);
    let evil = web(&world, EVIL, 80);
    let ask = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n").expect("the peer reads");
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).expect("it answers");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    let mut before = world.connect(EVIL, 80);
    assert!(ask(&mut before).contains(" 200 "));
    assert_eq!(
        heads(&evil).matches("api.example").count(),
        1,
        "without credentials the request goes to the address"
    );
    assert!(
        set_credentials(&world, vec![credential("api.example:80", Some("X-Key"), None)], false)
            .is_none()
    );
    assert!(ask(&mut before).contains(" 200 "), "on a connection from before");
    assert!(ask(&mut world.connect(EVIL, 80)).contains(" 200 "), "on a new connection");
    assert_eq!(heads(&good).matches(VALUE).count(), 2);
    assert!(!heads(&evil).contains(VALUE), "{}", heads(&evil));
}
