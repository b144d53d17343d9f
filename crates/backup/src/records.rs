//! Checks the records of a backup, which may be damaged or forged: the server takes file names, user
//! ids and paths from them.

use crate::archive::{Allowed, Layout};
use crate::error::Error;
use crate::manifest::{Content, FileEntry, Manifest, is_name};
use isolet_jail::{FILES_ID_BASE, SLOTS, UID_BASE, UIDS, is_id_base};
use isolet_store::backup::{Contents, SandboxSummary, SummaryLayer};
use isolet_wire::launcher::invalid_path;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The ids that the files of each sandbox in a backup have on disk.
pub(crate) struct FileIds {
    sandboxes: HashMap<String, Range<u32>>,
    layers: HashMap<String, Range<u32>>,
}

/// All ids that files of sandboxes may have, whatever the `uid_base` of the server that wrote the backup:
/// its slots are some of these.
fn all_ids() -> Vec<Range<u32>> {
    vec![FILES_ID_BASE..FILES_ID_BASE + UIDS, UID_BASE..UID_BASE + SLOTS * UIDS]
}

/// The ids of files on disk, from this first one; `None` if it is invalid.
fn ids_from(first: u32) -> Option<Range<u32>> {
    is_id_base(UID_BASE, first).then(|| first..first + UIDS)
}

/// What the archive of a sandbox may contain.
pub(crate) fn allowed_in_sandbox(sandbox: &SandboxSummary, restored_bytes: u64) -> Allowed {
    let ids = ids_from(sandbox.id_base).into_iter().collect();
    Allowed { layout: Layout::Sandbox, ids, restored_bytes }
}

/// What the archive of a sandbox without a record may contain.
pub(crate) fn allowed_in_orphan(restored_bytes: u64) -> Allowed {
    Allowed { layout: Layout::Sandbox, ids: all_ids(), restored_bytes }
}

impl FileIds {
    /// Checks records that were read from a backup. They must name exactly the sandboxes of its
    /// manifest, whose names are valid.
    pub(crate) fn check(manifest: &Manifest, contents: &Contents) -> Result<Self, Error> {
        let sandboxes = &contents.sandboxes;
        if contents.snapshots > 0 {
            let reason = "it has records of snapshots, whose files no backup contains".to_owned();
            return Err(Error::Refused { path: Content::Records.path(), reason });
        }
        let recorded: HashSet<&str> = sandboxes.iter().map(|one| one.name.as_str()).collect();
        let listed: HashSet<&str> =
            manifest.sandboxes.iter().map(|one| one.name.as_str()).collect();
        let mut archived = manifest.files.iter().filter_map(|file| match &file.content {
            Content::Sandbox { name } => Some(name.as_str()),
            _ => None,
        });
        if recorded != listed
            || recorded.len() != sandboxes.len()
            || archived.any(|name| !recorded.contains(name))
        {
            let reason = "it names other sandboxes than the manifest".to_owned();
            return Err(Error::Damaged { path: Content::Records.path(), reason });
        }
        let layers = check_layers(manifest, sandboxes)?;
        let mut all = HashMap::new();
        let mut used = HashSet::new();
        for sandbox in sandboxes {
            let ids = check_record(sandbox).and_then(|ids| match used.insert(sandbox.slot) {
                true => Ok(ids),
                false => Err("has the user ids of another sandbox".to_owned()),
            });
            let ids = ids.map_err(|reason| Error::Refused {
                path: Content::Records.path(),
                reason: format!("sandbox {:?} {reason}", sandbox.name),
            })?;
            all.insert(sandbox.name.clone(), ids);
        }
        Ok(Self { sandboxes: all, layers })
    }

    /// What an archive may contain.
    pub(crate) fn allowed(&self, file: &FileEntry) -> Allowed {
        let restored_bytes = file.restored_bytes;
        match &file.content {
            Content::Sandbox { name } => {
                let ids = self.sandboxes.get(name).cloned().into_iter().collect();
                Allowed { layout: Layout::Sandbox, ids, restored_bytes }
            }
            Content::Layer { name } => {
                let ids = self.layers.get(name).cloned().into_iter().collect();
                Allowed { layout: Layout::Layer, ids, restored_bytes }
            }
            Content::Orphan { .. } => allowed_in_orphan(restored_bytes),
            Content::Images => Allowed { layout: Layout::Images, ids: Vec::new(), restored_bytes },
            Content::Server | Content::Audit | Content::Records | Content::Secrets => {
                Allowed { layout: Layout::Server, ids: Vec::new(), restored_bytes }
            }
        }
    }
}

