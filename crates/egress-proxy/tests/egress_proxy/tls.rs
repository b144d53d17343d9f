//! TLS: the rules decide about a connection by its SNI.

use crate::names::addresses;
use crate::servers::{Certificates, always, line, resolver};
use crate::world::{EVIL, GOOD, PRIVATE, SOON, World};
use std::io::{Read, Write};
use std::net::TcpStream;

const NAMES: [&str; 3] = ["good.example", "evil.example", "a.wild.example"];

/// A network with a TLS server on both hosts.
fn world(allow: &[&str], deny: &[&str]) -> (World, Certificates) {
    let world = World::new(allow, deny);
    let certificates = Certificates::new(&NAMES);
    certificates.serve(&world, GOOD, 443);
    certificates.serve(&world, EVIL, 443);
    resolver(
        &world,
        vec![
            ("good.example", always(GOOD)),
            ("evil.example", always(EVIL)),
            ("a.wild.example", always(GOOD)),
            ("inner.example", always(PRIVATE)),
        ],
    );
    (world, certificates)
}

/// The ClientHello of a client that connects to `name`; without SNI when that is an address.
pub(crate) fn hello(certificates: &Certificates, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    certificates.client(name).write_tls(&mut bytes).expect("a ClientHello");
    bytes
}

/// The code of the alert that the proxy answers with; `None`: no alert.
pub(crate) fn alert(mut stream: TcpStream, bytes: &[u8]) -> Option<u8> {
    stream.write_all(bytes).expect("the peer reads");
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).ok()?;
    (answer[..6] == [0x15, 3, 3, 0, 2, 2]).then_some(answer[6])
}

/// Promises: R2.
#[test]
fn tls_is_forwarded_by_its_sni() {
    let (world, certificates) = world(&["good.example", "*.wild.example:443"], &[]);
    let said = |to, name: &str| certificates.greeting(world.connect(to, 443), name);
    assert_eq!(addresses(&world, "good.example"), Ok(vec![GOOD]));
    assert_eq!(said(GOOD, "good.example"), Ok(format!("{GOOD} good.example")));
    assert_eq!(said(GOOD, "a.wild.example"), Ok(format!("{GOOD} a.wild.example")));
    // Another name at the address of a name that is allowed.
    assert!(said(GOOD, "evil.example").is_err());
    // A name that is allowed, at the address of another host: the proxy dials the address of the
    // name.
    assert_eq!(said(EVIL, "good.example"), Ok(format!("{GOOD} good.example")));
    assert_eq!(world.denials(), ["tcp evil.example:443 default"]);
    world.rules(&["evil.example"], &["good.example"]);
    assert!(said(GOOD, "good.example").is_err());
    assert_eq!(said(EVIL, "evil.example"), Ok(format!("{EVIL} evil.example")));
    assert_eq!(world.denials(), ["tcp good.example:443 good.example"]);
}

/// Promises: R5.
#[test]
fn a_denial_is_an_alert_and_is_reported_first() {
    let (world, certificates) = world(&["good.example"], &[]);
    let stream = world.connect(GOOD, 443);
    assert_eq!(alert(stream, &hello(&certificates, "evil.example")), Some(49));
    assert_eq!(world.denials(), ["tcp evil.example:443 default"]);
    // A client that connects to an address sends no SNI.
    assert_eq!(alert(world.connect(GOOD, 443), &hello(&certificates, "198.51.100.10")), Some(49));
    addresses(&world, "good.example").expect("answered");
    assert_eq!(alert(world.connect(GOOD, 443), &hello(&certificates, "198.51.100.10")), Some(49));
    assert_eq!(world.denials(), ["tcp 198.51.100.10:443 no name", "tcp good.example:443 no name"]);
    // Where the rules allow the address, no name is needed.
    world.rules(&["198.51.100.10:443"], &[]);
    let greeting = certificates.greeting(world.connect(GOOD, 443), "evil.example");
    assert_eq!(greeting, Ok(format!("{GOOD} evil.example")));
}

/// Promises: R2.
#[test]
fn names_that_lead_to_closed_addresses_are_not_dialled() {
    let (world, certificates) = world(&["*.example"], &[]);
    certificates.serve(&world, PRIVATE, 443);
    let hello = hello(&certificates, "inner.example");
    assert_eq!(alert(world.connect(EVIL, 443), &hello), Some(49));
    assert_eq!(world.denials(), ["tcp inner.example:443 private"]);
    // The proxy dials no address that a `deny` rule names, for any name.
    world.rules(&["*.example"], &["198.51.100.11"]);
    assert!(certificates.greeting(world.connect(GOOD, 443), "evil.example").is_err());
    assert_eq!(world.denials(), ["tcp evil.example:443 198.51.100.11"]);
}

