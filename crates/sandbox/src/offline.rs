//! Maintenance while no server runs. Sandboxes may still run: they do not need the server.

pub use isolet_jail::FrozenSandbox;

use crate::model::state::State;
use isolet_jail::{Config, SandboxHandle, identity};
use isolet_store::backup;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long freezing a sandbox may take.
const FREEZE_WAIT: Duration = Duration::from_secs(5);

/// Freezes what runs of a sandbox. `None` if nothing of it runs. The caller must hold the lock of
/// the data directory. Blocks.
///
/// # Errors
/// Those of the kernel. A copied directory in which no server ran since is `None`: the processes
/// that its files name belong to the original.
pub fn freeze(data: &Path, name: &str) -> io::Result<Option<FrozenSandbox>> {
    if identity::is_copy(data)? {
        return Ok(None);
    }
    let handle = SandboxHandle::open(&Config::beside(data)?, name);
    // A backup that was killed leaves frozen processes too, and only the record tells which it was.
    let paused = handle.is_freezing()? && is_paused(data, name)?;
    FrozenSandbox::freeze(handle, FREEZE_WAIT, paused)
}

fn is_paused(data: &Path, name: &str) -> io::Result<bool> {
    let recorded = recorded(data).map_err(io::Error::other)?;
    Ok(recorded.get(name).is_some_and(|one| one.state == State::Paused.word()))
}

/// What the records say about a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedSandbox {
    /// Its state, as in the API.
    pub state: String,
    /// The number of its sessions, each of which may have a shell.
    pub sessions: usize,
}

/// All recorded sandboxes by their internal names, without those that are being created or removed.
/// Blocks.
///
/// # Errors
/// Those of the records.
pub fn recorded(data: &Path) -> Result<HashMap<String, RecordedSandbox>, isolet_store::Error> {
    let all = backup::sandboxes(&data.join("isolet.db"))?.into_iter();
    let all = all.filter(|one| !matches!(one.state.as_str(), "creating" | "destroying"));
    Ok(all
        .map(|one| (one.name, RecordedSandbox { state: one.state, sessions: one.sessions }))
        .collect())
}

/// Whether a tenant has a sandbox with this id. Blocks.
///
/// # Errors
/// Those of the records.
pub fn has_sandbox(data: &Path, tenant: &str, id: &str) -> Result<bool, isolet_store::Error> {
    let all = backup::sandboxes(&data.join("isolet.db"))?;
    Ok(all.iter().any(|one| one.tenant == tenant && one.id == id))
}

/// Gives exposed ports other secrets. Returns their number. Blocks.
///
/// # Errors
/// Those of the records.
pub fn rotate_links(
    data: &Path,
    tenant: Option<&str>,
    sandbox: Option<&str>,
) -> Result<u64, isolet_store::Error> {
    backup::rotate_links(&data.join("isolet.db"), |one| {
        tenant.is_none_or(|tenant| one.tenant == tenant) && sandbox.is_none_or(|id| one.id == id)
    })
}
