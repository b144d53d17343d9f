//! `isolet attach` on a real terminal: a PTY of the test, or a pane of tmux, whose screen is
//! compared cell by cell.

use crate::programs::run;
use isolet_kit::process::TERM;
use isolet_kit::{Pty, SOON, Server, wait_until};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A third of the time for which a client says nothing about an outage: what takes longer on the side
/// of the server proves nothing about the client.
const AT_ONCE: Duration = Duration::from_millis(500);
/// The keys that detach.
const LEAVE: &str = "\x1c\x04";

/// Attaches on a new terminal and waits for a prompt that does not occur in any typed line.
fn attach(server: &Server, args: &[&str]) -> Pty {
    let mut pty = start(server, args);
    pty.type_in("PS1='rea''dy> '\r");
    pty.sees("ready> ");
    pty
}

fn start(server: &Server, args: &[&str]) -> Pty {
    let mut program = server.program();
    program.arg("attach").args(args);
    Pty::start(&program, 80, 24)
}

/// Promises: Z20.
#[test]
fn attach_follows_the_window_size_and_exits_with_the_programs_code() {
    let server = Server::start();
    let mut pty = attach(&server, &["a"]);
    assert!(pty.is_raw());
    pty.line("tty | cut -c1-9; stty size; echo $TERM", "/dev/pts/\r\n24 80\r\nxterm-256color\r\n");
    pty.resize(101, 33);
    pty.sees("ready> ");
    pty.line(
        "until [ \"$(stty size)\" = '33 101' ]; do sleep 0.01; done; echo fol''lowed",
        "followed",
    );
    pty.line("sleep 100", "sleep 100");
    // Before the program runs, an interrupt would reach only bash.
    wait_until("it runs", SOON, || (!server.processes("sleep").is_empty()).then_some(()));
    let from = pty.sees("sleep 100");
    pty.type_in("\x03");
    let from = pty.sees_after(from, "^C");
    // Bash drops input that arrives before its prompt is shown again.
    pty.sees_after(from, "ready> ");
    pty.line("echo o''n", "on\r\n");
    pty.type_in("exit 3\r");
    assert_eq!(pty.ended(), 3);
    assert!(!pty.is_raw());

    let mut killed = attach(&server, &["a"]);
    killed.type_in("kill -9 $$\r");
    assert_eq!(killed.ended(), 137);
    assert!(killed.text().contains("killed by SIGKILL"), "{}", killed.text());
}

/// Promises: Z20.
#[test]
fn a_detached_client_gets_the_reattach_command_and_finds_the_same_screen() {
    let server = Server::start();
    let mut pty = attach(&server, &["a", "--session", "dev"]);
    let before = pty.settings();
    pty.line("kept=1; echo se''en", "seen\r\n");
    // The first of the two detach keys alone reaches the program after a moment.
    pty.line("sleep 100", "sleep 100");
    // Before the program runs, it would reach only bash.
    wait_until("it runs", SOON, || (!server.processes("sleep").is_empty()).then_some(()));
    pty.type_in("\x1c");
    pty.sees("Quit");
    pty.type_in(LEAVE);
    assert_eq!(pty.ended(), 0);
    assert!(pty.text().contains("isolet attach a --session dev"), "{}", pty.text());
    assert_ne!(format!("{before:?}"), format!("{:?}", pty.settings()));
    let mut again = start(&server, &["a", "--session", "dev", "--detach-keys", "ctrl-p,ctrl-q"]);
    again.sees("seen");
    again.line("echo kept-$kept", "kept-1\r\n");
    again.type_in("\x10\x11");
    assert_eq!(again.ended(), 0);
}

