//! The memory that programs inside see: the sandbox's limit and usage, as `/proc/meminfo`.

use isolet_kit::image::{Image, Registry, busybox};
use isolet_kit::{Options, SOON, Sandbox, Server, json, one, wait_until};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a program of 100 MiB may change beside its own memory, in MiB.
const TOLERANCE: u64 = 12;

/// Starts a program with 100 MiB that it has written to, and prints the program's process id.
const HUNGRY: &str =
    "python3 -c 'import signal; held = b\"x\" * (100 << 20); signal.pause()' & echo $!";

/// The lines of `/proc/meminfo` in MiB.
fn meminfo(sandbox: &Sandbox) -> BTreeMap<String, u64> {
    let text = sandbox.says("cat /proc/meminfo");
    let line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let kib: u64 = value.trim().trim_end_matches(" kB").parse().ok()?;
        Some((name.to_owned(), kib / 1024))
    };
    text.lines().map(|text| line(text).unwrap_or_else(|| panic!("{text}"))).collect()
}

fn available(sandbox: &Sandbox) -> u64 {
    meminfo(sandbox)["MemAvailable"]
}

/// What several programs take for the memory of the machine, each in MiB.
fn totals(sandbox: &Sandbox) -> Vec<u64> {
    let programs = "free -b | awk '/^Mem:/ { print $2 / 1048576 }'; free -m | awk '/^Mem:/ { print $2 }'; \
        awk '/^MemTotal:/ { print $2 / 1024 }' /proc/meminfo; \
        ! command -v node >/dev/null || node -p 'os.totalmem() / 1048576'";
    let text = sandbox.says(programs);
    text.lines().map(|line| line.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
}

#[track_caller]
fn check_total(sandbox: &Sandbox, memory_mib: u64) {
    let totals = totals(sandbox);
    assert!(totals.len() >= 3, "{totals:?}");
    assert!(totals.iter().all(|total| *total == memory_mib), "{totals:?} instead of {memory_mib}");
    let all = meminfo(sandbox);
    assert!(all["MemFree"] <= all["MemAvailable"], "{all:?}");
    assert!(all["MemAvailable"] <= memory_mib, "{all:?}");
    assert!(all["MemAvailable"] > memory_mib / 2, "{all:?}");
}

fn limit(sandbox: &Sandbox, memory_mib: u64) {
    sandbox.http.patch(&sandbox.path(""), &json!({"memory_mib": memory_mib})).expect(200);
}

fn put_to_sleep(sandbox: &Sandbox) {
    wait_until("it sleeps once its shell has no client", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// The file of the only sandbox.
fn file(server: &Server) -> PathBuf {
    let mut all = std::fs::read_dir(server.data().join("sandboxes")).expect("it is there");
    all.next().expect("a sandbox").expect("readable").path().join("meminfo")
}

/// Promises: B10.
#[test]
fn programs_see_the_memory_limit_and_its_changes() {
    let server = Server::start();
    for spec in [
        json!({"memory_mib": 128}),
        json!({"memory_mib": 700}),
        json!({"memory_mib": 96, "disk_mib": 64}),
    ] {
        let sandbox = server.sandbox_with(&spec);
        check_total(&sandbox, spec["memory_mib"].as_u64().expect("a number"));
        sandbox.delete();
    }
    let sandbox = server.sandbox_with(&json!({"memory_mib": 256}));
    let mut shell = sandbox.shell();
    for memory_mib in [300, 200] {
        limit(&sandbox, memory_mib);
        let expected = format!("MemTotal: {} kB\n", memory_mib * 1024);
        shell.run("echo $(grep MemTotal /proc/meminfo)").is(&expected, 0);
        check_total(&sandbox, memory_mib);
    }
    drop(shell);
    put_to_sleep(&sandbox);
    limit(&sandbox, 160);
    check_total(&sandbox, 160);
}

/// Promises: B10.
#[test]
fn a_sandbox_from_the_warm_pool_sees_its_own_memory_limit() {
    let server = Options::new().warm_pool(1).start();
    let network = |pid: &str| format!("readlink /proc/{pid}/ns/net");
    for memory_mib in [None, Some(144)] {
        let agent = wait_until("the warm pool is full", SOON, || server.agents().first().copied());
        let waited = std::fs::read_link(format!("/proc/{agent}/ns/net")).expect("it runs");
        let spec = memory_mib.map_or(json!({}), |memory_mib| json!({"memory_mib": memory_mib}));
        let sandbox = server.sandbox_with(&spec);
        let inside = sandbox.says(&network("self"));
        assert_eq!(inside.trim_end(), waited.display().to_string(), "it is from the warm pool");
        check_total(&sandbox, sandbox.info()["memory_mib"].as_u64().expect("a number"));
        // The warm pool has already replaced it.
        wait_until("another waits", SOON, || (server.agents().len() == 2).then_some(()));
        server.delete_with_agent(&sandbox);
    }
}

/// Promises: B10.
#[test]
fn a_sandbox_from_an_image_sees_its_own_memory_limit() {
    let registry = Registry::start();
    let name = registry.has("app", Image::new(&[busybox().bytes()], &json!({})));
    let config = format!("[images]\nregistries = [\"{}\"]\n", registry.host());
    let server = Options::new().config(&config).start();
    let sandbox = server.sandbox_with(&json!({"image": name, "memory_mib": 112}));
    assert_eq!(meminfo(&sandbox)["MemTotal"], 112);
    sandbox.delete();
}

/// Promises: B10.
#[test]
fn available_memory_falls_with_programs_and_not_with_files() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"memory_mib": 512}));
    let mut shell = sandbox.shell();
    let before = available(&sandbox);
    let pid = shell.run(HUNGRY).text();
    wait_until("the program's memory is in use", SOON, || {
        let used = before.saturating_sub(available(&sandbox));
        (100 - TOLERANCE..100 + TOLERANCE).contains(&used).then_some(())
    });
    shell.run(&format!("kill {pid}"));
    wait_until("its memory is free again", SOON, || {
        (available(&sandbox) + TOLERANCE > before).then_some(())
    });
    let free = meminfo(&sandbox)["MemFree"];
    shell.run("head -c 100M /dev/zero >file").is("", 0);
    let all = wait_until("the file is in memory", SOON, || {
        let all = meminfo(&sandbox);
        (all["MemFree"] + 100 < free + TOLERANCE).then_some(all)
    });
    assert!(all["MemAvailable"] + TOLERANCE > before, "{before}, then {all:?}");
    assert!(all["Cached"] > 100 - TOLERANCE, "{all:?}");
    // These exist in memory only, and cannot be freed.
    shell.run("rm file; head -c 100M /dev/zero >/dev/shm/file").is("", 0);
    wait_until("the file in memory is in use", SOON, || {
        (available(&sandbox) + 100 < before + TOLERANCE).then_some(())
    });
}

