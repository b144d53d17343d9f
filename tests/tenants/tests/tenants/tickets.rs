//! Tickets: each opens one thing once, and grants no more than its creator had.

use isolet_kit::{Http, Reply, Rows, SOON, Server, Shell, Terminal, Value, json, one, wait_until};

fn ask(http: &Http, spec: &Value) -> Reply {
    http.post("/v1/tickets", spec)
}

fn ticket(http: &Http, spec: &Value) -> String {
    let made = ask(http, spec).expect(201).json();
    assert!(made["expires_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{made}");
    made["ticket"].as_str().expect("a ticket").to_owned()
}

/// A browser page, which has no key.
fn page(server: &Server) -> Http {
    Http::new(server.port(), None)
}

fn enter(server: &Server, path: &str, ticket: &str) -> Result<Terminal, u16> {
    let mark = if path.contains('?') { '&' } else { '?' };
    Terminal::open(&page(server), &format!("{path}{mark}ticket={ticket}"))
}

/// Promises: T16.
#[test]
fn a_ticket_opens_one_terminal_once() {
    let (server, sandbox) = one();
    let http = server.http();
    let spec = json!({"sandbox": sandbox.id, "session": "dev", "use": "terminal"});
    let dev = sandbox.path("/terminal?session=dev");
    let mut rows = Rows::new();
    rows.row("once", || {
        let one = ticket(&http, &spec);
        let mut terminal = enter(&server, &dev, &one).expect("the client is admitted");
        terminal.frame("ready");
        terminal.line("echo 'i'n", "in\r\n");
        assert_eq!(enter(&server, &dev, &one).err(), Some(401), "used");
        terminal.line("echo 's'till", "still\r\n");
    });
    let shell = json!({"sandbox": sandbox.id, "use": "shell"});
    for (name, spec, path) in [
        ("another session", &spec, sandbox.path("/terminal?session=other")),
        ("the session of nobody", &spec, sandbox.path("/terminal")),
        ("another sandbox", &spec, "/v1/sandboxes/other/terminal?session=dev".to_owned()),
        ("another use", &spec, sandbox.path("/shell?session=dev")),
        ("a shell's for a terminal", &shell, sandbox.path("/terminal")),
        ("a private shell's for a session", &shell, sandbox.path("/shell?session=dev")),
        ("a private shell's for a session, resumed", &shell, sandbox.path("/shell?resume=dev")),
        ("another address", &spec, format!("/v1/runs/{}/shell?session=dev", sandbox.id)),
    ] {
        rows.row(name, || {
            let one = ticket(&http, spec);
            assert_eq!(enter(&server, &path, &one).err(), Some(401));
            let right = if spec["use"] == "shell" { sandbox.path("/shell") } else { dev.clone() };
            let again = enter(&server, &right, &one).err();
            assert!(matches!(again, Some(401)) || name == "another address", "it is used up");
        });
    }
    rows.row("a shell", || {
        let one = ticket(&http, &shell);
        let path = sandbox.path(&format!("/shell?ticket={one}"));
        Shell::open(&page(&server), &path)
            .expect("the client is admitted")
            .run("echo in")
            .is("in\n", 0);
        assert_eq!(Shell::open(&page(&server), &path).err(), Some(401));
    });
    rows.row("an ordinary call", || {
        let one = ticket(&http, &spec);
        for path in ["", "/terminals", "/terminal", "/sessions"] {
            let path = sandbox.path(&format!("{path}?ticket={one}"));
            assert_eq!(page(&server).get(&path).status, 401, "{path}");
        }
        // A session may see less of a sandbox than its snapshots contain.
        sandbox.post("/snapshots", &json!({"name": "point"})).expect(201);
        for path in ["", "/files", "/files/f", "/diff/point"] {
            let path = format!("/v1/snapshots/point{path}?ticket={one}");
            assert_eq!(page(&server).get(&path).status, 401, "{path}");
        }
        http.delete("/v1/snapshots/point").expect(200);
        enter(&server, &dev, &one).expect("none of these has used it up");
    });
    rows.row("its time", || {
        let short = json!({"sandbox": sandbox.id, "session": "dev", "use": "terminal", "ttl_s": 1});
        let one = ticket(&http, &short);
        let made = std::time::Instant::now();
        wait_until("it ends", SOON, || (made.elapsed().as_millis() > 1010).then_some(()));
        assert_eq!(enter(&server, &dev, &one).err(), Some(401));
    });
    rows.row("an invalid ticket", || {
        for bad in ["", "x", "%00", &"a".repeat(52), &"a".repeat(5000)] {
            assert_eq!(enter(&server, &dev, bad).err(), Some(401), "{bad:.20}");
        }
    });
    rows.row("tickets that cannot be requested", || {
        let with = |name: &str, value: Value| {
            let mut other = spec.clone();
            other[name] = value;
            ask(&http, &other).status
        };
        for (name, value) in [
            ("use", json!("files")),
            ("use", json!("")),
            ("mode", json!("all")),
            ("ttl_s", json!(0)),
            ("ttl_s", json!(301)),
            ("ttl_s", json!(-1)),
            ("sandbox", json!("../x")),
            ("session", json!("")),
            ("more", json!(1)),
        ] {
            assert_eq!(with(name, value.clone()), 400, "{name} {value}");
        }
        assert_eq!(ask(&http, &json!({})).status, 400);
        assert_eq!(page(&server).post("/v1/tickets", &spec).status, 401);
    });
    drop(rows);
    let log = server.log();
    assert!(!log.contains("ticket="), "a ticket was logged");
    server.healthy();
}

/// Promises: T16.
#[test]
fn a_ticket_used_concurrently_admits_one_client() {
    let (server, sandbox) = one();
    let spec = json!({"sandbox": sandbox.id, "use": "terminal"});
    let path = sandbox.path("/terminal");
    for _ in 0..100 {
        let one = ticket(&server.http(), &spec);
        let let_in: usize = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4)
                .map(|_| {
                    scope
                        .spawn(|| enter(&server, &path, &one).map_err(|code| assert_eq!(code, 401)))
                })
                .collect();
            all.into_iter()
                .map(|one| usize::from(one.join().expect("it is answered").is_ok()))
                .sum()
        });
        assert_eq!(let_in, 1);
    }
    server.healthy();
}

