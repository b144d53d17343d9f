//! Terminals with a real bash on a real PTY: clients, sizes and ends.

mod kit;

use isolet_wire::activity::{Activity, CloseCause, ShellKey};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, Closed, RefusalReason};
use isolet_wire::terminal::{AttachTerminal, OpenTerminal, Size};
use kit::terminal::{Screen, attach_options, bash};
use kit::{Agent, until};

fn argv(words: &[&str]) -> OpenTerminal {
    OpenTerminal { argv: words.iter().map(|word| (*word).to_owned()).collect(), ..bash() }
}

fn refused(agent: &Agent, attach_options: AttachTerminal) -> (RefusalReason, String) {
    let mut client = agent.connect();
    client.request(&AgentRequest::Terminal(attach_options));
    match client.response() {
        AgentResponse::Refused { reason, message, .. } => (reason, message),
        other => panic!("{other:?}"),
    }
}

/// Waits until `sleep`, started by bash, runs in the foreground.
fn sleeps(pid: i32) {
    waits(pid, "sleep");
}

/// Waits until a program, started by bash, runs in the foreground and waits: the terminal's keys reach it
/// from then on.
fn waits(pid: i32, name: &str) {
    until("it runs", || {
        let pids = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        pids.unwrap_or_default().split(' ').any(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let Some((_, fields)) = stat.split_once(&format!("({name}) ")) else { return false };
            let fields: Vec<&str> = fields.split(' ').collect();
            // State, parent, group, session, terminal, the terminal's foreground group.
            fields[0] == "S" && fields[2] == fields[5]
        })
    });
}

/// Promises: Z10.
#[test]
fn what_is_typed_is_echoed_and_answered() {
    let agent = Agent::start();
    let mut screen = agent.bash();
    assert!(screen.attached.fresh && screen.attached.snapshot.is_none());
    screen.wait("ready", |screen| screen.ready);
    assert_eq!(screen.attached.id.len(), 16);
    assert_eq!(screen.line("echo $((6*7)) $TERM $COLORTERM"), "42 xterm-256color truecolor\n");
    assert_eq!(screen.line("stty size"), "24 80\n");
    assert_eq!(screen.line("test -t 0 && test -t 1 && test -t 2 && tty </dev/tty"), "/dev/tty\n");
    assert!(screen.line("tty").starts_with("/dev/pts/"));
    assert_eq!(screen.line("ls -l $(tty) | cut -c1"), "c\n");
    assert_eq!(screen.line("echo $$"), format!("{}\n", screen.attached.pid));
    assert_eq!(screen.line("printf 'grüße\\n'"), "grüße\n");
    assert_eq!(screen.line("ls /proc/self/fd | tr '\\n' ' '"), "0 1 2 3 ");
}

/// Promises: Z10.
#[test]
fn control_c_and_control_z_and_jobs_work() {
    let agent = Agent::start();
    let mut screen = agent.bash();
    screen.type_in("sleep 1000; echo code $?\n");
    sleeps(screen.attached.pid);
    screen.type_in("\x03");
    screen.until("^C");
    screen.until("$ ");
    screen.type_in("sleep 1001\n");
    screen.until("sleep 1001\n");
    sleeps(screen.attached.pid);
    screen.type_in("\x1a");
    screen.until("Stopped");
    screen.until("$ ");
    assert!(screen.line("jobs").contains("Stopped                 sleep 1001"));
    screen.type_in("fg\n");
    screen.until("sleep 1001\n");
    sleeps(screen.attached.pid);
    screen.type_in("\x03");
    screen.until("$ ");
    assert_eq!(screen.line("jobs"), "");
    screen.type_in("cat\n");
    screen.until("cat\n");
    // What is typed before is not echoed: bash has no echo while it edits a line.
    waits(screen.attached.pid, "cat");
    screen.type_in("x\n");
    screen.until("x\nx\n");
    screen.type_in("a\x04\x04");
    screen.until("aa$ ");
}

