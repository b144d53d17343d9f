//! `isolet node`, the fields about nodes, and `isolet doctor`, with a real etcd and a fleet of one
//! server.

use crate::doctor::free_port;
use crate::programs::{ProgramOutput, fetched, run};
use isolet_kit::{LONG, Options, SOON, Sandbox, Server, Value, json, programs, wait_until};
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// An etcd with one member. It ends when it is dropped.
struct Etcd {
    folder: TempDir,
    port: u16,
    process: Child,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Etcd {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory in /tmp");
        let port = free_port();
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut command = Command::new(fetched("etcd/usr/bin/etcd"));
        command
            .args(["--name", "one", "--data-dir"])
            .arg(folder.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}"), "--log-level", "error"])
            .arg("--unsafe-no-fsync")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = command.spawn().expect("etcd starts");
        wait_until("etcd listens", SOON, || TcpStream::connect(("127.0.0.1", port)).ok().map(drop));
        Self { folder, port, process }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Writes keys in one transaction. `etcdctl` reads values in double quotes.
    fn put(&self, keys: &[(&str, &str)]) {
        let mut command = Command::new(fetched("etcd/usr/bin/etcdctl"));
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url(), "txn"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("etcdctl starts");
        let puts = keys.iter().map(|(key, value)| format!("put {key} {value:?}\n"));
        let text = format!("\n{}\n\n", puts.collect::<String>());
        let stdin = child.stdin.take();
        stdin.expect("piped").write_all(text.as_bytes()).expect("written");
        assert!(child.wait().expect("it ends").success());
    }

    /// The value of a key as text; empty if there is none.
    fn value(&self, key: &str) -> String {
        let mut command = Command::new(fetched("etcd/usr/bin/etcdctl"));
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url(), "get", key]);
        run(command.arg("--print-value-only")).well().out
    }

    fn delete(&self, key: &str) {
        let mut command = Command::new(fetched("etcd/usr/bin/etcdctl"));
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url(), "del", key]);
        run(&mut command).well();
    }

    /// Runs `isolet cluster` beside the authority.
    fn authority(&self, line: &str) {
        let mut isolet = Command::new(programs().join("isolet"));
        isolet.arg("cluster").args(line.split(' ')).args(["--dir", "ca"]);
        run(isolet.current_dir(self.folder.path())).well();
    }

    /// The configuration of the node `one`, with a certificate of a new authority.
    fn config(&self) -> String {
        self.authority("init");
        self.config_of("one")
    }

    /// The configuration of a node, with a certificate.
    fn config_of(&self, node: &str) -> String {
        self.authority(&format!("issue {node} --out {node}"));
        let url = self.url();
        let port = free_port();
        let peer = self.folder.path().join(node);
        format!(
            "[cluster]\netcd = [\"{url}\"]\nnode = \"{node}\"\nregion = \"eu\"\n\
             advertise = \"127.0.0.1:{port}\"\nlisten = \"127.0.0.1:{port}\"\npeer_dir = \"{}\"\n\
             lease_ttl_s = 60\n[cluster.labels]\ngpu = \"yes\"\n",
            peer.display()
        )
    }

    /// A node beside the server's that does not run any more and owns a sandbox.
    fn lose_node(&self, server: &Server) {
        let format = fs::read_to_string(server.data().join("format")).expect("its number");
        let format: Value = format.trim().parse().expect("a number");
        let record = json!({
            "v": 1, "format": format, "name": "gone", "identity": "x", "address": "127.0.0.1:1",
            "region": "eu", "labels": {}, "version": "1", "limits_digest": "", "store": false,
            "state": "ready", "started_at_ms": 1,
            "capacity": {"memory_mib": 1, "cpu_millis": 1, "disk_mib": 1, "sandboxes": 1},
            "load": {
                "memory_reserved_mib": 0, "disk_used_mib": 0, "sandboxes": 1, "running": 1,
                "is_full": false, "pushes_stuck": false, "images": [],
            },
        });
        let owner = json!({
            "v": 1, "node": "gone", "class": "node", "region": "eu", "reason": "spread",
            "custody": "held", "claim": 1,
        });
        self.put(&[
            ("isolet/nodes/known/gone", &record.to_string()),
            ("isolet/owners/default/lost", &owner.to_string()),
            ("isolet/held/gone/default/lost", "node"),
        ]);
    }
}

