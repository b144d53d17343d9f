//! What happens around every handler: a permit is held, and the audit log is written.

pub(crate) mod audit;
pub(crate) mod connection_use;
pub(crate) mod permit;
