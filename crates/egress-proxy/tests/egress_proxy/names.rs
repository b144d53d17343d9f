//! DNS: which queries the proxy answers.

use crate::servers::{a, always, resolver};
use crate::world::{EVIL, GATEWAY, GOOD, METADATA, PRIVATE, SANDBOX, SOON, World};
use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, TXT};
use hickory_proto::rr::{Name, RData, RecordType};
use isolet_wire::network::ProxyRequest;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Time before an unanswered query is sent again.
const AGAIN: Duration = Duration::from_secs(2);

/// A DNS query with EDNS for the records of one type.
pub(crate) fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    let name = Name::from_ascii(format!("{name}.")).expect("a name");
    message.queries.push(Query::query(name, kind));
    message.edns = Some(Edns::new());
    message
}

/// The response to a query of the sandbox by UDP.
pub(crate) fn ask(world: &World, name: &str, kind: RecordType) -> Message {
    let bytes = question(name, kind).to_vec().expect("encodes");
    world.in_sandbox(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
        socket.set_read_timeout(Some(AGAIN)).expect("the timeout is valid");
        let begun = Instant::now();
        let mut packet = [0; 2048];
        // A datagram may be lost: it is sent again, as every resolver does.
        let length = loop {
            socket.send_to(&bytes, (GATEWAY, 53)).expect("sent");
            match socket.recv(&mut packet) {
                Ok(length) => break length,
                Err(error) => assert!(begun.elapsed() < SOON, "no answer in time: {error}"),
            }
        };
        Message::from_vec(&packet[..length]).expect("a message")
    })
}

/// The addresses that the sandbox gets for a name.
pub(crate) fn addresses(world: &World, name: &str) -> Result<Vec<Ipv4Addr>, ResponseCode> {
    let answer = ask(world, name, RecordType::A);
    match answer.metadata.response_code {
        ResponseCode::NoError => Ok(answer
            .answers
            .iter()
            .map(|one| match &one.data {
                RData::A(address) => address.0,
                other => panic!("the response has {other:?}"),
            })
            .collect()),
        code => Err(code),
    }
}

/// Promises: R1.
#[test]
fn names_are_answered_by_rule_and_denials_are_reported() {
    let world = World::new(&["good.example", "*.wild.example:443"], &["bad.wild.example"]);
    let asked = resolver(
        &world,
        vec![
            ("good.example", always(GOOD)),
            ("evil.example", always(EVIL)),
            ("a.wild.example", always(GOOD)),
            ("bad.wild.example", always(GOOD)),
        ],
    );
    assert_eq!(addresses(&world, "good.example"), Ok(vec![GOOD]));
    assert_eq!(addresses(&world, "GOOD.example"), Ok(vec![GOOD]));
    assert_eq!(addresses(&world, "a.wild.example"), Ok(vec![GOOD]));
    assert_eq!(addresses(&world, "none.wild.example"), Err(ResponseCode::NXDomain));
    assert_eq!(world.denials(), [""; 0]);
    for name in ["evil.example", "bad.wild.example", "wild.example", "4.3.2.1.in-addr.arpa"] {
        assert_eq!(addresses(&world, name), Err(ResponseCode::NXDomain), "{name}");
    }
    assert_eq!(
        world.denials(),
        [
            "dns bad.wild.example bad.wild.example",
            "dns evil.example default",
            "dns wild.example default"
        ]
    );
    let asked = asked.lock().expect("no thread panicked with the lock").clone();
    assert!(!asked.iter().any(|line| line.contains("evil") || line.contains("bad")), "{asked:?}");
    // The second query was answered from the cache.
    assert_eq!(asked.iter().filter(|line| *line == "A good.example.").count(), 1);
    world.rules(&["evil.example"], &[]);
    assert_eq!(addresses(&world, "evil.example"), Ok(vec![EVIL]));
    assert_eq!(addresses(&world, "good.example"), Err(ResponseCode::NXDomain));
}

/// Promises: R5.
#[test]
fn a_dns_denial_carries_an_extended_error() {
    let world = World::new(&[], &["bad.example"]);
    let answer = ask(&world, "bad.example", RecordType::A);
    let edns = answer.edns.expect("the query has EDNS, so the response has it");
    let said = format!("{:?}", edns.options());
    let text: Vec<u8> = [0_u8, 15].iter().chain(b"isolet: rule bad.example").copied().collect();
    assert!(said.contains(&format!("{text:?}").trim_matches(['[', ']']).to_owned()), "{said}");
}

