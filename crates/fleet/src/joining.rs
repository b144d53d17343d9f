//! How a server becomes a node.

use crate::blocking::blocking;
use crate::error::NodeError;
use crate::load::limits;
use crate::node::Node;
use crate::nodes::Nodes;
use crate::outgoing::Outgoing;
use crate::ownership_driver::OwnershipDriver;
use crate::placing::fork_claims::ForkClaims;
use crate::replication::{OtherFleet, Replication, ReplicationParts, other_fleet};
use crate::reservations::Reservations;
use crate::store_class::restorer::Restorer;
use crate::store_class::{away, endings};
use crate::{identity, load, releases, sweep};
use isolet_cluster::etcd::Etcd;
use isolet_cluster::membership::Membership;
use isolet_cluster::model::{Capacity, ClusterSettings, NodeRecord, ReportedState};
use isolet_cluster::ownership::Ownership;
use isolet_peer::transport::ListenerLimits;
use isolet_peer::{PeerFiles, PeerListener, PeerTls};
use isolet_sandbox::Service;
use isolet_sandbox::ownership::GuardReport;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long a server tries to join while etcd does not answer.
const JOIN_WAIT: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const JOIN_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for a previous server that is shutting down to release the address.
const RELEASE_WAIT: Duration = Duration::from_secs(2);
/// The pause between two attempts to listen.
const RELEASE_LOOK: Duration = Duration::from_millis(20);
/// Maximum number of ownerships that wait for being given up. Further ones wait for the next sweep.
const RELEASES_MAX: usize = 4096;

impl Node {
    /// Joins the fleet: registers this server, listens for other nodes, and compares the records of
    /// ownership with the sandboxes of this server. Tries for a minute while etcd does not answer.
    /// `accepts_fleet`: also a fleet that is not the one of the data directory.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn join(
        settings: ClusterSettings,
        service: &Service,
        accepts_fleet: bool,
    ) -> Result<Arc<Self>, NodeError> {
        let name = settings.node.clone();
        let identity = {
            let data_dir = service.data_dir().to_owned();
            blocking(move || identity::of_directory(&data_dir)).await?
        };
        let tls = certificates(&settings).await?;
        let listener = listen(&settings, &tls).await?;
        let etcd = Etcd::new(settings.etcd.clone())?;
        let until = Instant::now() + JOIN_WAIT;
        // Before anything is written: with a wrong prefix, nobody would own its sandboxes.
        let other =
            retried(until, async || other_fleet(&etcd, &settings.keys, service.data_dir()).await);
        check_fleet(&settings, service.data_dir(), other.await?, accepts_fleet)?;
        let mut record = describe(&settings, service, identity);
        let data_dir = service.data_dir().to_owned();
        record.capacity = blocking(move || capacity(&data_dir)).await;
        let removals = service.removals();
        let membership = retried(until, async || {
            Membership::join(etcd.clone(), &settings, record.clone()).await
        })
        .await?;
        // Before anything is served: keys that were revoked while this node was away open nothing.
        let shared = ReplicationParts {
            etcd: etcd.clone(),
            names: settings.keys.clone(),
            api_keys: service.keys().clone(),
            store: service.store().clone(),
            data_dir: service.data_dir().to_owned(),
            tls: tls.clone(),
        };
        let replication = retried(until, async || Replication::start(shared.clone()).await).await?;
        let state = membership.state();
        let keys = settings.keys.clone();
        let nodes = Nodes::new(etcd.clone(), keys.clone());
        let ownership = Ownership::new(etcd, keys, name.clone(), state.clone());
        let driver = OwnershipDriver::open(service, &ownership, &membership, &settings).await?;
        let restorer = Restorer::new(service, &ownership, name.clone());
        let (releases, queue) = mpsc::channel(RELEASES_MAX);
        let node = Arc::new(Self {
            service: service.clone(),
            nodes,
            ownership,
            members: membership.members(),
            state,
            outgoing: Outgoing::new(tls),
            replication,
            reservations: Reservations::default(),
            clock_disagrees: AtomicBool::default(),
            driver: Arc::clone(&driver),
            owner_leases: Arc::default(),
            restorer,
            releases,
            membership: Mutex::new(Some(membership)),
            listener: Mutex::new(Some(listener)),
            tasks: Mutex::default(),
            serving: Mutex::default(),
            stopped: CancellationToken::new(),
            settings,
        });
        service.set_id_claims(Arc::new(ForkClaims(Arc::downgrade(&node))));
        let (reports, guard) = watch::channel(GuardReport::default());
        node.spawn(Arc::clone(&driver).send_deadlines(reports));
        node.spawn(Arc::clone(&driver).suspend_when_lost());
        // The lease is renewed while this waits.
        retried(until, async || driver.end_earlier().await).await?;
        node.spawn(driver.follow(guard));
        let leases = Arc::clone(&node.owner_leases);
        let members = node.members.clone();
        node.spawn(async move { leases.follow(members).await });
        node.report_load().await;
        retried(until, async || node.hold_absent().await).await?;
        retried(until, async || node.sweep(&mut sweep::Absent::default()).await).await?;
        node.spawn(load::keep(Arc::clone(&node)));
        node.spawn(limits::watch(node.members.clone(), service.limits_digest()));
        node.spawn(releases::work(Arc::clone(&node), queue));
        node.spawn(sweep::keep(Arc::clone(&node), removals));
        node.spawn(endings::keep(Arc::clone(&node)));
        if let Some(evictions) = service.evictions() {
            node.spawn(away::follow_evictions(Arc::clone(&node), evictions));
        }
        let address = &node.settings.advertise;
        info!(node = %name, region = %node.settings.region, %address, "joined the fleet");
        Ok(node)
    }
}