fn typed(server: &Server, line: &str) -> ProgramOutput {
    run(server.program().args(line.split(' ')))
}

/// The finding of a check in `isolet doctor`, with its status.
fn findings(server: &Server, config: &Path) -> Vec<Value> {
    fleet_findings(server.program().args(["doctor", "--json", "--config"]).arg(config))
}

/// The findings about the fleet.
fn fleet_findings(doctor: &mut Command) -> Vec<Value> {
    let report: Value = run(doctor).out.parse().expect("JSON");
    let all = report["findings"].as_array().expect("a list").iter();
    all.filter(|one| one["group"] == "fleet").cloned().collect()
}

fn status(all: &[Value], check: &str, message: &str) -> String {
    let found = all.iter().find(|one| one["check"] == check);
    let found = found.unwrap_or_else(|| panic!("{check}: {all:?}"));
    assert!(found["message"].as_str().is_some_and(|text| text.contains(message)), "{found}");
    found["status"].as_str().expect("a word").to_owned()
}

#[test]
fn an_operator_lists_cordons_and_removes_nodes() {
    let etcd = Etcd::start();
    let server = Options::new().config(&etcd.config()).start();
    etcd.lose_node(&server);
    wait_until("the server knows both nodes", SOON, || {
        typed(&server, "node ls").well().out.contains("gone").then_some(())
    });
    let text = typed(&server, "node ls").well().out;
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("listed");
    assert!(line("one").contains("ready") && line("one").contains("gpu=yes"), "{text}");
    assert!(line("gone").contains("lost") && !text.contains('\u{1b}'), "{text}");
    for how in ["", " --etcd"] {
        typed(&server, &format!("node cordon one{how}")).well();
        let list: Value = typed(&server, "node ls --json --etcd").well().out.parse().expect("JSON");
        assert_eq!(list["nodes"][1]["name"], "one", "{list}");
        assert_eq!(list["nodes"][1]["cordoned"], true, "{list}");
        typed(&server, &format!("node uncordon one{how}")).well();
        let list: Value = typed(&server, "node ls --json --etcd").well().out.parse().expect("JSON");
        assert_eq!(list["nodes"][1]["cordoned"], false, "{list}");
    }
    let alive = typed(&server, "node rm one --yes");
    assert!(alive.code == Some(1) && alive.err.contains("stop its server"), "{}", alive.err);
    let unknown = typed(&server, "node cordon none");
    assert!(unknown.code == Some(1) && unknown.err.contains("no node has the name"), "{unknown:?}");
    let asked = typed(&server, "node rm gone");
    assert!(asked.code == Some(1) && asked.err.contains("add --yes"), "{}", asked.err);
    assert!(
        asked.err.contains("1 sandboxes of the class node") && asked.err.contains("default/lost")
    );
    let removed = typed(&server, "node rm gone --yes").well();
    assert!(removed.err.contains("--release"), "{}", removed.err);
    assert!(typed(&server, "node ls --etcd").well().out.contains("dead"));
    let released = typed(&server, "node rm gone --yes --release --json").well();
    let released: Value = released.out.parse().expect("JSON");
    assert_eq!((&released["forgotten"], &released["released"]), (&json!(true), &json!(1)));
    assert!(!typed(&server, "node ls --etcd").well().out.contains("gone"));
}

