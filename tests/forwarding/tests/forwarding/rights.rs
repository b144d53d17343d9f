//! Tenants, keys, tickets and links on nodes that do not own the sandbox.

use crate::calls::{body, calls};
use crate::cluster::{Cluster, KEY, PORTS_DOMAIN};
use isolet_kit::{Http, SOON, Sandbox, json, wait_until};

/// Promises: FW4, T2.
#[test]
fn t2_another_tenant_gets_the_same_answers_as_on_one_node() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.says("echo secret >/workspace/file");
    let (_, secret) = cluster.add_key("a", "other", false);
    let other = cluster.node("a").client(Some(&secret));
    for path in ["", "/files/file", "/sessions", "/ports", "/events", "/links"] {
        let theirs = other.get(&sandbox.path(path)).expect(404);
        let missing = other.get(&format!("/v1/sandboxes/none{path}")).expect(404);
        assert_eq!(theirs.error(), "no_sandbox", "{path}");
        let text = theirs.text().replace("no sandbox box", "no sandbox none");
        assert_eq!(text, missing.text(), "{path}");
    }
    // The other tenant's sandbox with the same id is another sandbox.
    let own = Sandbox { id: "box".into(), http: other.clone() };
    assert_eq!(own.says("cat /workspace/file 2>/dev/null; echo mine"), "mine\n");
    assert_eq!(cluster.directory.owner("other", "box").as_deref(), Some("b"));
    assert_eq!(sandbox.says("cat file"), "secret\n");
    own.delete();
    assert_eq!(sandbox.says("cat file"), "secret\n");
}

/// Promises: FW4.
#[test]
fn t14_a_client_cannot_speak_as_a_node() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let head = json!({
        "caller": {"tenant": "default", "read_only": false, "key": null, "ticket": null},
        "target": {"tenant": "default", "sandbox": "box", "epoch": 1},
        "port_label": null, "client": "192.0.2.1", "tls": false
    });
    for node in ["a", "b"] {
        let keyless = cluster.node(node).client(None).with("isolet-peer", &head.to_string());
        assert_eq!(keyless.get(&sandbox.path("")).status, 400, "{node}");
        let keyed = cluster.node(node).http().with("isolet-peer", &head.to_string());
        let refused = keyed.get(&sandbox.path("")).expect(400);
        assert!(refused.text().contains("isolet-peer"), "{}", refused.text());
        let calls = cluster.node(node).http().post("/fleet/call", &json!({"call": "find_session"}));
        assert_eq!(calls.expect(404).error(), "no_route");
    }
}

/// Promises: FW4, T4.
#[test]
fn t4_no_secret_reaches_another_node() {
    let cluster = Cluster::start(2);
    let (_, secret) = cluster.add_key("a", "default", false);
    cluster.sandbox("box");
    let http = cluster.node("a").client(Some(&secret)).with("cookie", "isolet-port=abc");
    let sandbox = Sandbox { id: "box".into(), http };
    sandbox.says("true");
    sandbox.listen(8000);
    sandbox.http.get(&sandbox.path("/ports/8000/echo")).expect(200);
    sandbox.shell().close();
    let received = cluster.node("b").fleet.received.lock().expect("no test panics with it");
    assert!(received.len() >= 5);
    let text = format!("{received:?}");
    assert!(!text.contains(&secret) && !text.contains("isolet-port=abc"), "{text}");
}

/// Promises: FW4, T1.
#[test]
fn t1_a_read_only_key_stays_read_only_on_the_owner() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let (_, secret) = cluster.add_key("a", "default", true);
    let reader = Sandbox { id: "box".into(), http: cluster.node("a").client(Some(&secret)) };
    assert_eq!(reader.info()["id"], "box");
    let refused = reader.post("/exec", &json!({"command": "true"})).expect(403);
    assert_eq!(refused.error(), "read_only");
    assert_eq!(reader.http.get(&reader.path("/ports/80/")).expect(403).error(), "read_only");
    assert_eq!(reader.try_open("").map(drop), Err(403));
    // It may watch a terminal, and what it types is not typed.
    assert_eq!(reader.try_terminal("").map(drop), Err(403));
    let mut terminal = sandbox.terminal("");
    terminal.line("PS1='$ '; echo a$((1 + 1))b", "a2b");
    let mut view = reader.terminal("mode=view");
    let _ = view.send(isolet_kit::Message::binary(b"echo hac$((1))ked\r".to_vec()));
    terminal.line("echo c$((1 + 1))d", "c2d");
    assert!(!terminal.shown().contains("hac1ked"), "{}", terminal.shown());
    // Watching does not create a sandbox.
    let missing = Sandbox { id: "missing".into(), http: reader.http.clone() };
    assert_eq!(missing.try_terminal("mode=view").map(drop), Err(404));
    assert_eq!(cluster.directory.owner("default", "missing"), None);
}

