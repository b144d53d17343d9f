//! Connections between the nodes of a fleet.
//!
//! Nodes trust certificates and nothing else: neither addresses nor what a peer says about itself.
//! An operator creates a certificate authority (CA) in a directory of its own, and issues a
//! certificate to each node. The key of the CA never lies on a node.
//!
//! ```text
//! operator                                   node
//! CLUSTER/index.json     every certificate
//! CLUSTER/ca-1-key.pem   key of the CA
//! CLUSTER/ca.pem     ────────────────────>   ca.pem        the trusted CAs
//! CLUSTER/revoked.pem ───────────────────>   revoked.pem   signed revocation lists, one for each CA
//!                        isolet cluster  ─>  node.pem      certificate with the name of the node
//!                        issue           ─>  node-key.pem  its private key
//! ```
//!
//! A node reads its four files again when they change ([`tls`]). Every connection is then checked
//! against the new files, and once a second against the clock, so a certificate that is revoked or
//! expires ends the connections that it opened.
//!
//! # Layers
//!
//! `names`, `files`, `parsed`, `certificates`, `tls`, `transport`; each uses only those before it. `inspect`
//! checks the files of a node for `isolet doctor`.
#![forbid(unsafe_code)]

pub mod certificates;
mod files;
pub mod inspect;
mod names;
mod parsed;
pub mod tls;
pub mod transport;

pub use files::{PeerFiles, replace as replace_file};
pub use tls::{PeerStream, PeerTls};
pub use transport::{PeerBody, PeerError, PeerListener, PeerPool, PeerTunnel, SendError};
