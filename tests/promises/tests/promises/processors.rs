//! The processors that programs inside count, and how busy sandboxes share those of the machine.

use isolet_kit::{LONG, Options, SOON, Sandbox, Server, Shell, json, wait_until};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the server may take to spread sandboxes. It measures each second, and a machine under
/// load is late.
const SPREAD: Duration = LONG;

/// The processors of this machine; `None`, with the reason printed, if sandboxes have no CPU sets.
fn processors(server: &Server) -> Option<usize> {
    if server.log().contains("the cpuset controller is missing or not delegated") {
        println!("skipped: this machine has no cpuset controller");
        return None;
    }
    std::thread::available_parallelism().ok().map(Into::into)
}

/// What several kinds of programs count: coreutils and make, the C library, Python's affinity, Node.
fn counts(sandbox: &Sandbox) -> Vec<usize> {
    let programs = "nproc; getconf _NPROCESSORS_ONLN; \
        python3 -c 'import os; print(os.cpu_count()); print(len(os.sched_getaffinity(0)))'; \
        ! command -v node >/dev/null || \
        node -e 'const os = require(\"os\"); console.log((os.availableParallelism ?? (() => os.cpus().length))())'";
    let text = sandbox.says(programs);
    text.lines().map(|line| line.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
}

fn check(sandbox: &Sandbox, expected: usize) {
    let counts = counts(sandbox);
    assert!(counts.len() >= 4, "{counts:?}");
    assert!(counts.iter().all(|count| *count == expected), "{counts:?} instead of {expected}");
}

/// Promises: B10.
#[test]
fn programs_count_the_processors_that_the_limit_covers() {
    let server = Options::new().warm_pool(1).start();
    let Some(all) = processors(&server) else { return };
    let http = server.http();
    for (cpu_millis, covered) in [(500, 1), (1000, 1), (1500, 2), (64_000, all)] {
        let sandbox = server.sandbox_with(&json!({"cpu_millis": cpu_millis}));
        check(&sandbox, covered.min(all));
        sandbox.delete();
    }
    let sandbox = server.sandbox();
    let mut shell = sandbox.shell();
    shell.run("nproc").is("1\n", 0);
    for (cpu_millis, covered) in [(2000, 2), (1000, 1)] {
        http.patch(&sandbox.path(""), &json!({"cpu_millis": cpu_millis})).expect(200);
        // The running shell follows the change, and not only programs that start later.
        shell.run("nproc").is(&format!("{}\n", covered.min(all)), 0);
        check(&sandbox, covered.min(all));
    }
    drop(shell);
    wait_until("it sleeps once its shell has no client", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    check(&sandbox, 1);
}

/// Starts a program that never stops, and returns the shell that it belongs to with its process id.
fn busy(sandbox: &Sandbox) -> (Shell, String) {
    let mut shell = sandbox.shell();
    let pid = shell.run("while :; do :; done & echo $!").text();
    (shell, pid.trim().to_owned())
}

/// How many of these programs run on each processor, as `/proc/PID/stat` says.
fn placed(busy: &[(&Sandbox, String)]) -> BTreeMap<String, usize> {
    let mut placed = BTreeMap::new();
    for (sandbox, pid) in busy {
        let processor = sandbox.says(&format!("cut -d ' ' -f 39 /proc/{pid}/stat"));
        *placed.entry(processor.trim().to_owned()).or_default() += 1;
    }
    placed
}

/// Waits until the counts of all processors differ by at most one.
fn wait_until_even(what: &str, busy: &[(&Sandbox, String)], all: usize) {
    wait_until(what, SPREAD, || {
        let placed = placed(busy);
        let most = placed.values().max().copied().unwrap_or(0);
        let even = busy.len().div_ceil(all);
        println!("{what}: {placed:?}");
        (most <= even).then_some(())
    });
}

/// Promises: B10.
#[test]
fn ten_busy_sandboxes_with_one_processor_each_spread_over_all() {
    let server = Server::start();
    let Some(all) = processors(&server) else { return };
    if all < 2 {
        println!("skipped: this machine has one processor");
        return;
    }
    let sandboxes: Vec<Sandbox> =
        (0..10).map(|_| server.sandbox_with(&json!({"cpu_millis": 1000}))).collect();
    let home = |sandbox: &Sandbox| sandbox.says("cat /sys/devices/system/cpu/online");
    // All that are busy first share one processor.
    let first = home(&sandboxes[0]);
    let (here, others): (Vec<&Sandbox>, Vec<&Sandbox>) =
        sandboxes.iter().partition(|sandbox| home(sandbox) == first);
    assert!(here.len() >= 2 && !others.is_empty(), "new sandboxes begin on different processors");
    let mut shells = Vec::new();
    let mut programs = Vec::new();
    for sandbox in &here {
        let (shell, pid) = busy(sandbox);
        shells.push(shell);
        programs.push((*sandbox, pid));
    }
    wait_until_even("sandboxes that shared a processor", &programs, all);
    for sandbox in &others {
        let (shell, pid) = busy(sandbox);
        shells.push(shell);
        programs.push((*sandbox, pid));
    }
    assert_eq!(programs.len(), 10);
    wait_until_even("ten sandboxes", &programs, all);
    for sandbox in &sandboxes {
        sandbox.delete();
    }
    wait_until("nothing is left", SOON, || server.agents().is_empty().then_some(()));
}
