//! The state of each sandbox: rules, credentials, DNS answers, limits and counters. `table` finds a
//! sandbox by its address.

mod denial_log;
pub(crate) mod dns_cache;
pub(crate) mod freed_memory;
mod resolvers;
pub(crate) mod sandbox;
pub(crate) mod table;
mod token_bucket;
