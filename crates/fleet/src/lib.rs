//! Makes a server a node of a fleet.
//!
//! [`Node`] joins the parts: membership, ownership and placement (`isolet-cluster`), connections to
//! other nodes (`isolet-peer`), and the sandboxes of this server (`isolet-sandbox`). It implements
//! [`isolet_http::fleet::Fleet`], by which the HTTP server forwards requests. `docs/fleet.md` has the
//! whole picture. A server without `[cluster]` uses nothing of this crate.
//!
//! # Layers
//!
//! `blocking`, `replication`, `error`, `identity`, `listener`, `store_class::pushed`, `nodes`, `outgoing`,
//! `outgoing::owner_leases`, `reservations`, `release`, `sandbox_key`, `ownership_driver`,
//! `store_class::restorer`, `node`, then its parts (`load::limits`, `load`, `placing`, `placing::fork_claims`, `releases`, `store_class::rescue`,
//! `store_class::away`, `store_class::endings`, `sweep`, `webhook_records`, `whereabouts`), `joining`; each uses only those
//! before it.
#![forbid(unsafe_code)]

mod blocking;
mod error;
mod identity;
mod joining;
mod listener;
mod load;
mod node;
mod nodes;
mod outgoing;
mod ownership_driver;
mod placing;
mod release;
mod releases;
pub mod replication;
mod reservations;
mod sandbox_key;
mod store_class;
mod sweep;
mod whereabouts;

pub use error::NodeError;
pub use identity::recorded as recorded_identity;
pub use node::Node;
pub use nodes::Nodes;
