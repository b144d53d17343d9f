//! The lease guard stops the sandboxes of a server whose lease has ended, whatever the server does.

use isolet_jail::{Config, GuardError, LeaseGuard, SandboxHandle};
use isolet_kit::{SOON, Sandbox, Server, json, process, wait_until};
use isolet_wire::lease_guard::{GuardedSandbox, GuardedState};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// Longer than what happens before a deadline in a test.
const LATER_MS: u64 = 600_000;
/// A deadline that passes soon.
const SOON_MS: u64 = 300;

fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

struct Fixture {
    server: Server,
    config: Config,
    sandbox: Sandbox,
    /// The internal name of the sandbox.
    name: String,
}

impl Fixture {
    /// A server with a sandbox that counts in a file.
    fn new() -> Self {
        let server = Server::start();
        let mut config = Config::beside(&server.data()).expect("own path is known");
        config.launcher = env!("CARGO_BIN_EXE_isolet-launcher").into();
        let sandbox = server.sandbox_with(&json!({"disk_mib": 0}));
        let count = "while :; do echo x >>/workspace/count; sleep 0.01; done & echo started";
        assert_eq!(sandbox.command("dev", count)["stdout"], "started\n");
        let all = fs::read_dir(server.data().join("sandboxes")).expect("is there").flatten();
        let names: Vec<_> = all.map(|entry| entry.file_name().into_string().unwrap()).collect();
        let [name] = names.try_into().expect("one sandbox");
        Self { server, config, sandbox, name }
    }

    fn guard(&self) -> LeaseGuard {
        LeaseGuard::start(&self.config).expect("it runs")
    }

    fn handle(&self) -> SandboxHandle {
        SandboxHandle::open(&self.config, &self.name)
    }

    fn count(&self) -> u64 {
        let path = self.server.data().join("sandboxes").join(&self.name).join("workspace/count");
        fs::metadata(path).map_or(0, |about| about.len())
    }

    fn counts(&self) {
        let before = self.count();
        wait_until("it counts", SOON, || (self.count() > before + 4).then_some(()));
    }

    fn stands(&self) {
        let before = self.count();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.count(), before, "a stopped sandbox counts");
    }

    /// Whether a datagram leaves a program in the network namespace of the sandbox.
    fn sends(&self) -> bool {
        let netns = self.handle().netns().expect("an agent runs");
        let sent = std::thread::spawn(move || {
            move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.send_to(b"x", "127.0.0.1:9")
        });
        match sent.join().unwrap() {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
                false
            }
        }
    }

    fn wait_for(&self, guard: &LeaseGuard, state: GuardedState) {
        let expected = vec![GuardedSandbox { name: self.name.clone(), state }];
        wait_until("the guard has stopped it", SOON, || {
            (guard.list().expect("it answers") == expected).then_some(())
        });
    }
}

/// Promises: FL1.
#[test]
fn a_sandbox_stops_at_the_deadline_and_continues_only_when_it_is_told_to() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    assert!(matches!(guard.guard(&fixture.name), Err(GuardError::Expired)), "no deadline yet");
    guard.extend(now_ms() + LATER_MS).expect("extended");
    guard.guard(&fixture.name).expect("guarded");
    fixture.counts();
    assert!(fixture.sends());
    guard.extend(now_ms() + SOON_MS).expect("an earlier deadline is no error");
    fixture.wait_for(&guard, GuardedState::Stopped);
    fixture.stands();
    assert!(!fixture.sends(), "a packet left a stopped sandbox");
    assert!(matches!(guard.resume(&fixture.name), Err(GuardError::Expired)));
    guard.extend(now_ms() + LATER_MS).expect("extended");
    fixture.stands();
    assert!(matches!(guard.guard(&fixture.name), Err(GuardError::Refused(_))));
    guard.resume(&fixture.name).expect("resumed");
    fixture.counts();
    assert!(fixture.sends());
    assert_eq!(fixture.sandbox.says("echo works"), "works\n");
    guard.release(&fixture.name).expect("released");
    guard.extend(now_ms()).expect("extended");
    fixture.counts();
}

