//! Programs without a shell.

mod kit;

use isolet_wire::request::{AgentRequest, Invocation, StartExec};
use isolet_wire::response::{AgentResponse, CommandExit, RefusalReason, STDOUT};
use kit::{Agent, Client, Event, Outcome, open};

fn command(text: &str) -> StartExec {
    let program = Invocation::Command(text.into());
    StartExec { program, cwd: "/tmp".into(), env: open().env, ..StartExec::default() }
}

fn argv(words: &[&str]) -> StartExec {
    StartExec {
        program: Invocation::Argv(words.iter().map(|w| (*w).to_owned()).collect()),
        ..command("")
    }
}

fn finish(client: &mut Client) -> Result<Outcome, RefusalReason> {
    let mut outcome = Outcome::default();
    loop {
        match client.event() {
            Event::Data(data) => {
                let to = if data.stream == STDOUT { &mut outcome.out } else { &mut outcome.err };
                assert_eq!(data.offset, to.len() as u64);
                to.extend_from_slice(&data.bytes);
            }
            Event::Response(AgentResponse::Exit(exit)) => {
                assert_eq!(
                    (exit.out, exit.err),
                    (outcome.out.len() as u64, outcome.err.len() as u64)
                );
                outcome.exit = exit;
                return Ok(outcome);
            }
            Event::Response(AgentResponse::Refused { reason, .. }) => return Err(reason),
            Event::Response(response) => panic!("{response:?}"),
        }
    }
}

fn exec(client: &mut Client, exec: StartExec) -> Result<Outcome, RefusalReason> {
    client.request(&AgentRequest::Exec(exec));
    finish(client)
}

#[test]
fn programs_say_what_they_say_and_end_as_they_end() {
    let agent = Agent::start();
    let mut client = agent.connect();
    for (start, code, out) in [
        (command("echo a b"), 0, "a b\n"),
        (command("printf %s x; exit 7"), 7, "x"),
        (command("pwd"), 0, "/tmp\n"),
        (command("printenv PWD"), 0, "/tmp\n"),
        (command("basename /a/b"), 0, "b\n"),
        (argv(&["printf", "%s", "a b"]), 0, "a b"),
        (argv(&["/bin/sh", "-c", "kill -9 $$"]), 137, ""),
    ] {
        let outcome = exec(&mut client, start).expect("started");
        assert_eq!((outcome.exit.code, outcome.out()), (code, out));
        assert_eq!(outcome.exit.signal, (code == 137).then_some(9));
    }
}

#[test]
fn what_is_not_there_is_told_as_a_shell_would_or_refused() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let outcome = exec(&mut client, command("no-such-thing x")).expect("bash says so");
    assert_eq!(outcome.exit.code, 127);
    assert_eq!(outcome.err(), "bash: line 1: no-such-thing: command not found\n");
    for text in ["-x", "+x y", "-c; exit 3"] {
        let outcome = exec(&mut client, command(text)).expect("bash says so");
        assert!(outcome.err().contains("command not found"), "{text}: {}", outcome.err());
    }
    assert_eq!(exec(&mut client, argv(&["no-such-thing"])).unwrap_err(), RefusalReason::NotFound);
    assert_eq!(exec(&mut client, argv(&["/etc/passwd"])).unwrap_err(), RefusalReason::Denied);
    assert_eq!(exec(&mut client, argv(&[])).unwrap_err(), RefusalReason::BadRequest);
    assert_eq!(exec(&mut client, argv(&["a\0b"])).unwrap_err(), RefusalReason::BadRequest);
    let nowhere = StartExec { cwd: "/no/such".into(), ..command("true") };
    assert_eq!(exec(&mut client, nowhere.clone()).unwrap_err(), RefusalReason::BadCwd);
    let plain = StartExec { program: Invocation::Command("ls".into()), ..nowhere };
    assert_eq!(exec(&mut client, plain).unwrap_err(), RefusalReason::BadCwd);
    assert_eq!(exec(&mut client, command("echo on")).expect("started").out(), "on\n");
}

#[test]
fn f10_the_end_is_told_though_a_grandchild_holds_the_pipes() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let outcome = exec(&mut client, command("sleep 30 & echo out; echo err >&2")).expect("started");
    assert_eq!((outcome.out(), outcome.err()), ("out\n", "err\n"));
    assert!(outcome.exit.micros < 10_000_000);
}

#[test]
fn a_timeout_kills_the_program_and_all_it_started() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let text = "trap '' TERM; (setsid sleep 1000 & echo $!; sleep 1000 & echo $!; wait) & wait; \
                sleep 1000";
    let start = StartExec { timeout_ms: 200, ..command(&format!("{text} & echo $!; sleep 1000")) };
    let outcome = exec(&mut client, start).expect("started");
    assert!(outcome.exit.timed_out);
    assert_eq!((outcome.exit.code, outcome.exit.signal), (137, Some(9)));
    for pid in outcome.out().split_whitespace() {
        kit::until("it is gone", || !kit::there(format!("/proc/{pid}")));
    }
    // On a busy machine, a short timeout can end bash before it prints the pid.
    let mut polite = [500, 2500, 12_500].into_iter().map(|timeout_ms| {
        let text = "(trap '' TERM; sleep 1000) & echo $!; wait";
        exec(&mut client, StartExec { timeout_ms, ..command(text) }).expect("started")
    });
    let outcome = polite.find(|outcome| outcome.out() != "").expect("bash printed the pid");
    assert_eq!((outcome.exit.timed_out, outcome.exit.signal), (true, Some(15)));
    let left = format!("/proc/{}", outcome.out().trim());
    kit::until("what ignored it is killed", || !kit::there(&left));
}

