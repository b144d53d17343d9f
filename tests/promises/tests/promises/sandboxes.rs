//! Sandboxes and sessions over HTTP: created, found, listed, changed, deleted; and refused
//! requests.

use isolet_kit::{Options, Rows, SOON, Server, Value, json, one, quickly, wait_until};

/// Promises: H1.
#[test]
fn a_sandbox_is_created_found_changed_and_deleted() {
    let server = Server::start();
    let http = server.http();
    let spec = json!({"id": "box-1", "ttl_s": 600, "metadata": {"a": [1, {"b": null}]}, "env": {"FOO": "bar"},
        "memory_mib": 256, "cpu_millis": 500, "pids": 64});
    let made = http.post("/v1/sandboxes", &spec).expect(201).json();
    assert_eq!((&made["id"], &made["state"]), (&json!("box-1"), &json!("running")), "{made}");
    assert_eq!((&made["metadata"], &made["ttl_s"]), (&spec["metadata"], &json!(600)));
    assert_eq!(
        (&made["memory_mib"], &made["cpu_millis"], &made["pids"]),
        (&json!(256), &json!(500), &json!(64))
    );
    assert_eq!((&made["network"], &made["persistent"]), (&json!("none"), &json!(true)));
    assert_eq!(made["env_names"], json!(["FOO"]), "values are never revealed");
    let sandbox = server.named("box-1");
    assert_eq!(sandbox.says("echo $FOO"), "bar\n");
    let changed = http.patch(
        &sandbox.path(""),
        &json!({"metadata": {"c": 1}, "ttl_s": 0, "env": {"FOO": null, "N": "n"}, "pids": 65}),
    );
    let changed = changed.expect(200).json();
    assert_eq!(
        (&changed["metadata"], &changed["ttl_s"], &changed["pids"]),
        (&json!({"c": 1}), &Value::Null, &json!(65)),
        "{changed}"
    );
    assert_eq!(sandbox.says("echo ${FOO-unset} $N"), "unset n\n");
    assert_eq!(sandbox.info()["metadata"], json!({"c": 1}));
    assert_eq!(
        http.post("/v1/sandboxes", &json!({"id": "box-1"})).expect(409).error(),
        "sandbox_exists"
    );
    let ended = http.delete(&sandbox.path(""));
    assert!(matches!(ended.status, 200 | 204), "{}", ended.text());
    assert_eq!(http.get(&sandbox.path("")).status, 404);
    assert_eq!(http.delete(&sandbox.path("")).status, 404);
    http.post("/v1/sandboxes", &json!({"id": "box-1"})).expect(201);
    server.healthy();
}

/// Promises: B1, H3.
#[test]
fn the_first_call_that_works_in_a_sandbox_creates_it() {
    let server = Server::start();
    for (at, rest) in ["", "/sessions", "/events", "/files?path=/"].iter().enumerate() {
        let reply = server.http().get(&server.named(&format!("never{at}")).path(rest));
        // 501: a call that is not implemented says so before it looks anything up.
        assert!(matches!(reply.status, 404 | 501), "{rest}: {}", reply.text());
    }
    assert_eq!(server.http().patch("/v1/sandboxes/never", &json!({})).status, 404);
    assert_eq!(server.http().delete("/v1/sandboxes/never").status, 404);
    assert!(server.ids(&server.http()).is_empty(), "reading creates nothing");
    assert_eq!(server.named("by-exec").says("echo a"), "a\n");
    assert_eq!(server.named("by-session").command("s", "echo b")["stdout"], "b\n");
    server.named("by-shell").run("echo c").is("c\n", 0);
    assert_eq!(server.named("by-create").post("/sessions", &json!({"id": "x"})).status, 201);
    assert_eq!(server.ids(&server.http()), ["by-create", "by-exec", "by-session", "by-shell"]);
}

