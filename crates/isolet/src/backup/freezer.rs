//! Freezes sandboxes while no server runs, in a process of its own: when `isolet backup` ends, even by
//! SIGKILL, the pipe between both ends, and the sandbox continues.

use crate::admin::client::{receive, send};
use crate::admin::{AdminRequest, AdminResponse};
use anyhow::{Context, Result};
use clap::Parser;
use isolet_sandbox::offline;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Instant;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// The name of the hidden command.
const COMMAND: &str = "backup-freezer";

/// Arguments of the hidden command, which `isolet backup` starts.
#[derive(Parser)]
pub(crate) struct Args {
    /// Freeze sandboxes of this data directory
    data_dir: PathBuf,
}

/// Keeps this process alive when a terminal or a service manager ends all processes of a backup: it
/// ends with its input, and thaws the sandbox first.
fn outlive_signals() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ];
    for kind in kinds {
        // The handler stays, and nothing waits for it.
        drop(signal(kind)?);
    }
    Ok(())
}

/// Serves requests on standard input until it ends.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    outlive_signals()?;
    let mut requests = BufReader::new(io::stdin());
    let mut responses = io::stdout();
    let mut frozen = None;
    let mut since = Instant::now();
    while let Some(request) = receive(&mut requests)? {
        let response = match request {
            AdminRequest::Hold { sandbox } => {
                since = Instant::now();
                match offline::freeze(&args.data_dir, &sandbox) {
                    Ok(new) => {
                        let response = AdminResponse::Held {
                            state: String::new(),
                            frozen: new.is_some(),
                            unsaved_shells: 0,
                        };
                        frozen = new;
                        response
                    }
                    Err(error) => {
                        AdminResponse::Failed { message: format!("it cannot be frozen: {error}") }
                    }
                }
            }
            AdminRequest::Release => {
                frozen = None;
                let stood_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                AdminResponse::Released { stood_us }
            }
            other => AdminResponse::Failed { message: format!("unexpected request {other:?}") },
        };
        send(&mut responses, &response)?;
    }
    drop(frozen);
    Ok(ExitCode::SUCCESS)
}

/// The process that freezes sandboxes for this one.
pub(super) struct Freezer {
    child: Child,
    /// `None` after its requests have ended.
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
}

impl Freezer {
    pub(super) fn start(data: &Path) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(COMMAND).arg(data).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C on the terminal ends only `isolet backup`; this process must thaw the sandbox first.
        command.process_group(0);
        let mut child =
            command.spawn().context("cannot start the process that freezes sandboxes")?;
        let requests = child.stdin.take();
        let responses = child.stdout.take().context("no pipe")?;
        Ok(Self { child, requests, responses: BufReader::new(responses) })
    }

    pub(super) fn ask(&mut self, request: &AdminRequest) -> io::Result<AdminResponse> {
        let requests = self.requests.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        send(requests, request)?;
        receive(&mut self.responses)?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // Its input ends.
        self.requests = None;
        let _ = self.child.wait();
    }
}
