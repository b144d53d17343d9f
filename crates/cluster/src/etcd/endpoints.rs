//! The connections to the endpoints, and which of them calls use.

use crate::etcd::error::EtcdError;
use crate::etcd::settings::EtcdSettings;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::transport::Endpoint;

/// Time limit of a connection, with its TLS handshake: one lost packet and its repetition.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time between two pings on a connection that is in use. etcd closes connections that ping more
/// often than every 5 s (`--grpc-keepalive-min-time`).
const PING_EVERY: Duration = Duration::from_secs(6);
/// Time limit of the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// One endpoint and its connection, which is made when it is first used and after it failed.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) url: Arc<str>,
    pub(super) channel: Channel,
}

/// State of files when connections were made from them.
type Stamp = Vec<(u64, u64, u64, i64, i64)>;

/// All endpoints.
pub(super) struct Endpoints {
    settings: EtcdSettings,
    current: AtomicUsize,
    open: Mutex<Open>,
}

struct Open {
    connections: Arc<[Connection]>,
    stamp: Stamp,
}

impl Endpoints {
    /// Reads the files and prepares the connections. The endpoint that calls use at first is random, so
    /// that the nodes of a fleet use all members of etcd. Blocks for the files only.
    pub(super) fn open(settings: EtcdSettings) -> Result<Self, EtcdError> {
        settings.check()?;
        let open = connections(&settings)?;
        // Nodes name the same endpoints in the same order. Without randomness the first one is right, too.
        let random = usize::try_from(getrandom::u32().unwrap_or_default()).unwrap_or_default();
        let current = AtomicUsize::new(random % open.connections.len().max(1));
        Ok(Self { settings, current, open: Mutex::new(open) })
    }

    /// The connections, that of the preferred endpoint first.
    pub(super) fn in_order(&self) -> (usize, Arc<[Connection]>) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let all = Arc::clone(&open.connections);
        (self.current.load(Ordering::Relaxed) % all.len(), all)
    }

    /// Prefers the endpoint after `failed` from now on, if that is the preferred one.
    pub(super) fn leave(&self, failed: usize, count: usize) {
        let next = (failed + 1) % count;
        let _ = self.current.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes new connections if a file for TLS was replaced. Blocks.
    pub(super) fn reload(&self) -> Result<bool, EtcdError> {
        let Some(files) = &self.settings.tls else { return Ok(false) };
        let stamp = files.stamp();
        let is_same = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.stamp == stamp
        };
        if is_same {
            return Ok(false);
        }
        let fresh = connections(&self.settings)?;
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(true)
    }
}

fn connections(settings: &EtcdSettings) -> Result<Open, EtcdError> {
    let stamp = settings.tls.as_ref().map(super::settings::EtcdTlsFiles::stamp).unwrap_or_default();
    let tls = settings.tls.as_ref().map(super::settings::EtcdTlsFiles::read).transpose()?;
    let one = |url: &String| {
        let failed = |error: &dyn std::error::Error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            EtcdError::Settings(format!("{url}: {error}{cause}"))
        };
        let mut endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| failed(&error))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(false);
        if let Some(tls) = &tls {
            let tls = tls.clone().timeout(CONNECT_TIMEOUT);
            endpoint = endpoint.tls_config(tls).map_err(|error| failed(&error))?;
        }
        Ok(Connection { url: url.as_str().into(), channel: endpoint.connect_lazy() })
    };
    let all: Vec<Connection> =
        settings.endpoints.iter().map(one).collect::<Result<_, EtcdError>>()?;
    Ok(Open { connections: all.into(), stamp })
}
