//! A data directory that was copied, moved, restored or mounted elsewhere, left by a reboot, or
//! without its identity: only the server of its own directory touches running processes.

use isolet_kit::{
    Http, Options, SOON, Sandbox, Server, Traces, json, one, process, tries, wait_until,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The number of the original's sandboxes that work during the copy.
const BUSY: usize = 4;

/// Copies a directory with `cp -a` while it changes; files that disappear during the copy are no error.
fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).output();
    assert!(done.is_ok() && to.join("isolet.db").is_file(), "{done:?}");
}

/// Removes the identity, which a power failure may have damaged.
fn without_identity(data: &Path) {
    fs::remove_file(data.join("identity")).unwrap_or_default();
}

fn state(http: &Http, id: &str) -> String {
    let info = http.get(&format!("/v1/sandboxes/{id}")).expect(200).json();
    info["state"].as_str().unwrap_or_default().to_owned()
}

/// A sandbox with state in its shell and a background job.
fn busy(server: &Server) -> Sandbox {
    let sandbox = server.sandbox();
    sandbox.command("s", "x=kept; echo acked >/workspace/f; sleep 4716 & disown");
    sandbox
}

fn unhurt(sandbox: &Sandbox) {
    assert_eq!(sandbox.command("s", "echo $x; pgrep -c sleep")["stdout"], "kept\n1\n");
    assert_eq!(sandbox.info()["state"], "running");
}

/// Checks that a sandbox is asleep on another server and has its files.
fn asleep(server: &Server, sandbox: &Sandbox) {
    assert_eq!(state(&server.http(), &sandbox.id), "sleeping");
    let there = server.named(&sandbox.id);
    let answer = there.command("s", "cat /workspace/f; pgrep -c sleep");
    assert_eq!(answer["stdout"], "acked\n0\n", "{answer}");
    assert!(answer["lost"].as_array().is_some_and(|lost| !lost.is_empty()), "{answer}");
}

/// The copy's server once killed the processes that its records named: every sandbox of the
/// original failed with "agent killed".
/// Promises: F44.
#[test]
fn f44_a_copy_that_starts_beside_its_running_original_touches_nothing_of_it() {
    let server = Options::new().warm_pool(2).start();
    let all: Vec<Sandbox> = (0..BUSY).map(|_| busy(&server)).collect();
    let slept = busy(&server);
    wait_until("one sleeps", SOON, || {
        (slept.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let of = |server: &Server| -> BTreeSet<(i32, u64)> {
        let alive = Traces::agents(&server.data());
        alive.into_iter().collect()
    };
    let before = of(&server);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for sandbox in &all {
            threads.spawn(|| {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    sandbox.exec(&format!("echo {n} >>/workspace/log; echo {n} >/root/n"));
                }
            });
        }
        // Copies catch directories that are half created or half removed.
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let sandbox = server.sandbox();
                std::thread::sleep(Duration::from_millis(20));
                sandbox.delete();
            }
        });
        let rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..tries(3, 20) {
                let file = format!("round-{round}");
                let path = all[0].path(&format!("/files/{file}"));
                let wrote = server.http().send("PUT", &path, Some(file.as_bytes()));
                assert!(matches!(wrote.status, 200 | 201), "{}", wrote.text());
                let other = server.start_beside(copy);
                for sandbox in all.iter().chain([&slept]) {
                    asleep(&other, sandbox);
                }
                assert_eq!(other.http().get(&path).expect(200).text(), file);
                drop(other);
                all.iter().for_each(unhurt);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        rounds.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let after = of(&server);
    let ours: BTreeSet<_> = before.intersection(&after).collect();
    assert!(ours.len() >= BUSY, "agents that kept running: {ours:?} of {before:?}");
    all.iter().for_each(unhurt);
    assert_eq!(slept.says("cat /workspace/f"), "acked\n");
    server.healthy();
}

/// Promises: F44.
#[test]
fn f44_a_copy_without_its_identity_touches_nothing_either() {
    let server = Server::start();
    let sandbox = busy(&server);
    let other = server.start_beside(|from, to| {
        copy(from, to);
        without_identity(to);
    });
    asleep(&other, &sandbox);
    drop(other);
    unhurt(&sandbox);
    server.healthy();
}

