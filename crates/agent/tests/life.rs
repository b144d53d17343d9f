//! How commands and shells end, and which clients receive it.

mod kit;

use isolet_wire::activity::{Activity, CloseCause, ShellKey};
use isolet_wire::request::{AgentRequest, AttachShell, OpenShell, RunCommand, ShellPosition};
use isolet_wire::response::{AgentResponse, Closed, RefusalReason};
use isolet_wire::version::{OLDEST_SERVER, VERSION};
use kit::freezer::Freezer;
use kit::{Agent, Client, Event, open, run};
use std::time::{Duration, Instant};

fn timed(text: &str, timeout_ms: u64) -> RunCommand {
    RunCommand { timeout_ms, ..run("t", text) }
}

#[test]
fn a_timeout_ends_the_command_and_keeps_the_shell() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let pid = shell.run("a=1; echo $$").out().to_owned();
    for text in [
        "sleep 100",
        "sleep 100; echo after",
        "while :; do :; done",
        "f() { while :; do :; done; }; f; echo after",
        "while :; do sleep 0.01; done",
        "sleep 100 | sleep 100",
        "timeout 100 sleep 100",
        "(while :; do :; done)",
        "x=$(sleep 100)",
        "sleep 100 & wait",
        "setsid -w sleep 100",
    ] {
        let outcome = shell.run_with(timed(text, 100));
        assert!(outcome.exit.timed_out, "{text}: {outcome:?}");
        // Far less than the 100 s after which some of them end.
        assert!(outcome.exit.micros < 60_000_000, "{text}: {outcome:?}");
        assert_eq!((outcome.exit.code, outcome.out(), outcome.err()), (130, "", ""), "{text}");
        assert_eq!(shell.run("echo $a $$").out(), format!("1 {pid}"), "{text}");
    }
}

#[test]
fn what_ignores_an_interrupt_is_killed() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    for text in [
        "(trap '' INT TERM; while :; do sleep 1; done); echo after",
        "trap '' INT; sleep 100; trap - INT",
    ] {
        let outcome = shell.run_with(timed(text, 50));
        assert!(outcome.exit.timed_out, "{text}: {outcome:?}");
        assert_eq!(shell.run("trap - INT; echo on").out(), "on\n");
    }
    let outcome = {
        shell.request(&AgentRequest::Run(timed("trap '' INT; while :; do :; done", 50)));
        shell.skip_to(|response| matches!(response, AgentResponse::Exit(_)))
    };
    assert!(
        matches!(&outcome, AgentResponse::Exit(e)
            if e.ends_shell && e.signal == Some(9) && e.timed_out),
        "{outcome:?}"
    );
    let closed = shell.skip_to(|response| matches!(response, AgentResponse::Closed(_)));
    assert!(matches!(closed, AgentResponse::Closed(Closed { signal: Some(9), .. })));
}

/// On a busy machine bash once did not run for the 1.5 s in which the signals become stronger, and
/// was killed although it would have heeded the first one.
/// Promises: S6.
#[test]
fn a_shell_that_cannot_run_is_not_killed() {
    for text in ["while :; do :; done", "sleep 100", "sleep 100 | sleep 100", "read < <(sleep 100)"]
    {
        let agent = Agent::start();
        let mut shell = agent.shell();
        let pid = shell.run("sleep 1000 & job=$!; echo $$").out().trim().to_owned();
        let freezer = Freezer::around(&pid);
        shell.request(&AgentRequest::Run(run("c", &format!("echo up; {text}"))));
        let mut out = Vec::new();
        while out != b"up\n" {
            if let Event::Data(data) = shell.event() {
                out.extend_from_slice(&data.bytes);
            }
        }
        freezer.freeze();
        shell.request(&AgentRequest::Cancel { id: "c".to_owned() });
        // Longer than the signals take to become strong enough for the shell itself.
        std::thread::sleep(Duration::from_secs(3));
        freezer.thaw();
        let exit = shell.skip_to(|response| {
            matches!(response, AgentResponse::Exit(_) | AgentResponse::Closed(_))
        });
        let AgentResponse::Exit(exit) = exit else { panic!("{text}: {exit:?}") };
        // A child that was frozen before it ran its program lets the first signal pass, and ends by the second.
        assert!(exit.cancelled && matches!(exit.code, 130 | 143), "{text}: {exit:?}");
        assert_eq!(shell.run("kill -0 $job && echo $$").out(), format!("{pid}\n"), "{text}");
    }
}

