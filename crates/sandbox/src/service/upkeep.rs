//! Work at intervals, mostly on sandboxes that run or are paused. No request waits for it.

pub(super) mod answers;
pub(super) mod file_journals;
pub(super) mod meminfo;
pub(super) mod page_out;
pub(super) mod processors;
