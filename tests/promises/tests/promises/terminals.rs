//! Terminals over their WebSocket: each frame, who may do what, and how a terminal ends.

use isolet_kit::{
    Http, Message, Rows, SOON, Sandbox, Server, Shell, Terminal, json, one, wait_until,
};

/// A terminal as clients of the old protocol use it: without event frames.
fn plain(sandbox: &Sandbox, query: &str) -> Terminal {
    let mut terminal = sandbox.try_terminal(query).expect("the client is admitted");
    let first = loop {
        terminal.step(SOON);
        if let Some(frame) = terminal.frames.pop_front() {
            break frame;
        }
    };
    assert_eq!(first, json!({"type": "ready"}), "an old client gets no other frame");
    terminal
}

fn list(sandbox: &Sandbox) -> Vec<isolet_kit::Value> {
    let all = sandbox.http.get(&sandbox.path("/terminals")).expect(200).json();
    all.as_array().expect("a list").clone()
}

/// Promises: Z2.
#[test]
fn a_client_of_the_old_protocol_types_resizes_and_gets_the_end() {
    let (_server, sandbox) = one();
    let mut terminal = plain(&sandbox, "cols=91&rows=17");
    terminal.line("stty size; echo 'a'b; tty", "17 91\r\nab\r\n/dev/pts/");
    terminal.resize(100, 30);
    terminal.line("stty size; echo 'c'd", "30 100\r\ncd\r\n");
    for (cols, rows) in [(0, 0), (-1, 24), (80, 0)] {
        terminal.resize(cols, rows);
        let refused = terminal.frame("error");
        assert!(refused["message"].as_str().is_some_and(|text| text.contains("1 or more")));
    }
    terminal.line("stty size; echo 'e'f", "30 100\r\nef\r\n");
    terminal.resize(65_535, 65_535);
    terminal.line("stty size; echo 'g'h", "400 1000\r\ngh\r\n");
    for bad in ["x", "[]", "{}", r#"{"type":"ready"}"#, r#"{"type":"resize","cols":1}"#] {
        terminal.send(Message::text(bad)).expect("it is sent");
        terminal.frame("error");
    }
    terminal.say(&json!({"type": "ping"}));
    assert_eq!(terminal.frame("pong"), json!({"type": "pong"}));
    terminal.type_in("exit 3\r");
    assert_eq!(terminal.frame("exit"), json!({"type": "exit", "code": 3}));
    assert_eq!(terminal.end(), 1000);
    let mut next = plain(&sandbox, "");
    next.line("echo 'n'ew", "new\r\n");
    next.close();
}

/// Promises: Z10.
#[test]
fn a_terminal_belongs_to_its_user_and_begins_with_a_prompt() {
    let (_server, sandbox) = one();
    let mut terminal = sandbox.terminal("");
    terminal.sees("root@sandbox");
    terminal.line("stat -c 'x%U:%G:%a' $(tty)", "xroot:tty:620\r\n");
    // The program opens the terminal by its name, and then a new one.
    let from = terminal.output.len();
    terminal.line("script -qc 'tty; echo in''side' /dev/null; echo 'o'ut", "inside\r\n");
    // Until then the shell accepts input.
    terminal.sees_after(from, "out\r\n");
    terminal.line("alias ls", "alias ls='ls --color=auto'\r\n");
    terminal.close();
    // Shells of sessions are unchanged.
    let said = sandbox.command("default", "alias; echo ${PS1-none} | grep -c '@'");
    assert_eq!(said["stdout"], "0\n");
}

/// Promises: Z2.
#[test]
fn control_c_ends_what_runs_and_the_shell_goes_on() {
    let (server, sandbox) = one();
    let mut terminal = sandbox.terminal("");
    terminal.line("sleep 1234 & sleep 4321", "sleep 4321");
    wait_until("both run", SOON, || (server.processes("sleep").len() == 2).then_some(()));
    terminal.type_in("\x03");
    wait_until("one is ended", SOON, || (server.processes("sleep").len() == 1).then_some(()));
    terminal.line("jobs; echo 'o'n", "sleep 1234");
    terminal.sees("on\r\n");
}

