//! Shells that outlive their sockets: sessions, resuming, several clients, and missed output.

use isolet_kit::{Frame, Outcome, Rows, SOON, Sandbox, Shell, Start, json, one, wait_until};

#[test]
fn a_session_outlives_its_socket() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.session("work");
    shell.run("x=kept; cd /usr; sleep 1000 & job=$!").is("", 0);
    let pid = shell.run("echo $$").text();
    shell.close();
    let mut again = sandbox.session("work");
    again.run("echo $x; pwd; kill -0 $job && echo runs").is("kept\n/usr\nruns\n", 0);
    again.run("echo $$").is(&pid, 0);
    again.cut();
    sandbox.session("work").run("echo $$").is(&pid, 0);
    let by_http = sandbox.command("work", "echo $$");
    assert_eq!(by_http["stdout"].as_str(), Some(pid.as_str()), "{by_http}");
}

/// Promises: G1, G3.
#[test]
fn sessions_have_separate_shells_in_one_sandbox() {
    let (_server, sandbox) = one();
    let mut one = sandbox.session("one");
    let mut two = sandbox.session("two");
    one.run("export X=1; cd /usr; echo shared >/workspace/f").is("", 0);
    two.run("echo ${X-unset}; pwd; cat f").is("unset\n/workspace\nshared\n", 0);
    one.run("sleep 4321 & :").is("", 0);
    two.run("pgrep -cf 'sleep 432[1]'").is("1\n", 0);
}

/// Promises: S8.
#[test]
fn a_session_whose_shell_ended_gets_a_fresh_one_and_a_notice() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.session("work");
    let mut watcher = sandbox.session("work");
    shell.run("x=1; exit 7").is("", 7);
    assert_eq!(shell.ended()["code"].as_i64(), Some(7));
    assert_eq!(watcher.ended()["code"].as_i64(), Some(7), "every attached client is notified");
    let next = shell.run("echo ${x-unset}");
    next.is("unset\n", 0);
    assert_eq!(next.exit["fresh"], true, "{next:?}");
    assert_ne!(shell.run("echo on").exit["fresh"], true);
    let by_http = sandbox.command("work", "kill -9 $$");
    assert_eq!(by_http["exit_code"].as_i64(), Some(137), "{by_http}");
    let after = sandbox.command("work", "echo new");
    assert_eq!(
        (after["stdout"].as_str(), &after["fresh"]),
        (Some("new\n"), &json!(true)),
        "{after}"
    );
}

#[test]
fn a_private_shell_ends_with_a_close_frame_and_stays_after_a_drop() {
    let (server, sandbox) = one();
    let shells = || server.processes("bash").len();
    let mut shell = sandbox.shell();
    shell.run("x=kept").is("", 0);
    let before = shells();
    let id = shell.id.clone();
    assert!(!id.is_empty(), "the upgrade names the shell");
    shell.cut();
    let mut again = sandbox.open(&format!("resume={id}"));
    again.run("echo $x").is("kept\n", 0);
    assert_eq!(shells(), before);
    again.close();
    wait_until("its bash is gone", SOON, || (shells() < before).then_some(()));
    assert_eq!(sandbox.try_open(&format!("resume={id}")).err(), Some(404));
}

/// Collects standard output by offset until the command's end; a byte that arrives twice must be
/// equal.
fn gather(shell: &mut Shell, collected: &mut Vec<u8>, base: u64, stop: Option<usize>) -> bool {
    loop {
        match shell.next(SOON).expect("it goes on") {
            Frame::Data { stream: 1, offset, bytes, .. } => {
                assert_eq!(offset - base, collected.len() as u64, "a byte is lost or doubled");
                collected.extend(bytes);
                if stop.is_some_and(|stop| collected.len() >= stop) {
                    return false;
                }
            }
            Frame::Text(value) if value["type"] == "shell_exit" => return true,
            Frame::Text(_) | Frame::Data { .. } => {}
            Frame::Close(code) => panic!("closed with {code}"),
        }
    }
}

/// Reattaching must neither duplicate nor skip output, which users of such servers ask for most.
/// Promises: S10.
#[test]
fn a_reader_that_reconnects_continues_at_its_byte() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.open("frames=binary");
    let id = shell.id.clone();
    shell
        .start(Start::new("for i in $(seq 1 40); do seq 1 2000; sleep 0.02; done").with("id", "c"));
    let mut collected = Vec::new();
    let mut ended = false;
    let mut cuts = 0;
    while !ended {
        // Output that waits for a slow client arrives in larger frames, of which the whole needs several.
        let stop = collected.len() + 36_000;
        ended = gather(&mut shell, &mut collected, 0, Some(stop));
        if !ended {
            shell.cut();
            cuts += 1;
            shell = sandbox.open(&format!("resume={id}&frames=binary&since={}", collected.len()));
        }
    }
    let whole = (1..=2000).map(|n| format!("{n}\n")).collect::<String>().repeat(40);
    assert!(cuts > 3 && collected == whole.as_bytes(), "{cuts} cuts, {} bytes", collected.len());
}

/// Promises: S10.
#[test]
fn discarded_output_is_reported_as_a_gap() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.session("long");
    shell.run("head -c 50000000 /dev/zero | tr '\\0' a").code.expect("it ends");
    let back = format!("session=long&resume={}&since=0", shell.id);
    drop(shell);
    let mut back = sandbox.open(&back);
    let mut outcome = Outcome::default();
    back.follow("none", &mut outcome, |so_far| so_far.gap > 0);
    assert!(outcome.gap > 1_000_000 && outcome.gap < 50_000_000, "{}", outcome.gap);
    back.run("echo on").is("on\n", 0);
}

