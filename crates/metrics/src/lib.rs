//! The metrics of the server. [`Metrics`] holds the registry and one group of typed handles for each
//! part of the server; nothing is global. `docs/metrics.md` lists every metric, and a test compares
//! the list with the registry.
//!
//! An update is one or two relaxed atomic additions on a handle that already exists: it takes no
//! lock, allocates nothing and makes no system call. Gauges that would need a count on a hot path
//! (sandboxes by state, sessions, queues) are set when the metrics are read.
//!
//! No metric names a sandbox, a session, a path or a key. Tenants are named up to [`TENANTS_MAX`].
//!
//! The layers, bottom first; each uses only those above it in this list:
//!
//! - `histogram`, `labels`: kinds of metrics that `prometheus-client` does not have.
//! - `fleet`, `images`, `lifecycle`, `process`, `requests`, `snapshot`, `store`, `streams`, `tenants`,
//!   `webhooks`: the groups.
//! - `metrics`: the registry of all groups.
//! - `meter`: what the work of one sandbox updates.
#![forbid(unsafe_code)]

mod fleet;
mod histogram;
mod images;
mod labels;
mod lifecycle;
mod meter;
mod metrics;
mod process;
mod requests;
mod snapshot;
mod store;
mod streams;
mod tenants;
mod webhooks;

pub use fleet::FleetMetrics;
pub use histogram::DurationHistogram;
pub use images::ImageMetrics;
pub use lifecycle::{AgentLosses, Commands, Lifecycle, Restarts};
pub use meter::Meter;
pub use metrics::{CONTENT_TYPE, Metrics};
pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::gauge::Gauge;
pub use requests::{RefusedRequests, RequestMetrics};
pub use snapshot::Snapshot;
pub use store::StoreMetrics;
pub use streams::{Stream, StreamBytes};
pub use tenants::{OTHER_TENANTS, TENANTS_MAX, TenantMetrics, Tenants};
pub use webhooks::WebhookMetrics;