/// Refuses another fleet than that of the data directory, unless the operator accepts it.
fn check_fleet(
    settings: &ClusterSettings,
    data_dir: &Path,
    other: Option<OtherFleet>,
    accepts_fleet: bool,
) -> Result<(), NodeError> {
    match other {
        None if accepts_fleet => {
            warn!("--accept-fleet was not needed; do not start the server with it again");
        }
        None => {}
        Some(OtherFleet { own, found }) if accepts_fleet => {
            warn!(
                own,
                found, "the data directory belongs to another fleet, and this one is accepted"
            );
        }
        Some(OtherFleet { own, found }) => {
            let data_dir = data_dir.to_owned();
            let prefix = settings.keys.prefix().to_owned();
            return Err(NodeError::OtherFleet { data_dir, own, found, prefix });
        }
    }
    Ok(())
}

/// Reads the certificate of this node, and checks that it is the one of the configured name.
async fn certificates(settings: &ClusterSettings) -> Result<PeerTls, NodeError> {
    let directory = settings.peer_dir.clone();
    let node = settings.node.clone();
    blocking(move || {
        let files = PeerFiles::in_directory(&directory);
        let tls = PeerTls::open(files).map_err(|error| NodeError::Certificates {
            directory: directory.clone(),
            reason: error.to_string(),
        })?;
        let certified = tls.node();
        if certified == node {
            Ok(tls)
        } else {
            Err(NodeError::OtherNode { directory, certified, node })
        }
    })
    .await
}

async fn listen(settings: &ClusterSettings, tls: &PeerTls) -> Result<PeerListener, NodeError> {
    let address = settings.listen;
    let failed = |source| NodeError::Listen { address, source };
    let until = Instant::now() + RELEASE_WAIT;
    let listener = loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                sleep(RELEASE_LOOK).await;
            }
            done => break done.map_err(failed)?,
        }
    };
    PeerListener::new(listener, tls.clone(), ListenerLimits::default()).map_err(failed)
}

/// Tries again while etcd does not answer.
async fn retried<T, E: Into<NodeError>>(
    until: Instant,
    attempt: impl AsyncFn() -> Result<T, E>,
) -> Result<T, NodeError> {
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error.into(),
        };
        match error.of_etcd() {
            None => return Err(error),
            Some(cause) if Instant::now() >= until => {
                return Err(NodeError::TooLate { after: JOIN_WAIT, last: cause.to_string() });
            }
            Some(cause) => warn!(error = %cause, "cannot join the fleet yet"),
        }
        sleep(JOIN_PAUSE).await;
    }
}

/// This node as it describes itself.
fn describe(settings: &ClusterSettings, service: &Service, identity: String) -> NodeRecord {
    let mut record = NodeRecord::new(
        isolet_store::FORMAT,
        settings.node.clone(),
        identity,
        settings.advertise.clone(),
        settings.region.clone(),
    );
    record.labels = settings.labels.clone();
    record.store = settings.store && service.has_snapshot_store();
    record.state = ReportedState::Starting;
    record.limits_digest = service.limits_digest();
    record
}

fn capacity(data_dir: &Path) -> Capacity {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let disk_mib = rustix::fs::statvfs(data_dir)
        .map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize) >> 20);
    Capacity {
        memory_mib: memory_mib().unwrap_or_default(),
        cpu_millis: processors as u64 * 1000,
        disk_mib,
        sandboxes: isolet_sandbox::SANDBOXES_MAX,
    }
}

/// The memory of the machine, in MiB.
fn memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}
