//! The id maps of a sandbox, and the layers of its root as the tenant's ids see them.
//!
//! There are two user namespaces. The outer one maps 0 to the agent's id and 1 upwards to the
//! tenant's ids; the mount, network, process and ipc namespaces belong to it. The tenant lives in
//! the inner one, which maps ids 0, 1, … to the outer namespace's 1, 2, …, and leaves out the
//! agent's id. Root inside can therefore not name, signal, trace or become the agent. The agent
//! owns the inner namespace by its id, so it can act on tenants without any capability.
//!
//! The layers are shown under the tenant's ids by id-mapped mounts, so that nothing on disk is
//! copied or changed; those of the sandbox's own files and of layers of snapshots are mapped by
//! `file_ids`. The launcher makes a detached copy of each layer's mount and passes all of them to the
//! child, which mounts an overlay over those of the root, and for the host's programs another one
//! over those of `/usr`.

use super::file_ids::FileIds;
use crate::child::{StepError, at_step};
use crate::config::{AGENT_UID, TENANT_UIDS};
use crate::host::{Host, LAYERS_MAX};
use crate::kernel::id_map::{map_namespace, mount_ids};
use crate::kernel::mount::{attributes, clone_tree};
use crate::kernel::rooted::open_beneath;
use isolet_wire::launcher::{Spec, invalid_path};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The packet that carries the layers' descriptors.
const GO: &[u8; 2] = b"go";

/// Writes the child's id maps and sends it the layers.
///
/// Root of the sandbox's namespace is the agent's id, not the tenant's root: what the kernel gives
/// to "root of that namespace" (its settings, the `/proc` files of undumpable processes) is then
/// out of the tenant's reach. The tenant's ids follow it, and the tenant's own namespace maps them
/// to 0 and up again.
pub(super) fn send_layers(
    host: &Host,
    spec: &Spec,
    pid: i32,
    child: &OwnedFd,
) -> Result<(), StepError> {
    let first_id = host.config.first_id(spec.slot).map_err(at_step("map ids"))?;
    let agent_id = first_id + AGENT_UID;
    map_namespace(pid, &format!("0 {agent_id} 1\n1 {first_id} {TENANT_UIDS}"))
        .map_err(at_step("map ids"))?;
    let tenant_ids =
        mount_ids(&format!("0 {first_id} {TENANT_UIDS}")).map_err(at_step("map ids"))?;
    let mut places = part_trees(host, spec, "root")?;
    places.extend(part_trees(host, spec, "usr")?);
    if places.len() > LAYERS_MAX {
        return Err(StepError::new("layers", Errno::TOOBIG));
    }
    let mut trees = Vec::with_capacity(places.len());
    for place in &places {
        let missing = |errno: Errno| StepError::new(place.shown.clone(), errno);
        let tree = place.open().map_err(missing)?;
        match place.ids {
            Some(ids) => ids.map_read_only(tree.as_fd())?,
            None => {
                let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
                attributes::map_ids(tree.as_fd(), tenant_ids.as_fd(), flags).map_err(missing)?;
            }
        }
        trees.push(tree);
    }
    send_fds(child, &trees).map_err(at_step("send the layers"))
}

/// A directory that becomes a layer.
struct LayerPlace {
    /// The directory of all such layers, which is the operator's.
    root: PathBuf,
    /// The path below that directory, which comes from a record; empty for the directory itself.
    path: String,
    /// Whether only its directory `usr` is meant.
    only_usr: bool,
    /// The name in an error.
    shown: String,
    /// The ids on disk if it is a layer of a snapshot; others have those of the host.
    ids: Option<FileIds>,
}

impl LayerPlace {
    /// Makes a detached copy of its mount. Neither the path nor the content of a layer decides
    /// anything: a link on the path, and a `usr` that is not a directory, is an error.
    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.root, flags, Mode::empty())?;
        let mut layer = open_beneath(root.as_fd(), &self.path, OFlags::DIRECTORY)?;
        if self.only_usr {
            layer = open_beneath(layer.as_fd(), "usr", OFlags::DIRECTORY)?;
        }
        clone_tree(layer.as_fd(), Path::new(""), false)
    }
}

/// How many of the layers, from the first on, belong to the root; the others to `/usr`.
pub(super) fn root_layers(spec: &Spec) -> usize {
    spec.snapshot_layers.len() + spec.root.as_ref().map_or(1, |root| root.layers.len())
}

