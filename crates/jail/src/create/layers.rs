//! The id maps of a sandbox, and the layers of its root as the tenant's ids see them.
//!
//! There are two user namespaces. The outer one maps 0 to the agent's id and 1 upwards to the
//! tenant's ids; the mount, network, process and ipc namespaces belong to it. The tenant lives in
//! the inner one, which maps ids 0, 1, … to the outer namespace's 1, 2, …, and leaves out the
//! agent's id. Root inside can therefore not name, signal, trace or become the agent. The agent
//! owns the inner namespace by its id, so it can act on tenants without any capability.
//!
//! The layers are shown under the tenant's ids by id-mapped mounts, so that nothing on disk is
//! copied or changed; those of the sandbox's own files are mapped by `file_ids`. For an image, the launcher makes a detached copy of each layer's mount and
//! passes all of them to the child, which mounts one overlay over them.

use crate::child::{StepError, at_step};
use crate::config::{AGENT_UID, TENANT_UIDS};
use crate::host::{Host, LAYERS_MAX};
use crate::kernel::id_map::{map_namespace, mount_ids};
use crate::kernel::mount::{attributes, clone_tree};
use crate::kernel::rooted::open_beneath;
use isolet_wire::launcher::Spec;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

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
    let layers = layers_of(host, spec)?;
    if layers.len() > LAYERS_MAX {
        return Err(StepError::new("layers", Errno::TOOBIG));
    }
    let mut trees = Vec::with_capacity(layers.len());
    for layer in &layers {
        let missing = |errno: Errno| StepError::new(layer.name.clone(), errno);
        let tree = layer.open().map_err(missing)?;
        let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
        attributes::map_ids(tree.as_fd(), tenant_ids.as_fd(), flags).map_err(missing)?;
        trees.push(tree);
    }
    send_fds(child, &trees).map_err(at_step("send the layers"))
}

/// A layer, or its directory `usr`.
struct Layer {
    path: PathBuf,
    only_usr: bool,
    /// Its name in an error.
    name: String,
}

impl Layer {
    /// Makes a detached copy of its mount. The content of a layer decides nothing: a `usr` that is
    /// not a directory is an error.
    fn open(&self) -> Result<OwnedFd, Errno> {
        if !self.only_usr {
            return clone_tree(CWD, &self.path, false);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let layer = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let usr = open_beneath(layer.as_fd(), "usr", OFlags::DIRECTORY)?;
        clone_tree(usr.as_fd(), Path::new(""), false)
    }
}

/// The top layer first. With the host's programs, those of the root up to the synthetic tree are
/// followed by as many of `/usr`.
fn layers_of(host: &Host, spec: &Spec) -> Result<Vec<Layer>, StepError> {
    let of_host = |path: PathBuf| Layer { path, only_usr: false, name: "trees of the host".into() };
    let skeleton = || of_host(host.skeleton.clone());
    let usr = || of_host(PathBuf::from("/usr"));
    let Some(root) = &spec.root else { return Ok(vec![skeleton(), usr()]) };
    let is_on_host = root.is_on_host();
    let own = &root.layers[..root.layers.len() - usize::from(is_on_host)];
    if let Some(layer) = own.iter().find(|layer| !is_below(layer)) {
        return Err(StepError::new(format!("layer {layer:?}"), Errno::INVAL));
    }
    let all = |only_usr: bool| {
        own.iter().map(move |layer| Layer {
            path: host.config.images().join(layer),
            only_usr,
            name: format!("layer {layer}"),
        })
    };
    if !is_on_host {
        return Ok(all(false).collect());
    }
    Ok(all(false).chain([skeleton()]).chain(all(true)).chain([usr()]).collect())
}

/// Whether a path from a record leads nowhere but below the directory that it is joined to.
fn is_below(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
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
            let path = tempfile::tempdir_in(folder.path()).unwrap().keep();
            match usr {
                Some(target) => std::os::unix::fs::symlink(target, path.join("usr")).unwrap(),
                None => std::fs::write(path.join("usr"), "").unwrap(),
            }
            Layer { path, only_usr: true, name: "layer".to_owned() }.open().err()
        };
        for usr in [Some("/root"), Some("../../.."), None] {
            assert_eq!(layer(usr), Some(Errno::NOTDIR), "{usr:?}");
        }
    }

    #[test]
    fn layers_outside_of_the_images_are_refused() {
        assert!(is_below("layers/0123/tree") && is_below("frames/1-own"));
        for bad in ["", "/root", "../../../../root", "layers/../../root", "./layers"] {
            assert!(!is_below(bad), "{bad}");
        }
    }
}
