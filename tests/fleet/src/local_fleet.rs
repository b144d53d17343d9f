//! Starts all parts, and ends them in order.

use crate::addresses::{PEER_PORT, node};
use crate::certificates::PeerAuthority;
use crate::cordons::Cordons;
use crate::etcd::EtcdCluster;
use crate::namespace::NetworkNamespace;
use crate::node::LocalNode;
use crate::object_store::ObjectStore;
use crate::public_host::PublicHost;
use crate::switch::Switch;
use isolet_kit::{LONG, Options, Reply, Sandbox, Value, WallClock, json, wait_until};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// The key of the tenant `default` on every node.
pub const KEY: &str = "local-fleet-key-of-every-node";
/// The names of the nodes.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The number of members of etcd.
const ETCD_MEMBERS: u8 = 3;
/// The first ids of the sandboxes of each node: a part of the ids that servers use.
const UID_BASES: [u32; 4] = [0x7000_0000, 0x9000_0000, 0xb000_0000, 0xd000_0000];

/// The memory of a sandbox of a test, in MiB: little, so that nodes stay about equally free.
const MEMORY_MIB: u64 = 64;

/// What a fleet consists of.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Whether the nodes have a table `[cluster]`. Without it they are three servers, and there is no
    /// etcd.
    pub is_clustered: bool,
    /// Whether there is an object store, and the nodes hold sandboxes of the class `store`.
    pub has_store: bool,
    /// The lifetime of the nodes' leases, in seconds.
    pub lease_ttl_s: u32,
    /// How long a sandbox sleeps before it is evicted, in seconds; 0: it is not.
    pub evict_after_s: u64,
    /// The node that has an object store of its own, if one has.
    pub other_store_on: Option<&'static str>,
    /// The node whose programs lack the egress proxy, if one does.
    pub without_egress_proxy_on: Option<&'static str>,
    /// The node whose wall clock [`LocalFleet::step_clock`] steps, if one does.
    pub wall_clock_on: Option<&'static str>,
    /// More lines for the configuration of one node, before its first table.
    pub config_on: Option<(&'static str, &'static str)>,
    /// More lines for the configuration of each node, before its first table.
    pub config: String,
    /// The number of nodes, at most 3.
    pub nodes: usize,
    /// The size of each node's warm pool.
    pub warm_pool: usize,
    /// Whether there is one more server, in a namespace of its own and without a table `[cluster]`.
    pub has_plain: bool,
    /// The directory of the programs; `None`: those under test.
    pub programs: Option<PathBuf>,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            is_clustered: true,
            has_store: false,
            lease_ttl_s: 10,
            evict_after_s: 0,
            other_store_on: None,
            without_egress_proxy_on: None,
            wall_clock_on: None,
            config_on: None,
            config: String::new(),
            nodes: NAMES.len(),
            warm_pool: 0,
            has_plain: false,
            programs: None,
        }
    }
}

/// A running fleet. Dropping it deletes all sandboxes, looks for leftovers of each node, and ends
/// everything.
///
/// The fields are dropped in this order.
pub struct LocalFleet {
    /// The nodes `a`, `b` and `c`.
    pub nodes: Vec<LocalNode>,
    /// A server that is no node, if there is one.
    pub plain: Option<LocalNode>,
    /// etcd, unless the servers are no fleet.
    pub etcd: Option<EtcdCluster>,
    /// The object store, if there is one.
    pub store: Option<ObjectStore>,
    /// The certificate authority of the nodes, unless the servers are no fleet.
    pub authority: Option<PeerAuthority>,
    /// The namespaces of the nodes. They outlive the nodes, so that the others are refused by a node that
    /// has ended, and do not wait for it.
    networks: Vec<Arc<NetworkNamespace>>,
    _public: PublicHost,
    wall_clock: Option<WallClock>,
    folder: TempDir,
    /// The bridge, in the namespace of this thread.
    pub switch: Switch,
}

