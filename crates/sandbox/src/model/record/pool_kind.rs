//! The properties by which a sandbox of the warm pool is chosen.

/// The image's root as a parameter for the launcher.
pub(crate) fn layers(root: &isolet_image::Root) -> isolet_wire::launcher::Root {
    isolet_wire::launcher::Root {
        layers: root.layers.clone(),
        cwd: root.cwd.clone(),
        uid: root.user.uid,
        gid: root.user.gid,
    }
}

/// The properties that a sandbox gets at its start and cannot change later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PoolKind {
    /// Whether it starts in the network namespace of a veth pair.
    pub(crate) has_veth: bool,
    /// The layers of its image; `None` means the programs of the host.
    pub(crate) root: Option<isolet_wire::launcher::Root>,
}

impl PoolKind {
    pub(crate) fn plain(&self) -> bool {
        *self == Self::default()
    }
}
