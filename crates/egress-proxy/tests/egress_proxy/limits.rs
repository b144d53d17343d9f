//! Limits: no sandbox can use up the resources of the proxy.

use crate::names::{addresses, ask, question};
use crate::servers::{always, resolver, web};
use crate::world::{GATEWAY, GOOD, OTHER, World, policy};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use isolet_wire::network::ProxyRequest;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};

/// The answer to a request from this address of the sandbox.
fn get(world: &World, from: Ipv4Addr) -> String {
    world.in_sandbox(|| {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .expect("a socket");
        rustix::net::bind(&socket, &std::net::SocketAddrV4::new(from, 0)).expect("its own address");
        rustix::net::connect(&socket, &std::net::SocketAddrV4::new(GOOD, 80))
            .expect("the proxy listens");
        let mut stream = TcpStream::from(socket);
        let _ = stream.write_all(b"GET / HTTP/1.0\r\nHost: good.example\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    })
}

/// Promises: R7.
#[test]
fn silent_connections_are_bounded_per_sandbox() {
    let world = World::new(&["good.example"], &[]);
    web(&world, GOOD, 80);
    resolver(&world, vec![("good.example", always(GOOD))]);
    world.send(&ProxyRequest::Set { address: OTHER, policy: policy(&["good.example"], &[]) });
    let silent: Vec<_> = (0..200).map(|_| world.connect(GOOD, 80)).collect();
    // Some send half a head, which does not count as a request.
    for mut stream in silent.iter().take(50) {
        let _ = stream.write_all(b"GE");
    }
    assert_eq!(get(&world, crate::world::SANDBOX), "");
    assert_eq!(world.denials(), ["tcp 198.51.100.10:80 limit"]);
    assert!(get(&world, OTHER).contains(" 200 "));
    drop(silent);
    while !get(&world, crate::world::SANDBOX).contains(" 200 ") {
        std::thread::yield_now();
    }
}

/// Promises: R7.
#[test]
fn dns_queries_are_bounded_per_sandbox() {
    let world = World::new(&["*.example"], &[]);
    let asked = resolver(&world, vec![("good.example", always(GOOD))]);
    assert_eq!(addresses(&world, "good.example"), Ok(vec![GOOD]));
    world.in_sandbox(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
        for number in 0..2_000 {
            let name = format!("data{number}.example");
            let question = question(&name, RecordType::A).to_vec().expect("encodes");
            let _ = socket.send_to(&question, (GATEWAY, 53));
        }
    });
    assert!(ask_until_refused(&world));
    assert!(world.denials().iter().any(|line| line.ends_with("limit")));
    let asked = asked.lock().expect("no thread panicked with the lock").len();
    assert!(asked < 1_500, "{asked} queries reached the resolver");
}

/// Asks until the proxy refuses a query because of the limit.
fn ask_until_refused(world: &World) -> bool {
    (0..500).any(|_| {
        let answer = ask(world, "good.example", RecordType::A);
        answer.metadata.response_code == ResponseCode::Refused
    })
}

/// Promises: R7.
#[test]
fn heads_are_bounded() {
    let world = World::new(&["good.example"], &[]);
    web(&world, GOOD, 80);
    resolver(&world, vec![("good.example", always(GOOD))]);
    addresses(&world, "good.example").expect("answered");
    let many = "X-Y: z\r\n".repeat(500);
    let long = format!("X-Y: {}\r\n", "z".repeat(200_000));
    for headers in [many, long] {
        let mut stream = world.connect(GOOD, 80);
        let head = format!("GET / HTTP/1.1\r\nHost: good.example\r\n{headers}\r\n");
        let _ = stream.write_all(head.as_bytes());
        let mut answer = [0; 12];
        let _ = stream.read(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 431") || answer == [0; 12], "{answer:?}");
    }
    // A ClientHello that never ends.
    let mut stream = world.connect(GOOD, 443);
    let mut record = vec![0x16, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0xff];
    record.resize(16 * 1024, 0);
    let ends = (0..100).any(|_| stream.write_all(&record).is_err());
    assert!(ends || !matches!(stream.read(&mut [0]), Ok(1..)));
}
