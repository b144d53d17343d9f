//! Egress of sandboxes: as requested, as changed while they run, and the reports of refusals. Each
//! test has a simulated network.

use isolet_kit::net::{METADATA, PUBLIC, World};
use isolet_kit::{Options, SOON, Sandbox, Server, Value, json, process, veth, wait_until};

/// A command that prints the answer of a server in the simulated network.
fn take(address: impl std::fmt::Display, port: u16) -> String {
    format!("timeout 60 cat </dev/tcp/{address}/{port}")
}

/// The same for a server that cannot be reached, which may take all of the time.
fn fetch(address: impl std::fmt::Display, port: u16) -> String {
    format!("timeout 5 cat </dev/tcp/{address}/{port}")
}

#[track_caller]
fn reaches(sandbox: &Sandbox, port: u16) {
    let answer = sandbox.exec(&take(PUBLIC, port));
    assert_eq!(answer["exit_code"], 0, "{answer}");
    assert!(
        answer["stdout"].as_str().is_some_and(|said| said.contains(&PUBLIC.to_string())),
        "{answer}"
    );
    assert!(answer["denied"].is_null(), "{answer}");
}

/// The refusals of a connection to this port.
#[track_caller]
fn refused(sandbox: &Sandbox, port: u16) -> Value {
    let answer = sandbox.exec(&fetch(PUBLIC, port));
    assert_ne!(answer["exit_code"], 0, "{answer}");
    answer["denied"].clone()
}

#[track_caller]
fn change(sandbox: &Sandbox, body: Value) -> Value {
    sandbox.http.patch(&sandbox.path("/network"), &body).expect(200).json()
}

fn network(sandbox: &Sandbox) -> Value {
    sandbox.http.get(&sandbox.path("/network")).expect(200).json()
}

fn entry(port: u16) -> Value {
    json!({"host": PUBLIC.to_string(), "port": port, "protocol": "tcp", "rule": "default"})
}

/// Checks that the list has exactly one refusal, and that it is this one.
#[track_caller]
fn assert_refused_once(denied: &Value, port: u16) {
    let mut list = denied.as_array().unwrap_or_else(|| panic!("{denied}")).clone();
    assert!(list[0]["times"].as_u64().is_some_and(|times| times > 0), "{denied}");
    list.iter_mut().for_each(|one| drop(one.as_object_mut().expect("one").remove("times")));
    assert_eq!(list, [entry(port)], "{denied}");
}

/// Promises: Q12.
#[test]
fn a_network_changes_while_a_sandbox_runs_and_a_refusal_can_be_allowed() {
    let _world = World::new();
    let server = Server::start();
    let sandbox = server.sandbox();
    assert_eq!(network(&sandbox), json!({"mode": "none", "allow": [], "deny": []}));
    assert!(refused(&sandbox, 80).is_null(), "without egress no refusals are recorded");
    change(&sandbox, json!({"network": "open"}));
    reaches(&sandbox, 80);
    let only = format!("{PUBLIC}:80");
    let rules = change(&sandbox, json!({"network": {"allow": [only]}}));
    assert_eq!(rules, json!({"mode": "rules", "allow": [only], "deny": []}));
    reaches(&sandbox, 80);
    let denied = refused(&sandbox, 443);
    assert_refused_once(&denied, 443);
    for _ in 0..2 {
        let opened = change(&sandbox, json!({"allow_add": denied}));
        assert_eq!(
            opened["allow"],
            json!([only, format!("{PUBLIC}:443")]),
            "a repeated change has no effect"
        );
        reaches(&sandbox, 443);
    }
    let profile = change(&sandbox, json!({"network_profile": "locked-down"}));
    assert_eq!((&profile["mode"], &profile["profile"]), (&json!("rules"), &json!("locked-down")));
    assert_refused_once(&refused(&sandbox, 80), 80);
    change(&sandbox, json!({"network": "none"}));
    assert!(refused(&sandbox, 80).is_null());
    for (body, why) in [
        (json!({"allow_add": ["http://a"]}), "allow_add"),
        (json!({"deny_add": ["*"]}), "deny_add"),
        (json!({"network": "open", "network_profile": "none"}), "network"),
        (json!({"network_profile": "never-was"}), "network_profile"),
        (json!({"allow_more": []}), "allow_more"),
    ] {
        let failure = sandbox.http.patch(&sandbox.path("/network"), &body).expect(400);
        assert!(failure.text().contains(why), "{}", failure.text());
    }
    assert_eq!(network(&sandbox)["mode"], "none", "nothing was changed");
}

