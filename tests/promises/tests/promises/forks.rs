//! Forks of sandboxes: all of them or none, also when the server is killed, and with identities of
//! their own.

use isolet_kit::{Http, SOON, Sandbox, Server, Value, json, one, wait_until};

fn id(of: &Value) -> String {
    of["id"].as_str().expect("an id").to_owned()
}

fn ids(forked: &Value) -> Vec<String> {
    forked["forks"].as_array().expect("a list").iter().map(id).collect()
}

fn fork(sandbox: &Sandbox, count: usize) -> Vec<String> {
    ids(&sandbox.post("/fork", &json!({"count": count})).expect(201).json())
}

/// Whether anything is left of snapshots and their files.
fn tidy(server: &Server) -> bool {
    server.http().get("/v1/snapshots").json() == json!({"snapshots": []})
        && server.snapshot_files().is_empty()
}

/// Promises: SN3.
#[test]
fn a_killed_server_leaves_a_whole_fork_or_none() {
    let (mut server, sandbox) = one();
    sandbox.command("dev", "echo one >/workspace/f; X=5");
    let original = id(&sandbox.info());
    // The point of a create is passed three times, so the second pass is in the middle of the fork.
    for (point, whole) in [
        ("fork.copied", false),
        ("create.recorded=2*", false),
        ("create.answered=2*", false),
        ("fork.created", false),
        ("fork.recorded", true),
    ] {
        server.kill();
        let (name, pass) = point.split_once('=').unwrap_or((point, ""));
        server.launch_with("ISOLET_FAILPOINTS", &format!("{name}={pass}abort"));
        server.wait_until_ready();
        let body = json!({"count": 3}).to_string();
        let _ = server.http().try_send("POST", &sandbox.path("/fork"), Some(body.as_bytes()));
        assert!(!server.wait().success(), "{point}");
        server.launch();
        let expected = if whole { 4 } else { 1 };
        wait_until("the fork is whole or gone", SOON, || {
            (server.ids(&server.http()).len() == expected).then_some(())
        });
        assert!(server.ids(&server.http()).contains(&original), "{point}");
        wait_until("its snapshot is gone", SOON, || tidy(&server).then_some(()));
    }
    for id in server.ids(&server.http()) {
        assert_eq!(
            server.named(&id).command("dev", "echo $X; cat /workspace/f")["stdout"],
            "5\none\n"
        );
    }
    // A whole fork stays whole.
    server.restart();
    assert_eq!(server.ids(&server.http()).len(), 4);
}

/// Promises: SN3.
#[test]
fn a_fork_that_cannot_be_recorded_leaves_nothing() {
    let (mut server, sandbox) = one();
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "fork.created=error");
    server.wait_until_ready();
    assert_eq!(sandbox.post("/fork", &json!({"count": 2})).status, 500);
    assert_eq!(server.ids(&server.http()), [id(&sandbox.info())]);
    wait_until("its snapshot is gone", SOON, || tidy(&server).then_some(()));
}

/// Promises: SN3, SN4.
#[test]
fn one_key_forks_once() {
    let (mut server, sandbox) = one();
    let ask = |http: Http, count: usize| {
        let once = http.with("idempotency-key", "f1");
        once.post(&sandbox.path("/fork"), &json!({"count": count}))
    };
    let first = ask(server.http(), 2).expect(201);
    let racing: Vec<Value> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..3).map(|_| scope.spawn(|| ask(server.http(), 2).json())).collect();
        all.into_iter().map(|one| one.join().expect("it is answered")).collect()
    });
    assert!(racing.iter().all(|again| *again == first.json()), "{racing:?}");
    server.restart();
    let again = ask(server.http(), 2).expect(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(ids(&again.json()), ids(&first.json()));
    assert_eq!(server.ids(&server.http()).len(), 3);
    assert_eq!(ask(server.http(), 1).error(), "idempotency_mismatch");
}

const MACHINE: &str = "cat /etc/machine-id";
const OWN: &str = "0123456789abcdef0123456789abcdef\n";

/// Promises: SN30.
#[test]
fn a_copy_has_an_identity_of_its_own() {
    let (server, sandbox) = one();
    let set = format!("printf {} >/etc/machine-id; hostname", OWN.trim_end());
    assert_eq!(sandbox.says(&set), "sandbox\n");
    sandbox.post("/links", &json!({"port": 8000})).expect(201);
    let taken = sandbox.post("/snapshots", &json!({"name": "point"})).expect(201).json();
    let mut machines = vec![OWN.to_owned()];
    let mut copies = fork(&sandbox, 2);
    copies.push(id(&server.sandbox_with(&json!({"snapshot": taken["id"]})).info()));
    for copy in copies {
        let copy = server.named(&copy);
        let machine = copy.says(MACHINE);
        assert_eq!(machine.len(), OWN.len(), "{machine}");
        assert!(!machines.contains(&machine), "{machine} is among {machines:?}");
        machines.push(machine);
        assert_eq!(copy.says("hostname"), "sandbox\n");
        let links = copy.http.get(&copy.path("/links")).expect(200).json();
        assert_eq!(links, json!([]), "links are those of the original");
        // Both read the same kernel, whose random numbers are not copied.
        assert_ne!(copy.says("cat /proc/sys/kernel/random/uuid"), "\n");
    }
    assert_eq!(sandbox.says(MACHINE).trim_end(), OWN.trim_end(), "the original keeps its own");
    // A restore in place keeps the identity.
    sandbox.post("/restore", &json!({"snapshot": "point"})).expect(200);
    assert_eq!(sandbox.says(MACHINE).trim_end(), OWN.trim_end());
    let plain = server.sandbox();
    assert_eq!(fork(&plain, 1).len(), 1);
    assert_eq!(plain.exec(MACHINE)["exit_code"], 1, "a sandbox has no machine id of its own");
}

/// The last one of a fork gets the files of the temporary snapshot themselves.
/// Promises: SN3.
#[test]
fn a_server_killed_after_the_last_fork_got_the_files_leaves_nothing() {
    for disk_mib in [0, 256] {
        let mut server = Server::start();
        let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib}));
        sandbox.command("dev", "echo one >/workspace/f; ln /workspace/f /workspace/g; X=5");
        sandbox.command("dev", "echo own >/opt/own");
        let original = id(&sandbox.info());
        server.kill();
        server.launch_with("ISOLET_FAILPOINTS", "restore.copied=abort");
        server.wait_until_ready();
        let body = json!({"count": 1}).to_string();
        let _ = server.http().try_send("POST", &sandbox.path("/fork"), Some(body.as_bytes()));
        assert!(!server.wait().success(), "it was killed");
        server.launch();
        server.wait_until_ready();
        wait_until("the fork is gone", SOON, || {
            (server.ids(&server.http()) == [original.clone()] && tidy(&server)).then_some(())
        });
        for count in [1, 2] {
            for id in fork(&sandbox, count) {
                let fork = server.named(&id);
                let seen = fork.command("dev", "echo $X; cat /workspace/g /opt/own");
                assert_eq!(seen["stdout"], "5\none\nown\n", "{disk_mib} MiB, {count} forks");
                assert_eq!(fork.says("stat -c %h /workspace/f"), "2\n");
            }
        }
        sandbox.command("dev", "echo two >/workspace/f");
        assert_eq!(sandbox.says("cat /workspace/g /opt/own"), "two\nown\n");
        wait_until("no snapshot is left", SOON, || tidy(&server).then_some(()));
    }
}