/// Every mode that a program may have left on is switched off again, and the settings are restored,
/// however the command ends.
/// Promises: Z22.
#[test]
fn however_attach_ends_the_users_terminal_is_restored() {
    let server = Server::start();
    let dirty =
        "printf '\\e[?1049h\\e[?1000h\\e[?1006h\\e[?2004h\\e[?25l\\e[?1h\\e[2;5r'; echo di''rty";
    for (signal, code) in [(Some(TERM), 143), (None, 0)] {
        let mut pty = attach(&server, &["a"]);
        pty.line(dirty, "dirty");
        let from = pty.seen.len();
        match signal {
            Some(signal) => pty.signal(signal),
            None => pty.type_in(LEAVE),
        }
        assert_eq!(pty.ended(), code);
        let last = String::from_utf8_lossy(&pty.seen[from..]).into_owned();
        for reset in ["1049l", "1000l", "1006l", "2004l", "25h", "1l"] {
            assert!(last.contains(&format!("\x1b[?{reset}")), "{reset}: {last:?}");
        }
        assert!(last.contains("\x1b[r") && !pty.is_raw());
    }
}

/// Promises: Z20.
#[test]
fn a_program_that_cannot_be_started_is_reported_as_by_a_shell() {
    let server = Server::start();
    for (program, code, answer) in [
        ("/nope", 127, "program not found: /nope"),
        ("/etc/passwd", 126, "permission denied: /etc/passwd"),
    ] {
        let mut pty = start(&server, &["a", "--command", program]);
        pty.sees(answer);
        assert_eq!(pty.ended(), code);
    }
}

/// Promises: Z20.
#[test]
fn an_end_caused_by_the_sandbox_is_reported_as_such() {
    let server = Server::start();
    let mut pty = attach(&server, &["a"]);
    run(server.program().args(["rm", "a"])).well();
    pty.sees("sandbox a was deleted");
    assert_eq!(pty.ended(), 137);
}

/// Promises: Z21.
#[test]
fn attach_waits_for_a_killed_server_and_loses_or_repeats_no_byte() {
    let mut server = Server::start();
    let mut pty = attach(&server, &["a"]);
    // On a loaded machine it may reconnect too late for that and redraw the screen.
    let mut shortest = Duration::MAX;
    let back_at_once = (0..5).any(|round| {
        let from = pty.seen.len();
        let text =
            format!("for i in {{1..400}}; do echo line-{round}-$i-; sleep 0.005; done; echo en''d");
        pty.line(&text, &format!("line-{round}-20-"));
        let begun = Instant::now();
        server.restart();
        shortest = shortest.min(begun.elapsed());
        pty.sees_after(from, "end\r\n");
        let text = String::from_utf8_lossy(&pty.seen[from..]).into_owned();
        if text.contains("connection lost") {
            return false;
        }
        for number in 1..=400 {
            let count = text.matches(&format!("line-{round}-{number}-")).count();
            assert_eq!(count, 1, "line {number}");
        }
        true
    });
    assert!(back_at_once || shortest > AT_ONCE, "no outage was seamless, as of {shortest:?}");
    let from = pty.seen.len();
    server.kill();
    pty.sees_after(from, "connection lost");
    // Input during the outage is not typed into the new connection.
    pty.type_in("echo bli''nd\r");
    server.launch();
    let from = pty.seen.len();
    pty.sees_after(from, "-400-");
    pty.line("echo af''ter", "after\r\n");
    assert!(!pty.text().contains("blind"));
    server.kill();
    let from = pty.seen.len();
    pty.sees_after(from, "connection lost");
    pty.type_in("\x03");
    assert_eq!(pty.ended(), 0);
    server.launch();
}

/// Promises: Z21.
#[test]
fn a_reconnecting_client_does_not_reopen_a_terminal_that_has_ended() {
    let mut server = Server::start();
    let mut pty = attach(&server, &["a"]);
    server.kill();
    pty.sees("connection lost");
    server.reboot();
    assert_eq!(pty.ended(), 125);
    assert!(pty.text().contains("ended while"), "{}", pty.text());
    let list = server.named("a").http.get("/v1/sandboxes/a/terminals").expect(200).json();
    assert_eq!(list.as_array().map(Vec::len), Some(0), "{list}");
}