/// Promises: Z11.
#[test]
fn a_size_reaches_the_program_and_every_client_between_the_right_bytes() {
    let agent = Agent::start();
    let mut first = agent.bash();
    first.resize(100, 30);
    first.wait("a size", |screen| !screen.sizes.is_empty());
    assert_eq!(first.line("stty size"), "30 100\n");
    let mut second = agent.screen(AttachTerminal {
        size: Some(Size { cols: 50, rows: 10 }),
        ..attach_options(bash())
    });
    assert_eq!(second.attached.size, Size { cols: 100, rows: 30 });
    // Not the only client, so it sets the size when it types.
    second.resize(60, 20);
    second.wait("ready", |screen| screen.ready);
    // Not bash, which may lose the signal between two commands.
    let program =
        "$|=1; sub say_it { print `stty size` } $SIG{WINCH}=\\&say_it; say_it; sleep 9 while 1";
    second.type_in(&format!("perl -e '{program}'\n"));
    second.until("20 60\n");
    first.until("20 60\n");
    assert_eq!(first.sizes.last(), second.sizes.last());
    // Each of many sizes is reported where the program reports it.
    for at in 0..20 {
        let cols = 70 + at;
        let rows = 25;
        second.resize(cols, rows);
        let said = format!("{rows} {cols}\n");
        first.until(&said);
        second.until(&said);
        assert_eq!(first.sizes.last(), second.sizes.last());
        assert_eq!(first.sizes.last().map(|(_, size)| size.cols), Some(cols));
    }
    first.resize(0, 10);
    first.wait("a refusal", |screen| screen.refused.len() == 1);
    second.resize(u16::MAX, u16::MAX);
    second.until("400 1000\n");
}

#[test]
fn two_clients_see_the_same_and_know_of_each_other() {
    let agent = Agent::start();
    let mut first = agent.bash();
    let mut second =
        agent.screen(AttachTerminal { client: "you".into(), ..attach_options(bash()) });
    assert!(!second.attached.fresh);
    assert_eq!(second.attached.id, first.attached.id);
    first.wait("two", |screen| screen.seen.len() == 2);
    assert_eq!(first.seen[1].name, "you");
    assert!(!first.seen[1].typing);
    second.type_in("echo o''ne\n");
    let a = first.until("one\n$ ");
    let b = second.until("one\n$ ");
    assert!(a.ends_with(&b), "{a:?} {b:?}");
    first.wait("it types", |screen| screen.seen.iter().any(|one| one.name == "you" && one.typing));
    let hidden =
        agent.screen(AttachTerminal { hidden: true, size: None, ..attach_options(bash()) });
    drop(second);
    first.wait("alone", |screen| screen.seen.len() == 1);
    drop(hidden);
}

#[test]
fn one_that_looks_cannot_type() {
    let agent = Agent::start();
    let mut first = agent.bash();
    let mut viewer = agent.screen(AttachTerminal { view: true, ..attach_options(bash()) });
    viewer.type_in("exit\n");
    viewer.resize(10, 10);
    viewer.wait("refused", |screen| screen.refused.len() == 2);
    assert_eq!(first.line("stty size"), "24 80\n");
    viewer.until("done\n$ ");
}

#[test]
fn the_end_is_told_and_the_next_attach_is_fresh() {
    let agent = Agent::start();
    let mut screen = agent.bash();
    let id = screen.attached.id.clone();
    screen.type_in("exit 7\n");
    let closed = screen.end();
    assert_eq!((closed.code, closed.signal, closed.cause), (Some(7), None, CloseCause::Exit));
    assert!(screen.text().ends_with("exit\n"));
    // The connection can be used again.
    let mut screen = screen.again(attach_options(bash()));
    assert!(screen.attached.fresh && screen.attached.id != id && screen.attached.offset == 0);
    screen.until("$ ");
    screen.type_in("kill -KILL $$\n");
    let closed = screen.end();
    assert_eq!((closed.code, closed.signal, closed.cause), (None, Some(9), CloseCause::Killed));
}

/// Promises: Z13.
#[test]
fn what_a_program_said_last_comes_before_its_exit() {
    let agent = Agent::start();
    for _ in 0..20 {
        let mut screen = agent.screen(attach_options(argv(&["seq", "1", "2000"])));
        assert_eq!(screen.end().code, Some(0));
        let text = screen.text();
        assert!(text.ends_with("1999\n2000\n"), "{} {text:?}", text.len());
    }
}

/// F10: a background process keeps the terminal open but does not delay its end.
/// Promises: Z13.
#[test]
fn f10_who_holds_a_terminal_does_not_hold_its_end() {
    let agent = Agent::start();
    for text in [
        "sleep 1000 & exit 3\n",
        "setsid sleep 1000 & exit 3\n",
        "(trap '' HUP; while echo x; do :; done) & exit 3\n",
    ] {
        let mut screen = agent.bash();
        screen.type_in(text);
        assert_eq!(screen.end().code, Some(3), "{text}");
    }
}