#[test]
fn background_jobs_survive_an_interrupt() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let early = shell.run("sleep 1000 & echo $!").out().trim().to_owned();
    let outcome = shell.run_with(timed("sleep 1000 & echo $!; sleep 100", 100));
    let late = outcome.out().trim().to_owned();
    assert!(outcome.exit.timed_out);
    assert_eq!(shell.run(&format!("kill -0 {early} {late} && echo both")).out(), "both\n");
    shell.run_with(timed("(trap '' INT TERM; while :; do sleep 1; done)", 50));
    assert_eq!(shell.run(&format!("kill -0 {early} && echo on")).out(), "on\n");
    shell.run(&format!("kill -9 {early} {late}"));
}

#[test]
fn interrupts_at_random_moments_leave_the_shell_in_step() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    for at in 0..120_u32 {
        let id = format!("c{at}");
        shell.request(&AgentRequest::Run(run(&id, if at % 2 == 0 { "sleep 5" } else { ":" })));
        for _ in 0..(at * 37 % 997) {
            std::hint::spin_loop();
        }
        shell.request(&AgentRequest::Cancel { id: id.clone() });
        shell.skip_to(|response| matches!(response, AgentResponse::Exit(exit) if exit.id == id));
        let text = format!("echo {at}");
        shell.request(&AgentRequest::Run(run("e", &text)));
        let mut out = Vec::new();
        loop {
            match shell.event() {
                Event::Data(data) if data.id == "e" => out.extend_from_slice(&data.bytes),
                Event::Response(AgentResponse::Exit(exit)) if exit.id == "e" => {
                    assert_eq!(exit.code, 0, "{at}");
                    break;
                }
                Event::Response(AgentResponse::Closed(closed)) => panic!("{at}: {closed:?}"),
                _ => {}
            }
        }
        assert_eq!(out, format!("{at}\n").into_bytes());
    }
}

#[test]
fn a_signal_reaches_the_foreground_alone() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let early = shell.run("sleep 1000 & echo $!").out().trim().to_owned();
    shell.request(&AgentRequest::Run(run("s", "echo up; sleep 100")));
    while !matches!(shell.event(), Event::Data(_)) {}
    for signal in [0, 65] {
        shell.request(&AgentRequest::Signal { id: "s".into(), signal });
        let response = shell.skip_to(|response| matches!(response, AgentResponse::Refused { .. }));
        assert!(matches!(
            response,
            AgentResponse::Refused { reason: RefusalReason::BadRequest, .. }
        ));
    }
    let sleeping = format!("/proc/{early}/stat");
    kit::until("the second sleep runs", || {
        let stat = std::fs::read_to_string(&sleeping).unwrap_or_default();
        let bash = stat.split(' ').nth(3).unwrap_or_default().to_owned();
        let list = std::fs::read_to_string(format!("/proc/{bash}/task/{bash}/children"));
        list.unwrap_or_default().split_whitespace().count() == 2
    });
    shell.request(&AgentRequest::Signal { id: "s".into(), signal: 9 });
    assert_eq!(shell.outcome("s").exit.code, 137);
    assert_eq!(shell.run(&format!("kill {early} && echo was there")).out(), "was there\n");
}