/// A server that hangs or dies cannot keep a sandbox running, and one that continues later cannot
/// wake it.
/// Promises: FL1.
#[test]
fn neither_a_killed_nor_a_stopped_server_keeps_a_sandbox_running() {
    let mut fixture = Fixture::new();
    let guard = fixture.guard();
    guard.extend(now_ms() + SOON_MS).expect("extended");
    guard.guard(&fixture.name).expect("guarded");
    process::signal(fixture.server.pid(), Signal::STOP);
    drop(guard);
    wait_until("it is frozen", SOON, || fixture.handle().is_frozen().unwrap().then_some(()));
    fixture.stands();
    process::signal(fixture.server.pid(), Signal::CONT);
    // What the server does at the end of a snapshot.
    fixture.handle().freeze(false).expect("thawed");
    wait_until("it is frozen again", SOON, || fixture.handle().is_frozen().unwrap().then_some(()));
    fixture.stands();
    fixture.server.kill();
    let guard = fixture.guard();
    assert!(guard.found_deadline_ms.is_some_and(|deadline| deadline <= now_ms()));
    fixture.wait_for(&guard, GuardedState::Stopped);
    guard.extend(now_ms() + LATER_MS).expect("extended");
    guard.resume(&fixture.name).expect("resumed");
    fixture.counts();
    fixture.server.launch();
    fixture.server.wait_until_ready();
    assert_eq!(fixture.sandbox.says("echo works"), "works\n");
    guard.release(&fixture.name).expect("released");
}

/// Promises: FL1.
#[test]
fn a_paused_sandbox_stays_paused_when_the_node_keeps_it() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    guard.extend(now_ms() + LATER_MS).expect("extended");
    guard.guard(&fixture.name).expect("guarded");
    fixture.sandbox.post("/pause", &json!({})).expect(200);
    guard.extend(now_ms()).expect("extended");
    fixture.wait_for(&guard, GuardedState::Stopped);
    guard.extend(now_ms() + LATER_MS).expect("extended");
    guard.resume(&fixture.name).expect("resumed");
    fixture.stands();
    fixture.sandbox.post("/resume", &json!({})).expect(200);
    fixture.counts();
    guard.release(&fixture.name).expect("released");
}

/// A sandbox that was announced, and is started only after the deadline.
/// Promises: FL1.
#[test]
fn a_sandbox_that_starts_after_the_deadline_is_stopped() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    fixture.sandbox.command("dev", "kill %1; wait");
    wait_until("it falls asleep", SOON, || {
        (fixture.sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let count = "while :; do echo x >>/workspace/count; sleep 0.01; done & echo started";
    wait_until("it sleeps", SOON, || (!fixture.handle().populated()).then_some(()));
    guard.extend(now_ms() + LATER_MS).expect("extended");
    guard.guard(&fixture.name).expect("guarded");
    guard.extend(now_ms()).expect("extended");
    fixture.wait_for(&guard, GuardedState::Stopped);
    // The server knows nothing of the guard here, and wakes it.
    let sandbox = fixture.server.named(fixture.sandbox.info()["id"].as_str().unwrap());
    let woken = std::thread::spawn(move || sandbox.command("dev", count));
    wait_until("it runs, and is frozen", SOON, || {
        let handle = fixture.handle();
        (handle.populated() && handle.is_frozen().unwrap_or(false)).then_some(())
    });
    fixture.stands();
    guard.extend(now_ms() + LATER_MS).expect("extended");
    guard.resume(&fixture.name).expect("resumed");
    assert_eq!(woken.join().unwrap()["stdout"], "started\n");
    fixture.counts();
    guard.release(&fixture.name).expect("released");
}

/// Promises: FL1.
#[test]
fn a_killed_guard_is_noticed_and_replaced() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    guard.extend(now_ms() + LATER_MS).expect("extended");
    guard.guard(&fixture.name).expect("guarded");
    let flag = format!("--lease-guard\0--data\0{}\0", fixture.server.data().display());
    let found = process::all().into_iter().find(|pid| process::arguments(*pid).contains(&flag));
    let found = found.or_else(|| {
        let flag = flag.replace('\0', " ");
        process::all().into_iter().find(|pid| process::arguments(*pid).contains(flag.trim()))
    });
    process::kill(found.expect("the guard runs"));
    wait_until("the guard is gone", SOON, || {
        matches!(guard.extend(now_ms() + LATER_MS), Err(GuardError::Gone(_))).then_some(())
    });
    drop(guard);
    let guard = fixture.guard();
    assert_eq!(guard.found_deadline_ms, None);
    assert!(guard.list().expect("it answers").is_empty());
    guard.extend(now_ms() + SOON_MS).expect("extended");
    guard.guard(&fixture.name).expect("guarded");
    fixture.wait_for(&guard, GuardedState::Stopped);
    guard.release(&fixture.name).expect("released");
    fixture.handle().freeze(false).expect("thawed");
    fixture.counts();
}