/// Promises: Z13.
#[test]
fn closing_ends_all_that_was_started_in_it() {
    let agent = Agent::start();
    let mut screen = agent.bash();
    let mut pids = Vec::new();
    for text in
        ["sleep 1000 &", "(trap '' HUP TERM; exec sleep 1000) &", "nohup sleep 1000 &>/dev/null &"]
    {
        let said = screen.line(&format!("{text} echo $!"));
        pids.push(said.lines().last().expect("a pid").to_owned());
    }
    let mut other = agent.connect();
    other.request(&AgentRequest::Close { key: ShellKey::Terminal("test".to_owned()) });
    let closed = screen.end();
    assert_eq!(closed.cause, CloseCause::ClosedByClient);
    assert_eq!(other.response(), AgentResponse::Done);
    for pid in pids {
        until("it has ended", || !kit::there(format!("/proc/{pid}")));
    }
    other.request(&AgentRequest::Close { key: ShellKey::Terminal("test".to_owned()) });
    assert_eq!(other.response(), AgentResponse::Done);
    other.request(&AgentRequest::Terminals);
    assert_eq!(other.response(), AgentResponse::Terminals(Vec::new()));
}

/// Promises: Z14.
#[test]
fn what_cannot_be_opened_says_why() {
    let agent = Agent::start();
    let of = |open: OpenTerminal| attach_options(open);
    assert_eq!(refused(&agent, of(argv(&["no-such-program"]))).0, RefusalReason::NotFound);
    assert_eq!(refused(&agent, of(argv(&["/etc/passwd"]))).0, RefusalReason::Denied);
    assert_eq!(refused(&agent, of(argv(&[""]))).0, RefusalReason::BadRequest);
    assert_eq!(
        refused(&agent, of(OpenTerminal { cwd: "/no/such".into(), ..bash() })).0,
        RefusalReason::BadCwd
    );
    assert_eq!(
        refused(&agent, of(OpenTerminal { cwd: "a\0b".into(), ..bash() })).0,
        RefusalReason::BadRequest
    );
    let mut env = bash().env;
    env.insert("A".into(), "b\0c".into());
    assert_eq!(refused(&agent, of(OpenTerminal { env, ..bash() })).0, RefusalReason::BadRequest);
    assert_eq!(
        refused(&agent, AttachTerminal { open: None, ..attach_options(bash()) }).0,
        RefusalReason::NoShell
    );
    assert_eq!(
        refused(
            &agent,
            AttachTerminal {
                terminal: ShellKey::Session("x".to_owned()),
                ..attach_options(bash())
            }
        )
        .0,
        RefusalReason::BadRequest
    );
    let none = Some(Size { cols: 0, rows: 1 });
    assert_eq!(
        refused(&agent, AttachTerminal { size: none, ..attach_options(bash()) }).0,
        RefusalReason::BadRequest
    );
    let mut all = Vec::new();
    for number in 0..32 {
        all.push(agent.screen(AttachTerminal {
            terminal: ShellKey::Terminal(number.to_string()),
            ..attach_options(bash())
        }));
    }
    let (reason, message) = refused(&agent, attach_options(bash()));
    assert_eq!(reason, RefusalReason::TooMany, "{message}");
    all[0].until("$ ");
    all[0].type_in("exit\n");
    all[0].end();
    agent.bash();
}

#[test]
fn terminals_are_listed() {
    let agent = Agent::start();
    let mut screen = agent.bash();
    let mut client = agent.connect();
    client.request(&AgentRequest::Terminals);
    let AgentResponse::Terminals(list) = client.response() else { panic!("no list") };
    assert_eq!(list.len(), 1);
    let one = &list[0];
    assert_eq!(
        (one.name.to_string().as_str(), one.id.as_str()),
        ("t/test", screen.attached.id.as_str())
    );
    assert_eq!((one.pid, one.offset), (screen.attached.pid, screen.head()));
    assert_eq!(one.argv, ["bash", "--norc", "--noprofile"]);
    assert_eq!(one.clients.len(), 1);
    assert_eq!(screen.line("true"), "");
}

