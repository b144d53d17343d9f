//! What the server does for running sandboxes in intervals.

pub(crate) mod meminfo;
pub(crate) mod processors;
