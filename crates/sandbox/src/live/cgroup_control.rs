//! Access to the cgroups of one sandbox by its name.

use isolet_jail::SandboxHandle;

/// The name of a sandbox whose cgroups can be opened on a blocking thread.
pub(crate) struct CgroupControl {
    pub(crate) config: isolet_jail::Config,
    pub(crate) name: String,
}

impl CgroupControl {
    pub(crate) fn open(&self) -> SandboxHandle {
        SandboxHandle::open(&self.config, &self.name)
    }
}