/// Promises: Z2.
#[test]
fn an_end_by_a_signal_names_it_and_the_next_attach_is_fresh() {
    let (server, sandbox) = one();
    let mut terminal = sandbox.terminal("shell=sleep&arg=1717");
    let pid = wait_until("it runs", SOON, || server.processes("sleep").first().copied());
    let first = terminal.id.clone();
    isolet_kit::process::signal(pid, isolet_kit::process::TERM);
    let exit = terminal.frame("exit");
    assert_eq!(exit, json!({"type": "exit", "code": 143, "signal": "SIGTERM"}));
    assert_eq!(terminal.end(), 1000);
    let mut next = sandbox.try_terminal("events=1").expect("the client is admitted");
    let attached = next.frame("attached");
    assert_eq!(attached["fresh"], true, "{attached}");
    next.frame("at");
    assert_ne!(next.id, first, "another run has another id");
    next.frame("ready");
    next.line("kill -9 $$", "");
    assert_eq!(next.frame("exit")["signal"], "SIGKILL");
    let refused = sandbox.try_terminal("shell=no-such-program");
    assert_eq!(refused.err(), Some(404));
    assert!(list(&sandbox).is_empty());
}

/// Promises: Z1.
#[test]
fn a_terminal_belongs_to_its_session() {
    let (_server, sandbox) = one();
    let spec = json!({"id": "work", "cwd": "/usr", "env": {"WORD": "known"}});
    sandbox.post("/sessions", &spec).expect(201);
    let mut work = sandbox.terminal("session=work");
    work.line("pwd; echo $WORD $TERM", "/usr\r\nknown xterm-256color\r\n");
    let mut other = sandbox.terminal("session=other");
    other.line("pwd; echo ${WORD-unset}; x=1", "/workspace\r\nunset\r\n");
    let sessions: Vec<_> = list(&sandbox).iter().map(|one| one["session"].clone()).collect();
    assert_eq!(sessions, [json!("other"), json!("work")]);
    let view = wait_until("the session lists its terminal", SOON, || {
        let view = sandbox.http.get(&sandbox.path("/sessions/work")).expect(200).json();
        (view["terminal"] == true).then_some(view)
    });
    assert_eq!(view["shell_pid"], json!(null), "{view}");
    // The terminal continues without clients.
    let id = other.id.clone();
    let offset = other.offset();
    other.close();
    let mut again = sandbox.terminal("session=other");
    assert!(again.id == id && again.base >= offset, "{} {}", again.base, offset);
    again.line("echo $x'y'", "1y\r\n");
    // The end of the session ends its terminal.
    sandbox.http.delete(&sandbox.path("/sessions/work")).expect(204);
    work.frame("exit");
    assert_eq!(work.end(), 1000);
    sandbox.http.delete(&sandbox.path("/terminals/other")).expect(204);
    assert_eq!(again.end(), 1000);
    assert!(list(&sandbox).is_empty());
    sandbox.http.delete(&sandbox.path("/terminals/other")).expect(404);
}

/// Promises: Z23.
#[test]
fn terminals_of_a_sandbox_are_bounded_across_its_agents() {
    let (_server, sandbox) = one();
    let sleeps = |session: &str| {
        sandbox.try_terminal(&format!("session={session}&shell=sleep&arg=600")).map(drop)
    };
    for number in 0..31 {
        assert_eq!(sleeps(&format!("s{number}")), Ok(()), "{number}");
    }
    for id in ["part", "other"] {
        let access = json!({"id": id, "file_access": {"read": [""]}});
        sandbox.post("/sessions", &access).expect(201);
    }
    assert_eq!(sleeps("part"), Ok(()));
    assert_eq!(sleeps("other"), Err(429), "one more, of an agent without terminals");
    assert_eq!(sleeps("part"), Ok(()), "a running terminal is not replaced");
    sandbox.http.delete(&sandbox.path("/terminals/s7")).expect(204);
    assert_eq!(sleeps("other"), Ok(()));
    assert_eq!(list(&sandbox).len(), 32);
}