/// Promises: Q12.
#[test]
fn a_network_survives_sleep_restart_and_the_end_of_the_veth_manager() {
    let _world = World::new();
    let mut server = Server::start();
    let only = json!({"network": {"allow": [format!("{PUBLIC}:80")]}});
    let sandbox = server.sandbox_with(&only);
    assert_eq!(sandbox.info()["network"], "rules");
    let holds = |sandbox: &Sandbox| {
        reaches(sandbox, 80);
        assert_refused_once(&refused(sandbox, 443), 443);
    };
    holds(&sandbox);
    sandbox.post("/sleep", &json!({})).expect(200);
    change(&sandbox, json!({"deny_add": ["192.0.2.0/24"]}));
    assert_eq!(sandbox.info()["state"], "sleeping", "no sandbox was woken");
    holds(&sandbox);
    server.restart();
    assert_eq!(network(&sandbox)["deny"], json!(["192.0.2.0/24"]));
    holds(&sandbox);
    let killed = veth::manager(&server.data());
    let before = address(&sandbox);
    process::kill(killed);
    wait_until("another veth manager runs", SOON, || {
        veth::find_manager(&server.data()).filter(|manager| *manager != killed)
    });
    // The old veth pair works until the kernel has removed it.
    wait_until("it has a veth pair again", SOON, || {
        let now = address(&sandbox);
        (now.contains('.') && now != before).then_some(())
    });
    holds(&sandbox);
}

/// The sandbox's own address as seen inside; empty while it has none.
fn address(sandbox: &Sandbox) -> String {
    let ask = "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\n\
               s.connect(('192.0.2.1', 9))\nprint(s.getsockname()[0])";
    sandbox.says(&format!("python3 -c \"{ask}\" 2>/dev/null; true"))
}

/// Promises: Q13.
#[test]
fn refusals_are_reported_wherever_a_command_ends() {
    let _world = World::new();
    let server = Server::start();
    let sandbox = server
        .sandbox_with(&json!({"network": {"deny": ["198.51.100.0/24:443"], "allow": ["*:443"]}}));
    assert_refused_once(&refused(&sandbox, 80), 80);
    let own = sandbox.command("s", &fetch(PUBLIC, 80));
    assert_refused_once(&own["denied"], 80);
    assert!(sandbox.command("s", "true")["denied"].is_null(), "it is reported once");
    let mut shell = sandbox.shell();
    assert_refused_once(&shell.run(&fetch(PUBLIC, 80)).exit["denied"], 80);
    assert!(shell.run("true").exit["denied"].is_null());
    let mut events =
        sandbox.http.events(&sandbox.path("/exec"), &json!({"command": fetch(PUBLIC, 80)}));
    let exit =
        std::iter::from_fn(|| events.event()).find(|event| event.name == "exit").expect("an end");
    assert_refused_once(&exit.data.parse::<Value>().expect("JSON")["denied"], 80);
    let code = format!(
        "import socket\ntry: socket.create_connection(('{PUBLIC}', 80), 5)\nexcept OSError: pass"
    );
    let run = sandbox.post("/contexts/python/run", &json!({"code": code})).expect(200).json();
    assert_refused_once(&run["denied"], 80);
    let start = json!({"id": "p", "command": fetch(PUBLIC, 80)});
    sandbox.post("/processes", &start).expect(201);
    wait_until("the process is reported", SOON, || {
        let answer = sandbox.http.get(&sandbox.path("/processes/p")).expect(200).json();
        (answer["status"] != "running" && !answer["denied"].is_null()).then_some(())
    });
    // A rule of `deny`, and addresses that are closed to every sandbox, are opened differently.
    let denied = refused(&sandbox, 443);
    assert_eq!(denied[0]["rule"], "198.51.100.0/24:443", "{denied}");
    let closed = sandbox.exec(&fetch(METADATA, 443))["denied"].clone();
    assert_eq!(closed[0]["rule"], "link-local", "{closed}");
    for (list, why) in [(denied, "deny_remove"), (closed, "[network] opened")] {
        let body = json!({"allow_add": list});
        let failure = sandbox.http.patch(&sandbox.path("/network"), &body).expect(400);
        assert!(failure.text().contains(why), "{}", failure.text());
    }
    change(&sandbox, json!({"deny_remove": ["198.51.100.0/24:443"]}));
    reaches(&sandbox, 443);
}

