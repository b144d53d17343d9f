//! Mutual TLS between nodes: TLS 1.3, a certificate of the fleet's CA on both sides, its revocation
//! list, and the name of the node that was dialled.
//!
//! Sessions are never resumed: a resumed session would not show its certificate again.

mod error;
mod handshake;
mod identity;
mod links;
mod reload;
mod revocation;
mod stream;
pub mod watched_files;

pub use error::{HandshakeError, LoadError};
pub use revocation::{ListNumber, SignedList};
pub use stream::PeerStream;

pub(crate) use handshake::OpenConnection;
pub(crate) use identity::{Identity, lists_by_authority, lists_text};
pub(crate) use links::LinkState;

use crate::files::PeerFiles;
use isolet_wire::node::NodeName;
use links::Links;
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;
use tracing::error;

/// The certificate of this node and the trust in others, current with the files. Clones share it.
#[derive(Clone)]
pub struct PeerTls(Arc<Shared>);

struct Shared {
    state: Arc<TlsState>,
    reloading: JoinHandle<()>,
}

/// What the task that reloads and all connections have in common.
struct TlsState {
    files: PeerFiles,
    links: Arc<Links>,
    /// Revocation lists that came from other nodes, at most one for each authority. Files that are
    /// older do not replace them. Locked while files are read or replaced, so that an earlier reading
    /// never replaces a later one.
    received: Mutex<String>,
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerTls").field(&self.0.state.files).finish()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reloading.abort();
    }
}

impl PeerTls {
    /// Reads the files, and again whenever they change, until the last clone is dropped. Blocks for
    /// the first reading. A certificate of this node that others will refuse is only logged,
    /// because it can be replaced while the server runs.
    ///
    /// # Errors
    /// A file is unusable. Later errors are logged, and the previous files stay in use.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn open(files: PeerFiles) -> Result<Self, LoadError> {
        let watched = watched_files::WatchedFiles::new(files.all());
        let identity = Identity::load(&files, &[])?;
        report_refused(&identity);
        let links = Arc::new(Links::new(identity));
        let state = Arc::new(TlsState { files, links, received: Mutex::default() });
        let reloading = tokio::spawn(reload::keep_current(Arc::clone(&state), watched));
        Ok(Self(Arc::new(Shared { state, reloading })))
    }

    /// The name of this node in its certificate.
    #[must_use]
    pub fn node(&self) -> NodeName {
        self.identity().own.node.clone()
    }

    /// When the certificate of this node expires, in seconds since 1970.
    #[must_use]
    pub fn expires_at_s(&self) -> i64 {
        self.identity().own.expires_at_s
    }

    /// The number of certificate authorities that this node trusts: two during a rotation.
    #[must_use]
    pub fn authorities(&self) -> usize {
        self.identity().anchors.len()
    }

    pub(crate) fn identity(&self) -> Arc<Identity> {
        self.0.state.links.identity()
    }

    fn links(&self) -> &Arc<Links> {
        &self.0.state.links
    }
}

/// Logs that other nodes will refuse this one.
fn report_refused(identity: &Identity) {
    if let Err(reason) = identity.verify_own() {
        let node = &identity.own.node;
        error!(
            %node,
            %reason,
            "other nodes refuse the certificate of this node; issue another one: isolet cluster issue {node}"
        );
    }
}
