//! The object store: settings, connection, and calls with limits.

pub(crate) mod bounded_http;
pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod failure;
pub(crate) mod settings;
pub(crate) mod store_clock;