/// Promises: T16.
#[test]
fn a_ticket_grants_no_more_than_its_creator_had() {
    let (mut server, sandbox) = one();
    let reader = server.add_key(&["--tenant", "default", "--read-only"]);
    let writer = server.add_key(&["--tenant", "default"]);
    let stranger = server.add_key(&["--tenant", "other"]);
    let with = |server: &Server, key: &str| Http::new(server.port(), Some(key));
    let path = sandbox.path("/terminal");
    let spec = json!({"sandbox": sandbox.id, "use": "terminal"});
    let view = json!({"sandbox": sandbox.id, "use": "terminal", "mode": "view"});
    let mut terminal = sandbox.terminal("");
    let mut rows = Rows::new();
    rows.row("a read-only key", || {
        let reader = with(&server, &reader);
        assert_eq!(ask(&reader, &spec).status, 403);
        let shell = json!({"sandbox": sandbox.id, "use": "shell"});
        assert_eq!(ask(&reader, &shell).status, 403);
        let one = ticket(&reader, &view);
        let mut looks = enter(&server, &path, &one).expect("the client is admitted");
        looks.frame("ready");
        looks.type_in("echo 'w'rong\r");
        looks.frame("error");
        terminal.line("echo 's'een", "seen\r\n");
        looks.sees("seen\r\n");
        assert!(!looks.shown().contains("wrong"));
    });
    rows.row("a ticket for viewing", || {
        let one = ticket(&server.http(), &view);
        let mut looks =
            enter(&server, &format!("{path}?mode=edit"), &one).expect("the client is admitted");
        looks.frame("ready");
        looks.type_in("x");
        looks.frame("error");
        let one =
            ticket(&server.http(), &json!({"sandbox": "free", "use": "terminal", "mode": "view"}));
        assert_eq!(enter(&server, "/v1/sandboxes/free/terminal", &one).err(), Some(404));
    });
    rows.row("another tenant's", || {
        // The stranger's own sandbox with that id is created.
        let one = ticket(&with(&server, &stranger), &spec);
        let mut own = enter(&server, &path, &one).expect("the client is admitted");
        own.frame("ready");
        own.line("hostname; echo 'o'wn", "own\r\n");
        assert_eq!(server.ids(&with(&server, &stranger)), std::slice::from_ref(&sandbox.id));
        with(&server, &stranger).delete(&sandbox.path(""));
        terminal.line("echo 'u'nhurt", "unhurt\r\n");
    });
    let unused = ticket(&with(&server, &writer), &spec);
    let used = ticket(&with(&server, &writer), &spec);
    let mut inside = enter(&server, &path, &used).expect("the client is admitted");
    inside.frame("ready");
    let list = server.command(&["keys", "ls"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let ids: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    // All ids except the one of the environment, which is not listed.
    for id in ids {
        let _ = server.command(&["keys", "revoke", id]);
    }
    rows.row("a key that was revoked", || {
        assert_eq!(enter(&server, &path, &unused).err(), Some(401));
        assert_eq!(inside.end(), 1008, "its connections are closed");
        terminal.line("echo 'o'n", "on\r\n");
    });
    drop(rows);
    server.healthy();
}

/// Promises: T5.
#[test]
fn t5_a_page_of_a_foreign_origin_opens_no_socket() {
    let (server, sandbox) = one();
    let spec = json!({"sandbox": sandbox.id, "use": "terminal"});
    let port = server.port();
    let mut rows = Rows::new();
    for origin in [
        "http://attacker.example".to_owned(),
        "null".to_owned(),
        format!("http://127.0.0.1.evil:{port}"),
        format!("https://127.0.0.1:{port}.evil"),
        "http://127.0.0.1:1".to_owned(),
        format!("http://localhost:{port}"),
    ] {
        rows.row(&origin.clone(), || {
            let one = ticket(&server.http(), &spec);
            let from = page(&server).with("origin", &origin);
            let path = sandbox.path(&format!("/terminal?ticket={one}"));
            assert_eq!(Terminal::open(&from, &path).err(), Some(403));
            let shell = server.http().with("origin", &origin);
            assert_eq!(Shell::open(&shell, &sandbox.path("/shell")).err(), Some(403));
            let keyed = server.http().with("origin", &origin);
            assert_eq!(Terminal::open(&keyed, &sandbox.path("/terminal")).err(), Some(403));
            let own = page(&server).with("origin", &format!("http://127.0.0.1:{port}"));
            Terminal::open(&own, &path).expect("no ticket was used up").frame("ready");
        });
    }
    rows.row("without a key or a ticket", || {
        let own = page(&server).with("origin", &format!("http://127.0.0.1:{port}"));
        assert_eq!(Terminal::open(&own, &sandbox.path("/terminal")).err(), Some(401));
    });
    drop(rows);
    server.healthy();
}
