//! Where sandboxes may connect to: as asked for, as changed while they run, and what they are told
//! of what was refused. Each test has a small world of its own.

use isolet_kit::{
    Options, SOON, Sandbox, Server, Value, json, links,
    net::{METADATA, PUBLIC, World},
    process, wait_until,
};

/// Prints what a server of the world says, or fails.
fn fetch(address: impl std::fmt::Display, port: u16) -> String {
    format!("timeout 5 cat </dev/tcp/{address}/{port}")
}

#[track_caller]
fn reaches(sandbox: &Sandbox, port: u16) {
    let told = sandbox.exec(&fetch(PUBLIC, port));
    assert_eq!(told["exit_code"], 0, "{told}");
    assert!(
        told["stdout"].as_str().is_some_and(|said| said.contains(&PUBLIC.to_string())),
        "{told}"
    );
    assert!(told["denied"].is_null(), "{told}");
}

/// What it was refused.
#[track_caller]
fn refused(sandbox: &Sandbox, port: u16) -> Value {
    let told = sandbox.exec(&fetch(PUBLIC, port));
    assert_ne!(told["exit_code"], 0, "{told}");
    told["denied"].clone()
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

/// Whether this list has one such refusal and no other.
#[track_caller]
fn told_once(denied: &Value, port: u16) {
    let mut list = denied.as_array().unwrap_or_else(|| panic!("{denied}")).clone();
    assert!(list[0]["times"].as_u64().is_some_and(|times| times > 0), "{denied}");
    list.iter_mut().for_each(|one| drop(one.as_object_mut().expect("one").remove("times")));
    assert_eq!(list, [entry(port)], "{denied}");
}

#[test]
fn a_network_is_changed_while_a_sandbox_runs_and_what_was_refused_is_opened() {
    let _world = World::new();
    let server = Server::start();
    let sandbox = server.sandbox();
    assert_eq!(network(&sandbox), json!({"mode": "none", "allow": [], "deny": []}));
    assert!(refused(&sandbox, 80).is_null(), "nobody listens for what has no way out");
    change(&sandbox, json!({"network": "open"}));
    reaches(&sandbox, 80);
    let only = format!("{PUBLIC}:80");
    let rules = change(&sandbox, json!({"network": {"allow": [only]}}));
    assert_eq!(rules, json!({"mode": "rules", "allow": [only], "deny": []}));
    reaches(&sandbox, 80);
    let denied = refused(&sandbox, 443);
    told_once(&denied, 443);
    for _ in 0..2 {
        let opened = change(&sandbox, json!({"allow_add": denied}));
        assert_eq!(opened["allow"], json!([only, format!("{PUBLIC}:443")]), "twice is as once");
        reaches(&sandbox, 443);
    }
    let profile = change(&sandbox, json!({"network_profile": "locked-down"}));
    assert_eq!((&profile["mode"], &profile["profile"]), (&json!("rules"), &json!("locked-down")));
    told_once(&refused(&sandbox, 80), 80);
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

#[test]
fn a_network_is_kept_over_sleep_restart_and_the_end_of_what_owns_links() {
    let _world = World::new();
    let mut server = Server::start();
    let only = json!({"network": {"allow": [format!("{PUBLIC}:80")]}});
    let sandbox = server.sandbox_with(&only);
    assert_eq!(sandbox.info()["network"], "rules");
    let holds = |sandbox: &Sandbox| {
        reaches(sandbox, 80);
        told_once(&refused(sandbox, 443), 443);
    };
    holds(&sandbox);
    sandbox.post("/sleep", &json!({})).expect(200);
    change(&sandbox, json!({"deny_add": ["192.0.2.0/24"]}));
    assert_eq!(sandbox.info()["state"], "sleeping", "nothing is woken");
    holds(&sandbox);
    server.restart();
    assert_eq!(network(&sandbox)["deny"], json!(["192.0.2.0/24"]));
    holds(&sandbox);
    let owner = links::owner(&server.data());
    let before = address(&sandbox);
    process::kill(owner);
    wait_until("another owns links", SOON, || {
        links::keeper(&server.data()).filter(|keeper| *keeper != owner)
    });
    // The old link leads out until the kernel has taken it away.
    wait_until("it is linked anew", SOON, || {
        let now = address(&sandbox);
        (now.contains('.') && now != before).then_some(())
    });
    holds(&sandbox);
}

/// The sandbox's own address, as it is said inside; empty while it has none.
fn address(sandbox: &Sandbox) -> String {
    let ask = "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\n\
               s.connect(('192.0.2.1', 9))\nprint(s.getsockname()[0])";
    sandbox.says(&format!("python3 -c \"{ask}\" 2>/dev/null; true"))
}

#[test]
fn what_was_refused_is_told_wherever_a_command_ends() {
    let _world = World::new();
    let server = Server::start();
    let sandbox = server
        .sandbox_with(&json!({"network": {"deny": ["198.51.100.0/24:443"], "allow": ["*:443"]}}));
    told_once(&refused(&sandbox, 80), 80);
    let own = sandbox.command("s", &fetch(PUBLIC, 80));
    told_once(&own["denied"], 80);
    assert!(sandbox.command("s", "true")["denied"].is_null(), "it is told once");
    let mut shell = sandbox.shell();
    told_once(&shell.run(&fetch(PUBLIC, 80)).exit["denied"], 80);
    assert!(shell.run("true").exit["denied"].is_null());
    let mut events =
        sandbox.http.events(&sandbox.path("/exec"), &json!({"command": fetch(PUBLIC, 80)}));
    let exit =
        std::iter::from_fn(|| events.event()).find(|event| event.name == "exit").expect("an end");
    told_once(&exit.data.parse::<Value>().expect("JSON")["denied"], 80);
    let code = format!(
        "import socket\ntry: socket.create_connection(('{PUBLIC}', 80), 5)\nexcept OSError: pass"
    );
    let run = sandbox.post("/contexts/python/run", &json!({"code": code})).expect(200).json();
    told_once(&run["denied"], 80);
    let start = json!({"id": "p", "command": fetch(PUBLIC, 80)});
    sandbox.post("/processes", &start).expect(201);
    wait_until("the process is told of", SOON, || {
        let told = sandbox.http.get(&sandbox.path("/processes/p")).expect(200).json();
        (told["status"] != "running" && !told["denied"].is_null()).then_some(())
    });
    // A rule of deny, and what is closed to every sandbox, are opened otherwise.
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

/// What is told of its traffic.
fn traffic(sandbox: &Sandbox) -> Value {
    sandbox.http.get(&sandbox.path("")).expect(200).json()["usage"]["network"].clone()
}

fn received(sandbox: &Sandbox) -> u64 {
    traffic(sandbox)["received_bytes"].as_u64().unwrap_or_default()
}

#[test]
fn what_goes_over_its_links_is_counted_over_sleeps_and_changes() {
    const BYTES: u64 = 3_000_000;
    let _world = World::new();
    let mut server = Server::start();
    let (sandbox, other) = (server.sandbox(), server.sandbox());
    assert!(traffic(&sandbox).is_null(), "it never had a way out");
    change(&sandbox, json!({"allow_add": [PUBLIC.to_string()]}));
    change(&other, json!({"allow_add": [PUBLIC.to_string()]}));
    let take = || {
        let command = format!("timeout 20 head -c {BYTES} </dev/tcp/{PUBLIC}/81 | wc -c");
        assert_eq!(sandbox.says(&command).trim(), BYTES.to_string());
    };
    take();
    let first = received(&sandbox);
    assert!(first >= BYTES, "{first}");
    assert!(received(&other) < BYTES / 10, "it is of another");
    assert_eq!(traffic(&sandbox)["refused"], 0);
    drop(sandbox.exec(&fetch(METADATA, 80)));
    wait_until("the refusal is counted", SOON, || {
        traffic(&sandbox)["refused"].as_u64().filter(|refused| *refused > 0)
    });

    sandbox.http.post(&sandbox.path("/sleep"), &json!({})).expect(200);
    take();
    let second = received(&sandbox);
    assert!(second >= first + BYTES, "{second} over the sleep, {first} before");
    server.restart();
    // It is asked for as soon as the process that owns links is found again.
    wait_until("it is counted over a restart", SOON, || {
        (received(&sandbox) >= second).then_some(())
    });
    change(&sandbox, json!({"network": "none"}));
    let third = received(&sandbox);
    assert!(third >= second, "{third} of links that are gone");
    change(&sandbox, json!({"network": "open"}));
    take();
    assert!(received(&sandbox) >= third + BYTES);
}

#[test]
fn the_command_line_makes_networks_and_says_what_opens_what_was_refused() {
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
    assert_eq!(run(&["exec", "demo", &fetch(PUBLIC, 443)]).0, Some(0));
    // The operator's profile, and the network of a sandbox that names none.
    let other = server.sandbox();
    assert_eq!(other.info()["network_profile"], "web");
    reaches(&other, 80);
    told_once(&refused(&other, 443), 443);
}