/// Promises: R1.
#[test]
fn addresses_that_are_closed_are_never_answered() {
    let world = World::new(&["*.example"], &[]);
    let turns = move |before: usize| vec![a(if before == 0 { GOOD } else { PRIVATE })];
    resolver(
        &world,
        vec![
            ("private.example", always(PRIVATE)),
            ("metadata.example", always(METADATA)),
            ("host.example", always(crate::world::HOST)),
            ("loop.example", always(Ipv4Addr::LOCALHOST)),
            ("both.example", Box::new(|_| vec![a(PRIVATE), a(GOOD)])),
            ("turns.example", Box::new(turns)),
        ],
    );
    for name in ["private", "metadata", "host", "loop"] {
        let name = format!("{name}.example");
        assert_eq!(addresses(&world, &name), Err(ResponseCode::NXDomain), "{name}");
    }
    assert_eq!(
        world.denials(),
        [
            "dns host.example host",
            "dns loop.example loopback",
            "dns metadata.example link-local",
            "dns private.example private"
        ]
    );
    assert_eq!(addresses(&world, "both.example"), Ok(vec![GOOD]));
    // Rebinding: the cached answer stays, and a new answer is checked again.
    for _ in 0..3 {
        assert_eq!(addresses(&world, "turns.example"), Ok(vec![GOOD]));
    }
    world.guard(Vec::new(), &[(PRIVATE, 32)]);
    assert_eq!(addresses(&world, "private.example"), Ok(vec![PRIVATE]));
}

/// Promises: R1.
#[test]
fn no_other_record_type_bypasses_the_rules() {
    let world = World::new(&["good.example"], &[]);
    let alias = RData::CNAME(CNAME(Name::from_ascii("cdn.other.example.").expect("a name")));
    let text = RData::TXT(TXT::new(vec!["hello".to_owned()]));
    let all = move |_| vec![alias.clone(), a(GOOD), text.clone()];
    let asked = resolver(
        &world,
        vec![("good.example", Box::new(all)), ("cdn.other.example", always(GOOD))],
    );
    // The response omits the alias, and the alias allows nothing.
    assert_eq!(addresses(&world, "good.example"), Ok(vec![GOOD]));
    assert_eq!(addresses(&world, "cdn.other.example"), Err(ResponseCode::NXDomain));
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB] {
        let answer = ask(&world, "good.example", kind);
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{kind}");
        assert!(answer.answers.is_empty(), "{kind}");
    }
    let answer = ask(&world, "good.example", RecordType::TXT);
    assert!(matches!(&answer.answers[..], [one] if one.record_type() == RecordType::TXT));
    for kind in [RecordType::ANY, RecordType::AXFR, RecordType::NULL] {
        let answer = ask(&world, "good.example", kind);
        assert_eq!(answer.metadata.response_code, ResponseCode::NotImp, "{kind}");
        assert!(answer.answers.is_empty(), "{kind}");
    }
    for name in ["evil.example", "secret-data-in-a-label.evil.example"] {
        for kind in [RecordType::TXT, RecordType::MX, RecordType::NS] {
            let answer = ask(&world, name, kind);
            assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{kind}");
        }
    }
    let asked = asked.lock().expect("no thread panicked with the lock").clone();
    assert!(!asked.iter().any(|line| line.contains("evil")), "{asked:?}");
}

/// Promises: R1.
#[test]
fn names_are_answered_by_tcp_and_nonsense_is_not_answered() {
    let world = World::new(&["good.example"], &[]);
    resolver(&world, vec![("good.example", always(GOOD))]);
    let question = question("good.example", RecordType::A).to_vec().expect("encodes");
    let mut framed = u16::try_from(question.len()).expect("short").to_be_bytes().to_vec();
    framed.extend_from_slice(&question);
    let mut stream =
        world.in_sandbox(|| TcpStream::connect((GATEWAY, 53)).expect("the proxy listens"));
    stream.set_read_timeout(Some(SOON)).expect("the timeout is valid");
    for _ in 0..2 {
        stream.write_all(&framed).expect("the peer reads");
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("an answer");
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(Message::from_vec(&answer).expect("a message").answers.len(), 1);
    }
    stream.write_all(&[0, 3, 1, 2, 3]).expect("the peer reads");
    assert_eq!(stream.read(&mut [0]).expect("the end of the stream"), 0);
    let mut response = Message::from_vec(&question).expect("a message");
    response.metadata.message_type = hickory_proto::op::MessageType::Response;
    let noise = [vec![], vec![0; 11], vec![255; 40], response.to_vec().expect("encodes")];
    world.in_sandbox(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
        for packet in &noise {
            socket.send_to(packet, (GATEWAY, 53)).expect("sent");
        }
        socket.set_read_timeout(Some(SOON)).expect("the timeout is valid");
        socket.send_to(&question, (GATEWAY, 53)).expect("sent");
        let mut packet = [0; 2048];
        let length = socket.recv(&mut packet).expect("an answer");
        // The first response belongs to the valid query.
        let answer = Message::from_vec(&packet[..length]).expect("a message");
        assert_eq!(answer.answers.len(), 1);
    });
    world.send(&ProxyRequest::Forget { address: SANDBOX });
    world.settle();
    assert!(world.in_sandbox(|| {
        let mut stream = TcpStream::connect((GATEWAY, 53)).expect("the proxy listens");
        let _ = stream.write_all(&framed);
        !matches!(stream.read(&mut [0]), Ok(1..))
    }));
}
