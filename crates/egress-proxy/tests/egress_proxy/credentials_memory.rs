//! The memory of the proxy, which all sandboxes share: one sandbox can make it use a bounded
//! amount, and the proxy returns the memory to the kernel after a burst.
//!
//! Thirty requests with 60 KB of a placeholder of four letters, each replaced by 8 KiB, once raised
//! the memory from 7 to 3,757 MiB, of which 3,525 remained.

use crate::credentials::{credential, set_credentials};
use crate::servers::{always, never_reading, resolver, web};
use crate::world::{EVIL, GOOD, OTHER, SANDBOX, SOON, World, policy};
use isolet_wire::credential::{Credential, Secret};
use isolet_wire::network::ProxyRequest;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Instant;

const MIB: usize = 1024 * 1024;
/// The longest value of a credential.
const VALUE_BYTES: usize = 8 * 1024;

/// A field of the proxy's `/proc/PID/status`, in bytes.
fn memory(world: &World, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.pid())).expect("lives");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().expect("KiB")
        * 1024
}

fn resident(world: &World) -> usize {
    memory(world, "VmRSS")
}

/// Waits until the proxy uses less memory than this.
#[track_caller]
fn wait_for_memory(world: &World, below: usize) {
    let begun = Instant::now();
    while resident(world) >= below {
        assert!(begun.elapsed() < SOON, "{} MiB remain", resident(world) / MIB);
        std::thread::yield_now();
    }
    println!("{} MiB after", resident(world) / MIB);
}

fn long_credential(to: &str) -> Credential {
    let value = Secret::new("v".repeat(VALUE_BYTES));
    Credential { value, ..credential(to, None, Some("KEY!")) }
}

/// Connects from this address of the sandbox.
fn connect(world: &World, from: Ipv4Addr, to: Ipv4Addr) -> TcpStream {
    world.in_sandbox(|| {
        let family = rustix::net::AddressFamily::INET;
        let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &SocketAddrV4::new(from, 0)).expect("its own address");
        rustix::net::connect(&socket, &SocketAddrV4::new(to, 80)).expect("the proxy takes it");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(SOON)).expect("the timeout is valid");
        stream
    })
}

/// The first line of the answer.
fn status(stream: &mut TcpStream) -> String {
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).unwrap_or(0);
    let text = String::from_utf8_lossy(&answer[..length]).into_owned();
    text.lines().next().unwrap_or_default().to_owned()
}

fn get(host: &str, header: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Key: {header}\r\n\r\n")
}

fn two_hosts() -> World {
    let world = World::new(&["*.example"], &[]);
    resolver(&world, vec![("api.example", always(GOOD)), ("deaf.example", always(EVIL))]);
    world.send(&ProxyRequest::Set { address: OTHER, policy: policy(&["*.example"], &[]) });
    world.settle();
    world
}

/// Promises: R10.
#[test]
fn placeholders_take_no_more_memory_than_a_head_with_each_value_once() {
    let world = two_hosts();
    let heard = web(&world, GOOD, 80);
    assert!(set_credentials(&world, vec![long_credential("api.example:80")], false).is_none());
    let mut one = connect(&world, SANDBOX, GOOD);
    one.write_all(get("api.example", "KEY!").as_bytes()).expect("the peer reads");
    assert_eq!(status(&mut one), "HTTP/1.1 200 OK");
    let before = resident(&world);
    let many = get("api.example", &"KEY!".repeat(15_000));
    let mut streams: Vec<_> = (0..30).map(|_| connect(&world, SANDBOX, GOOD)).collect();
    for stream in &mut streams {
        stream.write_all(many.as_bytes()).expect("the peer reads");
    }
    let statuses: Vec<_> = streams.iter_mut().map(status).collect();
    let peak = memory(&world, "VmHWM");
    println!("{} MiB before, {} at most: {:?}", before / MIB, peak / MIB, statuses[0]);
    assert!(peak < before + 32 * MIB, "{} MiB before, {} at most", before / MIB, peak / MIB);
    let too_long = "HTTP/1.1 431 Request Header Fields Too Large";
    assert!(statuses.iter().all(|it| it == too_long), "{statuses:?}");
    assert_eq!(world.denials(), ["tcp api.example:80 headers too long"]);
    assert_eq!(heard.lock().expect("no thread panicked with the lock").len(), 1);
    // Requests that fit are forwarded, whatever was rejected before.
    one.write_all(get("api.example", &"KEY!".repeat(15)).as_bytes()).expect("the peer reads");
    assert_eq!(status(&mut one), "HTTP/1.1 200 OK");
}