/// Promises: B10.
#[test]
fn a_session_with_a_scope_sees_the_memory_limit_and_its_changes() {
    let (_server, sandbox) = one();
    let access = json!({"read": [], "write": ["src"]});
    sandbox.post("/sessions", &json!({"id": "own", "file_access": access})).expect(201);
    for memory_mib in [320, 288] {
        limit(&sandbox, memory_mib);
        let answer = sandbox.command("own", "echo $(grep MemTotal /proc/meminfo)");
        assert_eq!(answer["stdout"], format!("MemTotal: {} kB\n", memory_mib * 1024), "{answer}");
    }
}

/// Promises: B10.
#[test]
fn the_next_server_keeps_the_view_up_to_date() {
    let mut server = Server::start();
    let sandbox = server.sandbox_with(&json!({"memory_mib": 512}));
    let before = available(&sandbox);
    server.restart();
    let sandbox = server.named(&sandbox.id);
    check_total(&sandbox, 512);
    let mut shell = sandbox.shell();
    shell.run(HUNGRY);
    wait_until("the program's memory is in use", SOON, || {
        (available(&sandbox) + 100 < before + TOLERANCE).then_some(())
    });
}

/// Promises: B10.
#[test]
fn root_inside_cannot_change_what_is_seen() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"memory_mib": 256}));
    for attempt in [
        "echo x >/proc/meminfo",
        "echo x >>/proc/meminfo",
        "chmod 666 /proc/meminfo",
        "chown 0 /proc/meminfo",
        "rm /proc/meminfo",
        "mv /proc/meminfo /tmp/",
        "truncate -s 0 /proc/meminfo",
        "umount /proc/meminfo",
        "umount -l /proc/meminfo",
        "mount -o remount,bind,rw /proc/meminfo",
        "mount --bind /etc/hostname /proc/meminfo",
        "mkdir -p /tmp/proc && mount -t proc proc /tmp/proc",
        "unshare -m umount /proc/meminfo",
    ] {
        let answer = sandbox.exec(&format!("test $(id -u) = 0 || exit 0; {attempt}"));
        assert_ne!(answer["exit_code"], 0, "{attempt}: {answer}");
        check_total(&sandbox, 256);
    }
    // A lock of a tenant does not keep the server from writing.
    let mut shell = sandbox.shell();
    shell.run("exec 9</proc/meminfo; flock -x 9").is("", 0);
    limit(&sandbox, 192);
    check_total(&sandbox, 192);
}

/// A file that could not be written, because the disk was full, is missing.
#[test]
fn a_sandbox_without_its_file_works_and_gets_it_when_it_wakes() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"memory_mib": 256}));
    std::fs::remove_file(file(&server)).expect("it is there");
    limit(&sandbox, 192);
    let access = json!({"read": [], "write": ["src"]});
    sandbox.post("/sessions", &json!({"id": "own", "file_access": access})).expect(201);
    assert_eq!(sandbox.command("own", "grep -c MemTotal /proc/meminfo")["stdout"], "1\n");
    assert!(!file(&server).try_exists().expect("it can be looked up"), "nothing is written for it");
    put_to_sleep(&sandbox);
    check_total(&sandbox, 192);
}

/// So `SwapTotal` is true on a host that swaps, and memory in swap does not exceed the limit.
#[test]
fn a_sandbox_does_not_swap() {
    let server = Server::start();
    let _sandbox = server.sandbox();
    let files = ["memory.swappiness", "tenant/memory.swap.max"];
    let groups = server.cgroups();
    let files = groups.iter().flat_map(|group| files.map(|name| group.join(name)));
    let settings: Vec<String> =
        files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    assert_eq!(settings, ["0\n"]);
}