/// Promises: Z20.
#[test]
fn a_viewer_types_nothing() {
    let mut server = Server::start();
    let key = server.add_key(&["--label", "reader", "--read-only"]);
    let mut pty = attach(&server, &["a"]);
    let mut reader = server.program();
    reader.args(["attach", "a"]).env("ISOLET_API_KEY", key);
    let mut reader = Pty::start(&reader, 80, 24);
    reader.sees("this key is read-only");
    let mut viewer = start(&server, &["a", "--view"]);
    viewer.sees("view only");
    for client in [&mut viewer, &mut reader] {
        client.type_in("echo ty''ped\r");
        pty.line("echo se''en", "seen\r\n");
        client.sees("seen");
        assert!(!pty.text().contains("typed"));
        client.type_in("\x03");
        assert_eq!(client.ended(), 0);
    }
}

/// Promises: Z20.
#[test]
fn a_program_instead_of_bash_gets_its_arguments_and_is_not_confused_with_another() {
    let server = Server::start();
    let script = "echo up; read x; echo \"$x-$0\"; exit 4";
    let mut pty = start(&server, &["a", "--session", "p", "--command", "sh", "-c", script, "a b"]);
    pty.sees("up\r\n");
    let other = start(&server, &["a", "--session", "p", "--command", "vi"]).ended();
    assert_eq!(other, 125);
    let mut same = start(&server, &["a", "--session", "p", "--command", "sh", "-c", script, "a b"]);
    same.type_in("said\r");
    assert_eq!(same.ended(), 4);
    assert_eq!(pty.ended(), 4);
    pty.sees("said-a b\r\n");
}

/// Promises: Z20.
#[test]
fn a_script_is_referred_to_exec_and_terminals_are_listed() {
    let server = Server::start();
    let said = run(server.program().args(["attach", "a"]));
    assert_eq!(said.code, Some(125));
    assert!(said.err.contains("isolet exec a"), "{}", said.err);
    server.named("a").exec(":");
    let none = run(server.program().args(["terminals", "a"])).well();
    assert!(none.err.contains("isolet attach a"), "{}", none.err);
    let mut pty = attach(&server, &["a", "--session", "dev"]);
    let list = run(server.program().args(["terminals", "a"])).well().out;
    let row = list.lines().nth(1).expect("a row");
    assert!(row.starts_with("dev ") && row.contains("80x24") && row.contains("bash"), "{list}");
    let json = run(server.program().args(["terminals", "a", "--json"])).well().out;
    assert!(json.contains("\"session\": \"dev\""), "{json}");
    pty.type_in(LEAVE);
    assert_eq!(pty.ended(), 0);
}

/// A pane of tmux, whose screen can be read.
struct Pane {
    socket: String,
}

impl Pane {
    fn open(server: &Server, line: &str) -> Self {
        // A tmux that is being ended keeps its socket for a moment.
        static PANES: AtomicU32 = AtomicU32::new(0);
        let number = PANES.fetch_add(1, Ordering::Relaxed);
        let socket = format!("isolet-test-{}-{number}", server.port());
        let program = server.program();
        let mut command = Command::new("tmux");
        for (name, value) in program.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let line = format!("{} {line}", program.get_program().to_string_lossy());
        command.args([
            "-L",
            &socket,
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "30",
        ]);
        run(command.arg(line)).well();
        Self { socket }
    }

    fn tmux(&self, args: &[&str]) -> String {
        run(Command::new("tmux").args(["-L", &self.socket]).args(args)).well().out
    }

    fn type_in(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Every cell with its colours, the cursor, and the modes that tmux knows.
    fn screen(&self) -> String {
        let modes = "#{cursor_x},#{cursor_y} #{cursor_flag} #{alternate_on} #{mouse_any_flag} \
                     #{keypad_cursor_flag} #{keypad_flag} #{insert_flag} #{wrap_flag} \
                     #{scroll_region_upper},#{scroll_region_lower}";
        let cells = self.tmux(&["capture-pane", "-p", "-e"]);
        let cells: Vec<&str> = cells.lines().map(written).collect();
        cells.join("\n") + &self.tmux(&["display-message", "-p", modes])
    }

    /// The screen, once it contains a text and is completely drawn.
    fn sees(&self, text: &str) -> String {
        let mut last = String::new();
        wait_until(&format!("{text:?} is on the screen"), SOON, || {
            let screen = self.screen();
            let still = screen == last;
            last = screen;
            std::thread::park_timeout(Duration::from_millis(100));
            (still && last.contains(text)).then(|| last.clone())
        })
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).status();
    }
}

