//! Clients of terminals that reconnect, fall behind, or find a restarted server.

use isolet_kit::{LONG, SOON, Sandbox, Terminal, one, process, tries, wait_until};
use std::time::Instant;

/// Attaches after an earlier client; the server must send exactly the missing output.
fn back(sandbox: &Sandbox, place: &str) -> Terminal {
    let mut terminal =
        sandbox.try_terminal(&format!("events=1&{place}")).expect("the client is admitted");
    terminal.frame("ready");
    terminal
}

/// Pseudo-random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % most
    }
}

/// Checks that what one client has seen from offset `base` on is what another has.
fn agrees(whole: &Terminal, base: u64, part: &[u8]) {
    let from = usize::try_from(base - whole.base).expect("it existed before");
    let same = whole.output.get(from..from + part.len()) == Some(part);
    assert!(same, "at {base}, {} bytes: a byte is missing, repeated or different", part.len());
}

/// Promises: Z4.
#[test]
fn a_client_that_reconnects_misses_no_byte_and_gets_none_twice() {
    let (_server, sandbox) = one();
    let mut stays = sandbox.terminal("");
    stays.line("PS1='$ '; stty -echo; echo 'go'", "go\r\n");
    let mut dice = Dice(7);
    let mut collected = Vec::new();
    let mut place = stays.place();
    let base = stays.offset();
    let mut cuts = 0;
    let mut asked = 0;
    while cuts < tries(100, 1000) {
        let enough = 1 + dice.below(20_000);
        // Output goes on while the client is away, and never more than what the server holds.
        while asked < collected.len() + enough {
            stays.type_in("seq 1 4000\r");
            asked += 22_893;
        }
        let mut one = back(&sandbox, &place);
        assert_eq!(one.snapshot.len(), 0, "held output is sent unchanged");
        assert_eq!(one.base, base + collected.len() as u64, "it continues where it was");
        let end = Instant::now() + LONG;
        while one.output.len() < enough {
            assert!(one.closed.is_none() && Instant::now() < end, "{:?}", one.closed);
            one.step(SOON);
        }
        collected.extend_from_slice(&one.output);
        place = one.place();
        assert_eq!(one.jumps, 1, "one offset, at its beginning");
        if dice.below(2) == 0 {
            one.cut()
        } else {
            drop(one)
        }
        cuts += 1;
        while stays.offset() < base + collected.len() as u64 {
            assert!(stays.step(SOON), "it goes on");
        }
    }
    while stays.offset() < base + collected.len() as u64 {
        assert!(stays.step(SOON), "it goes on");
    }
    assert_eq!(stays.jumps, 1, "the client that stayed never fell behind");
    agrees(&stays, base, &collected);
}

/// Promises: Z4.
#[test]
fn discarded_output_is_replaced_by_a_drawn_screen_and_counted() {
    let (_server, sandbox) = one();
    let first = sandbox.terminal("");
    let place = first.place();
    first.close();
    let mut other = sandbox.terminal("");
    other.line("seq 1 1000000 | tail -c 5000000; echo 'd'one", "done\r\n");
    let mut late =
        sandbox.try_terminal(&format!("events=1&{place}")).expect("the client is admitted");
    let snapshot = late.frame("snapshot");
    let missed = snapshot["missed"].as_u64().expect("a number");
    assert!(missed > 5_000_000 && snapshot["bytes"].as_u64() > Some(0), "{snapshot}");
    late.frame("ready");
    // A prompt may not have reached both clients yet.
    while late.offset() != other.offset() {
        let behind = if late.offset() < other.offset() { &mut late } else { &mut other };
        assert!(behind.step(SOON), "both have counted the same bytes");
    }
    assert!(String::from_utf8_lossy(&late.snapshot).contains("done"));
    late.line("echo 'a'gain", "again\r\n");
    // An offset of another terminal has no meaning here.
    let mut stranger = sandbox
        .try_terminal("events=1&terminal=aaaaaaaaaaaaaaaa&since=10")
        .expect("the client is admitted");
    stranger.frame("snapshot");
    stranger.frame("ready");
    stranger.line("echo 'h'ere", "here\r\n");
}

