//! Connections to agents.

pub(crate) mod link;
pub(crate) mod pool;
pub(crate) mod seen;
pub(crate) mod trust;
pub(crate) mod watch;
pub(crate) mod wire;
#[cfg(test)]
mod wire_test;
pub(crate) mod working;
