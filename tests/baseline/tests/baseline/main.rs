//! Compares the answers of each dialect with recorded ones, and upgrades a server whose sandboxes are
//! busy.
//!
//! `tests/baseline/README.md` describes what is recorded and how. The recorded wire frames are read
//! by the tests of the crate `wire`.

mod golden;
mod normalize;
mod upgrade;
