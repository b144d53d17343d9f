//! Clients that disconnect and reconnect, read slowly, or do not read at all.

mod kit;

use isolet_wire::request::{AgentRequest, ShellPosition};
use isolet_wire::response::{AgentResponse, STDERR, STDOUT};
use kit::{Agent, Client, Event, run};
use std::time::{Duration, Instant};

/// Counts both streams and checks positions: no byte may be missing or arrive twice.
#[derive(Default)]
struct Tape {
    at: ShellPosition,
    bytes: Vec<u8>,
}

impl Tape {
    /// Handles one event. Returns true at the exit of `id`.
    fn take(&mut self, event: Event, id: &str) -> bool {
        match event {
            Event::Data(data) => {
                let at = if data.stream == STDERR { &mut self.at.err } else { &mut self.at.out };
                assert_eq!(data.offset, *at, "stream {}", data.stream);
                *at += data.bytes.len() as u64;
                if data.stream == STDOUT {
                    self.bytes.extend_from_slice(&data.bytes);
                }
                false
            }
            Event::Response(AgentResponse::Exit(exit)) => {
                assert_eq!(exit.seq, self.at.seq + 1);
                self.at.seq = exit.seq;
                exit.id == id
            }
            Event::Response(AgentResponse::Gap { .. }) => panic!("a gap"),
            Event::Response(_) => false,
        }
    }
}

#[test]
fn f2_connections_cut_at_random_lose_and_double_nothing() {
    let agent = Agent::start();
    let mut tape = Tape::default();
    let mut client = agent.attach("s/one", "me", None);
    let text = "for ((i = 0; i < 60000; i++)); do echo line $i; echo e$i >&2; done";
    client.request(&AgentRequest::Run(run("big", text)));
    for at in 0..5 {
        client.request(&AgentRequest::Run(run(&format!("n{at}"), &format!("echo next {at}"))));
    }
    let mut cuts = 0;
    let mut events = 0_u64;
    'whole: loop {
        for _ in 0..(events * 7919 % 97 + 1) {
            events += 1;
            if tape.take(client.event(), "n4") {
                break 'whole;
            }
        }
        cuts += 1;
        client = agent.attach("s/one", "me", Some(tape.at));
    }
    let mut wanted: String = (0..60000).map(|i| format!("line {i}\n")).collect();
    (0..5).for_each(|at| wanted.push_str(&format!("next {at}\n")));
    assert!(tape.bytes == wanted.as_bytes());
    assert!(cuts > 10, "only {cuts} cuts");
}

#[test]
fn a_killed_servers_output_waits_for_it() {
    let agent = Agent::start();
    let mut client = agent.attach("s/one", "me", None);
    client.request(&AgentRequest::Run(run("big", "head -c 20000000 /dev/zero; echo end")));
    let mut tape = Tape::default();
    for _ in 0..5 {
        tape.take(client.event(), "big");
    }
    drop(client);
    let mut client = agent.attach("s/one", "me", Some(tape.at));
    while !tape.take(client.event(), "big") {}
    assert_eq!(tape.bytes.len(), 20_000_004);
}

#[test]
fn a_hundred_megabytes_pass_in_constant_memory() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    shell.run("head -c 3000000 /dev/zero");
    let before = agent.size().0;
    let mut most = before;
    shell.request(&AgentRequest::Run(run("big", "head -c 100000000 /dev/zero")));
    let mut count = 0;
    let mut at = 0_u64;
    loop {
        match shell.event() {
            Event::Data(data) => {
                count += data.bytes.len();
                at += 1;
                if at.is_multiple_of(64) {
                    most = most.max(agent.size().0);
                }
            }
            Event::Response(AgentResponse::Exit(exit)) if exit.id == "big" => {
                assert_eq!((exit.out, exit.lost), (100_000_000, 0));
                break;
            }
            Event::Response(_) => {}
        }
    }
    assert_eq!(count, 100_000_000);
    assert!(most < before + 4096, "grew from {before} to {most} KiB");
}

#[test]
fn a_client_that_stops_reading_holds_the_shell_and_loses_nothing() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    shell.request(&AgentRequest::Run(run("big", "head -c 8000000 /dev/zero; echo told >&2")));
    // The pipe fills up, so bash waits.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        std::thread::yield_now();
    }
    let outcome = shell.outcome("big");
    assert_eq!((outcome.out.len(), outcome.exit.lost), (8_000_000, 0));
    assert_eq!(outcome.err(), "told\n");
}

