//! The fleet of the tests: records of ownership that all nodes share, and plain HTTP between nodes.

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, Uri};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use isolet_http::fleet::{
    Fleet, FleetError, FleetFuture, NodeCapacity, NodeChange, NodeDetails, NodeError, NodeInfo,
    NodeList, NodeLoad, NodeState, Peer, PeerHandler, PeerResponse, PlacedSandbox, Placement,
    PlacementWish, SendFailure, SkippedKey, TunnelIo, Whereabouts,
};
use isolet_sandbox::ownership::ClaimFuture;
use isolet_sandbox::profiles::Profile;
use isolet_sandbox::{IdClaims, SandboxId, Service, TenantId};
use isolet_wire::node::NodeName;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

type Key = (TenantId, SandboxId);

/// The records that all nodes share.
#[derive(Default)]
pub(crate) struct Directory {
    owners: Mutex<HashMap<Key, (NodeName, u64)>>,
    members: Mutex<BTreeMap<NodeName, SocketAddr>>,
    /// Where the next new sandbox goes, if not to the node that places it.
    next: Mutex<Option<NodeName>>,
    revision: AtomicU64,
    /// Nodes that an operator has excluded from placement.
    cordoned: Mutex<BTreeSet<NodeName>>,
    /// Nodes that an operator has declared dead.
    dead: Mutex<BTreeSet<NodeName>>,
    /// What the last request for a new sandbox demanded of its node.
    pub(crate) wish: Mutex<PlacementWish>,
    /// The servers, which all have the same network profiles.
    pub(crate) services: Mutex<Vec<Service>>,
    /// Whether the records cannot be reached.
    pub(crate) is_cut_off: AtomicBool,
    /// How often a record was read.
    pub(crate) reads: AtomicUsize,
}