#[test]
fn a_sandbox_says_where_it_is_and_a_demand_that_no_node_meets_is_refused() {
    let etcd = Etcd::start();
    let limits = format!("[limits_max]\nmemory_mib = {}\n", 1_u64 << 40);
    let server = Options::new().config(&format!("{limits}{}", etcd.config())).start();
    typed(&server, "create box --region eu --node-label gpu=yes").well();
    let made = server.http().get("/v1/sandboxes/box").expect(200).json();
    assert_eq!((&made["node"], &made["region"]), (&json!("one"), &json!("eu")), "{made}");
    let reason = made["placement_reason"].as_str().expect("a reason");
    assert!(reason.starts_with("spread: 1 of 1 nodes in eu"), "{reason}");
    let refused = |body: &Value| server.http().post("/v1/sandboxes", body);
    for (body, missing) in [
        (json!({"region": "us"}), "the region us has no node"),
        (json!({"labels": {"gpu": "no"}}), "no node in eu has the labels gpu=no"),
        (json!({"memory_mib": 1_u64 << 40}), "MiB of memory, and no node in eu has more than"),
    ] {
        let full = refused(&body).expect(503);
        assert_eq!(full.error(), "fleet_full", "{}", full.text());
        assert!(full.text().contains(missing) && full.header("retry-after").is_some(), "{full:?}");
    }
    let too_much = json!({"memory_mib": (1_u64 << 40) + 1});
    for body in [json!({"region": "a b"}), json!({"labels": {"a": ""}}), too_much] {
        assert_eq!(refused(&body).expect(400).error(), "bad_field", "{body}");
    }
}

/// Waits until a server knows `count` nodes that accept sandboxes.
fn wait_until_ready(server: &Server, count: usize) {
    wait_until("all nodes are ready", SOON, || {
        let list = server.http().get("/v1/nodes").expect(200).json();
        let all = list["nodes"].as_array().expect("a list").clone();
        let ready = all.iter().filter(|node| node["state"] == "ready").count();
        (ready == count).then_some(())
    });
}

/// The number of sandboxes that a node owns.
fn owned(server: &Server, node: &str) -> Value {
    server.http().get(&format!("/v1/nodes/{node}")).expect(200).json()["owned"]["node"].clone()
}

/// Promises: FW3, FW6, FW8, FW9.
#[test]
fn two_servers_are_one_fleet() {
    let etcd = Etcd::start();
    etcd.authority("init");
    let start =
        |name: &str| Options::new().key("a-key-of-both").config(&etcd.config_of(name)).start();
    let one = start("one");
    let mut two = start("two");
    wait_until_ready(&one, 2);
    let create = |id: &str| {
        let made = one.http().post("/v1/sandboxes", &json!({ "id": id })).expect(201).json();
        made["node"].as_str().expect("a name").to_owned()
    };
    let placed: Vec<String> = ["a", "b", "c", "d"].map(create).into();
    assert_eq!(placed.iter().filter(|node| *node == "two").count(), 2, "{placed:?}: spread");
    assert_eq!((owned(&one, "one"), owned(&two, "two")), (json!(2), json!(2)));
    let metrics = one.http().get("/metrics").expect(200).text();
    for counted in
        ["placements_total{result=\"here\"} 2", "placements_total{result=\"elsewhere\"} 2"]
    {
        assert!(metrics.contains(&format!("isolet_fleet_{counted}")), "{metrics}");
    }

    // A node that fails is avoided, and its sandboxes continue when it returns.
    let away = ["a", "b", "c", "d"].into_iter().zip(&placed).find(|(_, node)| *node == "two");
    let away = Sandbox { id: away.expect("one of two").0.to_owned(), http: one.http() };
    away.says("sleep 1000 >/dev/null 2>&1 & echo $! >pid");
    let key = typed(&one, "keys add --label shared").well().out;
    let secret = key.split_whitespace().find(|word| word.starts_with("isolet_"));
    let secret = secret.expect("printed once").to_owned();
    let accepted = |server: &Server| server.client(Some(&secret)).get("/v1/sandboxes").status;
    wait_until("the key reaches two", SOON, || (accepted(&two) == 200).then_some(()));
    let profile = json!({"allow": ["example.com:443"]}).to_string();
    let path = "/v1/network-profiles/web";
    let put = one.http().send("PUT", path, Some(profile.as_bytes()));
    assert!(put.status < 300, "{}", put.text());
    wait_until("the profile reaches two", SOON, || {
        (two.http().get(path).status == 200).then_some(())
    });
    two.kill();
    assert_eq!(away.http.get(&away.path("")).expect(503).error(), "node_unreachable");
    wait_until("one suspects two", SOON, || {
        let list = one.http().get("/v1/nodes").expect(200).json();
        (list["nodes"][1]["state"] == "suspect").then_some(())
    });
    for id in ["e", "f", "g"] {
        assert_eq!(create(id), "one", "two holds its lease and has more memory, but fails");
    }
    let listed = typed(&one, "keys ls").well().out;
    let id = listed.lines().find(|line| line.contains("shared")).expect("listed");
    let id = id.split_whitespace().find(|word| word.starts_with("key_")).expect("an id");
    let record = || etcd.value(&format!("isolet/keys/{id}"));
    let valid = record();
    assert!(valid.contains("shared") && !valid.contains(&secret), "{valid}");
    typed(&one, &format!("keys revoke {id}")).well();
    wait_until("the fleet knows the revocation", SOON, || (record() != valid).then_some(()));
    two.launch();
    assert_eq!(accepted(&two), 401, "the first answer after a start knows the revocation");
    assert_eq!(away.says("kill -0 $(cat pid) && echo alive"), "alive\n");

    // What does not exist is not owned.
    let refused = one.http().post("/v1/sandboxes", &json!({"id": "bad", "image": "NOT AN IMAGE"}));
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    let forked = away.post("/fork", &json!({"count": 2})).expect(201).json();
    let forks = forked["forks"].as_array().expect("a list").clone();
    wait_until("the forks are owned, and what was refused is not", SOON, || {
        (owned(&one, "one") == 5 && owned(&one, "two") == 4).then_some(())
    });
    let forks = forks.iter().map(|fork| fork["id"].as_str().expect("an id").to_owned());
    for id in ["a", "b", "c", "d", "e", "f", "g"].map(str::to_owned).into_iter().chain(forks) {
        one.http().delete(&format!("/v1/sandboxes/{id}")).expect(200);
    }
    wait_until("nothing is owned", SOON, || {
        (owned(&one, "one") == 0 && owned(&one, "two") == 0).then_some(())
    });
}

