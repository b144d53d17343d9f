//! The only crate with `unsafe`: one kernel thing a file, each with a header that says why it
//! cannot be done safely elsewhere. What rustix offers safely is used directly by the others.
#![cfg(target_os = "linux")]

pub mod clone;
mod confine;
pub mod disk;
pub mod exec;
pub mod heap;
pub mod link;
pub mod mount;
pub mod own;
pub mod peer;
pub mod pty;
mod raw;
pub mod seccomp;
pub mod signal;
pub mod spawn;
pub mod tree;
