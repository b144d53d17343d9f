//! Deliveries: requests to receivers, the limits on them, and the task of each webhook.

pub(crate) mod sender;
pub(crate) mod shared;
pub(crate) mod slots;
pub(crate) mod worker;