/// Promises: B1.
#[test]
fn concurrent_callers_create_one_sandbox() {
    let server = Server::start();
    std::thread::scope(|scope| {
        for n in 0..16 {
            let one = server.named("together");
            scope.spawn(move || assert_eq!(one.says(&format!("echo {n}")), format!("{n}\n")));
        }
    });
    assert_eq!(server.ids(&server.http()), ["together"]);
    server.wait_until_tidy();
}

#[test]
fn the_list_of_sandboxes_is_sorted_and_paged() {
    let server = Server::start();
    for n in 0..5 {
        server.http().post("/v1/sandboxes", &json!({"id": format!("s{n}")})).expect(201);
    }
    let mut path = Some("/v1/sandboxes?limit=2".to_owned());
    let mut ids = Vec::new();
    let mut pages = 0;
    while let Some(next) = path {
        let reply = server.http().get(&next).expect(200);
        let list = reply.json();
        let list = list.as_array().expect("a list is an array");
        assert!(list.len() <= 2);
        ids.extend(list.iter().map(|one| one["id"].as_str().unwrap_or_default().to_owned()));
        path = reply.header("link").and_then(|link| {
            let (target, rest) = link.split_once('>')?;
            rest.contains("next").then(|| target.trim_start_matches('<').to_owned())
        });
        path = path
            .map(|target| target.find("/v1/").map_or(target.clone(), |at| target[at..].to_owned()));
        pages += 1;
    }
    assert_eq!((ids.join(" ").as_str(), pages), ("s0 s1 s2 s3 s4", 3));
}

/// Promises: H11.
#[test]
fn a_sandbox_ends_with_its_ttl() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"ttl_s": 1}));
    wait_until("its ttl ends it", SOON, || {
        (server.http().get(&sandbox.path("")).status == 404).then_some(())
    });
    server.wait_until_tidy();
}

/// Promises: B2.
#[test]
fn unknown_and_unimplemented_features_are_refused_by_name() {
    let server = Server::start();
    let mut rows = Rows::new();
    let specs = [
        ("network", json!({"network": {"allow": ["http://a"]}})),
        ("network", json!({"network": {"deny": ["a b"]}})),
        ("network", json!({"network": {"alow": ["a.b"]}})),
        ("network", json!({"network": "rules"})),
        ("network", json!({"network": null})),
        ("network", json!({"network": "none", "network_profile": "none"})),
        ("network_profile", json!({"network_profile": "never-was"})),
        ("disk_mib", json!({"disk_mib": 31})),
        ("disk_mib", json!({"disk_mib": u64::MAX})),
        ("disk_mib", json!({"disk_mib": null})),
        ("image", json!({"image": "No-Such-Image:1"})),
        ("nope", json!({"nope": 1})),
        ("ttl_s", json!({"ttl_s": -1})),
        ("ttl_s", json!({"ttl_s": "1"})),
        ("ttl_s", json!({"ttl_s": 1e308})),
        ("memory_mib", json!({"memory_mib": 0})),
        ("memory_mib", json!({"memory_mib": u64::MAX})),
        ("cpu_millis", json!({"cpu_millis": 0})),
        ("pids", json!({"pids": 0})),
        ("pids", json!({"pids": null})),
        ("metadata", json!({"metadata": []})),
        ("metadata", json!({"metadata": {"a": "x".repeat(20_000)}})),
        ("env", json!({"env": {"A=B": "1"}})),
        ("env", json!({"env": {"A": 1}})),
        ("id", json!({"id": "../x"})),
        ("id", json!({"id": ""})),
        ("id", json!({"id": "-a"})),
        ("id", json!({"id": "x".repeat(129)})),
    ];
    for (field, spec) in specs {
        rows.row(&spec.to_string()[..spec.to_string().len().min(60)], || {
            let reply = server.http().post("/v1/sandboxes", &spec).expect(400);
            let body = reply.json();
            assert!(body["message"].as_str().is_some_and(|text| text.contains(field)), "{body}");
            assert!(body["hint"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        });
    }
    drop(rows);
    assert!(server.ids(&server.http()).is_empty());
    server.healthy();
}

#[test]
fn an_idempotency_key_creates_one_sandbox() {
    let server = Server::start();
    let once = server.http().with("idempotency-key", "k1");
    let first = once.post("/v1/sandboxes", &json!({"metadata": {"n": 1}})).expect(201).json();
    let again = once.post("/v1/sandboxes", &json!({"metadata": {"n": 1}}));
    assert!(matches!(again.status, 200 | 201));
    assert_eq!(first["id"], again.json()["id"]);
    once.post("/v1/sandboxes", &json!({"metadata": {"n": 2}})).expect(422);
    let raced = server.http().with("idempotency-key", "k2");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let reply = raced.post("/v1/sandboxes", &json!({}));
                assert!(matches!(reply.status, 200 | 201 | 409), "{}", reply.text());
            });
        }
    });
    assert_eq!(server.ids(&server.http()).len(), 2);
}

