//! A certificate authority with nodes, in a temporary directory.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response};
use isolet_peer::certificates::Cluster;
use isolet_peer::transport::PoolLimits;
use isolet_peer::{PeerBody, PeerFiles, PeerPool, PeerTls};
use isolet_wire::node::NodeName;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// How long anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Pause between two looks at a state.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) type TestBody = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Pool = PeerPool<TestBody>;

pub(crate) struct Fleet {
    pub(crate) folder: TempDir,
    pub(crate) cluster: Cluster,
}

pub(crate) fn now_s() -> i64 {
    isolet_clock::now_ms() / 1000
}

pub(crate) fn name(node: &str) -> NodeName {
    NodeName::parse(node).unwrap()
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::init(&folder.path().join("ca"), now_s()).unwrap();
        Self { folder, cluster }
    }

    pub(crate) fn directory(&self, node: &str) -> PathBuf {
        self.folder.path().join(node)
    }

    /// Issues a certificate to a node.
    pub(crate) fn issue(&mut self, node: &str) -> PeerFiles {
        self.issue_until(node, now_s() + 90 * 86_400)
    }

    pub(crate) fn issue_until(&mut self, node: &str, expires_at_s: i64) -> PeerFiles {
        let into = self.directory(node);
        self.cluster.issue_until(&name(node), expires_at_s, &into, now_s()).unwrap();
        PeerFiles::in_directory(&into)
    }

    /// A node with a certificate.
    pub(crate) fn node(&mut self, node: &str) -> PeerTls {
        PeerTls::open(self.issue(node)).unwrap()
    }

    /// Copies `ca.pem` and `revoked.pem` to a node, as an operator does.
    pub(crate) fn distribute(&self, node: &str) {
        let files = PeerFiles::in_directory(&self.directory(node));
        std::fs::copy(self.cluster.authorities_file(), files.ca).unwrap();
        std::fs::copy(self.cluster.lists_file(), files.revoked).unwrap();
    }
}

pub(crate) fn pool(tls: &PeerTls) -> Pool {
    PeerPool::new(tls.clone(), PoolLimits::default())
}

/// A request without a body.
pub(crate) fn get(path: &str) -> Request<TestBody> {
    request("GET", path, Empty::new().map_err(|never| match never {}).boxed_unsync())
}

pub(crate) fn request(method: &str, path: &str, body: TestBody) -> Request<TestBody> {
    Request::builder().method(method).uri(path).header("host", "peer").body(body).unwrap()
}

/// The text of a response.
pub(crate) async fn text(response: Response<PeerBody<TestBody>>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Waits until a state is reached.
pub(crate) async fn wait_until(what: &str, mut state: impl FnMut() -> bool) {
    let waiting = async {
        while !state() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("waited for: {what}"));
}

/// The result of an operation that must end.
pub(crate) async fn soon<T>(what: &str, operation: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, operation).await.unwrap_or_else(|_| panic!("waited for: {what}"))
}
