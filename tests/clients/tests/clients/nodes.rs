//! `isolet node`, the fields about nodes, and `isolet doctor`, with a real etcd and a fleet of one
//! server.

use crate::programs::{ProgramOutput, fetched, run};
use isolet_kit::{Options, SOON, Server, Value, json, programs, wait_until};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("binds").port()
}

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
        let (port, peers) = (free_port(), free_port());
        let (client, peer) =
            (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
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

    /// The configuration of a node, with a certificate of a new authority.
    fn config(&self) -> String {
        let folder = self.folder.path();
        for line in ["cluster init --dir ca", "cluster issue one --dir ca --out peer"] {
            let mut isolet = Command::new(programs().join("isolet"));
            run(isolet.args(line.split(' ')).current_dir(folder)).well();
        }
        let (url, port, peer) = (self.url(), free_port(), folder.join("peer"));
        format!(
            "[cluster]\netcd = [\"{url}\"]\nnode = \"one\"\nregion = \"eu\"\n\
             advertise = \"127.0.0.1:{port}\"\nlisten = \"127.0.0.1:{port}\"\npeer_dir = \"{}\"\n\
             lease_ttl_s = 60\n[cluster.labels]\ngpu = \"yes\"\n",
            peer.display()
        )
    }

    /// A node that does not run any more and owns a sandbox.
    fn lose_node(&self) {
        let record = json!({
            "v": 1, "name": "gone", "identity": "x", "address": "127.0.0.1:1", "region": "eu",
            "version": "1", "capacity": {"memory_mib": 1, "cpu_millis": 1, "disk_mib": 1, "sandboxes": 1},
            "load": {"memory_reserved_mib": 0, "disk_used_mib": 0, "sandboxes": 1, "running": 1},
        });
        let owner = json!({
            "v": 1, "node": "gone", "class": "node", "region": "eu", "reason": "spread", "claim": 1,
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
    let output = run(server.program().args(["doctor", "--json", "--config"]).arg(config));
    let report: Value = output.out.parse().expect("JSON");
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
    etcd.lose_node();
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
    let server = Options::new().config(&etcd.config()).start();
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
    for body in [json!({"region": "a b"}), json!({"labels": {"a": ""}})] {
        assert_eq!(refused(&body).expect(400).error(), "bad_field", "{body}");
    }
}

#[test]
fn the_doctor_checks_a_node_while_its_server_runs_and_while_it_does_not() {
    let mut etcd = Etcd::start();
    let config = etcd.config();
    let file = etcd.folder.path().join("node.toml");
    std::fs::write(&file, &config).expect("written");
    let mut server = Options::new().config(&config).start();
    let all = findings(&server, &file);
    assert_eq!(status(&all, "etcd", "version 3."), "ok");
    assert_eq!(status(&all, "etcd cluster", "members 1; 0 of them may fail"), "warning");
    assert_eq!(status(&all, "prefix", "isolet: nodes 1, of which 1 hold their lease"), "ok");
    assert_eq!(status(&all, "registration", "node one is registered since revision"), "ok");
    assert_eq!(status(&all, "address", "accepts connections"), "ok");
    typed(&server, "node cordon one").well();
    assert_eq!(status(&findings(&server, &file), "registration", "cordoned"), "warning");
    typed(&server, "node uncordon one").well();
    server.stop();
    let all = findings(&server, &file);
    assert_eq!(status(&all, "registration", "node one"), "ok");
    assert_eq!(status(&all, "address", "is an address of this machine"), "ok");
    // Another data directory has no right to the name while the lease of the first one lasts.
    let other = tempfile::tempdir().expect("a directory in /tmp");
    let mut doctor = server.program();
    doctor.args(["doctor", "--json", "--config"]).arg(&file).env("ISOLET_DATA_DIR", other.path());
    let report: Value = run(&mut doctor).out.parse().expect("JSON");
    let taken = report["findings"].as_array().expect("a list").iter();
    let taken: Vec<Value> = taken.filter(|one| one["group"] == "fleet").cloned().collect();
    assert_eq!(status(&taken, "registration", "taken by another data directory"), "failure");
    etcd.process.kill().expect("it runs");
    etcd.process.wait().expect("it ends");
    let all = findings(&server, &file);
    assert_eq!(status(&all, "etcd", &etcd.url()), "failure");
    assert!(all.iter().all(|one| one["check"] != "prefix"), "{all:?}");
}
