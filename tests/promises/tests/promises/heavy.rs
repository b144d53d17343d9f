//! High load: bytes, commands, shells, and clients that do not read. Memory use does not grow.

use isolet_kit::{
    Frame, LONG, Options, Outcome, SOON, Shell, Start, Value, json, one, process, quickly,
    wait_until,
};
use std::time::Instant;

/// More than any queue, ring or buffer of one shell may grow to, in KiB.
const GROWTH_KIB: u64 = 48 * 1024;

/// Reads a command's output without storing it; returns the bytes of standard output and the exit
/// frame.
fn count(shell: &mut Shell, id: &str) -> (u64, Value) {
    let mut total = 0;
    let end = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < end, "{total} bytes within {LONG:?}");
        match shell.next(SOON).expect("output goes on") {
            Frame::Data { stream: 1, bytes, .. } => total += bytes.len() as u64,
            Frame::Text(value) if value["type"] == "shell_out" => {
                total += value["data"].as_str().map_or(0, str::len) as u64;
            }
            Frame::Text(value) if value["type"] == "shell_exit" && value["id"] == id => {
                return (total, value);
            }
            Frame::Close(code) => panic!("closed with {code} after {total} bytes"),
            _ => {}
        }
    }
}

/// Promises: S12.
#[test]
fn heavy_100_mb_pass_through_one_command_in_constant_memory() {
    let (server, sandbox) = one();
    for query in ["frames=binary", ""] {
        let mut shell = sandbox.open(query);
        let warm = shell.start(Start::new("head -c 1000000 /dev/zero | tr '\\0' a"));
        count(&mut shell, &warm);
        let before = (process::memory_kib(server.pid()), process::memory_kib(server.agent()));
        let id = shell.start(Start::new("head -c 100000000 /dev/zero | tr '\\0' a"));
        let (total, exit) = count(&mut shell, &id);
        let after = (process::memory_kib(server.pid()), process::memory_kib(server.agent()));
        assert_eq!((total, exit["code"].as_i64()), (100_000_000, Some(0)), "{query}: {exit}");
        assert!(after.0 < before.0 + GROWTH_KIB, "server: {before:?} to {after:?} KiB");
        assert!(after.1 < before.1 + GROWTH_KIB, "agent: {before:?} to {after:?} KiB");
    }
}

/// Promises: S12.
#[test]
fn heavy_10_000_commands_in_one_shell_leave_nothing_behind() {
    let (server, sandbox) = one();
    let mut shell = sandbox.shell();
    let run = |shell: &mut Shell, count: usize| {
        for n in 0..count {
            let outcome = shell.run("echo $((n+=1))");
            assert_eq!(outcome.code, Some(0), "command {n}: {outcome:?}");
        }
    };
    run(&mut shell, 2000);
    let pid = server.pid();
    let agent = server.agent();
    let look = || (process::descriptors(pid), process::descriptors(agent));
    let files = look();
    let memory = (process::memory_kib(pid), process::memory_kib(agent));
    run(&mut shell, 8000);
    shell.run("echo $n").is("10000\n", 0);
    // The server and the agent open files for a moment, now and then.
    wait_until("no descriptor of server and agent is left", SOON, || {
        let now = look();
        (now.0 <= files.0 && now.1 <= files.1).then_some(())
    });
    let server_kib = process::memory_kib(pid);
    let agent_kib = process::memory_kib(agent);
    assert!(server_kib < memory.0 + 4096, "server: {} to {server_kib} KiB", memory.0);
    assert!(agent_kib < memory.1 + 4096, "agent: {} to {agent_kib} KiB", memory.1);
}

#[test]
fn heavy_50_shells_at_once_keep_apart() {
    let (server, sandbox) = one();
    let mut shells: Vec<Shell> = (0..50).map(|_| sandbox.shell()).collect();
    for (n, shell) in shells.iter_mut().enumerate() {
        shell.run(&format!("me={n}; cd /tmp; mkdir d{n}; cd d{n}")).is("", 0);
    }
    let ids: Vec<String> = shells
        .iter_mut()
        .map(|shell| shell.start(Start::new("for i in {1..200}; do echo $me; done; pwd")))
        .collect();
    for (n, (shell, id)) in shells.iter_mut().zip(ids).enumerate() {
        shell.finish(&id).is(&format!("{}/tmp/d{n}\n", format!("{n}\n").repeat(200)), 0);
    }
    drop(shells);
    server.healthy();
}

