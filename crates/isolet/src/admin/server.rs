//! The server's end of the socket.

use super::{AdminRequest, AdminResponse, LINE_BYTES_MAX, SOCKET};
use crate::logging::LogControl;
use isolet_sandbox::{HeldSandbox, SandboxId, Service, TenantId};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// Maximum number of connections. Further ones wait.
const CONNECTIONS_MAX: usize = 8;
/// How long a sandbox may take to stand still: less than the client waits for an answer.
const HOLD_WAIT: Duration = Duration::from_secs(90);

/// Creates the socket. The caller holds the lock of the data directory.
///
/// # Errors
/// Those of the kernel.
pub(crate) fn listen(data: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(data.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The path may be too long for the address of a socket.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(data, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    let listener = UnixListener::bind(&path)?;
    rustix::fs::chmod(&path, Mode::RUSR | Mode::WUSR)?;
    Ok(listener)
}

/// Serves connections until it is dropped.
pub(crate) async fn serve(listener: UnixListener, service: Service, log: LogControl) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let own = rustix::process::geteuid().as_raw();
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == own || peer.uid() == 0 => {}
            _ => {
                warn!("a connection to admin.sock by another user was refused");
                continue;
            }
        }
        let service = service.clone();
        let log = log.clone();
        connections.spawn(async move {
            if let Err(error) = converse(stream, &service, &log).await {
                info!(%error, "a connection to admin.sock ended");
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(stream: UnixStream, service: &Service, log: &LogControl) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    // Dropped with the connection, so that the sandbox continues when the client is gone.
    let mut held: Option<HeldSandbox> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(());
        }
        let response = match serde_json::from_slice(&line) {
            Ok(AdminRequest::LogFilter { filter }) => set_log_filter(log, filter.as_deref()),
            Ok(request) => answer(request, service, &mut held).await,
            Err(error) => failed(format!("the server does not know this request: {error}")),
        };
        let mut text = serde_json::to_vec(&response)?;
        text.push(b'\n');
        stream.write_all(&text).await?;
    }
}

fn failed(message: String) -> AdminResponse {
    AdminResponse::Failed { message }
}

fn set_log_filter(log: &LogControl, filter: Option<&str>) -> AdminResponse {
    if let Some(filter) = filter {
        if let Err(error) = log.set(filter) {
            return failed(format!("{error:#}"));
        }
        info!(filter, "the filter of the log was changed");
    }
    AdminResponse::LogFilter { filter: log.filter() }
}

async fn answer(
    request: AdminRequest,
    service: &Service,
    held: &mut Option<HeldSandbox>,
) -> AdminResponse {
    match request {
        AdminRequest::Hold { .. } if held.is_some() => {
            failed("another sandbox stands still; release it first".to_owned())
        }
        AdminRequest::Hold { sandbox } => hold(&sandbox, service, held).await,
        AdminRequest::Release => match held.take().map(HeldSandbox::release) {
            Some(Some(stood)) => {
                let stood_us = u64::try_from(stood.as_micros()).unwrap_or(u64::MAX);
                AdminResponse::Released { stood_us }
            }
            Some(None) => AdminResponse::Expired,
            None => failed("no sandbox stands still".to_owned()),
        },
        AdminRequest::RotateLinks { tenant, sandbox } => {
            rotate_links(service, tenant, sandbox).await.unwrap_or_else(failed)
        }
        AdminRequest::RotateAuditKey => match service.audit().rotate_key().await {
            Ok(rotation) => AdminResponse::AuditKeyRotated {
                from: rotation.from,
                to: rotation.to,
                logs: rotation.logs,
            },
            Err(error) => failed(error.to_string()),
        },
        AdminRequest::LogFilter { .. } => failed("not a request about sandboxes".to_owned()),
    }
}

async fn hold(sandbox: &str, service: &Service, held: &mut Option<HeldSandbox>) -> AdminResponse {
    // Dropping the request lets a sandbox continue that stands still too late.
    match tokio::time::timeout(HOLD_WAIT, service.hold(sandbox)).await {
        Err(_) => {
            let seconds = HOLD_WAIT.as_secs();
            failed(format!("it is busy and did not stand still within {seconds} s"))
        }
        Ok(Ok(None)) => AdminResponse::Gone,
        Ok(Ok(Some(new))) => {
            let response = AdminResponse::Held {
                state: new.state.word().to_owned(),
                frozen: new.frozen,
                unsaved_shells: new.unsaved_shells,
            };
            *held = Some(new);
            response
        }
        Ok(Err(error)) => failed(error.to_string()),
    }
}

async fn rotate_links(
    service: &Service,
    tenant: Option<String>,
    sandbox: Option<String>,
) -> Result<AdminResponse, String> {
    let tenant = tenant.map(|id| TenantId::parse(&id)).transpose();
    let tenant = tenant.map_err(|error| error.to_string())?;
    let sandbox = sandbox.map(|id| SandboxId::parse(&id)).transpose();
    let sandbox = sandbox.map_err(|error| error.to_string())?;
    let rotated = service.rotate_links(tenant.as_ref(), sandbox.as_ref()).await;
    let ports = rotated.map_err(|error| error.to_string())?;
    Ok(AdminResponse::LinksRotated { ports })
}