/// Promises: R10.
#[test]
fn long_heads_of_a_sandbox_are_bounded_together_hurt_no_other_and_are_returned() {
    let world = two_hosts();
    web(&world, GOOD, 80);
    let taken = never_reading(&world, EVIL, 80);
    assert!(set_credentials(&world, vec![long_credential("deaf.example:80")], false).is_none());
    let mut other = connect(&world, OTHER, GOOD);
    other.write_all(get("api.example", "x").as_bytes()).expect("the peer reads");
    assert_eq!(status(&mut other), "HTTP/1.1 200 OK");
    let before = resident(&world);
    // Each has the maximum length: 122 KB for a host that reads nothing.
    let long = get("deaf.example", &format!("{}{}", "KEY!".repeat(14), "x".repeat(15_000)));
    let mut streams = Vec::new();
    let mut refused = 0;
    for number in 1..=400 {
        let mut stream = connect(&world, SANDBOX, EVIL);
        stream.write_all(long.as_bytes()).expect("the peer reads");
        streams.push(stream);
        // The proxy rejects those that exceed the limit; the others wait for the host.
        let begun = Instant::now();
        while number % 50 == 0
            && refused + taken.lock().expect("no thread panicked with the lock").len() < number
        {
            assert!(begun.elapsed() < SOON, "{refused} of {number} refused");
            refused += world.denial_count("tcp deaf.example:80 limit");
        }
    }
    let peak = memory(&world, "VmHWM");
    let held = streams.len() - refused;
    println!("{} MiB before, {} at most; {held} held", before / MIB, peak / MIB);
    assert!((40..200).contains(&held), "{held} held");
    assert!(peak < before + 96 * MIB, "{} MiB before, {} at most", before / MIB, peak / MIB);
    let answered = streams.iter_mut().rev().take(refused.min(10));
    for stream in answered {
        assert_eq!(status(stream), "HTTP/1.1 429 Too Many Requests");
    }
    // Another sandbox has a budget of its own.
    other.write_all(get("api.example", &"y".repeat(40_000)).as_bytes()).expect("the peer reads");
    assert_eq!(status(&mut other), "HTTP/1.1 200 OK");
    drop(streams);
    taken.lock().expect("no thread panicked with the lock").clear();
    wait_for_memory(&world, before + 8 * MIB);
    // The budget of this one is free again.
    let mut again = connect(&world, SANDBOX, GOOD);
    again.write_all(get("api.example", &"y".repeat(40_000)).as_bytes()).expect("the peer reads");
    assert_eq!(status(&mut again), "HTTP/1.1 200 OK");
}

/// Incomplete heads and bodies that no server reads are not counted in bytes. The number of
/// connections bounds them.
/// Promises: R10.
#[test]
fn half_heads_and_bodies_that_nobody_reads_are_bounded_by_the_connections_of_a_sandbox() {
    const EACH: usize = 400;
    let world = two_hosts();
    web(&world, GOOD, 80);
    let taken = never_reading(&world, EVIL, 80);
    let before = resident(&world);
    let open = |request: &[u8]| {
        let mut stream = connect(&world, SANDBOX, GOOD);
        stream.write_all(get("api.example", "x").as_bytes()).expect("the peer reads");
        assert_eq!(status(&mut stream), "HTTP/1.1 200 OK");
        stream.set_nonblocking(true).expect("a socket");
        let mut rest = request;
        while let Ok(length @ 1..) = stream.write(rest) {
            rest = &rest[length..];
        }
        stream
    };
    let half = format!("GET / HTTP/1.1\r\nHost: api.example\r\nX-Key: {}", "x".repeat(60_000));
    let post = "POST / HTTP/1.1\r\nHost: deaf.example\r\nContent-Length: 9999999\r\n\r\n";
    let body = [post.as_bytes(), &vec![b'x'; 4 * MIB]].concat();
    let heads: Vec<_> = (0..EACH).map(|_| open(half.as_bytes())).collect();
    let bodies: Vec<_> = (0..EACH).map(|_| open(&body)).collect();
    let begun = Instant::now();
    while taken.lock().expect("no thread panicked with the lock").len() < EACH {
        assert!(begun.elapsed() < SOON, "not all have reached the host");
        std::thread::yield_now();
    }
    let peak = memory(&world, "VmHWM");
    println!("{} MiB before, {} at most with {} connections", before / MIB, peak / MIB, 2 * EACH);
    assert!(peak < before + 2 * EACH * 256 * 1024, "{} MiB at most", peak / MIB);
    drop((heads, bodies));
    taken.lock().expect("no thread panicked with the lock").clear();
    wait_for_memory(&world, before + 8 * MIB);
}
