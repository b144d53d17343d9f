//! The only crate with `unsafe`: one kernel thing a file, each with a header that says why it
//! cannot be done safely elsewhere. What rustix offers safely is used directly by the others.
#![cfg(target_os = "linux")]

mod confine;
mod raw;
pub mod spawn;
