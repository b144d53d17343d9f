//! The handlers of the native API: one file or folder for each resource.

pub(crate) mod audit;
pub(crate) mod builds;
pub(crate) mod contexts;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod images;
pub(crate) mod keys;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod ports;
pub(crate) mod processes;
pub(crate) mod sandboxes;
pub(crate) mod sessions;
pub(crate) mod shell;
pub(crate) mod snapshots;
pub(crate) mod terminals;
pub(crate) mod tickets;
pub(crate) mod webhooks;
