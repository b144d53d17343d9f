//! What arguments of several commands have in common: units, filters, the help, the format of the output, questions, and
//! what a shell completes.

pub(crate) mod complete;
pub(in crate::client) mod confirm;
pub(in crate::client) mod credential;
pub(in crate::client) mod filter;
pub(crate) mod format;
pub(crate) mod help;
pub(crate) mod units;
