//! The only crate with `unsafe`: one kernel thing a file, each with a header that says why it
//! cannot be done safely elsewhere. What rustix offers safely is used directly by the others.
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