fn ended(client: &mut Client, text: &str) -> (Vec<u8>, Option<AgentResponse>, Closed) {
    client.request(&AgentRequest::Run(run("end", text)));
    let mut out = Vec::new();
    let mut exit = None;
    loop {
        match client.event() {
            Event::Data(data) => {
                assert!(exit.is_none(), "output after the exit");
                out.extend_from_slice(&data.bytes);
            }
            Event::Response(AgentResponse::Closed(closed)) => return (out, exit, closed),
            Event::Response(
                response @ (AgentResponse::Exit(_) | AgentResponse::Refused { .. }),
            ) => exit = Some(response),
            Event::Response(_) => {}
        }
    }
}

#[test]
fn f9_a_shell_that_ends_says_how_once_after_its_last_byte() {
    let agent = Agent::start();
    for (at, (text, code, signal)) in [
        ("echo bye; exit 7", 7, None),
        ("echo bye; kill -9 $$", 137, Some(9)),
        ("echo bye; exec sleep 0", 0, None),
        ("echo bye; sleep 1000 & exit 3", 3, None),
        ("set -e; echo bye; false", 1, None),
        ("echo bye; exec 0<&- 1>&- 2>&-; exit 5", 5, None),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("p/{at}");
        let mut shell = agent.attach(&name, "me", None);
        let (out, exit, closed) = ended(&mut shell, text);
        assert_eq!(out, b"bye\n", "{text}");
        assert!(
            matches!(&exit, Some(AgentResponse::Exit(e))
                if e.ends_shell && e.code == code && e.signal == signal),
            "{exit:?}"
        );
        assert_eq!(
            (closed.signal, closed.code),
            (signal, signal.is_none().then_some(code)),
            "{text}"
        );
        shell.request(&AgentRequest::Run(run("late", ":")));
        assert!(matches!(
            shell.response(),
            AgentResponse::Refused { reason: RefusalReason::NoShell, .. }
        ));
        let mut late = agent.attach(&name, "me", None);
        assert_eq!(late.response(), AgentResponse::Closed(closed), "{text}");
    }
}

#[test]
fn a_closed_status_channel_is_noticed_and_told() {
    let agent = Agent::start();
    for (name, text) in [("p/a", "exec 57>&-"), ("p/b", "sleep 1000 57>&57 & exec 57>&-")] {
        let mut shell = agent.attach(name, "me", None);
        let (_, exit, closed) = ended(&mut shell, text);
        assert!(
            matches!(exit, Some(AgentResponse::Refused { reason: RefusalReason::NoShell, .. })),
            "{exit:?}"
        );
        assert_eq!(closed.cause, CloseCause::StatusChannelClosed);
    }
}

#[test]
fn a_command_that_is_merely_long_is_not_taken_for_lost() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let text = format!("sleep 3; echo done # {}", "x".repeat(880));
    assert_eq!(shell.run(&text).out(), "done\n");
    assert_eq!(shell.run("read x; sleep 2; echo \"[$x]\"").out(), "[]\n");
}

#[test]
fn a_flood_on_the_status_channel_ends_the_shell() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    assert_eq!(shell.run("echo 999 0 999:0 x >&57; echo on").out(), "on\n");
    let (_, _, closed) = ended(&mut shell, "yes >&57");
    assert_eq!(closed.cause, CloseCause::StatusChannelFlooded);
}

