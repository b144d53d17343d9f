//! HTTP/1: the rules decide about each request of a connection by its own host.

use crate::names::addresses;
use crate::servers::{ReceivedHeads, always, resolver, web};
use crate::world::{EVIL, GOOD, World};
use std::io::{Read, Write};
use std::net::Shutdown;

/// A network with a web server on both hosts; returns the heads that the good one receives.
fn world(allow: &[&str]) -> (World, ReceivedHeads) {
    let world = World::new(allow, &[]);
    let heard = web(&world, GOOD, 80);
    web(&world, EVIL, 80);
    resolver(&world, vec![("good.example", always(GOOD)), ("evil.example", always(EVIL))]);
    addresses(&world, "good.example").ok();
    (world, heard)
}

/// The whole answer to these bytes, after which the client closes its side.
fn answered(world: &World, bytes: &[u8]) -> String {
    let mut stream = world.connect(GOOD, 80);
    stream.write_all(bytes).expect("the peer reads");
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Promises: R3.
#[test]
fn every_request_of_a_connection_is_held_to_its_host() {
    let (world, heard) = world(&["good.example"]);
    let answer = answered(
        &world,
        b"GET /one HTTP/1.1\r\nHost: good.example\r\nX-CaSe: kept\r\n\r\n\
          POST /two HTTP/1.1\r\nHost: GOOD.example:80\r\nContent-Length: 5\r\n\r\nhello\
          GET /three HTTP/1.1\r\nHost: evil.example\r\n\r\n\
          GET /four HTTP/1.1\r\nHost: good.example\r\n\r\n",
    );
    let lines: Vec<_> = answer
        .lines()
        .filter(|line| line.contains("example") || line.starts_with("HTTP"))
        .collect();
    assert_eq!(lines.len(), 8, "{answer}");
    assert_eq!((lines[0], lines[1]), ("HTTP/1.1 200 OK", "198.51.100.10 good.example 0"));
    assert_eq!((lines[2], lines[3]), ("HTTP/1.1 200 OK", "198.51.100.10 GOOD.example:80 5"));
    assert_eq!(lines[4], "HTTP/1.1 403 Forbidden");
    assert!(lines[5].contains("evil.example:80") && lines[5].contains("rule: default"), "{answer}");
    assert_eq!((lines[6], lines[7]), ("HTTP/1.1 200 OK", "198.51.100.10 good.example 0"));
    assert_eq!(world.denials(), ["tcp evil.example:80 default"]);
    let heard = heard.lock().expect("no thread panicked with the lock").clone();
    assert_eq!(heard.len(), 3);
    assert!(heard[0].contains("X-CaSe: kept\r\n"), "{heard:?}");
}

/// Promises: R3.
#[test]
fn no_second_host_is_smuggled_in() {
    let (world, heard) = world(&["good.example"]);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let length = hidden.len();
    for (case, request) in [
        ("two hosts", "GET / HTTP/1.1\r\nHost: good.example\r\nHost: evil.example\r\n\r\n".into()),
        ("another target", "GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n".into()),
        ("a folded host", "GET / HTTP/1.1\r\nHost: good.example\r\n evil.example\r\n\r\n".into()),
        ("a space in front", "GET / HTTP/1.1\r\nX: y\r\n Host: evil.example\r\nHost: good.example\r\n\r\n".into()),
        ("a space behind", "GET / HTTP/1.1\r\nHost : evil.example\r\nHost: good.example\r\n\r\n".into()),
        ("a user", "GET / HTTP/1.1\r\nHost: good.example@evil.example\r\n\r\n".into()),
        ("a path", "GET / HTTP/1.1\r\nHost: good.example/evil.example\r\n\r\n".into()),
        ("a tunnel", "CONNECT evil.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n".into()),
        ("another protocol", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        ("no head", "GET /\r\n\r\n".into()),
        ("a bare zero", "GET / HTTP/1.1\r\nHost: good.example\0.evil.example\r\n\r\n".into()),
        ("length and chunks", format!("POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}")),
        ("two lengths", format!("POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}")),
        ("a strange coding", format!("POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: xchunked\r\nContent-Length: {length}\r\n\r\n{hidden}")),
        ("a coding twice", "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n".into()),
        ("a coding of old", format!("POST / HTTP/1.0\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}")),
        ("a length with a sign", format!("POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: +{length}\r\n\r\n{hidden}")),
        ("another protocol later", "GET / HTTP/1.1\r\nHost: good.example\r\nHTTP2-Settings: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n".into()),
    ] {
        let request: String = request;
        let answer = answered(&world, request.as_bytes());
        let passed = answer.starts_with("HTTP/1.1 200") && !answer.contains("evil");
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4") || passed, "{case}: {answer}");
    }
    for head in heard.lock().expect("no thread panicked with the lock").iter() {
        let lower = head.to_ascii_lowercase();
        assert!(!lower.contains("evil") && !lower.contains("upgrade"), "{head}");
        assert_eq!(lower.matches("host").count(), 1, "{head}");
    }
}

/// Promises: R3.
#[test]
fn a_body_is_a_body_whatever_is_in_it() {
    let (world, heard) = world(&["good.example"]);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: {}\r\n\r\n{hidden}GET /last HTTP/1.1\r\nHost: good.example\r\nConnection: close, Host\r\n\r\n",
        hidden.len()
    );
    let answer = answered(&world, chunked.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
    assert!(answer.contains(&format!("good.example {}", hidden.len())), "{answer}");
    let heard = heard.lock().expect("no thread panicked with the lock").clone();
    assert!(heard[1].contains("/last") && heard.iter().all(|head| !head.contains("hidden")));
    assert_eq!(world.denials(), [""; 0]);
}

/// Promises: R3.
#[test]
fn a_request_without_a_name_is_judged_by_its_address() {
    let (world, _) = world(&["good.example"]);
    let by_address = b"GET / HTTP/1.1\r\nHost: 198.51.100.10\r\n\r\n";
    let of_old = b"GET / HTTP/1.0\r\n\r\n";
    assert!(answered(&world, by_address).starts_with("HTTP/1.1 403"));
    assert!(answered(&world, of_old).contains(" 403"));
    world.rules(&["198.51.100.10"], &[]);
    assert!(answered(&world, by_address).starts_with("HTTP/1.1 200"));
    assert!(answered(&world, of_old).contains(" 200"));
    let other = b"GET / HTTP/1.1\r\nHost: 198.51.100.11\r\n\r\n";
    assert!(answered(&world, other).starts_with("HTTP/1.1 403"));
    assert_eq!(
        world.denials(),
        [
            "tcp 198.51.100.10:80 default",
            "tcp 198.51.100.10:80 other host",
            "tcp good.example:80 no name",
        ]
    );
}

/// Promises: R6.
#[test]
fn a_connection_becomes_another_protocol_and_is_cut_by_rules_all_the_same() {
    let (world, _) = world(&["good.example"]);
    let mut stream = world.connect(GOOD, 80);
    let request =
        b"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(request).expect("the peer reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{head:?}");
    stream.write_all(b"ping").expect("the peer reads");
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).expect("an echo");
    assert_eq!(&echo, b"ping");
    world.rules(&[], &[]);
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    assert_eq!(world.denials(), ["tcp good.example:80 default"]);
}
