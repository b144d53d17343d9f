//! The state of sandboxes that the server holds in memory, shared by all calls.

pub(crate) mod audit;
pub(crate) mod cgroup_control;
pub(crate) mod disk_quota;
pub(crate) mod egress;
pub(crate) mod entry;
pub(crate) mod events;
pub(crate) mod failpoint;
pub(crate) mod idempotency;
pub(crate) mod images;
pub(crate) mod inner;
pub(crate) mod launch_queue;
pub(crate) mod orphans;
pub(crate) mod prepared;
pub(crate) mod registry;
#[cfg(test)]
mod registry_test;
pub(crate) mod snapshot_store;
pub(crate) mod snapshots;
pub(crate) mod space;
pub(crate) mod state_receiver;
pub(crate) mod warm_pool;
