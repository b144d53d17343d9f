//! Many sandboxes at once: no task for each, and pages instead of single questions.

use crate::fixture::Fixture;
use isolet_kit::{json, wait_until};
use std::time::{Duration, Instant};

/// The number of sandboxes, unless `ISOLET_SOAK_SANDBOXES` sets another.
const SANDBOXES: usize = 1000;
/// The memory limit of each, so that all fit into the machine, in MiB.
const MEMORY_MIB: u64 = 16;
/// Sandboxes that are created at once.
const CREATED_AT_ONCE: usize = 4;
/// Long enough for each step on a busy machine.
const LONG: Duration = Duration::from_secs(600);

/// Promises: FL2.
#[test]
#[ignore = "minutes: make soak"]
fn soak_many_sandboxes_are_suspended_and_resumed() {
    let wanted = std::env::var("ISOLET_SOAK_SANDBOXES").ok().and_then(|text| text.parse().ok());
    let count: usize = wanted.unwrap_or(SANDBOXES);
    let mut fixture = Fixture::new();
    std::thread::scope(|scope| {
        for part in 0..CREATED_AT_ONCE {
            let http = fixture.server.http();
            scope.spawn(move || {
                for _ in (part..count).step_by(CREATED_AT_ONCE) {
                    let spec = json!({"class": "store", "memory_mib": MEMORY_MIB});
                    http.post("/v1/sandboxes", &spec).expect(201);
                }
            });
        }
    });
    let in_phase =
        "SELECT CAST(count(*) AS TEXT) FROM ownership WHERE view LIKE '%\"' || ?1 || '\"%'";
    let waits_for = |fixture: &Fixture, phase: &str| {
        let since = Instant::now();
        wait_until("all have this state", LONG, || {
            let found = fixture.row(in_phase, phase)?;
            (found == count.to_string()).then_some(())
        });
        since.elapsed()
    };
    waits_for(&fixture, "running");
    fixture.wire.cut();
    let stopped = waits_for(&fixture, "suspended");
    fixture.wire.mend();
    let resumed = waits_for(&fixture, "running");
    fixture.server.kill();
    let since = Instant::now();
    fixture.server.launch();
    let restarted = since.elapsed();
    waits_for(&fixture, "running");
    println!(
        "{count} sandboxes: suspended after {stopped:?}, resumed after {resumed:?}, a restart takes {restarted:?}"
    );
    let listed = fixture.server.http().get("/v1/sandboxes?limit=10").expect(200).json();
    for sandbox in listed.as_array().expect("a list") {
        let id = sandbox["id"].as_str().expect("an id");
        assert_eq!(fixture.server.named(id).says("echo works"), "works\n");
    }
}
