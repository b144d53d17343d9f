//! Every kind of request through a node that does not own the sandbox.

use isolet_fleet_tests::LocalFleet;
use isolet_kit::{Http, Sandbox, Start, json};

/// Promises: FW1, FW5, FW6, FW7.
#[test]
fn a_sandbox_is_used_through_every_node() {
    let fleet = LocalFleet::start();
    fleet.create_on("b", "box");
    let holders = fleet.nodes.iter().map(|node| node.held().len());
    assert_eq!(holders.collect::<Vec<_>>(), [0, 1, 0]);
    let a = fleet.node("a").sandbox("box");
    let c = fleet.node("c").sandbox("box");
    assert_eq!(a.says("echo $((6 * 7))"), "42\n");
    assert_eq!(a.command("dev", "cd /tmp; x=7; pwd")["stdout"], "/tmp\n");
    assert_eq!(c.command("dev", "pwd; echo $x")["stdout"], "/tmp\n7\n");
    // A file of 3 MB, up through one node and down through another.
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 / 5) as u8).collect();
    let path = a.path("/files/large");
    let saved = a.http.send("PUT", &path, Some(&bytes));
    assert!(matches!(saved.status, 200..=204), "{}", saved.text());
    assert!(c.http.get(&path).expect(200).body == bytes, "the file is another one");
    // Server-sent events.
    let mut stream = a.http.events(&a.path("/exec"), &json!({"command": "echo one; echo two"}));
    let mut text = String::new();
    while let Some(event) = stream.event() {
        text.push_str(&event.data);
    }
    assert!(text.contains("one") && text.contains("two"), "{text}");
    // A shell begins on one node and is resumed on another.
    let mut shell = a.session("shell");
    shell.run("y=8").is("", 0);
    let id = shell.id.clone();
    let running = shell.start(Start::new("until [ -e /tmp/go ]; do sleep 0.05; done; echo $y"));
    shell.cut();
    let mut shell = c.open(&format!("session=shell&resume={id}&since=0,0"));
    a.says("touch /tmp/go");
    assert_eq!(shell.finish(&running).text(), "8\n");
    shell.close();
    // A terminal, and one that watches it.
    let mut terminal = a.terminal("");
    terminal.line("PS1='$ '; echo a$((1 + 1))b", "a2b");
    let mut view = c.terminal("mode=view");
    terminal.line("echo c$((1 + 1))d", "c2d");
    view.sees("c2d");
    terminal.close();
    // A port, by request and by signed link.
    a.listen(8000);
    let port = |http: &Http, path: &str| http.get(&format!("{path}/echo?n=1")).expect(200).json();
    assert_eq!(port(&c.http, &c.path("/ports/8000"))["path"], "/echo?n=1");
    let link = a.post("/links", &json!({"port": 8000})).expect(201).json();
    let token = link["token"].as_str().expect("a token");
    for node in &fleet.nodes {
        let keyless = node.server.client(None);
        assert_eq!(port(&keyless, &format!("/v1/links/{token}"))["path"], "/echo?n=1");
    }
    // A link with a chosen token: created through one node, and again through another.
    let chosen = json!({"port": 8000, "token": "chosen-in-a-fleet"});
    let url = |one: &Sandbox| one.post("/links", &chosen).expect(201).json()["token"].clone();
    let token = url(&a);
    assert_eq!((&token, token.as_str()), (&url(&c), Some("~default~box~8000~chosen-in-a-fleet")));
    for node in &fleet.nodes {
        let path = format!("/v1/links/{}", token.as_str().expect("a token"));
        assert_eq!(port(&node.server.client(None), &path)["path"], "/echo?n=1");
    }
    // One idempotency key on three nodes.
    let ids = fleet.nodes.iter().map(|node| {
        let http = node.http().with("idempotency-key", "once");
        let made = http.post("/v1/sandboxes", &json!({"memory_mib": 64})).expect(201).json();
        made["id"].as_str().expect("an id").to_owned()
    });
    let mut ids: Vec<String> = ids.collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    // Every node lists both.
    ids.push("box".to_owned());
    ids.sort();
    for node in &fleet.nodes {
        assert_eq!(node.server.ids(&node.http()), ids, "{}", node.name);
    }
    a.delete();
    assert_eq!(c.http.get(&c.path("")).expect(404).error(), "no_sandbox");
}