fn unavailable(error: isolet_sandbox::Error) -> FleetError {
    FleetError::Unavailable(error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics with it")
}

impl Directory {
    /// Makes a node the owner of the next new sandboxes.
    pub(crate) fn place_on(&self, node: &str) {
        *lock(&self.next) = Some(NodeName::parse(node).expect("a name"));
    }

    /// Makes a node the owner of a sandbox, at a new epoch.
    pub(crate) fn move_to(&self, tenant: &str, sandbox: &str, node: &str) {
        let node = NodeName::parse(node).expect("a name");
        lock(&self.owners).insert(key(tenant, sandbox), (node, self.epoch()));
    }

    /// Takes a node out of the fleet.
    pub(crate) fn leave(&self, node: &str) {
        lock(&self.members).remove(&NodeName::parse(node).expect("a name"));
    }

    pub(crate) fn owner(&self, tenant: &str, sandbox: &str) -> Option<String> {
        lock(&self.owners).get(&key(tenant, sandbox)).map(|(node, _)| node.to_string())
    }

    /// All servers.
    fn reachable_services(&self) -> Result<Vec<Service>, FleetError> {
        match self.is_cut_off.load(Ordering::SeqCst) {
            true => Err(FleetError::Unavailable("no answer".to_owned())),
            false => Ok(lock(&self.services).clone()),
        }
    }

    fn epoch(&self) -> u64 {
        self.revision.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn shown(&self, name: &NodeName) -> Option<NodeInfo> {
        let address = *lock(&self.members).get(name)?;
        let is_dead = lock(&self.dead).contains(name);
        Some(NodeInfo {
            name: name.to_string(),
            region: "here".into(),
            labels: BTreeMap::new(),
            state: if is_dead { NodeState::Dead } else { NodeState::Ready },
            cordoned: lock(&self.cordoned).contains(name),
            details: Some(NodeDetails {
                address: address.to_string(),
                version: "1".into(),
                started_at_ms: 0,
                registered_epoch: Some(1),
                store: false,
                capacity: NodeCapacity { memory_mib: 1, cpu_millis: 1, disk_mib: 1, sandboxes: 1 },
                load: NodeLoad {
                    memory_reserved_mib: 0,
                    disk_used_mib: 0,
                    sandboxes: 0,
                    running: 0,
                },
            }),
            owned: None,
        })
    }

    fn peer(&self, node: &NodeName) -> Option<Peer> {
        let address = *lock(&self.members).get(node)?;
        Some(Peer { node: node.clone(), address: address.to_string().into() })
    }
}

pub(crate) fn key(tenant: &str, sandbox: &str) -> Key {
    let tenant = TenantId::parse(tenant).expect("a tenant");
    (tenant, SandboxId::parse(sandbox).expect("an id"))
}

/// One node, as its server sees it.
pub(crate) struct TestNode {
    name: NodeName,
    pub(crate) directory: Arc<Directory>,
    /// What the node remembers of the records.
    known: Mutex<HashMap<Key, Whereabouts>>,
    client: Client<HttpConnector, Body>,
    handler: OnceLock<PeerHandler>,
    listening: Mutex<Option<JoinHandle<()>>>,
    /// The heads of the requests that other nodes have sent to this one.
    pub(crate) received: Arc<Mutex<Vec<(Uri, HeaderMap)>>>,
    /// The sandboxes that this node was asked to settle.
    settled: Mutex<Vec<Key>>,
    /// How often the server has asked for the other nodes.
    pub(crate) looks: AtomicUsize,
}

impl TestNode {
    pub(crate) fn new(name: &str, directory: &Arc<Directory>) -> Arc<Self> {
        Arc::new(Self {
            name: NodeName::parse(name).expect("a name"),
            directory: Arc::clone(directory),
            known: Mutex::default(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            handler: OnceLock::new(),
            listening: Mutex::default(),
            received: Arc::default(),
            settled: Mutex::default(),
            looks: AtomicUsize::default(),
        })
    }

    /// Makes the node believe that another one owns a sandbox.
    pub(crate) fn believe(&self, tenant: &str, sandbox: &str, node: &str, epoch: u64) {
        let node = NodeName::parse(node).expect("a name");
        let peer = self.directory.peer(&node).expect("a member");
        lock(&self.known).insert(key(tenant, sandbox), Whereabouts::There { peer, epoch });
    }

    /// The ids of the sandboxes that this node was asked to settle.
    pub(crate) fn settled(&self) -> Vec<String> {
        lock(&self.settled).iter().map(|(_, id)| id.to_string()).collect()
    }

    /// Stops listening and cuts the connections of other nodes. The node stays a member.
    pub(crate) fn cut_off(&self) {
        if let Some(listening) = lock(&self.listening).take() {
            listening.abort();
        }
    }

    /// Waits until the node listens, and makes it a member.
    pub(crate) async fn listen(&self) {
        let handler = loop {
            match self.handler.get() {
                Some(handler) => break Arc::clone(handler),
                None => tokio::task::yield_now().await,
            }
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let listening = tokio::spawn(accept(listener, handler, Arc::clone(&self.received)));
        *lock(&self.listening) = Some(listening);
        lock(&self.directory.members).insert(self.name.clone(), address);
    }

    fn whereabouts(&self, key: &Key) -> Whereabouts {
        match lock(&self.directory.owners).get(key) {
            None => Whereabouts::Nowhere,
            Some((node, epoch)) if *node == self.name => Whereabouts::Here { epoch: *epoch },
            Some((node, epoch)) => {
                let peer = self.directory.peer(node).expect("a member");
                Whereabouts::There { peer, epoch: *epoch }
            }
        }
    }

    fn read(&self, key: Key) -> Whereabouts {
        self.directory.reads.fetch_add(1, Ordering::SeqCst);
        let found = self.whereabouts(&key);
        if found != Whereabouts::Nowhere {
            lock(&self.known).insert(key, found.clone());
        }
        found
    }
}

/// Accepts connections of other nodes. Aborting it ends them.
async fn accept(
    listener: TcpListener,
    handler: PeerHandler,
    received: Arc<Mutex<Vec<(Uri, HeaderMap)>>>,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let handler = Arc::clone(&handler);
        let received = Arc::clone(&received);
        connections.spawn(async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                lock(&received).push((request.uri().clone(), request.headers().clone()));
                let peer = NodeName::parse("some-node").expect("a name");
                let answered = handler(peer, request.map(Body::new));
                async move { Ok::<_, Infallible>(answered.await) }
            });
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = served.with_upgrades().await;
        });
    }
}

