//! The control groups of one sandbox, by its name.

use isolet_jail::SandboxHandle;

/// Which cage; opened where it may block.
pub(crate) struct CgroupControl {
    pub(crate) config: isolet_jail::Config,
    pub(crate) name: String,
}

impl CgroupControl {
    pub(crate) fn open(&self) -> SandboxHandle {
        SandboxHandle::open(&self.config, &self.name)
    }
}
