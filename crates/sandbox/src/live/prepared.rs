//! A sandbox of the warm pool, and the veth pair that it was created with.

use crate::model::record::Kind;

/// A sandbox's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Linked {
    /// Of which start of the process.
    pub(crate) boot: u64,
    pub(crate) id: u32,
    /// It may have credentials, of now or before.
    pub(crate) lent: bool,
}

/// One that waits for its owner.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) slot: u32,
    pub(crate) kind: Kind,
    /// Its link; closed until it is taken.
    pub(crate) link: Option<Linked>,
}