/// Promises: R2.
#[test]
fn a_hello_in_pieces_is_the_same_hello() {
    let (world, certificates) = world(&["good.example"], &[]);
    for (name, goes) in [("good.example", true), ("evil.example", false)] {
        let whole = hello(&certificates, name);
        // One byte per segment.
        let mut stream = world.connect(GOOD, 443);
        stream.set_nodelay(true).expect("a socket");
        for byte in &whole {
            stream.write_all(&[*byte]).expect("the peer reads");
        }
        assert_eq!(first(&mut stream) == 0x16, goes, "{name} in segments");
        // One TLS record per eleven bytes.
        let mut records = Vec::new();
        for piece in whole[5..].chunks(11) {
            records.extend_from_slice(&[0x16, 3, 1, 0, piece.len() as u8]);
            records.extend_from_slice(piece);
        }
        let mut stream = world.connect(GOOD, 443);
        stream.write_all(&records).expect("the peer reads");
        assert_eq!(first(&mut stream) == 0x16, goes, "{name} in records");
    }
    assert_eq!(world.denials(), ["tcp evil.example:443 default"]);
}

fn first(stream: &mut TcpStream) -> u8 {
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("an answer");
    byte[0]
}

/// Promises: R2.
#[test]
fn a_name_that_may_be_hidden_counts_for_nothing() {
    let (world, certificates) = world(&["good.example"], &[]);
    // An `encrypted_client_hello` extension: type, cipher suite, config id, key, payload.
    let mut outer = vec![0, 0, 1, 0, 1, 7, 0, 32];
    outer.extend_from_slice(&[9; 32]);
    outer.extend_from_slice(&[0, 16]);
    outer.extend_from_slice(&[8; 16]);
    let hello = with_extension(&hello(&certificates, "good.example"), 0xfe0d, &outer);
    assert_eq!(alert(world.connect(GOOD, 443), &hello), Some(49));
    assert_eq!(world.denials(), ["tcp good.example:443 hidden name"]);
}

/// Promises: R2.
#[test]
fn two_names_are_none() {
    let (world, certificates) = world(&["good.example"], &[]);
    let mut name = b"\0\x0f\0\0\x0cevil.example".to_vec();
    let hello = with_extension(&hello(&certificates, "good.example"), 0, &name);
    let mut stream = world.connect(GOOD, 443);
    stream.write_all(&hello).expect("the peer reads");
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    // A name that is not a host name: rustls would ignore it, and a server might not.
    name[10] = b'/';
    let nameless = self::hello(&certificates, "198.51.100.10");
    let hello = with_extension(&nameless, 0, &name);
    let mut stream = world.connect(GOOD, 443);
    stream.write_all(&hello).expect("the peer reads");
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    assert_eq!(world.denials(), ["tcp 198.51.100.10:443 default"]);
}

/// The same ClientHello with one more extension.
fn with_extension(hello: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut extension = kind.to_be_bytes().to_vec();
    extension.extend_from_slice(&u16::try_from(data.len()).expect("short").to_be_bytes());
    extension.extend_from_slice(data);
    let mut message = hello[5..].to_vec();
    // The length of the extensions follows version, random, session, suites and compression.
    let session = 4 + 2 + 32;
    let suites = session + 1 + usize::from(message[session]);
    let compression =
        suites + 2 + usize::from(u16::from_be_bytes([message[suites], message[suites + 1]]));
    let length = compression + 1 + usize::from(message[compression]);
    let all = u16::from_be_bytes([message[length], message[length + 1]]) + extension.len() as u16;
    message[length..length + 2].copy_from_slice(&all.to_be_bytes());
    // Not at the end, because a `pre_shared_key` extension must be the last one.
    message.splice(length + 2..length + 2, extension);
    let body = u32::try_from(message.len() - 4).expect("short").to_be_bytes();
    message[1..4].copy_from_slice(&body[1..]);
    let mut record = vec![0x16, 3, 1];
    record.extend_from_slice(&u16::try_from(message.len()).expect("short").to_be_bytes());
    record.extend_from_slice(&message);
    record
}

/// Promises: R6.
#[test]
fn a_change_of_rules_ends_only_forbidden_connections() {
    let (world, certificates) = world(&["good.example", "evil.example"], &[]);
    let open = |to, name: &str| {
        let stream = world.connect(to, 443);
        stream.set_read_timeout(Some(SOON)).expect("the timeout is valid");
        let mut stream = rustls::StreamOwned::new(certificates.client(name), stream);
        line(&mut stream).expect("a greeting");
        stream
    };
    let mut good = open(GOOD, "good.example");
    let mut evil = open(EVIL, "evil.example");
    world.rules(&["good.example"], &[]);
    assert!(line(&mut evil).is_err());
    assert_eq!(world.denials(), ["tcp evil.example:443 default"]);
    good.write_all(b"still\n").expect("the connection stays open");
    assert_eq!(line(&mut good), Ok("still".to_owned()));
    world.guard(vec![GOOD], &[]);
    assert!(line(&mut good).is_err());
    assert_eq!(world.denials(), ["tcp good.example:443 host"]);
}