#[test]
fn watchers_hear_of_terminals() {
    let agent = Agent::start();
    let mut watcher = agent.connect();
    watcher.request(&AgentRequest::Watch);
    assert!(
        matches!(watcher.response(), AgentResponse::Inventory { activities, .. } if activities.is_empty())
    );
    let screen = agent.bash();
    let mut next = |wanted: &dyn Fn(u32, Option<&Closed>) -> bool| {
        watcher.skip_to(|response| {
            matches!(response, AgentResponse::Changed {
                activity: Some(Activity::Terminal { session, clients, closed, .. }), ..
            } if session == "test" && wanted(*clients, closed.as_ref()))
        })
    };
    next(&|clients, closed| clients == 1 && closed.is_none());
    drop(screen);
    next(&|clients, closed| clients == 0 && closed.is_none());
    let mut screen = agent.screen(attach_options(bash()));
    screen.type_in("exit\n");
    screen.end();
    next(&|_, closed| closed.is_some_and(|closed| closed.code == Some(0)));
    let _screen = agent.bash();
    let mut second = agent.connect();
    second.request(&AgentRequest::Watch);
    assert!(
        matches!(second.response(), AgentResponse::Inventory { activities, .. } if activities[0].key() == ShellKey::Terminal("test".to_owned()))
    );
}

/// Promises: Z1.
#[test]
fn a_watcher_hears_of_a_terminal_before_who_opens_it() {
    let agent = Agent::start();
    let mut watcher = agent.connect();
    watcher.request(&AgentRequest::Watch);
    assert!(matches!(watcher.response(), AgentResponse::Inventory { .. }));
    let _screen = agent.screen(attach_options(bash()));
    // No wait is needed, because the message has already arrived.
    watcher.stream.set_nonblocking(true).expect("a socket");
    let response = watcher.response();
    assert!(
        matches!(&response, AgentResponse::Changed {
            activity: Some(Activity::Terminal { session, closed: None, .. }), ..
        } if session == "test"),
        "{response:?}"
    );
}

/// Numbered lines without end, as fast as possible.
fn flood() -> OpenTerminal {
    argv(&["bash", "-c", "i=0; while :; do echo $((i++)) some words that make it longer; done"])
}

/// F23: endless output that no client reads.
#[test]
fn f23_a_flood_that_nobody_reads_runs_on_in_bounded_memory() {
    let agent = Agent::start();
    let screen = agent.screen(attach_options(argv(&["yes", "a line of some length"])));
    drop(screen);
    let mut client = agent.connect();
    let offset = |client: &mut kit::Client| {
        client.request(&AgentRequest::Terminals);
        match client.response() {
            AgentResponse::Terminals(list) => list[0].offset,
            other => panic!("{other:?}"),
        }
    };
    until("much was said", || offset(&mut client) > 8 << 20);
    let (before, _) = agent.size();
    let from = offset(&mut client);
    until("more was said", || offset(&mut client) > from + (16 << 20));
    let (after, _) = agent.size();
    assert!(after < before + 4096, "{before} KiB, then {after} KiB");
}