#[test]
fn after_a_stall_the_oldest_goes_and_the_client_is_told() {
    let agent = Agent::with(&["--stall-ms", "100"]);
    let mut shell = agent.shell();
    let mut other = agent.attach("p/test", "other", None);
    let mut driver = agent.connect();
    driver.request(&AgentRequest::Watch);
    shell.request(&AgentRequest::Run(run("big", "head -c 20000000 /dev/zero; echo told >&2")));
    driver.skip_to(
        |response| matches!(response, AgentResponse::Changed { activity: Some(shell), .. } if shell.is_busy()),
    );
    driver.skip_to(
        |response| matches!(response, AgentResponse::Changed { activity: Some(shell), .. } if !shell.is_busy()),
    );
    let mut at = 0;
    let mut missing = 0;
    let exit = loop {
        match shell.event() {
            Event::Data(data) if data.stream == STDOUT => {
                assert_eq!(data.offset, at);
                at += data.bytes.len() as u64;
            }
            Event::Response(AgentResponse::Gap { stream: STDOUT, from, to }) => {
                assert_eq!(from, at);
                (at, missing) = (to, missing + to - from);
            }
            Event::Response(AgentResponse::Exit(exit)) => break exit,
            _ => {}
        }
    };
    assert_eq!((at, exit.out, exit.lost), (20_000_000, 20_000_000, missing));
    assert!(missing > 10_000_000, "{missing}");
    assert_eq!(other.run("echo on").out(), "on\n");
}

#[test]
fn a_cancel_counts_though_its_sender_is_gone_with_output_unread() {
    let agent = Agent::start();
    let mut driver = agent.connect();
    driver.request(&AgentRequest::Watch);
    for _ in 0..40 {
        let mut shell = agent.shell();
        shell.request(&AgentRequest::Run(run("big", "while echo words; do :; done")));
        while !matches!(shell.event(), Event::Data(_)) {}
        shell.request(&AgentRequest::Cancel { id: "big".to_owned() });
        drop(shell);
        let mut back = agent.attach("p/test", "me", None);
        assert_eq!(back.run("echo on").out(), "on\n");
    }
}

#[test]
fn f24_a_slow_client_does_not_slow_a_fast_one() {
    let agent = Agent::start();
    let mut fast = agent.shell();
    let mut slow = agent.attach("p/test", "me", None);
    let outcome = fast.run("head -c 20000000 /dev/zero");
    assert_eq!((outcome.out.len(), outcome.exit.lost), (20_000_000, 0));
    assert!(outcome.exit.micros < 5_000_000);
    let mut at = 0;
    let mut gaps = 0;
    loop {
        match slow.event() {
            Event::Data(data) => {
                assert_eq!(data.offset, at);
                at += data.bytes.len() as u64;
            }
            Event::Response(AgentResponse::Gap { from, to, .. }) => {
                assert_eq!(from, at);
                (at, gaps) = (to, gaps + 1);
            }
            Event::Response(AgentResponse::Exit(_)) => break,
            Event::Response(_) => {}
        }
    }
    assert_eq!((at, gaps), (20_000_000, 1));
}

#[test]
fn ten_thousand_commands_leave_no_trace() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let round = |shell: &mut Client, count: usize| {
        for at in 0..count {
            let outcome = shell.run(if at % 3 == 0 { "echo x; echo y >&2" } else { ":" });
            assert_eq!(outcome.exit.code, 0);
        }
    };
    round(&mut shell, 5000);
    let before = agent.size();
    round(&mut shell, 10_000);
    let after = agent.size();
    assert!(after.0 <= before.0 + 256 && after.1 == before.1, "{before:?} {after:?}");
}

#[test]
fn background_output_comes_without_an_id_and_others_commands_only_to_watchers() {
    let agent = Agent::start();
    let mut one = agent.attach("s/one", "me", None);
    let mut two = agent.attach("s/one", "you", None);
    one.run("(while ! [ -e /proc/$$/gone ] && ! read -t 0.05 <&1; do break; done; echo late) &");
    loop {
        if let Event::Data(data) = two.event() {
            assert_eq!((data.id.as_str(), &data.bytes[..]), ("", b"late\n".as_slice()));
            break;
        }
    }
    one.run("echo mine");
    assert_eq!(two.run("echo yours").out(), "yours\n");
}
