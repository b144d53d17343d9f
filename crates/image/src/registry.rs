//! Asking registries: the `client`, which `address`es it may connect to, and the operator's
//! `credentials`.

mod address;
pub(crate) mod client;
pub(crate) mod credentials;