/// The reported traffic of the sandbox.
fn traffic(sandbox: &Sandbox) -> Value {
    sandbox.http.get(&sandbox.path("")).expect(200).json()["usage"]["network"].clone()
}

fn received(sandbox: &Sandbox) -> u64 {
    traffic(sandbox)["received_bytes"].as_u64().unwrap_or_default()
}

/// Promises: Q16.
#[test]
fn traffic_is_counted_across_sleeps_and_network_changes() {
    const BYTES: u64 = 3_000_000;
    let _world = World::new();
    let mut server = Server::start();
    let sandbox = server.sandbox();
    let other = server.sandbox();
    assert!(traffic(&sandbox).is_null(), "it never had egress");
    change(&sandbox, json!({"allow_add": [PUBLIC.to_string()]}));
    change(&other, json!({"allow_add": [PUBLIC.to_string()]}));
    let take_bytes = || {
        let command = format!("timeout 60 head -c {BYTES} </dev/tcp/{PUBLIC}/81 | wc -c");
        assert_eq!(sandbox.says(&command).trim(), BYTES.to_string());
    };
    take_bytes();
    let first = received(&sandbox);
    assert!(first >= BYTES, "{first}");
    assert!(received(&other) < BYTES / 10, "the counters belong to another sandbox");
    assert_eq!(traffic(&sandbox)["refused"], 0);
    drop(sandbox.exec(&fetch(METADATA, 80)));
    wait_until("the refusal is counted", SOON, || {
        traffic(&sandbox)["refused"].as_u64().filter(|refused| *refused > 0)
    });

    sandbox.http.post(&sandbox.path("/sleep"), &json!({})).expect(200);
    take_bytes();
    let second = received(&sandbox);
    assert!(second >= first + BYTES, "{second} after the sleep, {first} before");
    server.restart();
    // The counters are read as soon as the veth manager is found again.
    wait_until("the traffic is counted across a restart", SOON, || {
        (received(&sandbox) >= second).then_some(())
    });
    change(&sandbox, json!({"network": "none"}));
    let third = received(&sandbox);
    assert!(third >= second, "{third} for removed veth pairs");
    change(&sandbox, json!({"network": "open"}));
    take_bytes();
    assert!(received(&sandbox) >= third + BYTES);
}

/// Promises: Q15.
#[test]
fn the_command_line_sets_networks_and_names_the_call_that_allows_a_refusal() {
    let _world = World::new();
    let server = Options::new()
        .config("[network]\ndefault = \"web\"\n[network.profiles.web]\nallow = [\"*:80\"]\n")
        .start();
    let run = |args: &[&str]| {
        let output = server.command(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let rule = format!("{PUBLIC}:80");
    assert_eq!(
        run(&["create", "demo", "--allow", &rule]),
        (Some(0), "demo\n".into(), String::new())
    );
    let (code, _, said) = run(&["exec", "demo", &fetch(PUBLIC, 443)]);
    let call = format!("isolet network demo --allow-add {PUBLIC}:443");
    assert!(code != Some(0) && said.contains(&call), "{said}");
    let (code, shown, _) = run(&["network", "demo", "--allow-add", &format!("{PUBLIC}:443")]);
    assert_eq!((code, shown.lines().count()), (Some(0), 3), "{shown}");
    assert_eq!(run(&["exec", "demo", &take(PUBLIC, 443)]).0, Some(0));
    // The operator's profile is the network of a sandbox that names none.
    let other = server.sandbox();
    assert_eq!(other.info()["network_profile"], "web");
    reaches(&other, 80);
    assert_refused_once(&refused(&other, 443), 443);
}
