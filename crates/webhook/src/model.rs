//! Data and rules of webhooks, without connections.

pub(crate) mod address;
pub(crate) mod event;
pub(crate) mod message;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod schedule;
pub(crate) mod secret;
pub(crate) mod settings;
pub(crate) mod spec;
pub(crate) mod url;