#[test]
fn a_sessions_next_command_gets_a_fresh_shell_and_is_told() {
    let agent = Agent::start();
    let mut shell = agent.attach("s/one", "me", None);
    shell.run("a=1");
    shell.request(&AgentRequest::Run(run("x", "exit 4")));
    shell.request(&AgentRequest::Run(run("y", "echo [$a]")));
    let AgentResponse::Exit(exit) =
        shell.skip_to(|response| matches!(response, AgentResponse::Exit(_)))
    else {
        return;
    };
    assert_eq!((exit.code, exit.seq, exit.ends_shell), (4, 2, true));
    let closed = shell.skip_to(|response| matches!(response, AgentResponse::Closed(_)));
    assert!(matches!(closed, AgentResponse::Closed(Closed { code: Some(4), .. })));
    let outcome = shell.outcome("y");
    assert_eq!((outcome.out(), outcome.exit.fresh, outcome.exit.seq), ("[]\n", true, 3));
    assert!(!outcome.exit.ends_shell);
    assert!(!shell.run(":").exit.fresh);
    shell.request(&AgentRequest::Run(run("z", "exit 0")));
    shell.skip_to(|response| matches!(response, AgentResponse::Closed(_)));
    assert!(shell.run("echo again").exit.fresh);
    shell.request(&AgentRequest::Run(run("z", "exit 0")));
    shell.skip_to(|response| matches!(response, AgentResponse::Closed(_)));
    let response = shell.attach("s/one", "me", None);
    assert!(
        matches!(
            response,
            AgentResponse::Attached { fresh: true, at: ShellPosition { seq: 7, .. }, .. }
        ),
        "{response:?}"
    );
}

#[test]
fn closing_ends_everything_the_shell_started() {
    let agent = Agent::start();
    let mut shell = agent.attach("s/one", "me", None);
    let text = "trap '' HUP; (trap '' HUP; sleep 1000 & sleep 1000) & \
                (sleep 1000 &); echo $! $$";
    let pids = shell.run(text).out().to_owned();
    let mut driver = agent.connect();
    driver.request(&AgentRequest::Close { key: ShellKey::Session("one".to_owned()) });
    assert_eq!(driver.response(), AgentResponse::Done);
    let closed = shell.skip_to(|response| matches!(response, AgentResponse::Closed(_)));
    assert!(
        matches!(closed, AgentResponse::Closed(closed) if closed.cause == CloseCause::ClosedByClient)
    );
    for pid in pids.split_whitespace() {
        kit::until("it is gone", || !kit::there(format!("/proc/{pid}")));
    }
    let children = format!("/proc/{0}/task/{0}/children", agent.child.id());
    kit::until("no orphan is left", || {
        std::fs::read_to_string(&children).is_ok_and(|list| list.trim().is_empty())
    });
    driver.request(&AgentRequest::Close { key: ShellKey::Session("none".to_owned()) });
    assert_eq!(driver.response(), AgentResponse::Done);
    let fresh = shell.attach("s/one", "me", None);
    assert!(matches!(
        fresh,
        AgentResponse::Attached { fresh: true, at: ShellPosition { seq: 0, .. }, .. }
    ));
}

#[test]
fn a_shell_that_nobody_wants_ends_after_its_time() {
    let agent = Agent::start();
    let mut driver = agent.connect();
    driver.request(&AgentRequest::Watch);
    assert_eq!(driver.response(), AgentResponse::Inventory { activities: Vec::new(), execs: 0 });
    let mut client = agent.connect();
    let open = OpenShell { linger_ms: Some(50), ..open() };
    let shell = ShellKey::Private("a".to_owned());
    let owner = "me".to_owned();
    client.request(&AgentRequest::Attach(AttachShell {
        shell,
        open: Some(open),
        owner,
        watch: false,
        since: None,
    }));
    client.response();
    assert_eq!(client.run(":").exit.code, 0);
    drop(client);
    let response = driver.skip_to(
        |response| matches!(response, AgentResponse::Changed { activity: Some(activity), .. } if activity.has_ended()),
    );
    let AgentResponse::Changed { activity: Some(Activity::Shell { closed, .. }), .. } = response
    else {
        panic!("{response:?} is not about a shell")
    };
    assert_eq!(closed.map(|closed| closed.cause), Some(CloseCause::NobodyAttached));
}

