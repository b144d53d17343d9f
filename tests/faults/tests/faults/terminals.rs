//! Terminals that nobody reads, that are read slowly, or whose clients vanish without closing.

use isolet_kit::{LONG, Message, Rows, SOON, Sandbox, Terminal, one, process, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How much a server and an agent may grow while terminals flood: a few buffers, and no queue.
const GROWTH_KIB: u64 = 24 * 1024;
/// The time within which a connection with a silent peer is given up: three times what the server waits.
const SILENT: Duration = Duration::from_secs(90);

/// The number of clients of a session's terminal.
fn clients(sandbox: &Sandbox, session: &str) -> usize {
    let list = sandbox.http.get(&sandbox.path("/terminals")).expect(200).json();
    let of_it = list.as_array().and_then(|all| all.iter().find(|one| one["session"] == session));
    of_it.and_then(|one| one["clients"].as_array()).map_or(0, Vec::len)
}

/// The number of bytes that a session's terminal has shown so far.
fn shown(sandbox: &Sandbox, session: &str) -> u64 {
    let list = sandbox.http.get(&sandbox.path("/terminals")).expect(200).json();
    let of_it = list.as_array().and_then(|all| all.iter().find(|one| one["session"] == session));
    of_it.and_then(|one| one["offset"].as_u64()).unwrap_or(0)
}

/// Promises: F10.
#[test]
fn f10_a_process_that_holds_a_terminal_open_delays_neither_its_end_nor_the_next() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let holders = [
        ("a job", "sleep 1000 &"),
        ("deaf", "(trap '' HUP TERM; sleep 1000) &"),
        ("disowned", "nohup sleep 1000 & disown"),
        ("in a session of its own", "setsid sleep 1000 </dev/tty >/dev/tty 2>&1 &"),
        // Bash warns about jobs that it knows to be stopped, which the kernel reports after a
        // moment.
        (
            "stopped",
            "sleep 1000 & kill -STOP $!; until [[ $(jobs) == *Stopped* ]]; do sleep 0.01; done;",
        ),
    ];
    for (at, (name, text)) in holders.into_iter().enumerate() {
        rows.row(name, || {
            let query = format!("session=s{at}");
            let mut terminal = sandbox.terminal(&query);
            terminal.line(&format!("{text} echo be''gun"), "begun");
            terminal.line("echo pro''mpt", "prompt");
            // Bash warns once more about a stopped job.
            terminal.type_in("exit 5\r");
            if name == "stopped" {
                terminal.sees("stopped jobs");
                terminal.type_in("exit 5\r");
            }
            let exit = terminal.frame("exit");
            assert_eq!(exit["code"], 5, "{exit}");
            assert_eq!(terminal.end(), 1000);
            let mut next = sandbox.terminal(&query);
            assert_eq!(next.output.windows(5).filter(|part| part == b"begun").count(), 0);
            next.line("echo fre''sh", "fresh");
        });
    }
    drop(rows);
    server.healthy();
}

/// Promises: F23.
#[test]
fn heavy_f23_unread_floods_are_bounded_and_clients_can_reconnect() {
    let (server, sandbox) = one();
    let pid = server.pid();
    let agent = server.agent();
    let before = (process::memory_kib(pid), process::memory_kib(agent));
    let mut rows = Rows::new();
    let floods = [
        ("yes", "yes", u64::MAX),
        ("random bytes", "cat /dev/urandom", u64::MAX),
        ("a GiB without an end of line", "head -c 1073741824 /dev/zero | tr '\\0' a", 1 << 28),
    ];
    for (name, text, _) in floods {
        for stalled in [false, true] {
            rows.row(
                &format!("{name}, {}", if stalled { "a client stands" } else { "nobody" }),
                || {
                    let session = format!("s{}{stalled}", text.len());
                    let query = format!("session={session}");
                    let mut terminal = sandbox.terminal(&query);
                    // What is printed during a flood is not typed into the program.
                    terminal.type_in(&format!("stty -echo; {text}; echo en''ded\r"));
                    let begun = terminal.offset();
                    let standing = stalled.then_some(terminal);
                    wait_until("it continues without readers", LONG, || {
                        (shown(&sandbox, &session) > begun + 32 * 1024 * 1024).then_some(())
                    });
                    let grown = |now: u64, before: u64, who: &str| {
                        assert!(now < before + GROWTH_KIB, "{who}: {before} to {now} KiB");
                    };
                    grown(process::memory_kib(pid), before.0, "server");
                    grown(process::memory_kib(agent), before.1, "agent");
                    let mut back = sandbox.terminal(&query);
                    back.type_in("\x03");
                    back.type_in("stty sane; reset; echo ba''ck\r");
                    // After a flood the screen is a snapshot or the end of the output; either ends
                    // here.
                    back.sees("back");
                    drop((back, standing));
                    let path = sandbox.path(&format!("/terminals/{session}"));
                    assert_eq!(sandbox.http.delete(&path).status, 204);
                },
            );
        }
    }
    drop(rows);
    server.healthy();
}

