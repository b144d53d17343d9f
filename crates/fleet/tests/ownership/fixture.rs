//! A node with its own connection to etcd, and another node that takes over.

use crate::etcd::{EtcdServer, free_port};
use isolet_cluster::etcd::{Etcd, EtcdSettings};
use isolet_cluster::membership::{Membership, Operator};
use isolet_cluster::model::{
    ClusterFile, ClusterSettings, NodeRecord, NodeState, Owner, SandboxKey,
};
use isolet_cluster::ownership::{Claim, Ownership, TakenOver};
use isolet_jail::{Config, SandboxHandle};
use isolet_kit::etcd_wire::EtcdWire;
use isolet_kit::{LONG, Options, Reply, Sandbox, Server, Value, json, programs, wait_until};
use isolet_wire::node::NodeName;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The lifetime of leases whose end a test waits for, in seconds: the shortest.
const TTL_S: u64 = 5;
/// That of a lease that must not end, in seconds.
const LONG_TTL_S: u64 = 60;
/// Long enough for a lease to end and a sandbox to be frozen, on a busy machine too.
pub(crate) const LEASE_ENDS: Duration = Duration::from_secs(12 * TTL_S);
/// The name of the node under test.
const NODE: &str = "first";

/// A node of a fleet, and what a test needs around it. It is dropped from the first field on.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) wire: EtcdWire,
    pub(crate) etcd: EtcdServer,
    runtime: Runtime,
    _folder: TempDir,
}

