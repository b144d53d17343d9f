//! The only crate with `unsafe`: one kernel interface per file, each with a head that says why it
//! cannot be done safely elsewhere. Other crates use directly what rustix offers safely.
#![cfg(target_os = "linux")]

pub mod exec;
pub mod heap;
pub mod inherited_fd;
pub mod loop_device;
pub mod loopback;
pub mod mount;
pub mod namespaces;
pub mod peer;
pub mod pty;
pub mod seccomp;
pub mod signal;
pub mod spawn;
mod syscall;
pub mod tree;