/// Promises: F44.
#[test]
fn f44_a_copy_in_place_of_its_original_has_its_own_cgroups() {
    let mut server = Server::start();
    let sandbox = busy(&server);
    server.kill();
    let data = server.data();
    let old = data.with_extension("old");
    fs::rename(&data, &old).expect("moves");
    copy(&old, &data);
    let before = Traces::agents(&old);
    assert_eq!(before.len(), 1);
    server.launch();
    asleep(&server, &sandbox);
    let answer = server.log().contains("is a copy");
    assert_eq!(Traces::agents(&old), before, "processes of the original belong to another server");
    Traces::erase(&old);
    assert!(answer, "{}", server.log());
    server.healthy();
}

/// Promises: F44.
#[test]
fn f44_a_data_directory_that_was_moved_has_its_sandboxes() {
    let mut server = Server::start();
    let sandbox = busy(&server);
    let before = Traces::agents(&server.data());
    server.kill();
    let moved = server.start_beside(|from, to| fs::rename(from, to).expect("moves"));
    assert_eq!(Traces::agents(&moved.data()), before);
    unhurt(&moved.named(&sandbox.id));
    moved.healthy();
}

/// Promises: F44.
#[test]
fn f44_a_data_directory_under_another_mount_is_the_same() {
    let mut server = Server::start();
    let sandbox = busy(&server);
    let mut bound = server.with_bind_mounted_data();
    bound.launch_with("ISOLET_LOG_JSON", "0");
    assert!(!bound.wait().success(), "its first server holds it");
    assert!(bound.log().contains("held by process"), "{}", bound.log());
    unhurt(&sandbox);
    server.kill();
    bound.launch();
    unhurt(&bound.named(&sandbox.id));
    bound.healthy();
}

/// Promises: F44.
#[test]
fn f44_after_a_reboot_no_process_is_killed_by_a_recorded_pid() {
    let (mut server, another) = one();
    let sandbox = busy(&server);
    server.kill();
    let file = server.data().join("identity");
    let text = fs::read_to_string(&file).expect("it is recorded");
    let line = text.lines().find(|line| line.starts_with("boot ")).expect("it names its boot");
    let other = "boot 11111111-2222-3333-4444-555555555555";
    fs::write(&file, text.replace(line, other)).expect("writes");
    // These processes represent foreign ones, in cgroups of a foreign owner.
    let others = server.data().with_extension("others");
    fs::create_dir(&others).expect("makes");
    fs::write(others.join("identity"), &text).expect("writes");
    let before = Traces::agents(&others);
    assert_eq!(before.len(), 2);
    server.launch();
    asleep(&server, &sandbox);
    let after = Traces::agents(&others);
    Traces::erase(&others);
    assert_eq!(after, before);
    // A sleeping sandbox has no cgroups.
    another.delete();
    server.healthy();
}

/// Promises: F44.
#[test]
fn f44_processes_of_a_directory_without_its_identity_keep_running() {
    let mut server = Server::start();
    let sandbox = busy(&server);
    let slept = busy(&server);
    wait_until("one sleeps", SOON, || {
        (slept.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let limited = json!({"disk_mib": 64});
    let limited = server.sandbox_with(&limited);
    limited.command("s", "x=kept; sleep 4716 & disown");
    let before = Traces::agents(&server.data());
    server.kill();
    without_identity(&server.data());
    server.launch();
    assert_eq!(Traces::agents(&server.data()), before);
    for sandbox in [&sandbox, &limited] {
        unhurt(sandbox);
    }
    assert_eq!(state(&server.http(), &slept.id), "sleeping");
    assert_eq!(slept.says("cat /workspace/f"), "acked\n");
    let agent = before.first().expect("an agent").0;
    server.kill();
    without_identity(&server.data());
    process::kill(agent);
    server.launch();
    let states = [&sandbox, &limited].map(|one| one.info()["state"].clone());
    assert_eq!(states.iter().filter(|state| *state == "running").count(), 1, "{states:?}");
    server.healthy();
}
