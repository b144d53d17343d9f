//! Attempts to bypass the rules: other protocols, closed addresses, the proxy's own ports, and the
//! proxy itself.

use crate::names::addresses;
use crate::servers::{always, banner, line, resolver, source};
use crate::world::{
    EVIL, GATEWAY, GOOD, HOST, METADATA, OTHER, PRIVATE, SANDBOX, SOON, World, policy,
};
use isolet_wire::network::{ProxyRequest, ProxyResponse};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// Whether a server answers on this connection.
fn answers(stream: &mut TcpStream) -> bool {
    let _ = stream.write_all(b"hello\n");
    matches!(stream.read(&mut [0]), Ok(1..))
}

/// Whether the connection ends before the timeout.
fn is_cut(stream: &mut TcpStream) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), TimedOut | WouldBlock),
        }
    }
}

/// Whether the sandbox can connect to this address and gets an answer.
fn reaches(world: &World, to: Ipv4Addr, port: u16) -> bool {
    world.in_sandbox(|| {
        let to = SocketAddr::from((to, port));
        let Ok(mut stream) = TcpStream::connect_timeout(&to, SOON) else { return false };
        stream.set_read_timeout(Some(SOON)).expect("the timeout is valid");
        answers(&mut stream)
    })
}

/// Promises: R4.
#[test]
fn other_protocols_go_where_a_rule_names_their_port() {
    let world = World::new(&["good.example:25", "good.example:443", "198.51.100.11:26"], &[]);
    resolver(&world, vec![("good.example", always(GOOD)), ("evil.example", always(EVIL))]);
    for port in [25, 26, 443] {
        banner(&world, GOOD, port);
        banner(&world, EVIL, port);
    }
    // Nothing has resolved the name yet, so the proxy does not know which name the address has.
    assert!(!reaches(&world, GOOD, 25));
    addresses(&world, "good.example").expect("answered");
    assert_eq!(line(&mut world.connect(GOOD, 25)), Ok(format!("220 {GOOD}")));
    assert_eq!(line(&mut world.connect(EVIL, 26)), Ok(format!("220 {EVIL}")));
    world.denials();
    assert!(!reaches(&world, EVIL, 25) && !reaches(&world, GOOD, 26));
    // On port 443 the proxy forwards only TLS and HTTP.
    let mut stream = world.connect(GOOD, 443);
    stream.write_all(b"SSH-2.0-me\r\n").expect("the peer reads");
    assert!(!answers(&mut stream));
    assert_eq!(
        world.denials(),
        [
            "tcp 198.51.100.11:25 default",
            "tcp good.example:26 default",
            "tcp good.example:443 no name"
        ]
    );
    let mut stream = world.connect(GOOD, 25);
    line(&mut stream).expect("a greeting");
    world.rules(&["good.example:443"], &[]);
    assert!(is_cut(&mut stream));
}

/// Promises: R4.
#[test]
fn closed_addresses_stay_closed_whatever_rules_say() {
    let world = World::new(&["*", "10.0.0.0/8", "169.254.169.254", "127.0.0.1"], &[]);
    for at in [PRIVATE, METADATA] {
        banner(&world, at, 7000);
    }
    world.send(&ProxyRequest::Set { address: OTHER, policy: policy(&["*"], &[]) });
    world.on_host(|| {
        for at in [HOST, Ipv4Addr::LOCALHOST] {
            let listener = TcpListener::bind((at, 7000)).expect("a free port");
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let _ = stream.write_all(b"the host\n");
                }
            });
        }
    });
    for to in [PRIVATE, METADATA, HOST, Ipv4Addr::new(10, 231, 9, 9), Ipv4Addr::new(240, 0, 0, 1)] {
        assert!(!reaches(&world, to, 7000), "{to}");
    }
    assert_eq!(
        world.denials(),
        [
            "tcp 10.231.9.9:7000 private",
            "tcp 10.9.9.9:7000 private",
            "tcp 169.254.169.254:7000 link-local",
            "tcp 198.51.100.254:7000 host",
            "tcp 240.0.0.1:7000 reserved",
        ]
    );
    // The operator of the server opens them.
    world.guard(vec![HOST], &[(Ipv4Addr::new(10, 0, 0, 0), 8)]);
    assert!(reaches(&world, PRIVATE, 7000));
    // The proxy's own port stays closed.
    assert!(!reaches(&world, GATEWAY, 15_001));
    assert_eq!(world.denials(), ["tcp gateway:15001 host"]);
}

/// Promises: R4.
#[test]
fn a_sandbox_without_rules_gets_no_answer() {
    let world = World::new(&["*"], &[]);
    banner(&world, GOOD, 25);
    assert!(reaches(&world, GOOD, 25));
    world.send(&ProxyRequest::Forget { address: SANDBOX });
    world.settle();
    assert!(!reaches(&world, GOOD, 25));
}

/// Promises: R6.
#[test]
fn a_removed_sandbox_loses_its_connections() {
    let world = World::new(&["*"], &[]);
    banner(&world, GOOD, 25);
    let mut stream = world.connect(GOOD, 25);
    line(&mut stream).expect("a greeting");
    world.send(&ProxyRequest::Forget { address: SANDBOX });
    assert!(is_cut(&mut stream));
}

/// Promises: R7.
#[test]
fn every_byte_comes_through_and_is_counted() {
    const BYTES: usize = 40 << 20;
    let world = World::new(&["*"], &[]);
    source(&world, GOOD, 7000, BYTES);
    let mut stream = world.connect(GOOD, 7000);
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0;
    loop {
        match stream.read(&mut buffer).expect("the connection stays open") {
            0 => break,
            length => {
                assert!(buffer[..length].iter().all(|byte| *byte == 7));
                sum += length;
            }
        }
    }
    assert_eq!(sum, BYTES);
    let mut counted = 0;
    while counted < BYTES as u64 {
        for response in world.reports() {
            if let ProxyResponse::Carried { address: SANDBOX, back, .. } = response {
                counted += back;
            }
        }
        std::thread::yield_now();
    }
    assert_eq!(counted, BYTES as u64);
}

/// Promises: R8.
#[test]
fn the_egress_proxy_has_no_privileges_and_ends_with_its_parent() {
    let world = World::new(&["good.example"], &[]);
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", world.pid())).expect("the process runs");
    for line in
        ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
    {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
    assert!(status.contains("Gid:\t65534\t65534\t65534\t65534\n"), "{status}");
    assert!(
        status.contains("CapBnd:\t0000000000000000") && status.contains("Groups:\t \n"),
        "{status}"
    );
    assert!(world.end());
}