/// A sandbox that counts in a file.
pub(crate) struct Counting {
    pub(crate) sandbox: Sandbox,
    /// The internal name.
    pub(crate) name: String,
    handle: SandboxHandle,
    directory: PathBuf,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(Options::new(), "")
    }

    /// A node with a lease that is longer than a busy machine takes for a restart.
    pub(crate) fn with_long_lease() -> Self {
        Self::build(Options::new(), "", LONG_TTL_S)
    }

    /// A node with a lease whose end a test waits for, after something that a busy machine delays.
    pub(crate) fn with_patient_lease() -> Self {
        Self::build(Options::new(), "", 3 * TTL_S)
    }

    /// A node with more lines in the table `[cluster]`.
    pub(crate) fn with(options: Options, more: &str) -> Self {
        Self::build(options, more, TTL_S)
    }

    fn build(options: Options, more: &str, ttl_s: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let etcd = EtcdServer::start();
        let wire = EtcdWire::to(etcd.port);
        let peer_dir = certificate(folder.path());
        let port = free_port();
        let config = format!(
            "[cluster]\netcd = [\"http://127.0.0.1:{}\"]\nnode = \"{NODE}\"\n\
             advertise = \"127.0.0.1:{port}\"\nlisten = \"127.0.0.1:{port}\"\n\
             peer_dir = \"{}\"\nlease_ttl_s = {ttl_s}\nstore = true\n{more}\n",
            wire.port,
            peer_dir.display()
        );
        let server = options.config(&format!("{config}{}", store(folder.path()))).start();
        let runtime = Runtime::new().unwrap();
        Self { server, wire, etcd, runtime, _folder: folder }
    }

    /// A sandbox of this class that counts in a file.
    pub(crate) fn counting(&self, id: &str, class: &str) -> Counting {
        let sandbox = self.server.sandbox_with(&json!({"id": id, "class": class}));
        let count = "while :; do echo x >>/workspace/count; sleep 0.01; done & echo started";
        assert_eq!(sandbox.command("dev", count)["stdout"], "started\n");
        let record = "SELECT name FROM sandboxes WHERE id = ?1";
        let name = self.row(record, id).expect("it has a record");
        let config = Config::beside(&self.server.data()).expect("own path is known");
        let handle = SandboxHandle::open(&config, &name);
        let directory = self.server.data().join("sandboxes").join(&name);
        if class == "store" {
            // A copy of its files freezes it for a moment.
            wait_until("its first snapshot is pushed", LONG, || {
                sandbox.info()["last_pushed_snapshot"].as_str().map(drop)
            });
        }
        Counting { sandbox, name, handle, directory }
    }

    /// The first column of a row of the records.
    pub(crate) fn row(&self, query: &str, parameter: &str) -> Option<String> {
        let file = self.server.data().join("isolet.db");
        let records = rusqlite::Connection::open(file).expect("records");
        records.query_row(query, [parameter], |row| row.get(0)).ok()
    }

    /// The phase that the records have of a sandbox.
    pub(crate) fn phase(&self, of: &Counting) -> Option<Value> {
        let view = self.row("SELECT view FROM ownership WHERE name = ?1", &of.name)?;
        let view: Value = view.parse().expect("JSON");
        Some(view["phase"].clone())
    }

    pub(crate) fn waits_for_phase(&self, of: &Counting, phase: &str) {
        wait_until(&format!("the phase {phase}"), LEASE_ENDS, || {
            self.phase(of).filter(|found| found["phase"] == phase).map(drop)
        });
    }

    fn client(&self) -> Etcd {
        let _runtime = self.runtime.enter();
        Etcd::new(EtcdSettings { endpoints: vec![self.etcd.url()], tls: None }).unwrap()
    }

    fn settings(&self, node: &str) -> ClusterSettings {
        let text = format!(
            "etcd = [\"{}\"]\nnode = \"{node}\"\nadvertise = \"127.0.0.1:9\"\nlease_ttl_s = {TTL_S}",
            self.etcd.url()
        );
        toml::from_str::<ClusterFile>(&text).unwrap().settings().unwrap()
    }

    /// The owner in etcd.
    pub(crate) fn owner(&self, id: &str) -> Option<Owner> {
        let settings = self.settings("reader");
        let state = tokio::sync::watch::channel(isolet_cluster::membership::MemberState::Lost).1;
        let ownership = Ownership::new(self.client(), settings.keys, settings.node, state);
        self.runtime.block_on(ownership.owner_in_etcd(&key(id))).unwrap()
    }

    /// Writes to etcd, which counts its revision up.
    pub(crate) fn advance(&self, revisions: u32) {
        let client = self.client();
        self.runtime.block_on(async {
            for _ in 0..revisions {
                client.put(b"isolet/of-the-test", b"").await.unwrap();
            }
        });
    }

    /// Waits until the lease of the node under test has ended in etcd.
    pub(crate) fn waits_for_the_end_of_the_lease(&self) {
        let operator = Operator::new(self.client(), self.settings("operator").keys);
        let node = NodeName::parse(NODE).unwrap();
        wait_until("its lease has ended", LEASE_ENDS, || {
            let member = self.runtime.block_on(operator.member(&node)).unwrap();
            (member.expect("it was a member").state == NodeState::Lost).then_some(())
        });
    }

    /// An operator declares the node under test dead, once its lease has ended.
    pub(crate) fn declare_dead(&self) {
        let operator = Operator::new(self.client(), self.settings("operator").keys);
        let node = NodeName::parse(NODE).unwrap();
        wait_until("the node is declared dead", LEASE_ENDS, || {
            self.runtime.block_on(operator.declare_dead(&node)).ok()
        });
    }

    /// Another node takes the sandbox over, once the lease of its node has ended, and leaves.
    pub(crate) fn take_over(&self, id: &str) -> Owner {
        let settings = self.settings("second");
        let owner = self.owner(id).expect("it has an owner");
        self.runtime.block_on(async {
            let record = NodeRecord::new(
                isolet_store::FORMAT,
                settings.node.clone(),
                "of-the-test".to_owned(),
                settings.advertise.clone(),
                settings.region.clone(),
            );
            let membership = Membership::join(self.client(), &settings, record).await.unwrap();
            let ownership = Ownership::new(
                self.client(),
                settings.keys.clone(),
                settings.node.clone(),
                membership.state(),
            );
            let end = std::time::Instant::now() + LEASE_ENDS;
            loop {
                match ownership.take_over(&key(id), &owner, "test").await.unwrap() {
                    TakenOver::Won(owner) => {
                        membership.stop().await;
                        return owner;
                    }
                    refused => assert!(std::time::Instant::now() < end, "{refused:?}"),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }

    /// Another node owns the sandbox although the node under test holds its lease: as after an etcd that
    /// went back in time, or an operator's mistake. The node learns nothing of it.
    pub(crate) fn steal(&self, id: &str) {
        let settings = self.settings("second");
        let owner = self.owner(id).expect("it has an owner");
        self.runtime.block_on(async {
            let record = NodeRecord::new(
                isolet_store::FORMAT,
                settings.node.clone(),
                "of-the-test".to_owned(),
                settings.advertise.clone(),
                settings.region.clone(),
            );
            let membership = Membership::join(self.client(), &settings, record).await.unwrap();
            let keys = settings.keys.clone();
            let state = membership.state();
            let ownership = Ownership::new(self.client(), keys, settings.node.clone(), state);
            let fence = ownership.fence(&key(id), owner.epoch);
            ownership.release_of(&fence, &owner.node).await.unwrap();
            let claim = Claim {
                sandbox: key(id),
                class: owner.class,
                region: owner.region.clone(),
                reason: "test".to_owned(),
            };
            ownership.claim(&claim).await.unwrap();
            membership.stop().await;
        });
    }

    /// The directories of superseded files of the tenant `default`.
    pub(crate) fn superseded(&self) -> Vec<PathBuf> {
        let directory = self.server.data().join("superseded/default");
        let all = fs::read_dir(directory).into_iter().flatten().flatten();
        all.map(|entry| entry.path()).collect()
    }
}

impl Counting {
    fn count(&self) -> u64 {
        fs::metadata(self.directory.join("workspace/count")).map_or(0, |about| about.len())
    }

    pub(crate) fn counts(&self) {
        let before = self.count();
        wait_until("it counts", LEASE_ENDS, || (self.count() > before + 4).then_some(()));
    }

    /// Nothing runs in a frozen control group, so the count stands as long as it is frozen.
    pub(crate) fn stands(&self) {
        assert!(self.is_frozen(), "a suspended sandbox runs");
        let before = self.count();
        assert!(self.is_frozen(), "a suspended sandbox runs");
        assert_eq!(self.count(), before, "a suspended sandbox counts");
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.handle.is_frozen().unwrap_or(false)
    }

    pub(crate) fn freezes(&self) {
        wait_until("it is frozen", LEASE_ENDS, || self.is_frozen().then_some(()));
        self.stands();
    }

    /// Whether a process of it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.handle.populated() && !self.is_frozen()
    }

    /// Writes an empty file in its workspace.
    pub(crate) fn write_file(&self, name: &str) {
        fs::write(self.directory.join("workspace").join(name), "").unwrap();
    }

    /// Whether its workspace has a file.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.directory.join("workspace").join(name).try_exists().unwrap()
    }

    /// Whether its directory exists.
    pub(crate) fn has_files(&self) -> bool {
        self.directory.try_exists().unwrap()
    }

    /// A request for it.
    pub(crate) fn asked(&self) -> Reply {
        self.sandbox.post("/exec", &json!({"command": "true"}))
    }

    /// Waits until a request for it is refused because it is suspended.
    pub(crate) fn is_refused(&self) {
        // A call that only reads records, because a frozen agent does not answer.
        wait_until("it is suspended", LEASE_ENDS, || {
            let reply = self.sandbox.http.get(&self.sandbox.path(""));
            (reply.status == 503).then_some(())
        });
        let reply = self.asked();
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert_eq!(reply.json()["error"], "suspended", "{}", reply.text());
        assert!(reply.header("retry-after").is_some());
    }
}

fn key(id: &str) -> SandboxKey {
    SandboxKey::new("default", id).unwrap()
}

/// The table `[store]`, with a new repository.
fn store(folder: &Path) -> String {
    let objects = folder.join("objects");
    fs::create_dir_all(&objects).unwrap();
    let key = folder.join("store.key");
    let table = format!(
        "[store]\nurl = \"file://{}\"\nkey_file = \"{}\"\n",
        objects.display(),
        key.display()
    );
    let config = folder.join("store.toml");
    fs::write(&config, &table).unwrap();
    let mut init = Command::new(programs().join("isolet"));
    let done = init.args(["store", "init"]).env("ISOLET_CONFIG", &config).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    table
}

/// The directory with the certificate of the node under test.
fn certificate(folder: &Path) -> PathBuf {
    let ca = folder.join("ca");
    let out = folder.join("peer");
    let run = |args: &[&str]| {
        let mut command = Command::new(programs().join("isolet"));
        let done = command.arg("cluster").args(args).arg("--dir").arg(&ca).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["init"]);
    run(&["issue", NODE, "--out", out.to_str().unwrap()]);
    out
}
