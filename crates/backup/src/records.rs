//! Checks the records of a backup, which may be damaged or forged: the server takes file names, user
//! ids and paths from them.

use crate::archive::{Allowed, Layout};
use crate::error::Error;
use crate::manifest::{Content, FileEntry, Manifest};
use isolet_jail::{SLOTS, UID_BASE, UIDS};
use isolet_store::backup::SandboxSummary;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Directories of images that contain layers.
const LAYERS: [&str; 2] = ["layers", "frames"];

/// The uid ranges of the sandboxes in a backup.
pub(crate) struct Slots(HashMap<String, u32>);

/// All ids that sandboxes have.
fn all_ids() -> Range<u32> {
    UID_BASE..UID_BASE + SLOTS * UIDS
}

/// The ids of a sandbox; none if its slot is invalid.
fn ids(slot: u32) -> Range<u32> {
    if slot >= SLOTS {
        return 0..0;
    }
    let first = UID_BASE + slot * UIDS;
    first..first + UIDS
}

/// What the archive of a sandbox may contain.
pub(crate) fn allowed_in_sandbox(slot: u32, restored_bytes: u64) -> Allowed {
    Allowed { layout: Layout::Sandbox, ids: ids(slot), restored_bytes }
}

/// What the archive of a sandbox without a record may contain.
pub(crate) fn allowed_in_orphan(restored_bytes: u64) -> Allowed {
    Allowed { layout: Layout::Sandbox, ids: all_ids(), restored_bytes }
}

impl Slots {
    /// Checks records that were read from a backup. They must name exactly the sandboxes of its
    /// manifest, whose names are valid.
    pub(crate) fn check(manifest: &Manifest, sandboxes: &[SandboxSummary]) -> Result<Self, Error> {
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
        let mut slots = HashMap::new();
        let mut used = HashSet::new();
        for sandbox in sandboxes {
            check_one(sandbox, &mut used).map_err(|reason| Error::Refused {
                path: Content::Records.path(),
                reason: format!("sandbox {:?} {reason}", sandbox.name),
            })?;
            slots.insert(sandbox.name.clone(), sandbox.slot);
        }
        Ok(Self(slots))
    }

    /// What an archive may contain.
    pub(crate) fn allowed(&self, file: &FileEntry) -> Allowed {
        let restored_bytes = file.restored_bytes;
        match &file.content {
            Content::Sandbox { name } => {
                let ids = self.0.get(name).map_or(0..0, |slot| ids(*slot));
                Allowed { layout: Layout::Sandbox, ids, restored_bytes }
            }
            Content::Orphan { .. } => allowed_in_orphan(restored_bytes),
            Content::Images => Allowed { layout: Layout::Images, ids: 0..0, restored_bytes },
            Content::Server | Content::Audit | Content::Records | Content::Secrets => {
                Allowed { layout: Layout::Server, ids: 0..0, restored_bytes }
            }
        }
    }
}

fn check_one(sandbox: &SandboxSummary, used: &mut HashSet<u32>) -> Result<(), String> {
    if sandbox.slot >= SLOTS || !used.insert(sandbox.slot) {
        return Err(format!("has the invalid range {} of user ids", sandbox.slot));
    }
    match sandbox.layers.iter().find(|layer| !is_layer(layer)) {
        Some(layer) => Err(format!("has the invalid layer {layer:?}")),
        None => Ok(()),
    }
}

/// Whether this is a path that the server gives to layers.
fn is_layer(path: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(known);
    let Some((folder, rest)) = path.split_once('/') else { return false };
    LAYERS.contains(&folder) && rest.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox() -> SandboxSummary {
        SandboxSummary {
            name: "a".to_owned(),
            tenant: "t".to_owned(),
            id: "a".to_owned(),
            slot: 0,
            state: "running".to_owned(),
            persistent: true,
            credential_hosts: Vec::new(),
            image: "host".to_owned(),
            layers: Vec::new(),
            sessions: 0,
        }
    }

    #[test]
    fn ranges_of_user_ids_end_below_the_ids_of_the_host() {
        let last = ids(SLOTS - 1);
        assert_eq!(last.end, all_ids().end);
        let check = |slot| check_one(&SandboxSummary { slot, ..sandbox() }, &mut HashSet::new());
        assert!(check(SLOTS - 1).is_ok());
        for slot in [SLOTS, 36_864, u32::MAX] {
            assert!(check(slot).is_err(), "{slot}");
        }
        let mut used = HashSet::from([0]);
        assert!(check_one(&sandbox(), &mut used).is_err(), "two sandboxes with one range");
    }

    #[test]
    fn layers_are_below_the_images() {
        for good in ["layers/0123abcd/tree", "frames/1-usr-bin"] {
            assert!(is_layer(good), "{good}");
        }
        for bad in
            ["", "layers", "layers/", "../../../../root", "layers/../../../root", "/root", "x/y"]
        {
            assert!(!is_layer(bad), "{bad}");
        }
    }
}