/// A line without the colours of blanks at its end: tmux does not distinguish written blanks from
/// empty cells.
fn written(line: &str) -> &str {
    let mut line = line.trim_end();
    while let Some((before, after)) = line.rsplit_once("\x1b[")
        && after
            .strip_suffix('m')
            .is_some_and(|codes| codes.bytes().all(|b| b.is_ascii_digit() || b == b';'))
    {
        line = before.trim_end();
    }
    line
}

/// In vim, with colours, a split and a half-typed line: after a short and after a long outage the
/// screen is the same, cell by cell, and the lines below vim are still there when it ends.
/// Promises: Z21.
#[test]
fn after_an_outage_the_screen_in_vim_is_the_same_cell_by_cell() {
    let mut server = Server::start();
    let sandbox = server.named("a");
    sandbox.exec("for i in {1..200}; do echo \"int f$i(char *s) { return \\\"x$i\\\"; } // é\"; done >/workspace/a.c");
    let pane = Pane::open(&server, "attach a");
    pane.type_in("PS1='rea''dy> '; for i in {1..20}; do echo below-$i; done\r");
    pane.sees("\nready>");
    pane.type_in("vim -Nu NONE -c 'syntax on' -c 'set nu mouse=a bs=2' -c split a.c\r");
    pane.sees("return");
    pane.type_in("7Gohalf a line");
    let before = pane.sees("half a line");
    server.restart();
    // On a loaded machine the outage is long, and what is typed before its end is not sent.
    wait_until("the client is back", SOON, || {
        let list = sandbox.http.get(&sandbox.path("/terminals")).expect(200).json();
        let clients = list[0]["clients"].as_array().map_or(0, Vec::len);
        (clients == 1 && pane.screen() == before).then_some(())
    });
    pane.type_in("!");
    let short = pane.sees("half a line!");
    pane.type_in("\x7f");
    let same = |what: &str| {
        wait_until(what, SOON, || (pane.screen() == before).then_some(()));
    };
    assert_ne!(short, before);
    same("the screen as before a short outage");
    server.kill();
    pane.sees("connection lost");
    server.launch();
    same("the screen as before a long outage");
    pane.type_in("\x1b");
    std::thread::park_timeout(Duration::from_millis(100));
    pane.type_in(":qa!\r");
    pane.sees("below-20");
}

/// tmux moves the cursor to where vim was started when a program leaves the second screen without being on
/// it. The message of a detach was written there, over the lines that had come since.
#[test]
fn detaching_in_tmux_after_vim_leaves_the_screen_as_it_was() {
    let server = Server::start();
    for in_vim in [false, true] {
        let pane = Pane::open(&server, "attach a; echo af''ter; exec sleep 1000");
        pane.type_in("PS1='rea''dy> '; clear\r");
        pane.sees("ready>");
        pane.type_in("vim -Nu NONE -c 'call setline(1, \"in-\" . \"vim\")'\r");
        pane.sees("in-vim");
        if !in_vim {
            pane.type_in(":qa!\r");
            pane.sees("ready>");
            pane.type_in("clear; for i in {1..12}; do echo below-$i; done\r");
            pane.sees("below-12\nready>");
        }
        pane.type_in("\x1c\x04");
        let screen = pane.sees("\nafter");
        if in_vim {
            assert!(!screen.contains("in-vim"), "{screen}");
        } else {
            let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
            let first = lines.iter().position(|line| *line == "below-1").expect("is there");
            let expected: Vec<String> = (1..=12).map(|i| format!("below-{i}")).collect();
            assert_eq!(lines[first..first + 12], expected, "{screen}");
            assert!(lines[first + 12].starts_with("ready>"), "{screen}");
            assert!(lines[first + 13].starts_with("isolet: detached"), "{screen}");
        }
        server.http().delete("/v1/sandboxes/a");
    }
}