/// A reader of one byte per second once slowed all other clients of a terminal. The test measures
/// progress instead of time: while the slow reader advances by some bytes, two others see a flood
/// to its end, in order and once. A machine that stands still for longer than a program waits costs
/// them a jump, which is reported: then the flood is repeated, because a slow reader would cost them
/// jumps each time.
/// Promises: F24.
#[test]
fn heavy_f24_a_slow_reader_of_a_terminal_slows_no_other() {
    const LAST: u64 = 1_500_000;
    const FLOODS_MAX: usize = 5;
    let (server, sandbox) = one();
    let mut first = sandbox.terminal("name=first");
    first.line("echo be''gin", "begin");
    let mut slow = sandbox.try_terminal("events=1&mode=view&name=slow").expect("attaches");
    let slowly = std::thread::spawn(move || {
        let mut byte = [0; 1];
        let mut count = 0_u64;
        let stream = slow.stream();
        // This thread ends with the server.
        while stream.read(&mut byte).is_ok_and(|read| read == 1) && count < 20 {
            count += 1;
            std::thread::park_timeout(Duration::from_secs(1));
        }
        count
    });
    let whole = |mut terminal: Terminal, types: bool| {
        if types {
            terminal.type_in("seq 1 1500000; echo en''d\r");
        }
        // The output is discarded after checking its order and its end.
        let mut next = 1_u64;
        let mut missed = 0_u64;
        let mut rest = Vec::new();
        let before = terminal.jumps;
        let mut jumps = before;
        let mut torn = false;
        terminal.base += terminal.output.len() as u64;
        terminal.output.clear();
        let mut arrived = (next, Instant::now());
        loop {
            if next > arrived.0 {
                arrived = (next, Instant::now());
            }
            assert!(arrived.1.elapsed() < LONG, "nothing more after {next}");
            terminal.step(SOON);
            if terminal.jumps > jumps {
                // The output was cut within a line and continues within one.
                jumps = terminal.jumps;
                rest.clear();
                torn = true;
            }
            terminal.base += terminal.output.len() as u64;
            rest.append(&mut terminal.output);
            let complete = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = rest.drain(..complete).collect();
            let mut ended = false;
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                ended |= line.ends_with(b"end\r\n");
                if std::mem::take(&mut torn) {
                    continue;
                }
                let text = String::from_utf8_lossy(line);
                // Before the first line, the shell changes a mode of its terminal.
                let text = text.trim_end().rsplit('\r').next().unwrap_or_default();
                if let Ok(number) = text.parse::<u64>() {
                    if terminal.jumps > before && number > next {
                        missed += number - next;
                        next = number;
                    }
                    assert_eq!(number, next, "a line is missing without notice, or repeated");
                    next += 1;
                }
            }
            if ended {
                return (next, missed, terminal.jumps - before);
            }
        }
    };
    drop(first);
    let flood = || {
        let first = sandbox.terminal("name=first");
        let second = sandbox.terminal("mode=view&name=second");
        let ends = std::thread::scope(|scope| {
            let second = scope.spawn(|| whole(second, false));
            let first = whole(first, true);
            [first, second.join().expect("reads")]
        });
        ends.into_iter().all(|(next, missed, jumps)| {
            assert!(jumps > 0 || next == LAST + 1, "it ends at {next}");
            eprintln!("{missed} lines missed in {jumps} jumps");
            jumps <= 2 && missed < LAST / 2
        })
    };
    assert!((0..FLOODS_MAX).any(|_| flood()), "the others miss much of every flood");
    server.healthy();
    drop(server);
    assert!(slowly.join().expect("reads") < 200, "it was not a slow reader");
}

