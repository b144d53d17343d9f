//! The lease guard stops the sandboxes of a server whose lease has ended, whatever the server does.

use isolet_jail::{Config, GuardError, LeaseGuard, SandboxHandle};
use isolet_kit::{SOON, Sandbox, Server, json, process, wait_until};
use isolet_wire::lease::{BootTime, Epoch, LeaseDeadline};
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

fn of(registration: i64) -> Epoch {
    Epoch::of_revision(registration)
}

/// A deadline of a registration, some milliseconds from now.
fn within(registration: i64, millis: u64) -> LeaseDeadline {
    let at = BootTime::now().after(Duration::from_millis(millis));
    LeaseDeadline { registration: of(registration), at }
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

    /// The guard's process, if it runs.
    fn guard_pid(&self) -> Option<i32> {
        let flags = format!("--lease-guard --data {} ", self.server.data().display());
        process::all().into_iter().find(|pid| process::arguments(*pid).contains(&flags))
    }

    fn guard_process(&self) -> i32 {
        self.guard_pid().expect("the guard runs")
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

    /// Admits the sandbox under a registration whose deadline passes soon, and sees it count before. On a
    /// busy machine it passes before that: then a later one is tried.
    fn runs_until_soon(&self, guard: &LeaseGuard, registration: i64) {
        let has_run = [SOON_MS, SOON_MS * 5, SOON_MS * 25].into_iter().any(|millis| {
            let deadline = within(registration, millis);
            guard.extend(deadline).expect("extended");
            if guard.admit(&self.name, of(registration)).is_err() {
                return false;
            }
            let before = self.count();
            while self.count() <= before + 4 && BootTime::now() < deadline.at {
                std::thread::yield_now();
            }
            self.count() > before + 4
        });
        assert!(has_run, "it does not count before any deadline");
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
fn a_sandbox_stops_at_the_deadline_and_continues_only_when_it_is_admitted_again() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    let name = fixture.name.as_str();
    assert!(matches!(guard.admit(name, of(1)), Err(GuardError::Expired)), "no deadline yet");
    assert_eq!(guard.extend(within(1, SOON_MS)).expect("extended"), 0);
    assert!(matches!(guard.admit(name, of(2)), Err(GuardError::Expired)), "not this registration");
    fixture.runs_until_soon(&guard, 1);
    fixture.wait_for(&guard, GuardedState::Stopped);
    fixture.stands();
    assert!(!fixture.sends(), "a packet left a stopped sandbox");
    assert!(matches!(guard.admit(name, of(1)), Err(GuardError::Expired)));
    assert_eq!(guard.extend(within(1, LATER_MS)).expect("extended"), 1);
    fixture.stands();
    guard.admit(name, of(1)).expect("admitted");
    fixture.counts();
    assert!(fixture.sends());
    assert_eq!(fixture.sandbox.says("echo works"), "works\n");
    guard.release(name).expect("released");
    guard.extend(within(2, 0)).expect("extended");
    fixture.counts();
}

/// A message of a server that hung for long must not extend the next registration, and a request of
/// the former registration must not let a sandbox continue.
/// Promises: FL1.
#[test]
fn late_messages_neither_extend_a_lease_nor_wake_a_sandbox() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    let name = fixture.name.as_str();
    guard.extend(within(1, LATER_MS)).expect("extended");
    guard.admit(name, of(1)).expect("admitted");
    fixture.counts();
    // The lease of the first registration was revoked, so its deadline is void.
    assert_eq!(guard.extend(within(2, LATER_MS)).expect("extended"), 1);
    fixture.wait_for(&guard, GuardedState::Stopped);
    fixture.stands();
    assert!(matches!(guard.admit(name, of(1)), Err(GuardError::Expired)));
    guard.extend(within(1, LATER_MS)).expect("it is ignored");
    assert!(matches!(guard.admit(name, of(1)), Err(GuardError::Expired)));
    guard.extend(within(2, 0)).expect("it is ignored");
    guard.admit(name, of(2)).expect("admitted");
    fixture.counts();
    guard.release(name).expect("released");
}

/// A node of which it is known that others may own its sandboxes stops them before any deadline.
/// Promises: FL1.
#[test]
fn a_sandbox_can_be_stopped_at_once_and_freed_without_a_lease() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    guard.stop(std::slice::from_ref(&fixture.name)).expect("stopped");
    fixture.wait_for(&guard, GuardedState::Stopped);
    fixture.stands();
    assert!(!fixture.sends());
    guard.stop(std::slice::from_ref(&fixture.name)).expect("it is stopped already");
    guard.free(&fixture.name).expect("freed");
    fixture.counts();
    assert!(fixture.sends());
    assert!(guard.list().expect("it answers").is_empty());
    guard.free(&fixture.name).expect("it is not guarded");
}

/// A server that hangs or dies cannot keep a sandbox running, and one that continues later cannot
/// wake it.
/// Promises: FL1.
#[test]
fn neither_a_killed_nor_a_stopped_server_keeps_a_sandbox_running() {
    let mut fixture = Fixture::new();
    let guard = fixture.guard();
    fixture.runs_until_soon(&guard, 1);
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
    assert!(guard.found_deadline.is_some_and(|deadline| deadline.at <= BootTime::now()));
    fixture.wait_for(&guard, GuardedState::Stopped);
    guard.extend(within(1, LATER_MS)).expect("extended");
    guard.admit(&fixture.name, of(1)).expect("admitted");
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
    guard.extend(within(1, LATER_MS)).expect("extended");
    guard.admit(&fixture.name, of(1)).expect("admitted");
    fixture.sandbox.post("/pause", &json!({})).expect(200);
    guard.extend(within(2, LATER_MS)).expect("extended");
    fixture.wait_for(&guard, GuardedState::Stopped);
    guard.admit(&fixture.name, of(2)).expect("admitted");
    fixture.stands();
    fixture.sandbox.post("/resume", &json!({})).expect(200);
    fixture.counts();
    guard.release(&fixture.name).expect("released");
}