/// Promises: B6, G15.
#[test]
fn limits_hold_inside() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"memory_mib": 64, "pids": 32}));
    let forks = sandbox
        .exec("for i in $(seq 100); do sleep 5 & done 2>&1 | head -c 300; echo; pgrep -c sleep");
    assert!(
        forks["stdout"]
            .as_str()
            .is_some_and(|text| text.contains("Resource temporarily unavailable")),
        "{forks}"
    );
    let hungry = sandbox.exec("python3 -c 'x = bytearray(200 << 20); print(len(x))'");
    assert_eq!((&hungry["stdout"], &hungry["oom"]), (&json!(""), &json!(true)), "{hungry}");
    assert_eq!(sandbox.says("echo lives"), "lives\n");
}

/// 400 loopback connections once held 2 GiB of the machine's memory, and TCP's share was
/// exhausted for every program.
#[test]
fn bytes_that_nobody_reads_from_a_socket_count() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"memory_mib": 64}));
    let other = server.sandbox();
    let text = "python3 - <<'END'\nimport socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(500)\nkeep = []\n\
        for i in range(150):\n  c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)\n  \
        c.connect(s.getsockname()); a, _ = s.accept(); a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)\n  \
        c.setblocking(False); keep += [c, a]\n  try:\n    while True: c.send(b'x' * 65536)\n  except BlockingIOError: pass\n\
        print([l.split()[-1] for l in open('/proc/net/sockstat') if l[:4] == 'TCP:'][0])\nEND";
    let before: u64 = pages(&other.says("cat /proc/net/sockstat"));
    let answer = sandbox.exec(text);
    // With control groups of version 2 these bytes are part of the sandbox's memory.
    if answer["oom"] == true {
        return;
    }
    let held = answer["stdout"].as_str().and_then(|held| held.trim().parse().ok());
    let held: u64 = held.unwrap_or_else(|| panic!("{answer}"));
    let mib = held.saturating_sub(before) * 4 / 1024;
    assert!(mib < 64, "{mib} MiB in socket buffers");
}

/// The pages that TCP uses on the whole machine.
fn pages(text: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with("TCP:")).expect("a line on TCP");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// Promises: B3.
#[test]
fn a_delete_waits_for_no_command() {
    let (server, sandbox) = one();
    let mut shell = sandbox.shell();
    shell.start(isolet_kit::Start::new("trap '' TERM INT HUP; while :; do sleep 1; done"));
    let mut session = sandbox.session("s");
    session.start(isolet_kit::Start::new("sleep 1000"));
    quickly("a delete", SOON, || sandbox.delete());
    assert!(shell.ended()["cause"].is_string());
    server.wait_until_tidy();
}

