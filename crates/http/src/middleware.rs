//! What runs around every handler: it acquires a permit and writes the audit log.

pub(crate) mod audit;
pub(crate) mod connection_use;
pub(crate) mod permit;
