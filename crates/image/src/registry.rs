//! The `client` of registries, the rules for `address`es it may connect to, and the operator's
//! `credentials`.

mod address;
pub(crate) mod client;
pub(crate) mod credentials;
