//! Mutual TLS between nodes: TLS 1.3, a certificate of the fleet's CA on both sides, its revocation
//! list, and the name of the node that was dialled.
//!
//! Sessions are never resumed: a resumed session would not show its certificate again.

mod error;
mod handshake;
mod identity;
mod links;
mod reload;
mod stream;
pub mod watched_files;

pub use error::{HandshakeError, LoadError};
pub use stream::PeerStream;

pub(crate) use handshake::OpenConnection;
pub(crate) use identity::{Identity, lists_by_authority};
pub(crate) use links::LinkState;

use crate::files::{self, PeerFiles};
use crate::parsed::RevocationList;
use isolet_wire::node::NodeName;
use links::Links;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
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
    /// Held while files are read or replaced, so that an earlier reading never replaces a later one.
    loading: Mutex<()>,
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
        let identity = Identity::load(&files)?;
        report_refused(&identity);
        let links = Arc::new(Links::new(identity));
        let state = Arc::new(TlsState { files, links, loading: Mutex::new(()) });
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

    /// Revocation lists as PEM, for other nodes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn revocation_lists(&self) -> std::io::Result<Vec<u8>> {
        files::read(&self.0.state.files.revoked)
    }

    /// Takes revocation lists into use that came from elsewhere, and writes them to the file.
    /// Returns whether they were newer. They need no trust in who passed them on, because they
    /// are signed by the CA, and the number of a list never decreases. Blocks.
    ///
    /// # Errors
    /// A trusted CA has no list among them, or the file cannot be written.
    pub fn install_revoked(&self, lists: &[u8]) -> Result<bool, LoadError> {
        let state = &self.0.state;
        let _loading = state.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.identity();
        let offered = lists_by_authority(&current.anchors, lists).map_err(LoadError::offered)?;
        let numbers: Vec<u64> = offered.iter().map(|list| list.number).collect();
        let is_older = current.list_numbers.iter().zip(&numbers).any(|(own, new)| new < own);
        if current.list_numbers == numbers || is_older {
            return Ok(false);
        }
        // Nothing else of the text: it came from elsewhere.
        let text: String = offered.iter().map(RevocationList::to_pem).collect();
        let path = &state.files.revoked;
        files::replace(path, text.as_bytes()).map_err(LoadError::unreadable(path))?;
        reload::load(state)?;
        Ok(true)
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
