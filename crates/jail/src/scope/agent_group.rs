//! The control group that the agent of a scope is created in.

use rustix::fs::Mode;
use rustix::io::Errno;
use std::path::PathBuf;
use std::time::Duration;

/// Attempts to remove the group of a scope that did not start, and the pause between two attempts.
const REMOVE_ATTEMPTS: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(1);

/// The control group of a scope's agent. Dropping it kills the processes of the group and removes
/// it, unless [`AgentGroup::keep`] was called.
pub(super) struct AgentGroup {
    pub(super) path: PathBuf,
    remove_on_drop: bool,
}

impl AgentGroup {
    /// Creates the group. An empty one that an earlier agent left is used again.
    ///
    /// # Errors
    /// `EBUSY` when processes run in it.
    pub(super) fn create(path: PathBuf) -> Result<Self, Errno> {
        match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let events = std::fs::read_to_string(path.join("cgroup.events"));
                if events.is_ok_and(|text| text.contains("populated 1")) {
                    return Err(Errno::BUSY);
                }
            }
            Err(errno) => return Err(errno),
        }
        Ok(Self { path, remove_on_drop: true })
    }

    pub(super) fn keep(mut self) {
        self.remove_on_drop = false;
    }
}

impl Drop for AgentGroup {
    fn drop(&mut self) {
        if !self.remove_on_drop {
            return;
        }
        let _ = std::fs::write(self.path.join("cgroup.kill"), "1");
        for _ in 0..REMOVE_ATTEMPTS {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
}