/// Promises: F25.
#[test]
fn f25_vanished_clients_are_detected() {
    let (server, sandbox) = one();
    let mut other = sandbox.terminal("");
    other.line("echo be''gin", "begin");
    let mut rows = Rows::new();
    rows.row("vanished in the middle of a frame", || {
        let mut cut = sandbox.terminal("");
        // A masked binary frame of ten bytes, of which three arrive.
        cut.stream().write_all(&[0x82, 0x8a, 0, 0, 0, 0, b'x', b'y', b'z']).expect("takes bytes");
        cut.cut();
        wait_until("it is gone", SOON, || (clients(&sandbox, "default") == 1).then_some(()));
        other.line("echo wh''ole", "whole");
        assert!(!String::from_utf8_lossy(&other.output).contains("xyz"));
    });
    rows.row("silent, as behind a cut cable", || {
        // Open, but neither read nor written: they answer no ping and do not end the connection.
        let silent: Vec<Terminal> = ["", "mode=view", "session=alone"]
            .iter()
            .map(|query| sandbox.terminal(query))
            .collect();
        assert_eq!(clients(&sandbox, "default"), 3);
        let begun = Instant::now();
        while clients(&sandbox, "default") > 1 || clients(&sandbox, "alone") > 0 {
            assert!(begun.elapsed() < SILENT, "still attached after {SILENT:?}");
            // The live client answers its pings.
            other.step(Duration::from_millis(200));
        }
        other.line("echo li''ves", "lives");
        drop(silent);
    });
    drop(rows);
    server.healthy();
}

/// Connections that send nothing, or half an upgrade: they are closed when their time is over, and
/// other clients are served during that time.
/// Promises: F26.
#[test]
fn f26_silent_connections_are_closed_and_others_are_served() {
    const SILENT_ONES: usize = 3000;
    let (server, sandbox) = one();
    let before = process::memory_kib(server.pid());
    let head = format!(
        "GET {}?events=1 HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nupgrade: websocket\r\nconnection: upg",
        sandbox.path("/terminal"),
        server.port()
    );
    let silent: Vec<TcpStream> = (0..SILENT_ONES)
        .map(|at| {
            let mut stream = server.http().connect();
            if at % 2 == 1 {
                stream.write_all(head.as_bytes()).expect("takes half a head");
            }
            stream
        })
        .collect();
    let grown = process::memory_kib(server.pid()).saturating_sub(before);
    assert!(grown < SILENT_ONES as u64 * 24, "{grown} KiB for {SILENT_ONES}");
    let mut terminal = sandbox.terminal("");
    terminal.line("echo ser''ved", "served");
    for mut stream in silent {
        stream.set_read_timeout(Some(LONG)).expect("a time");
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        let refused = answer.is_empty() || answer.starts_with(b"HTTP/1.1 408");
        assert!(refused, "{}", String::from_utf8_lossy(&answer));
        assert!(
            !matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
            "still open"
        );
    }
    terminal.send(Message::Ping(Vec::new().into())).expect("it is there");
    terminal.line("echo sti''ll", "still");
    server.healthy();
}

/// F20: a thousand clients that read nothing while their terminals flood. The server holds one or
/// two buffers for each and still answers new clients.
#[test]
fn heavy_f20_a_thousand_clients_that_do_not_read_cost_a_buffer_each() {
    const SESSIONS: usize = 4;
    const EACH: usize = 250;
    const CLIENT_KIB: u64 = 512;
    let (server, sandbox) = one();
    let pid = server.pid();
    let agent = server.agent();
    let before = (process::memory_kib(pid), process::memory_kib(agent));
    let standing: Vec<Terminal> = std::thread::scope(|scope| {
        let attach = |session: usize| {
            let mut typing = sandbox.terminal(&format!("session=s{session}"));
            typing.type_in("stty -echo; yes\r");
            let query = format!("session=s{session}&mode=view");
            let views = (1..EACH).map(|_| sandbox.try_terminal(&query).expect("attaches"));
            std::iter::once(typing).chain(views.collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..SESSIONS).map(|at| scope.spawn(move || attach(at))).collect();
        all.into_iter().flat_map(|one| one.join().expect("attaches")).collect()
    });
    assert_eq!(standing.len(), SESSIONS * EACH);
    let grown = |who: &str, now: u64, before: u64, most: u64| {
        assert!(now < before + most, "{who}: {before} to {now} KiB");
    };
    for session in 0..SESSIONS {
        let session = format!("s{session}");
        let begun = shown(&sandbox, &session);
        wait_until("it continues without readers", LONG, || {
            grown("server", process::memory_kib(pid), before.0, CLIENT_KIB * standing.len() as u64);
            grown("agent", process::memory_kib(agent), before.1, 2 * GROWTH_KIB);
            (shown(&sandbox, &session) > begun + 4 * 1024 * 1024).then_some(())
        });
    }
    let mut other = sandbox.terminal("session=other");
    other.line("echo ser''ved", "served");
    drop(standing);
    server.healthy();
}