/// Promises: G4, G8, G9, G17.
#[test]
fn sessions_follow_their_rules() {
    let (server, sandbox) = one();
    let http = server.http();
    let mut rows = Rows::new();
    let list = || -> Vec<String> {
        let all = http.get(&sandbox.path("/sessions")).expect(200).json();
        let ids = all.as_array().into_iter().flatten().filter_map(|one| one["id"].as_str());
        ids.map(str::to_owned).collect()
    };
    rows.row("default always exists and cannot be deleted", || {
        assert_eq!(list(), ["default"]);
        let refused = http.delete(&sandbox.path("/sessions/default")).expect(409);
        assert_eq!(refused.error(), "default_session");
        assert!(
            refused.json()["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains("DELETE /v1/sandboxes"))
        );
        assert_eq!(sandbox.command("default", "echo on")["stdout"], "on\n");
        http.post(&sandbox.path("/sessions"), &json!({"id": "default"})).expect(409);
    });
    rows.row("env and cwd", || {
        let spec = json!({"id": "build", "env": {"NODE_ENV": "production"}, "cwd": "/usr", "metadata": {"m": 1}});
        let made = http.post(&sandbox.path("/sessions"), &spec).expect(201).json();
        assert_eq!((&made["cwd"], &made["env_names"]), (&json!("/usr"), &json!(["NODE_ENV"])), "{made}");
        assert_eq!((&made["sandbox_id"], &made["metadata"]), (&json!(sandbox.id), &json!({"m": 1})));
        assert_eq!(sandbox.command("build", "echo $NODE_ENV; pwd")["stdout"], "production\n/usr\n");
        wait_until("its shell is listed", SOON, || {
            let found = http.get(&sandbox.path("/sessions/build")).expect(200).json();
            (found["shell_pid"].is_i64() && found["busy"] == false).then_some(())
        });
        assert_eq!(http.post(&sandbox.path("/sessions"), &spec).expect(409).error(), "session_exists");
    });
    rows.row("a session that is used after its deletion has defaults", || {
        let spec = json!({"id": "temp", "env": {"MY_VAR": "value"}});
        http.post(&sandbox.path("/sessions"), &spec).expect(201);
        assert_eq!(sandbox.command("temp", "sleep 4245 & echo $MY_VAR")["stdout"], "value\n");
        let deleted = http.delete(&sandbox.path("/sessions/temp"));
        assert!(matches!(deleted.status, 200 | 204));
        assert_eq!(http.get(&sandbox.path("/sessions/temp")).status, 404);
        assert_eq!(http.delete(&sandbox.path("/sessions/temp")).status, 404);
        assert_eq!(sandbox.command("temp", "echo [$MY_VAR]; pwd")["stdout"], "[]\n/workspace\n");
    });
    rows.row("created on first use", || {
        assert_eq!(http.get(&sandbox.path("/sessions/new")).status, 404);
        assert_eq!(sandbox.command("new", "echo hello")["stdout"], "hello\n");
        assert!(list().contains(&"new".to_owned()));
    });
    rows.row("invalid requests", || {
        for spec in [
            json!({"id": "../x y"}),
            json!({"cwd": ""}),
            json!({"nope": 1}),
            json!({"command_timeout_ms": -1}),
        ] {
            let refused = http.post(&sandbox.path("/sessions"), &spec);
            assert_eq!(refused.status, 400, "{spec}: {}", refused.text());
        }
        assert_eq!(
            sandbox.post("/sessions/..%2f..%2fx/exec", &json!({"command": ":"})).status,
            400
        );
    });
    rows.row("a session survives its directory", || {
        sandbox.command("lost", "mkdir /tmp/d; cd /tmp/d; rmdir /tmp/d");
        assert_eq!(sandbox.command("lost", "cd /; echo on")["stdout"], "on\n");
    });
}

/// The key of the environment appears in no log and no argument list.
/// Promises: K1.
#[test]
fn no_key_is_revealed_anywhere() {
    let server = Options::new().env("RUST_LOG", "trace").start();
    let sandbox = server.sandbox();
    sandbox
        .run("echo x; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; history")
        .code
        .expect("it ends");
    let seen = sandbox.run("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null");
    assert!(!seen.text().contains(server.key()), "a sandbox sees the key");
    assert!(!server.log().contains(server.key()), "the log holds the key");
    for pid in isolet_kit::process::all() {
        assert!(
            !isolet_kit::process::arguments(pid).contains(server.key()),
            "process {pid} shows the key"
        );
    }
}
