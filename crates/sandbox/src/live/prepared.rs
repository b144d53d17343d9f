//! A sandbox of the warm pool, and the veth pair that it was created with.

use crate::model::record::PoolKind;

/// The veth pair of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReservedVeth {
    /// Number of the run of the process that owns the pair.
    pub(crate) boot: u64,
    pub(crate) id: u32,
    /// Whether the egress proxy may have credentials for the pair.
    pub(crate) has_credentials: bool,
}

/// A sandbox that waits in the warm pool.
#[derive(Debug, Default)]
pub(crate) struct PreparedSandbox {
    pub(crate) name: String,
    pub(crate) slot: u32,
    /// The first id of its files on disk; `None` means the first id of its slot.
    pub(crate) id_base: Option<u32>,
    pub(crate) kind: PoolKind,
    /// The veth pair, which denies everything until the sandbox is taken.
    pub(crate) link: Option<ReservedVeth>,
}
