//! Connections to agents: opened, greeted, pooled, and read frame by frame.

pub(crate) mod agent_activity;
pub(crate) mod agent_version;
pub(crate) mod ca_bundle;
pub(crate) mod connection;
pub(crate) mod machine_id;
pub(crate) mod metering;
pub(crate) mod pool;
pub(crate) mod running_program;
pub(crate) mod stopped_clock;
mod text_file;
pub(crate) mod watch;
pub(crate) mod wire;
#[cfg(test)]
mod wire_test;