#[test]
fn two_clients_of_one_session_take_turns_and_see_their_own() {
    let (_server, sandbox) = one();
    let mut one = sandbox.session("both");
    let mut two = sandbox.session("both");
    one.run("x=from-one").is("", 0);
    let a = one.start(Start::new("echo $x; x=a").with("id", "same"));
    let b = two.start(Start::new("echo $x; x=b").with("id", "same"));
    let said = (one.finish(&a).text(), two.finish(&b).text());
    let orders = [("from-one\n", "a\n"), ("b\n", "from-one\n")];
    assert!(orders.contains(&(said.0.as_str(), said.1.as_str())), "{said:?}");
    assert!(one.others.is_empty() && one.background.is_empty(), "{one:?}");
    assert!(two.others.is_empty() && two.background.is_empty(), "{two:?}");
}

#[test]
fn a_watcher_sees_the_commands_of_others() {
    let (_server, sandbox) = one();
    let mut watcher = sandbox.open("session=seen&watch=1");
    let mut worker = sandbox.session("seen");
    worker.run("echo shown").is("shown\n", 0);
    let mut text = String::new();
    loop {
        match watcher.next(SOON).expect("the watcher hears") {
            Frame::Text(value) if value["type"] == "shell_out" => {
                text.push_str(value["data"].as_str().expect("data is text"));
            }
            Frame::Text(value) if value["type"] == "shell_exit" => break,
            Frame::Text(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(text, "shown\n");
}

/// Sends an invalid frame and expects an error answer and a living shell.
fn refused(sandbox: &Sandbox, frame: &str) {
    let mut shell = sandbox.shell();
    shell.send_message(tungstenite_text(frame)).expect("it is sent");
    let answer = shell.next(SOON).expect("it is answered");
    let Frame::Text(value) = &answer else { panic!("{frame} got {answer:?}") };
    assert_eq!(value["type"], "shell_error", "{frame} got {value}");
    assert!(value["message"].as_str().is_some_and(|text| !text.is_empty()), "{value}");
    shell.run("echo lives").is("lives\n", 0);
}

fn tungstenite_text(text: &str) -> isolet_kit::Message {
    isolet_kit::Message::text(text)
}

#[test]
fn invalid_frames_are_refused_by_name_and_the_shell_survives() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let deep = format!("{{\"type\":{}", "[".repeat(100_000));
    let frames = [
        "",
        "nonsense",
        "[]",
        "null",
        "{}",
        "{\"type\":1}",
        "{\"type\":\"nope\"}",
        "{\"type\":\"shell_run\"}",
        "{\"type\":\"shell_run\",\"id\":\"a\"}",
        "{\"type\":\"shell_run\",\"id\":1,\"command\":\"ls\"}",
        "{\"type\":\"shell_run\",\"id\":\"a\",\"command\":[\"ls\"]}",
        "{\"type\":\"shell_run\",\"id\":\"a\",\"command\":\"ls\",\"nope\":1}",
        "{\"type\":\"shell_run\",\"id\":\"a\",\"command\":\"ls\",\"timeout_ms\":-1}",
        "{\"type\":\"shell_run\",\"id\":\"a\",\"command\":\"ls\",\"timeout_ms\":1e308}",
        "{\"type\":\"shell_run\",\"id\":\"a\",\"command\":\"ls\",\"env\":[]}",
        "{\"type\":\"shell_run\",\"id\":\"a\",\"command\":\"a\\u0000b\"}",
        "{\"type\":\"shell_run\",\"id\":\"a\",\"command\":\"ls\"} x",
        "{\"type\":\"shell_stdin\",\"id\":\"none\",\"data\":\"x\"}",
        "{\"type\":\"shell_cancel\",\"id\":\"none\"}",
        "{\"type\":\"shell_signal\",\"id\":\"none\",\"signal\":\"KILL\"}",
        deep.as_str(),
    ];
    for frame in frames {
        rows.row(&frame[..frame.len().min(60)], || refused(&sandbox, frame));
    }
    for signal in ["0", "65", "-1", "\"KILL\\u0000\"", "\"NOPE\""] {
        rows.row(&format!("signal {signal}"), || {
            let mut shell = sandbox.shell();
            let id = shell.start(Start::new("sleep 100"));
            let text = format!("{{\"type\":\"shell_signal\",\"id\":\"{id}\",\"signal\":{signal}}}");
            shell.send_message(tungstenite_text(&text)).expect("it is sent");
            let answer = shell.next(SOON).expect("it is answered");
            assert!(
                matches!(&answer, Frame::Text(value) if value["type"] == "shell_error"),
                "{answer:?}"
            );
            shell.cancel(&id);
            shell.finish(&id);
        });
    }
    rows.row("an id that is in use", || {
        let mut shell = sandbox.shell();
        shell.run("mkfifo /tmp/go").is("", 0);
        shell.start(Start::new("read x </tmp/go; echo first").with("id", "x"));
        shell.start(Start::new("echo second").with("id", "x"));
        let mut errors = 0;
        let mut out = String::new();
        loop {
            match shell.next(SOON).expect("it goes on") {
                Frame::Text(value) if value["type"] == "shell_error" => {
                    errors += 1;
                    sandbox.says("echo >/tmp/go");
                }
                Frame::Text(value) if value["type"] == "shell_out" => {
                    out.push_str(value["data"].as_str().unwrap_or_default());
                }
                Frame::Text(value) if value["type"] == "shell_exit" => break,
                _ => {}
            }
        }
        assert_eq!((errors, out.as_str()), (1, "first\n"));
    });
}
