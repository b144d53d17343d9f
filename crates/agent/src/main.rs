//! Process 1 of a sandbox: it owns the shells, programs and their output, carries out file
//! operations, reaps processes, and outlives the server.
//!
//! The layers, each of which uses only those above it in this list:
//!
//! 1. `process_tree`, `reaction`, `signals`, `port`: what the kernel reports about processes and
//!    sockets;
//! 2. `reactor`: the poll set, timers, and how a tenant's process is confined;
//! 3. `launch`: how a program is found and started;
//! 4. `connection`: connections of a server, and the positions of clients in logs;
//! 5. `shell`, `exec`, `process`, `terminal`, `file`, and `context`, which uses `shell`: what runs;
//! 6. `agent`: the loop that serves all of them.
//!
//! The launcher starts it as `isolet-agent --listen 3 [--userns 4] [--cgroup 5] [--tasks 6 --tasks
//! 7 …] [--oom 9] [--filter 10]`. Each number is a descriptor:
//!
//! | option | descriptor |
//! |---|---|
//! | `--listen` | a listening unix stream socket, whose name lies outside the sandbox |
//! | `--userns` | the tenant's user namespace, a child of the agent's; without it (in tests) processes stay as they are |
//! | `--cgroup` | the version 2 directory of the tenant's control group, for `CLONE_INTO_CGROUP` |
//! | `--tasks` | version 1 `tasks` files of the tenant's control groups; a started process writes `0` to each |
//! | `--oom` | `memory.events` (version 2) or `memory.oom_control` (version 1); `oom_kill` is compared before and after a command |
//! | `--filter` | the tenant's seccomp program, as raw `sock_filter`s |
//!
//! The agent serves a connection only when its peer is outside its process namespace (`SO_PEERCRED`
//! reports process id 0). Without `--userns` this check is off.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod agent;
mod connection;
mod context;
mod exec;
mod file;
mod launch;
mod port;
mod process;
mod process_tree;
mod reaction;
mod reactor;
mod shell;
mod signals;
mod terminal;

use isolet_sys::inherited_fd;
use reactor::{AgentConfig, Reactor};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Duration;

/// Default time that a shell waits for clients that do not read; see `--stall-ms`.
const STALL_MS: u64 = 60_000;

/// An error that prevents the agent from starting.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("unknown or incomplete argument {0:?}")]
    Argument(String),
    #[error("descriptor of {0}: {1}")]
    Descriptor(String, rustix::io::Errno),
    #[error(transparent)]
    Kernel(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for Failed {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Kernel(errno.into())
    }
}

fn main() -> ExitCode {
    match begin() {
        Ok(mut agent) => agent.serve(),
        Err(failed) => {
            eprintln!("isolet-agent: {failed}");
            ExitCode::FAILURE
        }
    }
}

fn begin() -> Result<agent::Agent, Failed> {
    // Before anything else: no other process may inspect this one.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Executed through a descriptor, the kernel would name the process after its number.
    rustix::thread::set_name(c"isolet-agent")?;
    // The agent inherits a tenant's orphans even if it is not process 1, so that it can find them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (listen, config) = arguments(std::env::args().skip(1))?;
    let reactor = Reactor::new(reactor::poll::Poll::new()?, config);
    Ok(agent::Agent::new(reactor, listen)?)
}

fn arguments(mut args: impl Iterator<Item = String>) -> Result<(OwnedFd, AgentConfig), Failed> {
    let mut listen = None;
    let mut config =
        AgentConfig { stall: Duration::from_millis(STALL_MS), ..AgentConfig::default() };
    while let Some(name) = args.next() {
        let bad = || Failed::Argument(name.clone());
        let number: u64 = args.next().and_then(|n| n.parse().ok()).ok_or_else(bad)?;
        if name == "--stall-ms" {
            config.stall = Duration::from_millis(number);
            continue;
        }
        if name == "--uid" || name == "--gid" {
            let id = u32::try_from(number).map_err(|_| bad())?;
            *(if name == "--uid" { &mut config.uid } else { &mut config.gid }) = id;
            continue;
        }
        let known = ["--listen", "--userns", "--cgroup", "--tasks", "--oom", "--filter"];
        if !known.contains(&name.as_str()) {
            return Err(bad());
        }
        let fd = inherited_fd::adopt(i32::try_from(number).map_err(|_| bad())?)
            .map_err(|errno| Failed::Descriptor(name.clone(), errno))?;
        match name.as_str() {
            "--listen" => listen = Some(fd),
            "--userns" => config.userns = Some(fd),
            "--cgroup" => config.cgroup = Some(fd),
            "--tasks" => config.tasks.push(fd),
            "--oom" => config.oom = Some(fd),
            _ => config.filter = Some(isolet_sys::seccomp::read(fd)?),
        }
    }
    let listen = listen.ok_or_else(|| Failed::Argument("--listen".to_owned()))?;
    Ok((listen, config))
}