/// Promises: FW6.
#[test]
fn an_ownership_stays_while_its_sandbox_is_being_created() {
    let etcd = Etcd::start();
    etcd.authority("init");
    // A registry that accepts connections and never answers.
    let registry = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let host = registry.local_addr().expect("bound").to_string();
    let images = format!("[images]\nregistries = [{host:?}]\n");
    let start = |name: &str| {
        let config = format!("{images}{}", etcd.config_of(name));
        Options::new().key("a-key-of-both").config(&config).start()
    };
    let one = start("one");
    let two = start("two");
    wait_until_ready(&one, 2);
    let total = || {
        ["one", "two"].map(|node| owned(&one, node).as_u64().expect("a number")).iter().sum::<u64>()
    };
    let body = json!({"id": "slow", "image": format!("{host}/never:1"), "memory_mib": 64});
    let http = one.http();
    let create = std::thread::spawn(move || {
        http.try_send("POST", "/v1/sandboxes", Some(body.to_string().as_bytes()))
    });
    let (connection, _) = registry.accept().expect("the image is pulled");
    assert_eq!(total(), 1);
    for server in [&one, &two] {
        server.http().get("/v1/sandboxes/slow").expect(404);
    }
    // After it, what the requests above may have given up is given up, too.
    let refused = one.http().post("/v1/sandboxes", &json!({"id": "bad", "image": "NOT AN IMAGE"}));
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    wait_until("what was refused is not owned", SOON, || {
        etcd.value("isolet/owners/default/bad").is_empty().then_some(())
    });
    assert!(!etcd.value("isolet/owners/default/slow").is_empty(), "it is being created");
    drop((connection, registry));
    let failed = create.join().expect("it ends").expect("an answer");
    assert!(failed.status >= 400, "{}", failed.text());
    wait_until("what failed is not owned", LONG, || (total() == 0).then_some(()));
}

