//! Keys, keyed hashes, and sealed objects.

pub(crate) mod key_file;
pub(crate) mod keys;
pub(crate) mod seal;