/// The layers of a part, the top one first: those of snapshots, below them those of the image, and
/// with the host's programs the synthetic tree or `/usr` at the bottom. Images have no part `usr`,
/// unless they lie on the host's programs: then it is the directory `usr` of each layer.
fn part_trees(host: &Host, spec: &Spec, part: &str) -> Result<Vec<LayerPlace>, StepError> {
    let mut all = Vec::new();
    let is_on_host = spec.root.as_ref().is_none_or(isolet_wire::launcher::Root::is_on_host);
    let only_usr = part == "usr";
    if only_usr && !is_on_host {
        return Ok(all);
    }
    for layer in &spec.snapshot_layers {
        let shown = format!("layer {:?} of a snapshot", layer.name);
        let root = host.config.snapshot_layers();
        let path = format!("{}/{part}", layer.name);
        let ids = FileIds::of_layer(&host.config, spec, layer).map_err(at_step("user ids"))?;
        all.push(LayerPlace { root, path, only_usr: false, shown, ids: Some(ids) });
    }
    if let Some(root) = &spec.root {
        if let Some(layer) = invalid_path(&root.layers, None) {
            return Err(StepError::new(format!("layer {layer:?}"), Errno::INVAL));
        }
        let own = &root.layers[..root.layers.len() - usize::from(is_on_host)];
        all.extend(own.iter().map(|layer| LayerPlace {
            root: host.config.images(),
            path: layer.clone(),
            only_usr,
            shown: format!("layer {layer}"),
            ids: None,
        }));
    }
    if is_on_host {
        let root = if only_usr { PathBuf::from("/usr") } else { host.skeleton.clone() };
        let shown = "trees of the host".to_owned();
        all.push(LayerPlace { root, path: String::new(), only_usr: false, shown, ids: None });
    }
    Ok(all)
}

fn send_fds(child: &OwnedFd, trees: &[OwnedFd]) -> Result<(), Errno> {
    let fds: Vec<_> = trees.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LAYERS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(child, &[IoSlice::new(GO)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Waits for the layers, in the child.
pub(super) fn receive_layers(launcher: &OwnedFd) -> Result<Vec<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LAYERS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0_u8; GO.len()];
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(launcher, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes != GO.len() {
        // The launcher died before it sent everything.
        return Err(Errno::CONNRESET);
    }
    let mut layers = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            layers.extend(fds);
        }
    }
    Ok(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: TP3.
    #[test]
    fn a_link_in_a_layer_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let layer = |usr: Option<&str>| {
            let root = tempfile::tempdir_in(folder.path()).unwrap().keep();
            match usr {
                Some(target) => std::os::unix::fs::symlink(target, root.join("usr")).unwrap(),
                None => std::fs::write(root.join("usr"), "").unwrap(),
            }
            let shown = "layer".to_owned();
            let path = String::new();
            LayerPlace { root, path, only_usr: true, shown, ids: None }.open().err()
        };
        for usr in [Some("/root"), Some("../../.."), None] {
            assert_eq!(layer(usr), Some(Errno::NOTDIR), "{usr:?}");
        }
    }

    /// Promises: F51.
    #[test]
    fn a_layer_is_opened_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let host = tempfile::tempdir().unwrap();
        std::fs::create_dir(host.path().join("tree")).unwrap();
        std::fs::create_dir_all(folder.path().join("layers/good/tree")).unwrap();
        std::fs::create_dir(folder.path().join("layers/last")).unwrap();
        let link = std::os::unix::fs::symlink::<&Path, _>;
        link(host.path(), folder.path().join("layers/first")).unwrap();
        link(host.path(), folder.path().join("layers/last/tree")).unwrap();
        let open = |path: &str| {
            let root = folder.path().to_owned();
            let path = path.to_owned();
            let shown = "layer".to_owned();
            LayerPlace { root, path, only_usr: false, shown, ids: None }.open().err()
        };
        assert_eq!(open("layers/good/tree"), None);
        assert_eq!(open("layers/first/tree"), Some(Errno::LOOP));
        assert_eq!(open("layers/last/tree"), Some(Errno::NOTDIR));
        assert_eq!(open("layers/../.."), Some(Errno::XDEV));
    }
}