/// What the archive of a layer may contain.
pub(crate) fn allowed_in_layer(layer: &SummaryLayer, restored_bytes: u64) -> Allowed {
    let ids = ids_from(layer.id_base).into_iter().collect();
    Allowed { layout: Layout::Layer, ids, restored_bytes }
}

/// Checks the layers of snapshots: the records must name exactly those of the manifest. Returns the
/// ids of their files on disk.
fn check_layers(
    manifest: &Manifest,
    sandboxes: &[SandboxSummary],
) -> Result<HashMap<String, Range<u32>>, Error> {
    let path = || Content::Records.path();
    let mut all: HashMap<String, Range<u32>> = HashMap::new();
    for sandbox in sandboxes {
        for layer in &sandbox.snapshot_layers {
            let ids = ids_from(layer.id_base).filter(|_| is_layer_name(&layer.name));
            let fits = ids.filter(|ids| all.get(&layer.name).is_none_or(|known| known == ids));
            let ids = fits.ok_or_else(|| Error::Refused {
                path: path(),
                reason: format!("sandbox {:?} has the invalid layer {layer:?}", sandbox.name),
            })?;
            all.insert(layer.name.clone(), ids);
        }
    }
    let archived = manifest.files.iter().filter_map(|file| match &file.content {
        Content::Layer { name } => Some(name.as_str()),
        _ => None,
    });
    let archived: HashSet<&str> = archived.collect();
    if archived != all.keys().map(String::as_str).collect() {
        let reason = "it names other layers than the manifest".to_owned();
        return Err(Error::Damaged { path: path(), reason });
    }
    Ok(all)
}

/// Whether this is a name that the server gives to layers of snapshots.
fn is_layer_name(name: &str) -> bool {
    is_name(name) && !name.contains('.')
}

/// Checks the record of a sandbox, whatever others are beside it. Returns the ids of the sandbox's files
/// on disk.
///
/// # Errors
/// The part of a sentence behind the name of the sandbox.
pub(crate) fn check_record(sandbox: &SandboxSummary) -> Result<Range<u32>, String> {
    if sandbox.slot >= SLOTS {
        return Err(format!("has the invalid range {} of user ids", sandbox.slot));
    }
    let ids = ids_from(sandbox.id_base)
        .ok_or_else(|| format!("has files with the invalid user ids {}", sandbox.id_base))?;
    let has_root = !sandbox.layers.is_empty() || sandbox.workspace.is_some();
    let path = invalid_path(&sandbox.layers, sandbox.workspace.as_deref());
    if let Some(path) = path.filter(|_| has_root) {
        return Err(format!("has an image with the invalid path {path:?}"));
    }
    if let Some(name) = sandbox.moves.iter().find(|name| !is_plain(name)) {
        return Err(format!("has its files moved to the invalid path {name:?}"));
    }
    let invalid =
        |layer: &&SummaryLayer| !is_layer_name(&layer.name) || ids_from(layer.id_base).is_none();
    match sandbox.snapshot_layers.iter().find(invalid) {
        Some(layer) => Err(format!("has the invalid layer {layer:?}")),
        None => Ok(ids),
    }
}

/// Whether a name leads nowhere but into the directory that it is joined to.
fn is_plain(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_jail::first_id;

    fn sandbox() -> SandboxSummary {
        SandboxSummary {
            name: "a".to_owned(),
            tenant: "t".to_owned(),
            id: "a".to_owned(),
            slot: 0,
            id_base: FILES_ID_BASE,
            state: "running".to_owned(),
            persistent: true,
            credential_hosts: Vec::new(),
            image: "host".to_owned(),
            layers: Vec::new(),
            workspace: None,
            moves: Vec::new(),
            snapshot_layers: Vec::new(),
            sessions: 0,
        }
    }

    #[test]
    fn ranges_of_user_ids_end_below_the_ids_of_the_host() {
        let last = first_id(UID_BASE, SLOTS - 1).and_then(ids_from).unwrap();
        assert_eq!(last.end, all_ids().last().unwrap().end);
        let check = |slot| check_record(&SandboxSummary { slot, ..sandbox() });
        assert!(check(SLOTS - 1).is_ok());
        for slot in [SLOTS, 36_864, u32::MAX] {
            assert!(check(slot).is_err(), "{slot}");
        }
    }

    #[test]
    fn files_have_the_ids_of_their_record() {
        assert_eq!(ids_from(0), Some(0..UIDS));
        assert_eq!(ids_from(UID_BASE), Some(UID_BASE..UID_BASE + UIDS), "of a slot");
        for invalid in [1, 1000, UID_BASE - UIDS, u32::MAX] {
            assert_eq!(ids_from(invalid), None, "{invalid}");
        }
    }
}