impl IdClaims for TestNode {
    fn claim<'a>(&'a self, tenant: &'a TenantId, ids: &'a [SandboxId]) -> ClaimFuture<'a> {
        Box::pin(async move {
            for id in ids {
                self.directory.move_to(tenant.as_str(), id.as_str(), self.name.as_str());
            }
            Ok(())
        })
    }

    fn settle(&self, tenant: &TenantId, ids: &[SandboxId]) {
        for id in ids {
            Fleet::settle(self, tenant, id);
        }
    }
}

impl Fleet for TestNode {
    fn here(&self) -> &NodeName {
        &self.name
    }

    fn known(&self, tenant: &TenantId, sandbox: &SandboxId) -> Option<Whereabouts> {
        let key = (tenant.clone(), sandbox.clone());
        // A node always knows what it owns itself.
        match self.whereabouts(&key) {
            here @ Whereabouts::Here { .. } => Some(here),
            _ => lock(&self.known)
                .get(&key)
                .filter(|known| !matches!(known, Whereabouts::Here { .. }))
                .cloned(),
        }
    }

    fn find<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<Whereabouts, FleetError>> {
        Box::pin(async { Ok(self.read((tenant.clone(), sandbox.clone()))) })
    }

    fn place<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        wish: &'a PlacementWish,
    ) -> FleetFuture<'a, Result<PlacedSandbox, FleetError>> {
        Box::pin(async {
            if wish.memory_mib == Some(4095) {
                let missing = "4095 MiB of memory".to_owned();
                return Err(FleetError::Full { missing, retry_after_s: 17 });
            }
            *lock(&self.directory.wish) = wish.clone();
            let next = lock(&self.directory.next).clone();
            let node = wish.node.clone().or(next).unwrap_or_else(|| self.name.clone());
            let key = (tenant.clone(), sandbox.clone());
            let epoch = self.directory.epoch();
            let (_, own) =
                *lock(&self.directory.owners).entry(key.clone()).or_insert((node, epoch));
            Ok(PlacedSandbox { owner: self.read(key), is_new: own == epoch })
        })
    }

    fn unplace<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        epoch: u64,
    ) -> FleetFuture<'a, bool> {
        Box::pin(async move {
            let key = (tenant.clone(), sandbox.clone());
            lock(&self.directory.owners).remove(&key).expect("it was placed");
            self.forget(tenant, sandbox, epoch);
            // A node that got nothing is not chosen again.
            lock(&self.directory.next).take();
            true
        })
    }

    fn settle(&self, tenant: &TenantId, sandbox: &SandboxId) {
        lock(&self.settled).push((tenant.clone(), sandbox.clone()));
    }

    fn give_up<'a>(&'a self, tenant: &'a TenantId, sandbox: &'a SandboxId) -> FleetFuture<'a, ()> {
        Box::pin(async move {
            let key = (tenant.clone(), sandbox.clone());
            lock(&self.directory.owners).remove(&key);
            lock(&self.directory.next).take();
        })
    }

    fn forget(&self, tenant: &TenantId, sandbox: &SandboxId, epoch: u64) {
        let key = (tenant.clone(), sandbox.clone());
        let mut known = lock(&self.known);
        let same = |known: &Whereabouts| matches!(known, Whereabouts::There { epoch: own, .. } if *own == epoch);
        if known.get(&key).is_some_and(same) {
            known.remove(&key);
        }
    }

    fn peers(&self) -> Vec<Peer> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let members = lock(&self.directory.members);
        let others = members.iter().filter(|(name, _)| **name != self.name);
        let peer = |(node, address): (&NodeName, &SocketAddr)| Peer {
            node: node.clone(),
            address: address.to_string().into(),
        };
        others.map(peer).collect()
    }

    fn placement_of(&self, _: &TenantId, sandbox: &SandboxId) -> Placement {
        let reason = Some(format!("a test wants {sandbox} here"));
        Placement { node: self.name.clone(), region: "here".into(), reason }
    }

    fn nodes(&self) -> NodeList {
        let names: Vec<NodeName> = lock(&self.directory.members).keys().cloned().collect();
        let nodes = names.iter().filter_map(|name| self.directory.shown(name)).collect();
        let skipped = SkippedKey { key: "isolet/nodes/x".into(), reason: "unknown".into() };
        NodeList {
            here: self.name.to_string(),
            is_current: true,
            nodes,
            skipped: Some(vec![skipped]),
        }
    }

    fn node<'a>(&'a self, name: &'a NodeName) -> FleetFuture<'a, Result<NodeInfo, NodeError>> {
        Box::pin(async {
            self.directory.shown(name).ok_or_else(|| NodeError::Unknown(name.clone()))
        })
    }

    fn change_node<'a>(
        &'a self,
        name: &'a NodeName,
        change: NodeChange,
    ) -> FleetFuture<'a, Result<NodeInfo, NodeError>> {
        Box::pin(async move {
            if self.directory.shown(name).is_none() {
                return Err(NodeError::Unknown(name.clone()));
            }
            match change {
                NodeChange::Cordon => drop(lock(&self.directory.cordoned).insert(name.clone())),
                NodeChange::Uncordon => drop(lock(&self.directory.cordoned).remove(name)),
                NodeChange::DeclareDead if *name == self.name => {
                    return Err(NodeError::Alive(name.clone()));
                }
                NodeChange::DeclareDead => drop(lock(&self.directory.dead).insert(name.clone())),
            }
            self.node(name).await
        })
    }

    fn forget_node<'a>(
        &'a self,
        name: &'a NodeName,
        release: bool,
    ) -> FleetFuture<'a, Result<usize, NodeError>> {
        Box::pin(async move {
            if !lock(&self.directory.dead).contains(name) {
                return Err(NodeError::NotDead(name.clone()));
            }
            let owned = |owner: &(NodeName, u64)| owner.0 == *name;
            let count = lock(&self.directory.owners).values().filter(|owner| owned(owner)).count();
            if count > 0 && !release {
                let sandboxes = u64::try_from(count).expect("small");
                return Err(NodeError::OwnsSandboxes { node: name.clone(), sandboxes });
            }
            lock(&self.directory.owners).retain(|_, owner| !owned(owner));
            lock(&self.directory.members).remove(name);
            Ok(count)
        })
    }

    fn send<'a>(
        &'a self,
        peer: &'a Peer,
        mut request: Request<Body>,
    ) -> FleetFuture<'a, Result<PeerResponse, SendFailure>> {
        Box::pin(async move {
            let uri = format!("http://{}{}", peer.address, request.uri());
            *request.uri_mut() = uri.parse().expect("a path with a host");
            let sent = self.client.request(request).await;
            let mut response = sent.map_err(|error| match error.is_connect() {
                true => SendFailure::Unreachable(error.to_string()),
                false => SendFailure::Lost(error.to_string()),
            })?;
            let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            let upgrade = switched.then(|| hyper::upgrade::on(&mut response));
            let tunnel = upgrade.map(|upgrade| -> FleetFuture<'static, _> {
                Box::pin(async {
                    let upgraded = upgrade.await.map_err(io::Error::other)?;
                    Ok(Box::new(TokioIo::new(upgraded)) as Box<dyn TunnelIo>)
                })
            });
            Ok(PeerResponse { response: response.map(Body::new), tunnel })
        })
    }

    fn put_profile<'a>(
        &'a self,
        tenant: &'a TenantId,
        profile: &'a Profile,
    ) -> FleetFuture<'a, Result<bool, FleetError>> {
        Box::pin(async move {
            let mut is_new = false;
            for service in self.directory.reachable_services()? {
                is_new = service.put_profile(tenant, profile).await.map_err(unavailable)?;
            }
            Ok(is_new)
        })
    }

    fn remove_profile<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
    ) -> FleetFuture<'a, Result<bool, FleetError>> {
        Box::pin(async move {
            let mut existed = false;
            for service in self.directory.reachable_services()? {
                existed = service.remove_profile(tenant, name).await.is_ok();
            }
            Ok(existed)
        })
    }

    fn serve(&self, handler: PeerHandler) {
        assert!(self.handler.set(handler).is_ok(), "called once");
    }
}
