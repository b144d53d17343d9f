//! The first and the second child of starting a scope.
//!
//! The first child enters the namespaces of the sandbox and copies the granted trees there, because
//! the kernel copies a mount only for processes of the mount namespace that it belongs to. The
//! second is created in the sandbox's process namespace: only from there can a process namespace be
//! created below it. The third is process 1 of the scope's own namespaces ([`super::child`]).

use super::child::{self, ScopeMemory, ScopeMounts};
use super::grants::OpenedGrant;
use super::sandbox_agent::SandboxAgent;
use super::trees::copy_trees;
use crate::child::step_error::report;
use crate::child::{AgentFds, StepError, at_step};
use crate::host::Host;
use isolet_sys::namespaces::{SCOPE_NAMESPACES, fork_in_namespaces};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use std::os::fd::AsFd;

/// Runs the first child; returns its exit code.
pub(super) fn run_first(
    host: &Host,
    memory: ScopeMemory,
    sandbox: &SandboxAgent,
    inherited: &AgentFds<'_>,
    grants: Vec<OpenedGrant>,
) -> i32 {
    let run = || {
        enter_namespaces(sandbox)?;
        let granted = copy_trees(grants).map_err(at_step("copy the grants"))?;
        run_second(host, ScopeMounts { granted, memory }, inherited)
    };
    exit_code(inherited, run())
}

/// Leaves the namespaces of the host for good. The process namespace takes effect for its
/// children only.
fn enter_namespaces(sandbox: &SandboxAgent) -> Result<(), StepError> {
    let all = ThreadNameSpaceType::USER
        | ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::CONTROL_GROUP;
    move_into_thread_name_spaces(sandbox.pidfd.as_fd(), all)
        .map_err(at_step("namespaces of the sandbox"))
}

/// Forks the second child, which forks the third, and waits until the second has ended.
fn run_second(host: &Host, mounts: ScopeMounts, inherited: &AgentFds<'_>) -> Result<(), StepError> {
    let run_third = || {
        let third =
            fork_in_namespaces(SCOPE_NAMESPACES, None, || child::run(host, mounts, inherited));
        let forked = third
            .map(drop)
            .map_err(|error| StepError::from_io("namespaces of the scope", &error, Errno::IO));
        exit_code(inherited, forked)
    };
    let second = fork_in_namespaces(0, None, run_third)
        .map_err(|error| StepError::from_io("second child", &error, Errno::IO))?;
    // A child that is left without its parent would be a zombie in the sandbox until the host's
    // first process reaped it.
    let mut ended = [PollFd::new(&second.pidfd, PollFlags::IN)];
    while poll(&mut ended, None) == Err(Errno::INTR) {}
    Ok(())
}

fn exit_code(inherited: &AgentFds<'_>, outcome: Result<(), StepError>) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(error) => report(inherited.launcher_socket, &error),
    }
}
