//! The only crate with `unsafe`. Each file wraps one facility of the kernel, and its header says
//! why no safe wrapper exists. Other crates use rustix directly where it has a safe one.
#![cfg(target_os = "linux")]

pub mod btrfs;
pub mod exec;
pub mod ext4;
pub mod heap;
pub mod inherited_fd;
pub mod kernel_clock;
pub mod loop_device;
pub mod loopback;
pub mod mount;
pub mod namespaces;
pub mod peer;
pub mod pty;
pub mod scheduling;
pub mod seccomp;
pub mod signal;
pub mod spawn;
mod syscall;
pub mod tree;