/// Promises: FW4, T1.
#[test]
fn t1_every_route_answers_a_key_without_rights_as_on_the_owner() {
    let cluster = Cluster::start(2);
    cluster.sandbox("box");
    let readers = ["a", "b"].map(|node| cluster.add_key(node, "default", true).1);
    let clients = |at: usize| {
        let node = &cluster.nodes[at];
        let reader = Some(readers[at].as_str());
        [node.client(None), node.client(Some("isolet_unknown")), node.client(reader)]
    };
    for call in calls() {
        let path = call.path("box");
        let text = body(&call).map(|body| body.to_string());
        for (far, near) in clients(0).into_iter().zip(clients(1)) {
            let [far, near] = [far, near].map(|http| {
                let text = text.as_deref().map(str::as_bytes);
                // Streams do not end, so only their heads are read.
                http.try_open(&call.method, &path, text).expect("an answer").status
            });
            assert_eq!(far, near, "{call:?}");
        }
    }
}

/// Promises: FW5, T16.
#[test]
fn t16_a_ticket_opens_its_socket_once_on_any_node() {
    let cluster = Cluster::start(3);
    let sandbox = cluster.sandbox("box");
    let ticket = |node: &str, spec: isolet_kit::Value| {
        let made = cluster.node(node).http().post("/v1/tickets", &spec).expect(201).json();
        made["ticket"].as_str().expect("a ticket").to_owned()
    };
    let shell = json!({"sandbox": "box", "use": "shell"});
    let open = |node: &str, rest: &str| {
        let http = cluster.node(node).client(None);
        Sandbox { id: "box".into(), http }.socket(rest).map(drop)
    };
    for (maker, user) in [("a", "c"), ("b", "a"), ("c", "b"), ("a", "a")] {
        let one = ticket(maker, shell.clone());
        assert_eq!(open(user, &format!("/shell?ticket={one}")), Ok(()), "{maker} to {user}");
        for node in ["a", "b", "c"] {
            assert_eq!(open(node, &format!("/shell?ticket={one}")), Err(401), "used");
        }
    }
    let one = ticket("a", shell.clone());
    assert_eq!(open("c", &format!("/terminal?ticket={one}")), Err(401), "for something else");
    assert_eq!(open("c", &format!("/shell?ticket={one}")), Err(401), "and spent by that");
    let one = ticket("a", shell);
    let forged = one.replace(".b", ".c");
    assert_ne!(one, forged, "the owner issues it");
    assert_eq!(open("a", &format!("/shell?ticket={forged}")), Err(401));
    assert_eq!(open("a", "/shell?ticket=abc.nobody"), Err(401));
    // A ticket for one incarnation does not open, nor create, the next one.
    let one = ticket("a", json!({"sandbox": "box", "use": "terminal"}));
    sandbox.delete();
    cluster.sandbox("box");
    assert_eq!(open("c", &format!("/terminal?ticket={one}")), Err(401));
}

/// Promises: FW5.
#[test]
fn t16_a_signed_link_works_on_every_node() {
    let cluster = Cluster::start(3);
    let sandbox = cluster.sandbox("box");
    sandbox.listen(8000);
    let made = sandbox.post("/links", &json!({"port": 8000})).expect(201).json();
    let token = made["token"].as_str().expect("a token").to_owned();
    let path = format!("/v1/links/{token}/echo?x=1");
    let host = format!("8000-box.{PORTS_DOMAIN}");
    for node in ["a", "b", "c"] {
        let keyless = cluster.node(node).client(None);
        let said = keyless.get(&path).expect(200);
        assert_eq!(said.json()["path"], "/echo?x=1", "{node}");
        assert!(said.header("content-security-policy").is_some(), "{node}");
        let by_host = keyless.with("host", &format!("{host}:{}", keyless.port));
        assert_eq!(by_host.get("/echo").expect(401).error(), "bad_link", "{node}");
        let said = by_host.get(&format!("/echo?y=2&isolet-token={token}")).expect(200);
        assert_eq!(said.json()["path"], "/echo?y=2", "{node}");
        // A browser gets a cookie instead of the token; its own cookies reach the program.
        let page = by_host.with("sec-fetch-mode", "navigate");
        let moved = page.get(&format!("/echo?isolet-token={token}")).expect(303);
        assert_eq!(moved.header("location"), Some("/echo"));
        let cookie = moved.header("set-cookie").expect("a cookie").to_owned();
        let cookie = cookie.split(';').next().expect("a pair");
        let with = by_host
            .with("cookie", &format!("own=1; {cookie}"))
            .with("authorization", "Basic for-the-program");
        let said = with.get("/echo").expect(200).json()["headers"].to_string();
        assert!(said.contains("own=1") && said.contains("Basic for-the-program"), "{said}");
        assert!(!said.contains(&token) && !said.contains("isolet-peer"), "{said}");
        // A key opens the host name too, and does not reach the program.
        let keyed = cluster.node(node).http().with("host", &format!("{host}:{}", keyless.port));
        let said = keyed.get("/echo").expect(200).json()["headers"].to_string();
        assert!(!said.contains(KEY), "{said}");
    }
    let forged = format!("/v1/links/{}x/echo", &token[..token.len() - 1]);
    assert_eq!(cluster.node("a").client(None).get(&forged).expect(401).error(), "bad_link");
    sandbox.http.delete(&sandbox.path("/links/8000")).expect(204);
    wait_until("the link is void", SOON, || {
        let keyless: Http = cluster.node("c").client(None);
        (keyless.get(&path).status == 401).then_some(())
    });
}
