//! Layers that are merged while sandboxes and snapshots use them.

use super::snapshot_layers::{
    add_layers, assert_layered, has_layers, layers, plain, remove, says, sleep, start_from,
};
use isolet_kit::{Options, SOON, Sandbox, Server, wait_until, with_growing_limit};

/// Everything below the directories that lie in layers, with contents.
const LOOK: &str = "cd /; find root opt usr/local -printf '%P %y %m %U:%G %n %s %l\\n' | sort; \
                    find root opt usr/local -type f | sort | xargs -d '\\n' md5sum";

fn folded(server: &Server) -> usize {
    server.log().matches("layers folded").count()
}

/// Commands of a shell that read and change files of the layers until `/workspace/stop` exists. Each
/// turn writes a line to `/workspace/turns`, and one that fails a line to `/workspace/failed`.
const TURNS: &str = "for ((n = 0; ; n++)); do test -e /workspace/stop && break; \
    { cat /root/log && ls /root /usr/local && echo $n >/root/turn && mv /root/turn /usr/local/turn && \
      echo $n >>/root/log2 && test $(wc -l </root/log) = 9; } >/dev/null 2>>/workspace/failed || \
    echo failed $n >>/workspace/failed; echo $n >>/workspace/turns; sleep 0.01; done; echo ended";

fn turns(sandbox: &Sandbox) -> usize {
    sandbox.says("wc -l </workspace/turns").trim().parse().unwrap_or(0)
}

/// Promises: SN1, SN4.
#[test]
fn layers_are_folded_under_sandboxes_that_run() {
    with_growing_limit(1500, folded_after);
}

/// Wakes sandboxes before a fold that waits for `delay_ms`; `None` if the fold came first.
fn folded_after(delay_ms: u64) -> Option<()> {
    let delayed = format!("fold.created=delay({delay_ms})");
    let server = Options::new().env("ISOLET_FAILPOINTS", &delayed).start();
    if !has_layers(&server) {
        return Some(());
    }
    let sandbox = plain(&server);
    let snapshot = add_layers(&server, &sandbox, 0, 9);
    // The fold has begun. Both sandboxes wake on nine layers.
    let copy = start_from(&server, &snapshot);
    assert_layered(&copy, 8);
    assert_layered(&sandbox, 8);
    if folded(&server) > 0 {
        for sandbox in [sandbox, copy] {
            sandbox.delete();
        }
        remove(&server, &snapshot);
        return None;
    }
    let before = says(&sandbox, LOOK);
    std::thread::scope(|scope| {
        let turning = scope.spawn(|| says(&copy, TURNS));
        wait_until("commands run", SOON, || (turns(&copy) > 3).then_some(()));
        wait_until("they are folded", SOON, || (folded(&server) > 0).then_some(()));
        let now = turns(&copy);
        wait_until("commands go on", SOON, || (turns(&copy) > now + 3).then_some(()));
        copy.says("touch /workspace/stop");
        assert_eq!(turning.join().expect("it is answered"), "ended\n");
    });
    assert_eq!(copy.says("cat /workspace/failed"), "");
    assert_eq!(says(&sandbox, LOOK), before);
    // Running sandboxes have the old layers; the snapshot names the merged one, which has the rest.
    assert_eq!(layers(&server).len(), 10);
    let new = start_from(&server, &snapshot);
    assert_layered(&new, 8);
    assert_eq!(says(&new, LOOK), before);
    new.delete();
    let copied = says(&copy, LOOK);
    sleep(&sandbox);
    assert_eq!(layers(&server).len(), 10, "the copy still runs on them");
    sleep(&copy);
    wait_until("nobody uses the old layers", SOON, || (layers(&server).len() == 5).then_some(()));
    assert_eq!(says(&sandbox, LOOK), before);
    assert_eq!(says(&copy, LOOK), copied);
    remove(&server, &snapshot);
    assert_eq!(says(&sandbox, LOOK), before, "the merged layer is that of the sandbox too");
    sandbox.delete();
    copy.delete();
    wait_until("no layer is left", SOON, || layers(&server).is_empty().then_some(()));
    Some(())
}

/// A server that starts while a sandbox runs on layers that were merged does not know of the merged
/// layer any more.
/// Promises: SN1, SN4.
#[test]
fn a_restart_between_a_fold_and_a_sleep_loses_no_layer() {
    let delayed = "fold.created=delay(1500)";
    let mut server = Options::new().env("ISOLET_FAILPOINTS", delayed).start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    let snapshot = add_layers(&server, &sandbox, 0, 9);
    let before = says(&sandbox, LOOK);
    wait_until("they are folded", SOON, || (folded(&server) > 0).then_some(()));
    server.restart();
    assert_eq!(says(&sandbox, LOOK), before);
    remove(&server, &snapshot);
    sleep(&sandbox);
    wait_until("its own are folded", SOON, || (layers(&server).len() == 5).then_some(()));
    assert_eq!(says(&sandbox, LOOK), before);
    sandbox.delete();
    wait_until("no layer is left", SOON, || layers(&server).is_empty().then_some(()));
}