#[test]
fn a_client_that_comes_back_gets_every_byte_once() {
    let agent = Agent::start();
    let first = agent.screen(attach_options(flood()));
    let mut all = first.out.clone();
    let mut since = first.since();
    drop(first);
    let mut random = 7_u64;
    let mut exact = 0;
    for _ in 0..100 {
        let mut screen =
            agent.screen(AttachTerminal { since: since.take(), ..attach_options(flood()) });
        exact += usize::from(screen.attached.snapshot.is_none());
        if screen.attached.snapshot.is_some() {
            // No client was attached for more output than the ring holds.
            all.clear();
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let wanted = (random >> 40) as usize % 20_000;
        screen.wait("bytes", |screen| screen.out.len() > wanted && screen.ready);
        all.extend_from_slice(&screen.out);
        since = screen.since();
    }
    assert!(exact > 80, "{exact} of 100 went on where they were");
    let text = String::from_utf8(all).expect("text");
    let lines: Vec<&str> = text.split("\r\n").collect();
    let number = |line: &str| line.split(' ').next().and_then(|word| word.parse::<u64>().ok());
    // The first and the last number may be cut off.
    let numbers: Option<Vec<u64>> =
        lines[1..lines.len() - 1].iter().map(|line| number(line)).collect();
    let numbers = numbers.expect("every line has its number");
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[test]
fn one_that_stands_still_slows_nobody_and_is_told_what_it_missed() {
    let agent = Agent::start();
    let stalled = || agent.screen(AttachTerminal { since: None, ..attach_options(argv(&["yes"])) });
    let mut still = stalled();
    let mut reader = agent.screen(attach_options(argv(&["yes"])));
    // Whether the reader keeps up: otherwise, it receives a snapshot with missed bytes. So it does when
    // a busy machine does not let it run for a moment, and then it tries again.
    let keeps_up = |reader: &mut Screen| {
        reader.snapshots.clear();
        let wanted = reader.head() + (12 << 20);
        while reader.head() < wanted {
            reader.step();
            if reader.out.len() > 1 << 20 {
                reader.from = reader.head();
                reader.out.clear();
            }
        }
        reader.snapshots.iter().all(|snapshot| snapshot.missed == 0)
    };
    assert!((0..20).any(|_| keeps_up(&mut reader)), "{:?}", reader.snapshots);
    still.wait("a snapshot", |screen| !screen.snapshots.is_empty());
    assert!(still.snapshots[0].missed > 2 << 20, "{:?}", still.snapshots);
    let wanted = still.snapshots[0].bytes as usize;
    still.wait("the picture", |screen| screen.snapshot.len() == wanted);
    assert!(still.snapshot.starts_with(b"\x1bc"));
    still.wait("live output", |screen| screen.out.len() > 100);
}

/// A client that had been idle for longer than the stall limit was disconnected at the program's
/// end and never received it.
/// Promises: Z6.
#[test]
fn one_that_stood_still_hears_of_the_end() {
    let agent = Agent::with(&["--stall-ms", "3000"]);
    let open = || argv(&["bash", "-c", "seq 1 1000000; echo al''l; read -r; exit 7"]);
    let mut still = agent.screen(attach_options(open()));
    let mut reader = agent.screen(attach_options(open()));
    while !reader.out.ends_with(b"all\r\n") && !reader.out.ends_with(b"all\n") {
        reader.step();
    }
    std::thread::sleep(std::time::Duration::from_millis(3500));
    reader.type_in("\r");
    assert_eq!(reader.end().code, Some(7));
    assert_eq!(still.end().code, Some(7));
    assert!(still.snapshots.iter().any(|snapshot| snapshot.missed > 0));
}

#[test]
fn a_program_waits_for_the_one_client_that_reads_slowly() {
    let agent = Agent::start();
    let mut screen = agent.screen(attach_options(argv(&["seq", "1", "1000000"])));
    while screen.exit.is_none() {
        screen.step();
    }
    assert!(screen.snapshots.is_empty() && screen.text().ends_with("\n1000000\n"));
}

/// Promises: Z12.
#[test]
fn a_question_is_answered_once() {
    let agent = Agent::start();
    let script = "stty raw -echo; echo on; while read -rN1 key; do \
                  [ $key = q ] && printf '\\e[6n'; [ $key = e ] && break; printf '<%q>' \"$key\"; done";
    let open = || argv(&["bash", "-c", script]);
    let mut first = agent.screen(attach_options(open()));
    first.until("on");
    let mut second = agent.screen(attach_options(open()));
    second.wait("ready", |screen| screen.ready);
    first.type_in("q");
    first.until("<q>");
    first.type_in("\x1b[5;6R");
    second.type_in("\x1b[5;7R");
    second.type_in("x");
    let said = first.until("<x>");
    assert_eq!(said, "<$'\\E'><\\[><5><\\;><6><R><x>");
}

/// Promises: Z12.
#[test]
fn the_model_answers_while_nobody_is_there_who_can() {
    let agent = Agent::start();
    let start_file = agent.dir.at("go");
    let script = format!(
        "stty raw -echo; echo on; until [ -e {start_file} ]; do sleep 0.02; done; \
         printf '\\e[6n'; read -rN6 answer; printf '<%q>' \"$answer\""
    );
    let open = || argv(&["bash", "-c", &script]);
    let mut first = agent.screen(attach_options(open()));
    first.until("on");
    let mut viewer = agent.screen(AttachTerminal { view: true, ..attach_options(open()) });
    drop(first);
    viewer.wait("alone", |screen| screen.seen.len() == 1);
    std::fs::write(start_file, "").expect("writes");
    viewer.until("<$'\\E[2;3R'>");
}

/// Promises: Z10.
#[test]
fn a_paste_that_is_not_read_does_not_make_a_program_deaf() {
    let agent = Agent::start();
    let mut screen = agent.bash();
    screen.type_in("sleep 1000\n");
    sleeps(screen.attached.pid);
    for _ in 0..20 {
        screen.type_in(&"some words\n".repeat(1000));
    }
    // Another client, whose input comes after all of that.
    let mut other = agent.screen(attach_options(bash()));
    other.type_in("\x03");
    other.until("^C");
    other.until("$ ");
    assert_eq!(other.line("echo a''b"), "ab\n");
}