/// Promises: Z5.
#[test]
fn a_killed_server_loses_no_terminal_and_no_byte_of_it() {
    let (mut server, sandbox) = one();
    let mut before = sandbox.terminal("");
    before.line("x=kept; echo 'o'n", "on\r\n");
    before.type_in("for i in $(seq 1 200); do echo line $i; sleep 0.02; done; echo 'e'nd\r");
    before.sees("line 5\r\n");
    server.kill();
    while before.closed.is_none() {
        before.step(SOON);
    }
    server.launch();
    server.wait_until_ready();
    let mut after = back(&sandbox, &before.place());
    assert_eq!((after.id.clone(), after.base), (before.id.clone(), before.offset()));
    assert_eq!(after.snapshot.len(), 0);
    after.sees("end\r\n");
    let all = [before.output.clone(), after.output.clone()].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    let lines: String = (1..=200).map(|n| format!("line {n}\r\n")).collect();
    assert!(all.contains(&lines), "{all}");
    after.line("echo $x'x'", "keptx\r\n");
}

/// Promises: Z5.
#[test]
fn a_stopped_server_disconnects_clients_with_a_request_to_reconnect() {
    let (mut server, sandbox) = one();
    let mut terminal = sandbox.terminal("");
    terminal.line("echo 'o'n", "on\r\n");
    let place = terminal.place();
    server.stop();
    assert_eq!(terminal.end(), 1012);
    server.launch();
    server.wait_until_ready();
    let mut after = back(&sandbox, &place);
    assert_eq!(after.snapshot.len(), 0);
    after.line("echo 'b'ack", "back\r\n");
}

/// Three clients read, one has stopped: those that read are served immediately, and memory does not
/// grow.
/// Promises: Z6.
#[test]
fn f24_a_client_that_reads_nothing_slows_no_other() {
    let (server, sandbox) = one();
    let mut reads = sandbox.terminal("");
    let stalled: Vec<Terminal> = (0..4).map(|_| sandbox.terminal("")).collect();
    let before = process::memory_kib(server.pid());
    reads.line("stty -echo; echo 'go'", "go\r\n");
    reads.line("head -c 30000000 /dev/zero | tr '\\0' a | fold -w 79; echo 'd'one", "adone");
    let written = 30_000_000 / 79 * 81;
    assert!(reads.offset() > written && reads.jumps == 1, "{} {}", reads.offset(), reads.jumps);
    let now = process::memory_kib(server.pid());
    assert!(now < before + 4 * 1024, "{before} to {now} KiB");
    for mut one in stalled {
        // The client was behind: its missed bytes are counted, and it continues.
        let end = Instant::now() + LONG;
        while one.offset() < reads.offset() {
            assert!(one.closed.is_none() && Instant::now() < end, "{:?}", one.closed);
            one.step(SOON);
        }
        assert!(one.jumps > 1 && one.base > 20_000_000, "{} {}", one.jumps, one.base);
        while reads.offset() < one.offset() {
            assert!(reads.step(SOON), "a reading client has it, too");
        }
        agrees(&reads, one.base, &one.output);
    }
}

/// Promises: Z6.
#[test]
fn f23_an_unread_flood_costs_nothing() {
    let (server, sandbox) = one();
    let mut first = sandbox.terminal("");
    first.type_in("yes 'a line that nobody reads'\r");
    first.sees("nobody reads\r\n");
    let before = (process::memory_kib(server.pid()), first.place());
    first.close();
    let offset = || {
        let all = sandbox.http.get(&sandbox.path("/terminals")).expect(200).json();
        all[0]["offset"].as_u64().expect("an offset")
    };
    let from = offset();
    wait_until("it keeps running", LONG, || (offset() > from + 20_000_000).then_some(()));
    let memory = process::memory_kib(server.pid());
    assert!(memory < before.0 + 4 * 1024, "{} to {memory} KiB", before.0);
    let mut again =
        sandbox.try_terminal(&format!("events=1&{}", before.1)).expect("the client is admitted");
    assert!(again.frame("snapshot")["missed"].as_u64() > Some(20_000_000));
    again.frame("ready");
    again.type_in("\x03");
    again.line("echo 'o'n", "on\r\n");
}
