//! Two or three nodes in one process, each with its own data directory.

use crate::directory::{Directory, TestNode};
use isolet_build::Builder;
use isolet_http::{ConnectionLimits, NOT_FOUND_LIMIT, Options, ServerNames, TrustedProxies};
use isolet_kit::{
    Http, SOON, Sandbox, Traces, erase, programs, share_image, test_directory, wait_until,
};
use isolet_sandbox::{Config, NewKey, Service};
use isolet_webhook::{Settings, Webhooks};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The key of the tenant `default` on every node.
pub(crate) const KEY: &str = "a-key-of-all-nodes";
/// The domain below which ports have host names.
pub(crate) const PORTS_DOMAIN: &str = "box.example";

/// A server.
pub(crate) struct Node {
    folder: TempDir,
    pub(crate) fleet: Arc<TestNode>,
    service: Option<Service>,
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

/// Several servers of one fleet: `a`, `b` and `c`.
pub(crate) struct Cluster {
    pub(crate) runtime: Runtime,
    pub(crate) directory: Arc<Directory>,
    pub(crate) nodes: Vec<Node>,
}

impl Node {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn service(&self) -> &Service {
        self.service.as_ref().expect("it runs")
    }

    pub(crate) fn http(&self) -> Http {
        self.client(Some(KEY))
    }

    pub(crate) fn client(&self, key: Option<&str>) -> Http {
        Http::new(self.port, key)
    }

    /// The sandbox as a client of this node sees it.
    pub(crate) fn sandbox(&self, id: &str) -> Sandbox {
        Sandbox { id: id.to_owned(), http: self.http() }
    }

    /// The paths of the requests that other nodes have sent to this one.
    pub(crate) fn received(&self) -> Vec<String> {
        let received = self.fleet.received.lock().expect("no test panics with it");
        received.iter().map(|(uri, _)| uri.to_string()).collect()
    }
}

impl Cluster {
    /// Starts `count` nodes. New sandboxes go to node `b`.
    pub(crate) fn start(count: usize) -> Self {
        Self::with_limits(count, ConnectionLimits::default())
    }

    pub(crate) fn with_limits(count: usize, limits: ConnectionLimits) -> Self {
        Self::with(count, limits, NOT_FOUND_LIMIT)
    }

    /// Nodes that answer each client with 404 at most `limit` times in 10 s.
    pub(crate) fn with_not_found_limit(count: usize, limit: u32) -> Self {
        Self::with(count, ConnectionLimits::default(), limit)
    }

    fn with(count: usize, limits: ConnectionLimits, not_found_limit: u32) -> Self {
        let runtime = Runtime::new().expect("threads");
        let directory = Arc::<Directory>::default();
        let nodes = ["a", "b", "c"].iter().take(count).map(|name| {
            let fleet = TestNode::new(name, &directory);
            runtime.block_on(start(fleet, limits, not_found_limit))
        });
        let nodes = nodes.collect();
        directory.place_on("b");
        Self { runtime, directory, nodes }
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        let at = ["a", "b", "c"].iter().position(|known| *known == name);
        &self.nodes[at.expect("a name")]
    }

    /// A sandbox on node `b`, as a client of node `a` sees it.
    pub(crate) fn sandbox(&self, id: &str) -> Sandbox {
        let sandbox = self.node("a").sandbox(id);
        let spec = isolet_kit::json!({ "id": id });
        sandbox.http.post("/v1/sandboxes", &spec).expect(201);
        assert_eq!(self.directory.owner("default", id).as_deref(), Some("b"));
        sandbox
    }

    /// Adds a key to one node. The other nodes do not know it.
    pub(crate) fn add_key(&self, node: &str, tenant: &str, read_only: bool) -> (String, String) {
        let new = NewKey { tenant: tenant.into(), read_only, ..NewKey::default() };
        let (key, secret) = self.node(node).service().keys().add(&new).expect("a key");
        (key.id, secret)
    }
}

async fn start(fleet: Arc<TestNode>, limits: ConnectionLimits, not_found_limit: u32) -> Node {
    let folder = test_directory("test");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("it is new");
    let programs = programs();
    let first = share_image(&programs, &data);
    let mut config = Config::new(data.clone(), &programs);
    config.warm_pool_size = 0;
    config.limits.disk_mib = 0;
    let service = Service::open(config).await.expect("it starts");
    service.set_id_claims(Arc::clone(&fleet) as Arc<_>);
    drop(first);
    assert!(service.missing().is_empty(), "{:?}", service.missing());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let builder = Builder::open(service.clone()).await.expect("an empty directory");
    let store = service.store().clone();
    let metrics = service.metrics().webhooks.clone();
    let audit = service.audit().clone();
    let webhooks = Webhooks::open(store, audit, Settings::new(&data), metrics, None);
    let options = Options {
        builder,
        webhooks: webhooks.await.expect("no webhooks"),
        names: ServerNames::default(),
        ports_domain: Some(PORTS_DOMAIN.into()),
        api_key: Some(KEY.into()),
        not_found_limit_per_10s: not_found_limit,
        connections: limits,
        tls: None,
        trusted_proxies: TrustedProxies::default(),
        metrics: None,
        fleet: Some(Arc::clone(&fleet) as Arc<_>),
    };
    let (stop, stopped) = oneshot::channel();
    let served = isolet_http::serve(listener, service.clone(), options, async {
        let _ = stopped.await;
    });
    let serving = tokio::spawn(served);
    fleet.directory.services.lock().expect("no test panics with it").push(service.clone());
    fleet.listen().await;
    Node { folder, fleet, service: Some(service), port, stop: Some(stop), serving: Some(serving) }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        for node in &mut self.nodes {
            let data = node.data();
            if !failed {
                delete_all(node.service(), &self.runtime);
                wait_until("no sandbox is left", SOON, || Traces::of(&data).holds(0).then_some(()));
            }
            drop(node.stop.take());
            if let Some(serving) = node.serving.take() {
                let _ = self.runtime.block_on(serving);
            }
            self.directory.services.lock().expect("no test panics with it").clear();
            if let Some(service) = node.service.take() {
                self.runtime.block_on(service.shutdown());
            }
            node.fleet.cut_off();
            erase(&data);
        }
    }
}

/// Deletes the sandboxes of all tenants of a node.
fn delete_all(service: &Service, runtime: &Runtime) {
    for tenant in ["default", "other"] {
        let tenant = isolet_sandbox::TenantId::parse(tenant).expect("a tenant");
        runtime.block_on(async {
            let page = service.list(&tenant, None, 1000).await.expect("a list");
            for sandbox in page.items {
                let _ = service.delete_without_snapshot(&tenant, &sandbox.id).await;
            }
        });
    }
}
