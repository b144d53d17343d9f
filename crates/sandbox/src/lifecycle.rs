//! The tasks that move sandboxes from state to state.

pub(crate) mod driver;
pub(crate) mod listeners;
pub(crate) mod recover;
pub(crate) mod teardown;