#[test]
fn cancel_and_signals_reach_the_group() {
    let agent = Agent::start();
    let mut client = agent.connect();
    client.request(&AgentRequest::Exec(command("sleep 1000; echo after")));
    client.request(&AgentRequest::Cancel { id: String::new() });
    let outcome = finish(&mut client).expect("started");
    assert_eq!((outcome.exit.cancelled, outcome.exit.signal), (true, Some(9)));
    client.request(&AgentRequest::Exec(command(
        "trap 'echo got; exit 3' USR1; echo up; while :; do sleep 0.01; done",
    )));
    let Event::Data(up) = client.event() else { panic!("no output") };
    assert_eq!(&up.bytes[..], b"up\n");
    client.request(&AgentRequest::Signal { id: String::new(), signal: 10 });
    let got = loop {
        if let Event::Response(AgentResponse::Exit(exit)) = client.event() {
            break exit;
        }
    };
    assert_ne!(got, CommandExit::default());
    assert!(got.code == 3 || got.signal == Some(10), "{got:?}");
}

#[test]
fn input_of_any_size_is_taken_and_ends() {
    let agent = Agent::start();
    let mut client = agent.connect();
    client.request(&AgentRequest::Exec(StartExec { stdin: true, ..command("sleep 0.1; wc -c") }));
    let part = vec![b'x'; 60_000];
    for _ in 0..100 {
        client.request(&AgentRequest::Stdin { id: String::new(), data: part.clone(), eof: false });
    }
    client.request(&AgentRequest::Stdin { id: String::new(), data: Vec::new(), eof: true });
    assert_eq!(finish(&mut client).expect("started").out(), "6000000\n");
    assert_eq!(exec(&mut client, command("wc -c")).expect("started").out(), "0\n");
    client.request(&AgentRequest::Exec(StartExec { stdin: true, ..command("exit 0") }));
    assert_eq!(finish(&mut client).expect("started").exit.code, 0);
}

#[test]
fn frames_that_came_behind_held_input_are_taken_later() {
    let agent = Agent::start();
    let mut client = agent.connect();
    client.request(&AgentRequest::Exec(StartExec { stdin: true, ..command("sleep 0.2; wc -c") }));
    let mut out = Vec::new();
    let mut stdin = |data: Vec<u8>, eof| {
        isolet_wire::frame::put(&mut out, &AgentRequest::Stdin { id: String::new(), data, eof });
    };
    (0..18).for_each(|_| stdin(vec![1; 60_000], false));
    stdin(vec![2; 100_000], true);
    std::io::Write::write_all(&mut client.stream, &out).expect("written");
    client.request(&AgentRequest::Ping(7));
    assert_eq!(
        client.skip_to(|response| matches!(response, AgentResponse::Pong(_))),
        AgentResponse::Pong(7)
    );
    assert_eq!(finish(&mut client).expect("started").out(), "1180000\n");
}

#[test]
fn more_questions_than_answers_are_read_are_all_answered() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let mut writer = client.stream.try_clone().expect("a copy");
    let asking = std::thread::spawn(move || {
        let mut out = Vec::new();
        (0..200_000).for_each(|at| isolet_wire::frame::put(&mut out, &AgentRequest::Ping(at)));
        std::io::Write::write_all(&mut writer, &out).expect("written");
    });
    for at in 0..200_000 {
        assert_eq!(client.response(), AgentResponse::Pong(at));
    }
    asking.join().expect("asked");
}

#[test]
fn a_hundred_megabytes_wait_for_their_reader_in_little_memory() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let before = agent.size().0;
    client.request(&AgentRequest::Exec(command("head -c 100000000 /dev/zero")));
    let mut count = 0_u64;
    loop {
        match client.event() {
            Event::Data(data) => {
                count += data.bytes.len() as u64;
                if count.is_multiple_of(640) {
                    assert!(agent.size().0 < before + 2048);
                }
            }
            Event::Response(AgentResponse::Exit(exit)) => {
                assert_eq!((exit.out, exit.code), (count, 0));
                break;
            }
            Event::Response(response) => panic!("{response:?}"),
        }
    }
    assert_eq!(count, 100_000_000);
    assert!(agent.size().0 < before + 2048);
}

#[test]
fn a_program_goes_on_when_its_connection_is_gone() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let done = agent.dir.at("done");
    client.request(&AgentRequest::Exec(command(&format!(
        "echo up; head -c 1000000 /dev/zero; : >{done}"
    ))));
    let Event::Data(_) = client.event() else { panic!("no output") };
    drop(client);
    kit::until("it came to its end", || kit::there(&done));
}

#[test]
fn e38_orphans_are_reaped() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let text = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.0$i &); done";
    assert_eq!(exec(&mut client, command(text)).expect("started").exit.code, 0);
    let children = format!("/proc/{0}/task/{0}/children", agent.child.id());
    kit::until("none is left", || {
        std::fs::read_to_string(&children).is_ok_and(|list| list.trim().is_empty())
    });
}

#[test]
fn a_thousand_programs_leave_no_descriptor() {
    let agent = Agent::start();
    let mut client = agent.connect();
    exec(&mut client, command("true")).expect("started");
    let before = agent.size().1;
    for _ in 0..300 {
        assert_eq!(exec(&mut client, argv(&["true"])).expect("started").exit.code, 0);
    }
    kit::until("the drained pipes are closed", || agent.size().1 <= before);
}