/// Promises: FW3, FW6.
#[test]
fn limits_of_the_fleet_and_records_that_cannot_be_read_lose_nothing() {
    let etcd = Etcd::start();
    let config = format!("sandboxes_max = 3\n{}", etcd.config());
    let mut server = Options::new().key("a-key").config(&config).start();
    let original = server.sandbox_with(&json!({"id": "original"}));
    let fork = || {
        let once = server.http().with("idempotency-key", "once");
        once.post(&original.path("/fork"), &json!({"count": 2})).expect(201).json()
    };
    let forks = fork();
    assert_eq!(fork(), forks, "the answer of the first request");
    let ids = server.ids(&server.http());
    assert_eq!(ids.len(), 3, "a repeated request at the limit deletes nothing: {ids:?}");
    assert_eq!(owned(&server, "one"), 3);
    let refused = original.post("/fork", &json!({"count": 1})).expect(429);
    assert_eq!(refused.error(), "too_many_sandboxes", "{}", refused.text());
    assert_eq!((server.ids(&server.http()).len(), owned(&server, "one")), (3, json!(3)));
    // A wish that no node allows is a mistake of the client.
    let most = json!({"id": "most", "memory_mib": u64::MAX});
    server.http().post("/v1/sandboxes", &most).expect(400);
    // A record that cannot be read concerns one sandbox.
    server.stop();
    etcd.put(&[("isolet/owners/default/original", "nonsense")]);
    server.launch();
    let fork = Sandbox {
        id: ids.iter().find(|id| *id != "original").expect("one").clone(),
        http: server.http(),
    };
    assert_eq!(fork.says("echo works"), "works\n");
    etcd.delete("isolet/owners/default/original");
    assert_eq!(original.says("echo works"), "works\n", "its node owns it again");
}

#[test]
fn the_doctor_checks_a_node_while_its_server_runs_and_while_it_does_not() {
    let mut etcd = Etcd::start();
    let config = etcd.config();
    let file = etcd.folder.path().join("node.toml");
    std::fs::write(&file, &config).expect("written");
    let open = Permissions::from_mode(0o755);
    let shared = tempfile::Builder::new().permissions(open).tempdir().expect("in /tmp");
    let readable = shared.path().join("node.toml");
    std::fs::write(&readable, &config).expect("written");
    let mut server = Options::new().config(&config).start();
    let all = findings(&server, &file);
    assert_eq!(status(&all, "etcd", "version 3."), "ok");
    assert_eq!(status(&all, "etcd cluster", "members 1; 0 of them may fail"), "warning");
    assert_eq!(status(&all, "prefix", "isolet: nodes 1, of which 1 hold their lease"), "ok");
    assert_eq!(status(&all, "registration", "node one is registered since revision"), "ok");
    assert_eq!(status(&all, "address", "accepts connections"), "ok");
    assert_eq!(status(&all, "limits", "all nodes have the limits of this one"), "ok");
    typed(&server, "node cordon one").well();
    assert_eq!(status(&findings(&server, &file), "registration", "cordoned"), "warning");
    typed(&server, "node uncordon one").well();
    // Without root, what is not known is no failure.
    let mut doctor = Command::new("setpriv");
    doctor.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    doctor.arg(programs().join("isolet")).args(["doctor", "--json", "--config"]).arg(&readable);
    doctor.env("ISOLET_DATA_DIR", server.data());
    let all = fleet_findings(&mut doctor);
    for check in ["registration", "address"] {
        assert_eq!(status(&all, check, "not checked"), "warning");
    }
    server.stop();
    let all = findings(&server, &file);
    assert_eq!(status(&all, "registration", "node one"), "ok");
    assert_eq!(status(&all, "address", "is an address of this machine"), "ok");
    // Another data directory has no right to the name while the lease of the first one lasts.
    let other = tempfile::tempdir().expect("a directory in /tmp");
    let mut doctor = server.program();
    doctor.args(["doctor", "--json", "--config"]).arg(&file).env("ISOLET_DATA_DIR", other.path());
    let taken = fleet_findings(&mut doctor);
    assert_eq!(status(&taken, "registration", "taken by another data directory"), "failure");
    etcd.process.kill().expect("it runs");
    etcd.process.wait().expect("it ends");
    let all = findings(&server, &file);
    assert_eq!(status(&all, "etcd", &etcd.url()), "failure");
    assert!(all.iter().all(|one| one["check"] != "prefix"), "{all:?}");
}
