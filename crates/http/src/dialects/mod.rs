//! Other systems' words for the same things: translations without a logic of their own.

pub(crate) mod cloudflare;
pub(crate) mod isorun;
pub(crate) mod pokee;