/// A common failure of such servers: one client stops reading, and the commands of all others hang.
/// Promises: S11.
#[test]
fn f24_a_client_that_stops_reading_affects_nobody_else() {
    let server = Options::new().env("ISOLET_STALL_MS", "600000").start();
    let sandbox = server.sandbox();
    let mut stalled = sandbox.open("session=shared&watch=1");
    let mut reader = sandbox.open("session=shared");
    let mut other = sandbox.shell();
    let before = process::memory_kib(server.pid());
    // The stalled client watches the first command's output and never reads it.
    let id = reader.start(Start::new("head -c 60000000 /dev/zero | tr '\\0' a"));
    let begin = Instant::now();
    let mut rounds = 0_u32;
    let mut total = 0;
    let exit = loop {
        match reader.next(SOON).expect("the reader's output goes on") {
            Frame::Text(value) if value["type"] == "shell_out" => {
                total += value["data"].as_str().map_or(0, str::len);
            }
            Frame::Text(value) if value["type"] == "shell_exit" && value["id"] == id => {
                break value;
            }
            Frame::Close(code) => panic!("the reader was closed with {code}"),
            _ => {}
        }
        if rounds < 20 {
            rounds += 1;
            quickly("a command beside a stalled client", SOON, || {
                other.run("echo beside").is("beside\n", 0);
            });
        }
        assert!(begin.elapsed() < LONG, "{total} bytes within {LONG:?}");
    };
    assert_eq!((total, exit["code"].as_i64()), (60_000_000, Some(0)), "{exit}");
    let after = process::memory_kib(server.pid());
    assert!(after < before + GROWTH_KIB, "server: {before} to {after} KiB");
    // The stalled client gets a notice of what it lost, or is closed with a code.
    let end = Instant::now() + LONG;
    let mut answer = false;
    while !answer {
        assert!(Instant::now() < end, "the stalled client gets no notice");
        answer = match stalled.next(SOON) {
            Some(Frame::Text(value)) => {
                value["type"] == "shell_gap" || value["type"] == "shell_exit"
            }
            Some(Frame::Close(_)) => true,
            Some(Frame::Data { .. }) => false,
            None => panic!("the stalled client hears nothing more"),
        };
    }
    server.healthy();
}

/// The only client of a shell does not read: the command waits for the stall time, then continues,
/// and the client gets a notice of what it missed.
/// Promises: S11.
#[test]
fn a_command_waits_for_its_only_reader_no_longer_than_the_stall_time() {
    let server = Options::new().env("ISOLET_STALL_MS", "1000").start();
    let sandbox = server.sandbox();
    let mut shell = sandbox.open("frames=binary");
    let id = shell.start(Start::new("head -c 200000000 /dev/zero; touch /tmp/done"));
    wait_until("the command ends without its reader", LONG, || {
        (sandbox.says("ls /tmp") == "done\n").then_some(())
    });
    let mut outcome = Outcome::default();
    shell.follow(&id, &mut outcome, |_| false);
    assert_eq!(outcome.code, Some(0), "{}", outcome.exit);
    assert!(outcome.gap > 0, "it got no notice of a gap");
    assert_eq!(outcome.out.len() as u64 + outcome.gap, 200_000_000);
    shell.run("echo lives").is("lives\n", 0);
}

#[test]
fn a_full_queue_refuses_and_loses_nothing() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.shell();
    shell.run("mkfifo /tmp/go").is("", 0);
    shell.start(Start::new("read x </tmp/go").with("id", "first"));
    let mut asked = 0;
    let mut refused = 0;
    let mut ended = 0;
    for n in 0..5000 {
        shell.start(Start::new("count=$((count+1))").with("id", format!("q{n}")));
        asked += 1;
    }
    sandbox.run("echo >/tmp/go").is("", 0);
    while refused + ended < asked {
        match shell.next(SOON).expect("each is answered") {
            Frame::Text(value) if value["type"] == "shell_error" => refused += 1,
            Frame::Text(value) if value["type"] == "shell_exit" => {
                ended += i32::from(value["id"] != "first");
            }
            Frame::Close(code) => panic!("closed with {code}"),
            _ => {}
        }
    }
    assert!(ended > 0);
    shell.run("echo $count").is(&format!("{ended}\n"), 0);
    shell.send(&json!({ "type": "shell_run", "id": "again", "command": "echo again" }));
    shell.finish("again").is("again\n", 0);
}
