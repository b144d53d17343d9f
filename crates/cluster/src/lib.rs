//! A fleet: several machines that serve the same sandboxes.
//!
//! etcd holds which nodes are members, and which node owns a sandbox. `docs/fleet.md` lists all
//! keys. This crate knows neither sandboxes nor HTTP: it answers which node owns a sandbox, claims,
//! takes over and releases ownership, and says where a new sandbox is placed.
//!
//! - An owner has an [`Epoch`](model::Epoch): the revision of the transaction that made it the owner.
//!   A write that others could contradict carries the epoch in a [`Fence`](ownership::Fence).
//! - A node may only own while it holds its lease. The time until which it certainly holds it is
//!   [`LeaseDeadline`](model::LeaseDeadline), for a process that outlives the server and freezes the
//!   sandboxes that others may take over from then on.
//! - [`protocol`] decides what a node does with its sandboxes when it loses its lease and when it
//!   gets one again. It is a pure function, and a model checker tries it under all interleavings.
//!
//! # Layers
//!
//! `etcd`, `model`, `placement`, `protocol`, `membership`, `ownership`; each uses only those before
//! it.
#![forbid(unsafe_code)]

pub mod etcd;
pub mod membership;
pub mod model;
pub mod ownership;
pub mod placement;
pub mod protocol;