/// A sandbox that was admitted, and is started only after the deadline.
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
    guard.extend(within(1, LATER_MS)).expect("extended");
    guard.admit(&fixture.name, of(1)).expect("admitted");
    guard.extend(within(2, 0)).expect("extended");
    fixture.wait_for(&guard, GuardedState::Stopped);
    // The server knows nothing of the guard here, and wakes it.
    let sandbox = fixture.server.named(fixture.sandbox.info()["id"].as_str().unwrap());
    let woken = std::thread::spawn(move || sandbox.command("dev", count));
    wait_until("it runs, and is frozen", SOON, || {
        let handle = fixture.handle();
        (handle.populated() && handle.is_frozen().unwrap_or(false)).then_some(())
    });
    fixture.stands();
    guard.extend(within(2, LATER_MS)).expect("extended");
    guard.admit(&fixture.name, of(2)).expect("admitted");
    assert_eq!(woken.join().unwrap()["stdout"], "started\n");
    fixture.counts();
    guard.release(&fixture.name).expect("released");
}

/// Promises: FL1.
#[test]
fn a_killed_guard_is_noticed_and_replaced() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    guard.extend(within(1, LATER_MS)).expect("extended");
    guard.admit(&fixture.name, of(1)).expect("admitted");
    process::kill(fixture.guard_process());
    wait_until("the guard is gone", SOON, || {
        matches!(guard.extend(within(1, LATER_MS)), Err(GuardError::Gone(_))).then_some(())
    });
    drop(guard);
    let guard = fixture.guard();
    assert_eq!(guard.found_deadline, None);
    assert!(guard.list().expect("it answers").is_empty());
    fixture.runs_until_soon(&guard, 1);
    fixture.wait_for(&guard, GuardedState::Stopped);
    guard.free(&fixture.name).expect("freed");
    fixture.counts();
}

/// `isolet teardown` of a node that lost its lease: neither the guard nor a sandbox that it has frozen
/// outlives it, and the next server runs the sandbox without a guard.
#[test]
fn a_teardown_ends_the_guard_and_what_it_has_stopped() {
    let mut fixture = Fixture::new();
    let guard = fixture.guard();
    guard.stop(std::slice::from_ref(&fixture.name)).expect("stopped");
    fixture.wait_for(&guard, GuardedState::Stopped);
    fixture.server.kill();
    assert!(fixture.guard_pid().is_some() && fixture.handle().is_frozen().unwrap());
    let ended = fixture.server.command(&["teardown"]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("ended 1 sandboxes"), "{said}");
    assert_eq!(fixture.guard_pid(), None);
    assert!(!fixture.handle().populated());
    assert!(matches!(guard.list(), Err(GuardError::Gone(_))));
    drop(guard);
    fixture.server.launch();
    fixture.server.wait_until_ready();
    assert_eq!(fixture.sandbox.says("echo works"), "works\n");
    assert_eq!(fixture.guard_pid(), None);
}

/// A guard that was stopped answered nothing, and every server that connected to it waited in vain, so
/// nothing could stop the sandboxes at the deadline.
/// Promises: FL1.
#[test]
fn a_guard_that_stands_still_is_killed_and_replaced() {
    let fixture = Fixture::new();
    let guard = fixture.guard();
    guard.extend(within(1, LATER_MS)).expect("extended");
    guard.admit(&fixture.name, of(1)).expect("admitted");
    let stopped = fixture.guard_process();
    process::signal(stopped, Signal::STOP);
    let extended = guard.extend(within(1, LATER_MS));
    assert!(matches!(extended, Err(GuardError::Gone(_))), "{extended:?}");
    assert!(!process::alive(stopped), "it still stands");
    drop(guard);
    let guard = fixture.guard();
    assert_ne!(fixture.guard_process(), stopped);
    // The next server finds one that stands still.
    process::signal(fixture.guard_process(), Signal::STOP);
    drop(guard);
    let guard = fixture.guard();
    fixture.runs_until_soon(&guard, 1);
    fixture.wait_for(&guard, GuardedState::Stopped);
    fixture.stands();
    guard.free(&fixture.name).expect("freed");
    fixture.counts();
}

/// On a machine that is short of memory, the guard must not wait for its own pages at the deadline.
/// Promises: FL1.
#[test]
fn the_guard_is_locked_in_memory_and_runs_before_normal_processes() {
    let fixture = Fixture::new();
    let _guard = fixture.guard();
    let of_guard = format!("/proc/{}", fixture.guard_process());
    let read = |file: &str| fs::read_to_string(format!("{of_guard}/{file}")).expect("it runs");
    let locked = read("status").lines().find_map(|line| {
        line.strip_prefix("VmLck:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    assert!(locked.is_some_and(|kib| kib > 0), "{locked:?}");
    // A container may lack the capability CAP_SYS_RESOURCE, which is bit 24.
    let own = fs::read_to_string("/proc/self/status").expect("own status");
    let effective = own.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("a mask");
    if u64::from_str_radix(effective.trim(), 16).expect("hexadecimal") & (1 << 24) != 0 {
        assert_eq!(read("oom_score_adj").trim(), "-1000");
    }
    // 1 is SCHED_FIFO, field 41 of the line.
    let stat = read("stat");
    assert_eq!(stat.rsplit_once(") ").unwrap().1.split(' ').nth(38), Some("1"), "{stat}");
}