impl LocalFleet {
    /// Starts a fleet with default options. This thread becomes that of the clients.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&FleetOptions::default())
    }

    /// Starts a fleet. This thread moves into the network namespace of the clients.
    ///
    /// # Panics
    /// When a part does not start.
    #[must_use]
    pub fn with(options: &FleetOptions) -> Self {
        let folder = isolet_kit::test_directory("fleet");
        let switch = Switch::enter();
        let store = options.has_store.then(|| ObjectStore::start(&switch));
        let etcd = options
            .is_clustered
            .then(|| EtcdCluster::start(&switch, &folder.path().join("etcd"), ETCD_MEMBERS));
        let programs = options.programs.clone().unwrap_or_else(isolet_kit::programs);
        let authority = options
            .is_clustered
            .then(|| PeerAuthority::with_program(&programs, &folder.path().join("peers")));
        let mut fleet = Self {
            nodes: Vec::new(),
            plain: None,
            etcd,
            store,
            authority,
            networks: Vec::new(),
            _public: PublicHost::start(),
            wall_clock: options.wall_clock_on.map(|_| WallClock::new(folder.path())),
            folder,
            switch,
        };
        for (index, name) in NAMES.into_iter().enumerate().take(options.nodes) {
            let node = fleet.start_node(options, index, name);
            fleet.nodes.push(node);
        }
        if options.is_clustered {
            fleet.nodes.iter().for_each(|node| node.wait_until_all_are_ready(options.nodes));
        }
        if options.has_plain {
            let options = FleetOptions { is_clustered: false, ..options.clone() };
            fleet.plain = Some(fleet.start_node(&options, NAMES.len(), "plain"));
        }
        fleet
    }

    /// A node by its name.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn node(&self, name: &str) -> &LocalNode {
        self.nodes.iter().find(|node| node.name == name).expect("a node")
    }

    /// A node by its name, to kill and start it.
    ///
    /// # Panics
    /// When there is none.
    pub fn node_mut(&mut self, name: &str) -> &mut LocalNode {
        self.nodes.iter_mut().find(|node| node.name == name).expect("a node")
    }

    /// etcd.
    ///
    /// # Panics
    /// When the servers are no fleet.
    #[must_use]
    pub fn etcd(&self) -> &EtcdCluster {
        self.etcd.as_ref().expect("a fleet")
    }

    /// Sets by how many seconds the clock of [`FleetOptions::wall_clock_on`] is ahead of the others.
    ///
    /// # Panics
    /// When no node has a clock of its own.
    pub fn step_clock(&self, seconds: i64) {
        self.wall_clock.as_ref().expect("a clock").step(seconds);
    }

    /// The addresses of all nodes but one.
    #[must_use]
    pub fn addresses_of_others(&self, name: &str) -> Vec<Ipv4Addr> {
        let others = self.nodes.iter().filter(|node| node.name != name);
        others.map(|node| node.address).collect()
    }

    /// Creates a sandbox on a node, as a client of that node: among nodes with about the same free
    /// memory, placement chooses the one that received the request.
    ///
    /// # Panics
    /// When it is not created, or is created elsewhere.
    #[track_caller]
    pub fn create_on(&self, node: &str, id: &str) -> Sandbox {
        let sandbox = self.node(node).sandbox(id);
        let spec = json!({"id": id, "memory_mib": MEMORY_MIB});
        sandbox.http.post("/v1/sandboxes", &spec).expect(201);
        assert_eq!(self.owner(id).as_deref(), Some(node));
        sandbox
    }

    /// Lets placement choose only this node until the result is dropped.
    ///
    /// # Panics
    /// When the other nodes are not cordoned.
    #[must_use]
    pub fn only_on(&self, node: &str) -> Cordons<'_> {
        Cordons::all_but(self, node)
    }

    /// Creates a sandbox of a class on a node.
    ///
    /// # Panics
    /// When it is not created there.
    #[track_caller]
    pub fn create_of_class_on(&self, node: &str, id: &str, class: &str) -> Sandbox {
        self.create_with(node, &json!({"id": id, "memory_mib": MEMORY_MIB, "class": class}))
    }

    /// Creates a sandbox on a node, with an id and other fields.
    ///
    /// # Panics
    /// When it is not created there.
    #[track_caller]
    pub fn create_with(&self, node: &str, spec: &Value) -> Sandbox {
        let id = spec["id"].as_str().expect("an id");
        let sandbox = self.node(node).sandbox(id);
        let cordons = self.only_on(node);
        sandbox.http.post("/v1/sandboxes", spec).expect(201);
        drop(cordons);
        assert_eq!(self.owner(id).as_deref(), Some(node));
        sandbox
    }

    /// Creates a sandbox of the class `store` on a node, and waits until its first snapshot is in the
    /// object store.
    ///
    /// # Panics
    /// When it is not created or pushed, or is created elsewhere.
    #[track_caller]
    pub fn create_stored(&self, node: &str, id: &str) -> Sandbox {
        let sandbox = self.create_of_class_on(node, id, "store");
        wait_until("its first snapshot is pushed", LONG, || {
            sandbox.info()["last_pushed_snapshot"].as_str().map(drop)
        });
        sandbox
    }

    /// Moves a sandbox in the background, as a client of a node. The request is repeated while the nodes
    /// may not know yet that a server is back. The thread returns the answer, or `None` if the connection
    /// ended without one.
    ///
    /// # Panics
    /// The thread panics when the move does not begin.
    #[must_use]
    pub fn move_in_background(
        &self,
        through: &str,
        id: &str,
        to: &str,
    ) -> JoinHandle<Option<Reply>> {
        let sandbox = self.node(through).sandbox(id);
        let body = json!({"node": to}).to_string();
        std::thread::spawn(move || {
            let path = sandbox.path("/move");
            wait_until("the move begins", LONG, || {
                let reply = sandbox.http.try_send("POST", &path, Some(body.as_bytes())).ok();
                let is_early = reply.as_ref().is_some_and(|reply| {
                    let code = reply.error();
                    let is_away = ["node_unreachable", "suspended"].contains(&&*code);
                    reply.status == 409 && code != "moving" || is_away
                });
                (!is_early).then_some(reply)
            })
        })
    }

    /// Waits until a node counts another one as lost, without a request for any sandbox.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_until_lost(&self, node: &str, witness: &str) {
        let path = format!("/v1/nodes/{node}");
        wait_until("the node counts as lost", LONG, || {
            let info = self.node(witness).http().get(&path).expect(200).json();
            (info["state"] == "lost").then_some(())
        });
    }

    /// The node that owns a sandbox of the tenant `default`, by the record in etcd.
    #[must_use]
    pub fn owner(&self, id: &str) -> Option<String> {
        self.owner_of("default", id)
    }

    /// The node that owns a sandbox of a tenant. The ids must need no escaping.
    #[must_use]
    pub fn owner_of(&self, tenant: &str, id: &str) -> Option<String> {
        let record = self.etcd().get(&format!("isolet/owners/{tenant}/{id}"))?;
        record["node"].as_str().map(str::to_owned)
    }

    fn start_node(
        &mut self,
        options: &FleetOptions,
        index: usize,
        name: &'static str,
    ) -> LocalNode {
        let address = node(u8::try_from(index).expect("few nodes"));
        let network = Arc::new(self.switch.attach(address));
        self.networks.push(Arc::clone(&network));
        let mut config = format!(
            "hosts = [\"127.0.0.1\", \"localhost\"]\nuid_base = {}\n{}\n",
            UID_BASES[index], options.config
        );
        if let Some((_, lines)) = options.config_on.filter(|(of, _)| *of == name) {
            // Before what may begin a table.
            config.insert_str(0, lines);
        }
        if options.is_clustered {
            config.push_str(&self.cluster_config(name, address, options));
        }
        let mut programs = options.programs.clone().unwrap_or_else(isolet_kit::programs);
        if options.without_egress_proxy_on == Some(name) {
            programs = without_egress_proxy(&programs, self.folder.path());
        }
        if self.store.is_some() {
            let folder = if options.other_store_on == Some(name) { name } else { "fleet" };
            let store = self.folder.path().join(format!("store-{folder}.toml"));
            if !store.is_file() {
                let key_file = self.folder.path().join(format!("store-{folder}.key"));
                let table = ObjectStore::config(&key_file, folder);
                init_store(&programs, &store, &table);
            }
            config.push_str(&fs::read_to_string(&store).expect("written"));
        }
        let mut server = Options::new()
            .programs(&programs)
            .key(KEY)
            .config(&config)
            .warm_pool(options.warm_pool)
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test");
        if let Some(clock) =
            self.wall_clock.as_ref().filter(|_| options.wall_clock_on == Some(name))
        {
            for (name, value) in clock.variables() {
                server = server.env(name, value);
            }
        }
        LocalNode::start(name, address, network, server)
    }

    fn cluster_config(&self, name: &str, address: Ipv4Addr, options: &FleetOptions) -> String {
        let etcd = self.etcd();
        let files = etcd.client_files();
        let peers = self.authority.as_ref().expect("a fleet").issue(name);
        let evict = match options.evict_after_s {
            0 => String::new(),
            seconds => format!("evict_after_s = {seconds}\n"),
        };
        format!(
            "[cluster]\netcd = {:?}\netcd_ca_file = {:?}\netcd_cert_file = {:?}\n\
             etcd_key_file = {:?}\nnode = {name:?}\nadvertise = \"{address}:{PEER_PORT}\"\n\
             listen = \"{address}:{PEER_PORT}\"\npeer_dir = {peers:?}\nlease_ttl_s = {}\nstore = {}\n{evict}",
            etcd.urls(),
            files.ca,
            files.certificate,
            files.key,
            options.lease_ttl_s,
            options.has_store
        )
    }
}

/// A directory with the other programs. They find each other by their own paths, so links do not suffice.
fn without_egress_proxy(programs: &Path, folder: &Path) -> PathBuf {
    let own = folder.join("programs");
    fs::create_dir(&own).expect("created");
    for name in ["isolet", "isolet-launcher", "isolet-agent"] {
        fs::copy(programs.join(name), own.join(name)).expect("copied");
    }
    own
}

/// Creates a repository in the object store and its key file, and writes the table of the configuration.
fn init_store(programs: &Path, config: &Path, table: &str) {
    fs::write(config, table).expect("written");
    let mut init = std::process::Command::new(programs.join("isolet"));
    init.args(["store", "init"])
        .env("ISOLET_CONFIG", config)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test");
    let output = init.output().expect("isolet starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Drop for LocalFleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // Each node deletes its sandboxes when it is dropped, which needs etcd and the other nodes.
        if let Some(etcd) = &mut self.etcd {
            etcd.launch_all();
        }
        for node in self.nodes.iter_mut().chain(&mut self.plain) {
            if !node.server.is_running() {
                node.server.launch();
            }
        }
    }
}