#[test]
fn a_start_directory_that_is_not_there_is_refused() {
    let agent = Agent::start();
    let mut client = agent.connect();
    for (open, reason) in [
        (Some(OpenShell { cwd: "/no/such".into(), ..open() }), RefusalReason::BadCwd),
        (None, RefusalReason::NoShell),
        (
            Some(OpenShell { env: [("A=B".into(), "x".into())].into(), ..open() }),
            RefusalReason::BadRequest,
        ),
    ] {
        let shell = ShellKey::Private("a".to_owned());
        let owner = "me".to_owned();
        client.request(&AgentRequest::Attach(AttachShell {
            shell,
            open,
            owner,
            watch: false,
            since: None,
        }));
        let response = client.response();
        assert!(
            matches!(&response, AgentResponse::Refused { reason: w, .. } if *w == reason),
            "{response:?}"
        );
    }
    client.attach("s/a", "me", None);
    assert_eq!(client.run("pwd").out(), "/tmp\n");
}

/// Promises: L16.
#[test]
fn a_stopped_clock_brings_no_timeout_nearer() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    shell.run("true");
    let mut holders = [agent.connect(), agent.connect()];
    for holder in &mut holders {
        holder.request(&AgentRequest::StopClock);
        assert_eq!(holder.response(), AgentResponse::Done);
    }
    let begun = Instant::now();
    shell.request(&AgentRequest::Run(timed("sleep 100", 400)));
    let mut other = agent.attach("p/other", "me", None);
    let stopped = Instant::now();
    for _ in 0..10 {
        // Commands run while the clock stands, and take no time.
        assert_eq!(other.run("sleep 0.1; echo a").out(), "a\n");
    }
    let [first, second] = holders;
    drop(first);
    assert_eq!(other.run("sleep 0.5; echo b").out(), "b\n");
    let stood = stopped.elapsed();
    drop(second);
    let exit = shell.outcome("t").exit;
    assert!(exit.timed_out, "{exit:?}");
    assert!(stopped.elapsed() - stood > Duration::from_millis(300), "the time before it counts");
    let micros = u128::from(exit.micros);
    let counted = (begun.elapsed() - stood / 2).as_micros();
    assert!(micros < counted, "the time that the clock stood does not count: {exit:?}");
}

#[test]
fn the_greeting_agrees_on_the_lower_version() {
    let agent = Agent::start();
    for (offered, agreed) in
        [(OLDEST_SERVER, OLDEST_SERVER), (VERSION, VERSION), (VERSION + 1, VERSION)]
    {
        let mut client = agent.silent();
        client.request(&AgentRequest::Hello { version: offered });
        assert_eq!(client.response(), AgentResponse::Hello { version: agreed });
        client.request(&AgentRequest::Ping(7));
        assert_eq!(client.response(), AgentResponse::Pong(7));
    }
}

#[test]
fn the_first_words_must_be_hello_with_a_supported_version() {
    let agent = Agent::start();
    let mut client = agent.silent();
    client.request(&AgentRequest::Ping(1));
    let refused = client.response();
    let reason = RefusalReason::BadRequest;
    assert!(matches!(refused, AgentResponse::Refused { reason: is, .. } if is == reason));
    assert!(client.try_event().is_none());
    let mut old = agent.silent();
    old.request(&AgentRequest::Hello { version: OLDEST_SERVER - 1 });
    assert_eq!(old.response(), AgentResponse::Hello { version: OLDEST_SERVER });
    assert!(old.try_event().is_none(), "an offer that is too old ends the connection");
}

#[test]
fn i6_a_bad_frame_costs_its_own_connection_only() {
    use std::io::Write as _;
    let agent = Agent::start();
    let mut good = agent.shell();
    for bad in [
        &[0, 0, 0, 0][..],
        &[255, 255, 255, 255, 0],
        &[0, 0, 0, 2, 9, 0],
        &[0, 0, 0, 3, 0, 99, 0],
        &[0, 0, 0, 4, 0, 1, 5, 5],
        &[0, 0, 0, 2, 1, 1],
    ] {
        let mut client = agent.connect();
        client.stream.write_all(bad).expect("written");
        assert!(client.try_event().is_none(), "{bad:?}");
    }
    assert_eq!(good.run("echo on").out(), "on\n");
}
