//! Finds the process or PTY that a call names, by its process id or its tag.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::{Code, RpcError};
use crate::dialects::e2b::process::pty;
use crate::foundation::input::PathIds;
use isolet_sandbox::service::Access;
use isolet_sandbox::{ProcessId, ProcessInfo, Sandbox, SessionId};
use serde::Deserialize;

/// Names a process. Exactly one member is needed.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

/// What a selector names.
#[derive(Debug)]
pub(super) enum Selected {
    Process { id: ProcessId, pid: i32 },
    Pty { session: SessionId, pid: i32 },
}

/// A sandbox in which something runs.
pub(super) async fn reach(app: &App, caller: &Caller, ids: &PathIds) -> Result<Sandbox, RpcError> {
    Ok(app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?)
}

/// The processes that have not ended.
pub(super) async fn running(sandbox: &Sandbox) -> Result<Vec<ProcessInfo>, RpcError> {
    let mut all = sandbox.processes().await?;
    all.retain(|info| info.process.end.is_none() && !info.lost);
    Ok(all)
}

impl Selector {
    /// Finds the running process or PTY.
    ///
    /// # Errors
    /// When the selector names none, or none that runs.
    pub(super) async fn find(&self, sandbox: &Sandbox) -> Result<Selected, RpcError> {
        let pid = match (self.pid, self.tag.as_deref()) {
            (Some(pid), None) => i32::try_from(pid).unwrap_or(i32::MAX),
            (None, Some(tag)) => return self.find_tagged(sandbox, tag).await,
            _ => return Err(RpcError::invalid("process: name it by pid or by tag")),
        };
        let found = running(sandbox).await?.into_iter().find(|info| info.process.pid == pid);
        if let Some(info) = found {
            return Ok(Selected::Process { id: info.id, pid });
        }
        let found = pty::running(sandbox).await?.into_iter().find(|(_, status)| status.pid == pid);
        let (session, _) = found.ok_or_else(|| none(&format!("with pid {pid}")))?;
        Ok(Selected::Pty { session, pid })
    }

    async fn find_tagged(&self, sandbox: &Sandbox, tag: &str) -> Result<Selected, RpcError> {
        let found = running(sandbox).await?.into_iter().find(|info| info.id.as_str() == tag);
        let name: String = tag.chars().take(64).collect();
        let info = found.ok_or_else(|| none(&format!("with tag {name}")))?;
        Ok(Selected::Process { id: info.id, pid: info.process.pid })
    }
}

fn none(which: &str) -> RpcError {
    RpcError::new(Code::NotFound, format!("process {which} not found"))
}
