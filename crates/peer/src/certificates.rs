//! The certificate authority (CA) of a fleet: a directory that belongs to the operator.
//!
//! ```text
//! DIR/index.json     every authority and certificate; the other files are made from it
//! DIR/ca.pem         certificates of the trusted authorities, for the nodes
//! DIR/revoked.pem    their revocation lists, for the nodes
//! DIR/ca-N-key.pem   private key of authority N
//! DIR/lock           locked by the command that runs
//! ```
//!
//! The index is replaced in one step before anything is made from it, and each command first makes
//! again what an interrupted one left behind. Keys are ECDSA P-256.
//!
//! # Rotation of the CA
//!
//! ```text
//!            start                    switch                    finish
//! 1 issuing ───────> 1 issuing       ────────> 1 outgoing      ────────> 2 issuing
//!                    2 incoming                2 issuing
//! ```
//!
//! From `start` to `finish` both authorities are trusted. Between the steps the operator copies
//! files to the nodes: the new `ca.pem` and `revoked.pem` before `switch`, renewed certificates
//! before `finish`. `finish` refuses while the newest certificate of a node is from the old one.

mod authority;
mod directory;
mod error;
mod index;
mod issued;
mod rotation;
mod serial;

pub use directory::{Cluster, Revocation};
pub use error::CertificateError;
pub use index::{AuthorityRecord, AuthorityState, CertificateRecord, CertificateState, Index};
pub use issued::Issued;
pub use rotation::RotationError;
pub use serial::Serial;

/// How long a certificate of a node is valid unless the operator says otherwise, in days.
pub const NODE_DAYS: u32 = 90;
/// The longest validity of a certificate of a node, in days. A certificate never outlives its CA.
pub const NODE_DAYS_MAX: u32 = 825;
/// How long before its end a certificate is renewed by default, in days.
pub const RENEW_DAYS: u32 = 30;
/// How long a CA is valid, in days.
pub const AUTHORITY_DAYS: u32 = 3650;
/// Seconds of a day.
pub(crate) const DAY_S: i64 = 86_400;
