//! Sandboxes that stand still for too long while they are copied.

use isolet_kit::{Options, Rows, SOON, Sandbox, Server, json, wait_until, with_growing_limit};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The longest time that a sandbox stands still in these tests is shorter than that for which a copy
/// waits before it begins, or after it is complete.
const SHORT: &str = "hold.max=delay(300)";
const DELAY_MS: u64 = 1500;

/// How often a copy has waited so far.
fn waits(server: &Server) -> usize {
    server.log().matches("failpoint: delayed").count()
}

fn state(sandbox: &Sandbox) -> String {
    sandbox.info()["state"].as_str().expect("a text").to_owned()
}

/// Whether a sandbox has the files that it had before, and its shell.
#[track_caller]
fn assert_intact(sandbox: &Sandbox) {
    let seen = sandbox.command("dev", "cat /workspace/f /opt/f /usr/local/f; echo $X");
    assert_eq!(seen["stdout"], "w\no\nu\n5\n", "{seen}");
}

#[track_caller]
fn assert_nothing_left(server: &Server) {
    let listed = server.http().get("/v1/snapshots").json();
    assert_eq!(listed, json!({"snapshots": []}));
    wait_until("no file is left", SOON, || server.snapshot_files().is_empty().then_some(()));
}

/// Sends a request that copies a sandbox, and uses the sandbox after it has stood still for too long
/// and before the copy continues after its delay. Returns the status and the error of the answer;
/// `None` if the delay was over before.
fn while_it_waits(
    server: &Server,
    delay: Duration,
    (path, method): (&str, &str),
    use_it: impl FnOnce(),
) -> Option<(u16, String)> {
    let before = waits(server);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let body = (method == "POST").then_some(b"{}".as_slice());
        let http = server.http();
        let asked = scope.spawn(move || http.send(method, path, body));
        wait_until("the copy waits", SOON, || (waits(server) > before).then_some(()));
        use_it();
        let in_time = !asked.is_finished();
        assert!(in_time || begun.elapsed() >= delay, "the sandbox continued only after the copy");
        let reply = asked.join().expect("it is answered");
        in_time.then(|| (reply.status, reply.error()))
    })
}

fn too_long(point: &str, disk_mib: u64, running: &[(&str, &str)]) {
    with_growing_limit(DELAY_MS, |delay_ms| too_long_by(delay_ms, point, disk_mib, running));
}

fn too_long_by(delay_ms: u64, point: &str, disk_mib: u64, running: &[(&str, &str)]) -> Option<()> {
    let delay = Duration::from_millis(delay_ms);
    let points = format!("{SHORT};{point}=delay({delay_ms})");
    let server = Options::new().env("ISOLET_FAILPOINTS", &points).start();
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib, "snapshot_on_destroy": true}));
    let fill = "echo w >/workspace/f; echo o >/opt/f; echo u >/usr/local/f; X=5";
    assert_eq!(sandbox.command("dev", fill)["exit_code"], 0);
    // Whether the copy stayed behind in every row.
    let in_time = Cell::new(true);
    let late = |answer: Option<(u16, String)>| match answer {
        Some(answer) => assert_eq!(answer, (504, "deadline_exceeded".to_owned())),
        None => in_time.set(false),
    };
    let mut rows = Rows::new();
    for (rest, method) in running {
        rows.row(&format!("{method} {rest} of a running sandbox"), || {
            let use_it = || assert_intact(&sandbox);
            late(while_it_waits(&server, delay, (&sandbox.path(rest), method), use_it));
            assert_eq!(server.ids(&server.http()), [sandbox.id.as_str()]);
            assert_eq!(state(&sandbox), "running");
            assert_nothing_left(&server);
        });
    }
    rows.row("of a paused sandbox", || {
        sandbox.post("/pause", &json!({})).expect(200);
        // The driver answers again.
        let use_it = || drop(sandbox.post("/pause", &json!({})).expect(200));
        let copy = sandbox.path("/snapshots");
        late(while_it_waits(&server, delay, (&copy, "POST"), use_it));
        assert_eq!(state(&sandbox), "paused");
        sandbox.post("/resume", &json!({})).expect(200);
        assert_intact(&sandbox);
        assert_nothing_left(&server);
    });
    rows.row("of a sleeping sandbox", || {
        wait_until("it sleeps", SOON, || {
            (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
        });
        // Its files may change as soon as it wakes, so the copy that began before is no moment.
        let use_it = || assert_intact(&sandbox);
        let copy = sandbox.path("/snapshots");
        late(while_it_waits(&server, delay, (&copy, "POST"), use_it));
        assert_intact(&sandbox);
        assert_nothing_left(&server);
    });
    rows.row("no layer is left beside the sandbox's own", || {
        wait_until("unused layers are gone", SOON, || {
            (server.snapshot_layers().len() <= 1).then_some(())
        });
    });
    drop(rows);
    server.http().delete(&format!("{}?force=true", sandbox.path(""))).expect(200);
    wait_until("no layer is left", SOON, || server.snapshot_layers().is_empty().then_some(()));
    server.healthy();
    in_time.get().then_some(())
}

/// Promises: SN3.
#[test]
fn a_copy_that_begins_too_late_is_discarded_and_the_sandbox_goes_on() {
    too_long("snapshot.held", 0, &[("/snapshots", "POST"), ("", "DELETE")]);
}

/// Promises: SN3.
#[test]
fn a_copy_of_a_disk_that_ends_too_late_is_discarded_and_the_sandbox_goes_on() {
    too_long("snapshot.copied", 64, &[("/fork", "POST")]);
}
