//! Usage of sandboxes across sleeps, restarts and deletion; and network profiles.

use isolet_kit::{Http, Server, Value, json};

fn usage(http: &Http) -> Value {
    http.get("/v1/usage").expect(200).json()
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// Promises: D5.
#[test]
fn usage_of_a_sandbox_survives_sleep_restart_and_deletion() {
    let mut server = Server::start();
    let http = server.http();
    let sandbox = server.sandbox();
    let work = "i=0; while ((SECONDS < 1 || i < 100000)); do ((++i)); done";
    sandbox.exec(&format!(
        "SECONDS=0; {work}; head -c 60000000 /dev/zero | tail -c 50000000 >/dev/null"
    ));
    let before = sandbox.info()["usage"].clone();
    assert!(number(&before, "cpu_ms") > 100.0, "{before}");
    sandbox.post("/sleep", &json!({})).expect(200);
    let asleep = usage(&http);
    assert!(number(&asleep, "cpu_seconds") * 1000.0 >= number(&before, "cpu_ms"), "{asleep}");
    server.kill();
    server.launch();
    server.wait_until_ready();
    let http = server.http();
    assert_eq!(usage(&http)["cpu_seconds"], asleep["cpu_seconds"], "a sleep uses no resources");
    assert_eq!(usage(&http)["mem_seconds"], asleep["mem_seconds"]);
    let path = format!("/v1/sandboxes/{}", sandbox.id);
    http.post(&format!("{path}/exec"), &json!({"command": ":"})).expect(200);
    let awake = http.get(&path).expect(200).json()["usage"].clone();
    for name in ["cpu_ms", "memory_peak_bytes"] {
        assert!(number(&awake, name) >= number(&before, name), "{name}: {awake} after {before}");
    }
    assert!(number(&awake, "awake_ms") <= number(&awake, "uptime_ms"), "{awake}");
    let ended = http.delete(&format!("/v1/runs/{}", sandbox.id)).expect(200).json();
    assert!(number(&ended, "cpu_ms") >= number(&awake, "cpu_ms"), "{ended}");
    let history = http.get("/v1/runs/history").expect(200).json();
    let one = &history["sandboxes"][0];
    assert_eq!((&one["id"], &one["cpu_ms"]), (&json!(sandbox.id), &ended["cpu_ms"]));
    assert_eq!(one["mem_peak_bytes"], ended["mem_peak_bytes"]);
    server.kill();
    server.launch();
    server.wait_until_ready();
    let http = server.http();
    assert_eq!(http.get("/v1/runs/history").expect(200).json(), history);
    let all = usage(&http);
    assert_eq!((&all["active_sandboxes"], &all["history_sandboxes"]), (&json!(0), &json!(1)));
    assert!((number(&all, "cpu_seconds") * 1000.0 - number(&ended, "cpu_ms")).abs() < 0.01);
}

/// Promises: D6.
#[test]
fn usage_and_profiles_belong_to_one_tenant() {
    let mut server = Server::start();
    let key = server.add_key(&["--tenant", "other"]);
    let own = server.http();
    let other = Http::new(server.port(), Some(&key));
    server.sandbox().delete();
    let _lives = server.sandbox();
    let none = usage(&other);
    for name in ["active_sandboxes", "history_sandboxes", "cpu_seconds", "mem_seconds"] {
        assert_eq!(number(&none, name), 0.0, "{name}");
    }
    assert_eq!(other.get("/v1/runs/history").expect(200).json(), json!({"sandboxes": []}));
    let put = |http: &Http, name: &str, body: &Value| {
        let path = format!("/v1/network-profiles/{name}");
        http.send("PUT", &path, Some(body.to_string().as_bytes()))
    };
    let rules = json!({"description": "d", "allow": ["example.com:443"], "deny": ["*"]});
    put(&own, "web", &rules).expect(201);
    put(&own, "web", &rules).expect(200);
    other.get("/v1/network-profiles/web").expect(404);
    other.delete("/v1/network-profiles/web").expect(404);
    let names = |http: &Http| {
        let all = http.get("/v1/network-profiles").expect(200).json();
        let all = all.as_array().expect("a list").clone();
        all.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let everybodys = ["none", "locked-down", "packages", "unrestricted"];
    assert_eq!(names(&other), everybodys);
    assert_eq!(names(&own), [&everybodys[..], &["web"]].concat());
    for (name, body) in [
        ("none", &rules),
        ("packages", &rules),
        ("x", &json!({"allow": ["*"], "deny": ["*"]})),
        ("UP", &rules),
        ("a%2Fb", &rules),
        ("x", &json!({"allow": ["http://a"]})),
        ("x", &json!({"allow": vec!["a.example"; 257]})),
        ("x", &json!({"allow": "*"})),
        ("x", &json!({"description": "x".repeat(2000)})),
        ("x", &json!({"rules": []})),
    ] {
        put(&own, name, body).expect(400);
    }
    own.delete("/v1/network-profiles/none").expect(400);
    own.delete("/v1/network-profiles/packages").expect(400);
    let refused = own.post("/v1/runs", &json!({"network_profile": "never-was"})).expect(400);
    assert!(refused.text().contains("no network profile"), "{}", refused.text());
    other.post("/v1/runs", &json!({"network_profile": "web"})).expect(400);
    let both = json!({"network_profile": "none", "network": {"allow": []}});
    own.post("/v1/runs", &both).expect(400);
    other.post("/v1/runs", &json!({"network_profile": "none"})).expect(201);
    other.post("/v1/runs", &json!({"network": "none"})).expect(201);
    let word = other.post("/v1/runs", &json!({"network": "all"})).expect(400).text();
    assert!(word.contains("open"), "it lists {word}");
    own.delete("/v1/network-profiles/web").expect(204);
    own.get("/v1/network-profiles/web").expect(404);
}