/// Promises: Z3.
#[test]
fn all_clients_see_the_same_and_the_last_typist_sets_the_size() {
    let (_server, sandbox) = one();
    let mut one = sandbox.terminal("cols=100&rows=30&name=one");
    one.line("echo 'b'efore", "before\r\n");
    let mut two =
        sandbox.try_terminal("events=1&cols=80&rows=24&name=two").expect("the client is admitted");
    let attached = two.frame("attached");
    let said = (&attached["fresh"], &attached["cols"], &attached["rows"]);
    assert_eq!(said, (&json!(false), &json!(100), &json!(30)), "{attached}");
    two.frame("ready");
    let shown = [two.snapshot.clone(), two.output.clone()].concat();
    assert!(String::from_utf8_lossy(&shown).contains("before"), "the earlier screen is drawn");
    let clients = wait_until("both are listed", SOON, || {
        let all = one.frame("clients");
        (all["clients"].as_array().map(Vec::len) == Some(2)).then_some(all)
    });
    let named = |name: &str| {
        let all = clients["clients"].as_array().expect("a list").clone();
        all.into_iter().find(|client| client["name"] == name).expect("it is there")
    };
    assert_eq!((&named("one")["cols"], &named("one")["mode"]), (&json!(100), &json!("edit")));
    assert_eq!(named("two")["typing"], false);
    two.line("stty size; echo 't'wo", "24 80\r\ntwo\r\n");
    one.sees("24 80\r\ntwo\r\n");
    assert_eq!(one.frame("size"), json!({"type": "size", "cols": 80, "rows": 24}));
    one.line("stty size; echo 'o'ne", "30 100\r\none\r\n");
    two.sees("30 100\r\none\r\n");
    while one.offset() != two.offset() {
        let behind = if one.offset() < two.offset() { &mut one } else { &mut two };
        assert!(behind.step(SOON), "both have the same bytes");
    }
    let listed = list(&sandbox);
    assert_eq!(listed[0]["clients"].as_array().map(Vec::len), Some(2), "{listed:?}");
    let of = |field: &str| listed[0][field].clone();
    assert!(of("cols") == 100 && of("offset").as_u64() >= Some(one.offset()), "{listed:?}");
    assert!(of("command").as_array().is_some() && of("pid").as_i64() > Some(0), "{listed:?}");
    two.close();
    wait_until("one is alone", SOON, || {
        let all = one.frame("clients");
        (all["clients"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
}

/// Promises: Z3.
#[test]
fn a_viewer_changes_nothing() {
    let (mut server, sandbox) = one();
    let key = server.add_key(&["--tenant", "default", "--read-only"]);
    let reader = Http::new(server.port(), Some(&key));
    let look = |query: &str| Terminal::open(&reader, &sandbox.path(&format!("/terminal?{query}")));
    assert_eq!(
        look("mode=view").err(),
        Some(404),
        "there is no terminal, and the viewer opens none"
    );
    assert_eq!(look("").err(), Some(403), "a read-only key must ask for view mode");
    let never = Terminal::open(&reader, "/v1/sandboxes/never/terminal?mode=view");
    assert_eq!(never.err(), Some(404));
    assert!(!server.ids(&server.http()).contains(&"never".to_owned()), "it creates no sandbox");
    let mut typist = sandbox.terminal("cols=90&rows=20");
    for (name, viewer) in [
        ("a read-only key", look("mode=view&events=1&cols=70&rows=10&record=1")),
        ("a full key", sandbox.try_terminal("mode=view&events=1&cols=70&rows=10")),
    ] {
        let mut viewer = viewer.unwrap_or_else(|status| panic!("{name}: {status}"));
        if name == "a read-only key" {
            let refused = viewer.frame("error");
            assert!(refused["message"].as_str().is_some_and(|text| text.contains("not recorded")));
        }
        viewer.frame("ready");
        viewer.type_in("echo 'w'rong\r");
        viewer.frame("error");
        viewer.resize(50, 5);
        typist.line("stty size; echo 's'een", "20 90\r\nseen\r\n");
        viewer.sees("20 90\r\nseen\r\n");
        assert!(!viewer.shown().contains("wrong"), "{name}: {}", viewer.shown());
        viewer.close();
    }
    let recordings = sandbox.http.get(&sandbox.path("/recordings")).expect(200).json();
    assert_eq!(recordings, json!([]));
}

/// Promises: Z1.
#[test]
fn the_terminal_of_a_scope_sees_its_scope() {
    let (_server, sandbox) = one();
    sandbox.exec("mkdir -p /workspace/docs; echo a >/workspace/docs/a; echo key >/workspace/key");
    let access = json!({"read": ["docs"], "write": []});
    sandbox.post("/sessions", &json!({"id": "part", "file_access": access})).expect(201);
    let mut terminal = sandbox.terminal("session=part");
    terminal.line("cat docs/a key; echo 'e'nd; tty", "No such file or directory\r\nend\r\n/dev/");
    assert_eq!(list(&sandbox)[0]["session"], "part");
    sandbox.terminal("session=whole").line("cat key", "key\r\n");
    assert_eq!(list(&sandbox).len(), 2);
    sandbox.http.delete(&sandbox.path("/sessions/part")).expect(204);
    assert_eq!(terminal.end(), 1000, "its scope has ended");
    assert_eq!(list(&sandbox).len(), 1);
}

/// Promises: Z7.
#[test]
fn a_sleep_ends_terminals_and_reports_it() {
    let (server, sandbox) = one();
    let sleep = || sandbox.post("/sleep", &json!({})).status;
    let mut rows = Rows::new();
    for query in ["", "mode=view"] {
        rows.row(&format!("a client that is attached with {query:?}"), || {
            let mut terminal = sandbox.terminal(query);
            if query.is_empty() {
                // Bash has read its startup files and runs nothing else.
                terminal.line("echo 'u'p", "up\r\n");
            }
            assert_eq!(sleep(), 409);
            terminal.close();
        });
    }
    rows.row("no client is attached", || {
        wait_until("its client has disconnected", SOON, || (sleep() == 200).then_some(()));
        assert!(list(&sandbox).is_empty(), "and the list wakes no sandbox");
        assert_eq!(sandbox.info()["state"], "sleeping");
        let answer = sandbox.command("s", "true");
        assert_eq!(answer["lost"], json!(["terminals"]), "{answer}");
        assert!(sandbox.command("s", "true").get("lost").is_none(), "reported once");
    });
    rows.row("an attach wakes", || {
        wait_until("it sleeps", SOON, || (sleep() == 200).then_some(()));
        let mut terminal = sandbox.terminal("");
        terminal.line("echo 'a'wake", "awake\r\n");
        terminal.type_in("sleep 1000 & exit\r");
        terminal.end();
    });
    drop(rows);
    server.healthy();
}

/// Promises: Z1.
#[test]
fn a_deleted_sandbox_ends_its_terminals_and_is_not_recreated() {
    let (server, sandbox) = one();
    let mut terminal = sandbox.terminal("");
    sandbox.delete();
    assert_eq!(terminal.frame("exit")["signal"], "SIGKILL");
    assert_eq!(terminal.end(), 1001);
    assert!(server.ids(&server.http()).is_empty());
}

/// Promises: Z9.
#[test]
fn the_bridges_address_is_the_same_terminal() {
    let server = Server::start();
    let id = "abcdefghijklmnopqrstuvwxyz";
    let open = |path: &str| Terminal::open(&server.http(), path);
    let mut bridge =
        open(&format!("/v1/sandbox/{id}/pty?cols=90&rows=20")).expect("the client is admitted");
    bridge.frame("ready");
    bridge.line("stty size; echo 'b'ridge", "20 90\r\nbridge\r\n");
    let mut native = server.named(id).terminal("");
    native.line("echo 'n'ative", "native\r\n");
    bridge.sees("native\r\n");
    let named = server.http().with("session-id", "dev");
    let mut dev =
        Terminal::open(&named, &format!("/v1/sandbox/{id}/pty")).expect("the client is admitted");
    dev.frame("ready");
    dev.line("echo 'd'ev", "dev\r\n");
    let both = list(&server.named(id));
    assert_eq!(both.len(), 2, "{both:?}");
    for bad in ["UPPER", "a1", "sb_abc", "a-b"] {
        assert_eq!(open(&format!("/v1/sandbox/{bad}/pty")).err(), Some(400), "{bad}");
    }
    let refused = server.http().get("/v1/sandbox/A/pty").expect(400).json();
    assert_eq!(refused["code"], "invalid_request", "{refused}");
    assert!(refused["error"].as_str().is_some_and(|text| text.contains("a-z2-7")), "{refused}");
    let plain = server.http().get(&format!("/v1/sandbox/{id}/pty")).expect(426).json();
    assert_eq!(plain["code"], "upgrade_required", "{plain}");
    assert!(matches!(Shell::open(&server.http(), "/v1/sandbox/a8/shell"), Err(404)));
}
