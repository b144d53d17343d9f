//! What an archive of a backup may contain. What Isolet writes stays within it. Without this check, a
//! forged archive could place programs with the rights of the host's root, name processes that the
//! server ends, or contain links by which the server reads and writes elsewhere.

use super::entry::{Attributes, Entry, Kind};
use super::read::Sink;
use super::tree::ENTRY_BYTES;
use std::io;
use std::ops::Range;

/// Files in the directory of a sandbox that name or serve its processes, and that the launcher writes
/// at each start. No archive contains them.
pub(crate) const PROCESS_FILES: [&[u8]; 6] =
    [b"agent.sock", b"cgroups", b"agent", b"meminfo", b"scopes", b"unclaimed"];
/// Directories of a sandbox that only its own processes use.
const TENANT_FILES: [&[u8]; 3] = [b"root/upper/", b"usr/upper/", b"workspace/"];
/// Directories of a layer of a snapshot.
const PARTS: [&[u8]; 2] = [b"root", b"usr"];
/// The attribute that gives a program rights.
const CAPABILITY: &[u8] = b"security.capability";
/// Bytes by which an archive may exceed the size in its manifest.
const SPARE_BYTES: u64 = 1024 * 1024;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

/// Which directory an archive contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The directory of a sandbox.
    Sandbox,
    /// A layer of a snapshot: what sandboxes changed.
    Layer,
    /// Images, which only root may enter: they contain files of any owner.
    Images,
    /// Directories and files of the server.
    Server,
}

/// What an archive may contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) layout: Layout,
    /// The ids on disk of the tenants whose files it contains.
    pub(crate) ids: Vec<Range<u32>>,
    /// Space that the manifest says it needs, in bytes.
    pub(crate) restored_bytes: u64,
}

impl Allowed {
    fn check(&self, entry: &Entry) -> Result<(), &'static str> {
        let path = entry.path.as_slice();
        if self.layout == Layout::Sandbox && PROCESS_FILES.contains(&first(path)) {
            return Err("the server creates this file");
        }
        if self.layout == Layout::Layer && !is_in_layer(entry) {
            return Err("a layer of a snapshot has nothing here");
        }
        if let Kind::HardLink { to } = &entry.kind
            && !self.is_tenants(to)
        {
            return Err("it is a link to a file of the server");
        }
        let plain = matches!(entry.kind, Kind::Directory | Kind::File { .. });
        if !plain && !self.is_tenants(path) {
            return Err("only a directory or a regular file may be here");
        }
        // A symbolic link has no rights, and the root gets other attributes.
        if matches!(entry.kind, Kind::Symlink { .. }) || path.is_empty() {
            return Ok(());
        }
        self.check_owner(entry)
    }

    fn has_id(&self, id: u32) -> bool {
        self.ids.iter().any(|ids| ids.contains(&id))
    }

    /// Whether only processes in a sandbox follow links at this path.
    fn is_tenants(&self, path: &[u8]) -> bool {
        match self.layout {
            Layout::Sandbox => TENANT_FILES.iter().any(|folder| path.starts_with(folder)),
            Layout::Layer => PARTS.contains(&first(path)) && path.contains(&b'/'),
            Layout::Images => {
                let parts: Vec<&[u8]> = path.splitn(4, |byte| *byte == b'/').collect();
                matches!(parts[..], [b"layers", _, b"tree", _] | [b"frames", _, _, ..])
            }
            Layout::Server => false,
        }
    }

    /// On disk, ids of tenants may be those of users of the host. Programs with rights may therefore
    /// be only where no user of the host reaches them: among the files of a tenant.
    fn check_owner(&self, entry: &Entry) -> Result<(), &'static str> {
        let Attributes { mode, uid, gid, .. } = entry.attributes;
        match self.layout {
            Layout::Images => return Ok(()),
            Layout::Sandbox | Layout::Layer if !self.has_id(uid) && uid != 0 => {
                return Err("it belongs to another user");
            }
            Layout::Sandbox | Layout::Layer | Layout::Server => {}
        }
        let is_tenants = self.is_tenants(&entry.path);
        let is_of_host = |id: u32| !is_tenants || !self.has_id(id);
        let sets_user = mode & SET_USER_ID != 0 && is_of_host(uid);
        let sets_group = mode & SET_GROUP_ID != 0 && is_of_host(gid);
        if entry.kind != Kind::Directory && (sets_user || sets_group) {
            return Err("it would run with the rights of a user of the host");
        }
        let extended = &entry.attributes.extended;
        let mut capabilities = extended.iter().filter(|one| one.name == CAPABILITY);
        match capabilities.all(|one| root_id(&one.value).is_some_and(|id| !is_of_host(id))) {
            true => Ok(()),
            false => Err("it would run with capabilities of the host"),
        }
    }
}

/// Whether an entry of a layer of a snapshot is one of its parts, or is in one.
fn is_in_layer(entry: &Entry) -> bool {
    let is_in_part = PARTS.contains(&first(&entry.path)) && entry.path.contains(&b'/');
    is_in_part
        || entry.kind == Kind::Directory
            && (entry.path.is_empty() || PARTS.contains(&entry.path.as_slice()))
}

/// The first part of a path.
fn first(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').next().unwrap_or_default()
}

/// The root of the user namespace that capabilities of a file are limited to. The kernel shows those
/// of id 0 in the earlier revision, which has no such id.
fn root_id(capability: &[u8]) -> Option<u32> {
    const REVISION_2: u8 = 2;
    const REVISION_3: u8 = 3;
    const BYTES_2: usize = 20;
    match (capability.get(3)?, capability.split_at_checked(BYTES_2)?.1) {
        (&REVISION_2, []) => Some(0),
        (&REVISION_3, &[a, b, c, d]) => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

/// Passes entries on that are allowed, and stops at the first other one.
pub(crate) struct AllowedSink<'a> {
    allowed: Allowed,
    left: u64,
    to: &'a mut dyn Sink,
}

impl<'a> AllowedSink<'a> {
    pub(crate) fn new(allowed: Allowed, to: &'a mut dyn Sink) -> Self {
        let left = allowed.restored_bytes.saturating_add(SPARE_BYTES);
        Self { allowed, left, to }
    }

    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left =
            left.ok_or_else(|| refused("it is longer than its manifest says".to_owned()))?;
        Ok(())
    }
}

fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl Sink for AllowedSink<'_> {
    fn entry(&mut self, entry: Entry) -> io::Result<()> {
        self.allowed.check(&entry).map_err(|reason| {
            refused(format!("{:?}: {reason}", String::from_utf8_lossy(&entry.path)))
        })?;
        self.take(ENTRY_BYTES)?;
        self.to.entry(entry)
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.take(bytes.len() as u64)?;
        self.to.data(offset, bytes)
    }

    fn end_of_file(&mut self) -> io::Result<()> {
        self.to.end_of_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::entry::Attribute;

    const FIRST: u32 = 0x7001_0000;

    fn entry(path: &str, kind: Kind, mode: u32, uid: u32) -> Entry {
        let attributes = Attributes { mode, uid, gid: uid, ..Attributes::default() };
        Entry { path: path.into(), kind, attributes }
    }

    fn allowed(layout: Layout) -> Allowed {
        Allowed { layout, ids: std::iter::once(FIRST..FIRST + 65_536).collect(), restored_bytes: 0 }
    }

    fn file() -> Kind {
        Kind::File { length: 0, parts: None }
    }

    #[test]
    fn a_forged_archive_gives_no_rights_on_the_host() {
        let link = || Kind::Symlink { target: b"/etc".to_vec() };
        let hard = || Kind::HardLink { to: b"workspace/a".to_vec() };
        let sandbox = allowed(Layout::Sandbox);
        let good = [
            entry("", Kind::Directory, 0o777, 5),
            entry("workspace/a", file(), 0o6755, FIRST),
            entry("workspace/link", link(), 0o777, 0),
            entry("root/upper/b", hard(), 0o644, FIRST + 65_535),
            entry("root/upper/etc", Kind::Whiteout, 0, 0),
            entry("given/ca.pem", file(), 0o644, 0),
        ];
        for entry in good {
            assert_eq!(sandbox.check(&entry), Ok(()), "{entry:?}");
        }
        let bad = [
            entry("workspace/a", file(), 0o4755, 0),
            entry("workspace/a", file(), 0o2755, 0),
            entry("workspace/a", file(), 0o755, 1000),
            entry("workspace/a", file(), 0o755, FIRST - 1),
            entry("workspace/a", file(), 0o755, FIRST + 65_536),
            entry("given", link(), 0o777, FIRST),
            entry("disk.img", link(), 0o777, 0),
            entry("root/upper", link(), 0o777, FIRST),
            entry("given/hosts", hard(), 0o644, 0),
            entry("cgroups", file(), 0o644, 0),
            entry("meminfo", file(), 0o444, 0),
            entry("given/program", file(), 0o4755, FIRST),
            entry("scopes/x/agent.sock", file(), 0o644, 0),
        ];
        for entry in bad {
            assert!(sandbox.check(&entry).is_err(), "{entry:?}");
        }
        let server = allowed(Layout::Server);
        assert!(server.check(&entry("identity", file(), 0o4755, 0)).is_err());
        assert!(server.check(&entry("identity", link(), 0o777, 0)).is_err());
        let images = allowed(Layout::Images);
        assert!(images.check(&entry("layers/a/tree/bin/su", file(), 0o4755, 0)).is_ok());
        assert!(images.check(&entry("layers/a/tree/bin", link(), 0o777, 0)).is_ok());
        assert!(images.check(&entry("layers/a", link(), 0o777, 0)).is_err());
    }

    /// The server follows what lies above the files of a layer: a link there would show files of the host
    /// to sandboxes, or let the server write over them.
    ///
    /// Promises: F48.
    #[test]
    fn a_forged_archive_has_links_only_among_the_files_of_sandboxes() {
        let link = || Kind::Symlink { target: b"/etc".to_vec() };
        let hard = |to: &str| Kind::HardLink { to: to.into() };
        let images = allowed(Layout::Images);
        for path in ["layers/a/tree", "layers/a/of/t", "layers/a/stats.json", "known/a.json"] {
            assert!(images.check(&entry(path, link(), 0o777, 0)).is_err(), "{path}");
        }
        assert!(images.check(&entry("frames/2-own/bin", link(), 0o777, 0)).is_ok());
        assert!(images.check(&entry("frames/2-own", link(), 0o777, 0)).is_err());
        let sandbox = allowed(Layout::Sandbox);
        assert!(sandbox.check(&entry("workspace/a", hard("workspace/b"), 0, FIRST)).is_ok());
        for to in ["layers", "disk.img", "given/hosts"] {
            assert!(sandbox.check(&entry("workspace/a", hard(to), 0, FIRST)).is_err(), "{to}");
        }
        assert!(images.check(&entry("layers/a/tree/x", hard("known/a.json"), 0, 0)).is_err());
        let layer = allowed(Layout::Layer);
        assert!(layer.check(&entry("root", Kind::Directory, 0o755, FIRST)).is_ok());
        assert!(layer.check(&entry("taken-from.a", file(), 0o644, 0)).is_err());
        assert!(layer.check(&entry("root", file(), 0o644, 0)).is_err());
    }

    #[test]
    fn files_with_ids_from_0_on_have_rights_only_among_the_files_of_a_tenant() {
        let ids = std::iter::once(0..65_536).collect();
        let sandbox = Allowed { layout: Layout::Sandbox, ids, restored_bytes: 0 };
        let mut with_capability = entry("workspace/c", file(), 0o755, 0);
        let value = [&[1, 0, 0, 3][..], &[0; 20]].concat();
        with_capability.attributes.extended = vec![Attribute { name: CAPABILITY.to_vec(), value }];
        let mut in_revision_2 = with_capability.clone();
        in_revision_2.attributes.extended[0].value = [&[1, 0, 0, 2][..], &[0; 16]].concat();
        let good = [
            entry("workspace/a", file(), 0o6755, 0),
            entry("root/upper/usr/bin/b", file(), 0o4755, 65_535),
            entry("given/ca.pem", file(), 0o644, 0),
            with_capability.clone(),
            in_revision_2.clone(),
        ];
        for entry in good {
            assert_eq!(sandbox.check(&entry), Ok(()), "{entry:?}");
        }
        let bad = [
            entry("workspace/a", file(), 0o4755, 65_536),
            entry("given/a", file(), 0o4755, 0),
            entry("given/a", file(), 0o2755, 0),
            entry("workspace", file(), 0o4755, 0),
            Entry { path: b"given/c".to_vec(), ..with_capability },
            Entry { path: b"given/c".to_vec(), ..in_revision_2 },
        ];
        for entry in bad {
            assert!(sandbox.check(&entry).is_err(), "{entry:?}");
        }
    }

    #[test]
    fn capabilities_are_those_of_the_own_namespace() {
        let mut own = vec![1, 0, 0, 3, 0, 0x20, 0, 0];
        own.extend([0; 12]);
        own.extend(FIRST.to_le_bytes());
        let mut of_host = own.clone();
        of_host[20..].fill(0);
        let revision_2 = [&[1, 0, 0, 2][..], &[0; 16]].concat();
        for (value, good) in [(own, true), (of_host, false), (revision_2, false)] {
            let mut one = entry("workspace/a", file(), 0o755, FIRST);
            one.attributes.extended = vec![Attribute { name: CAPABILITY.to_vec(), value }];
            assert_eq!(allowed(Layout::Sandbox).check(&one).is_ok(), good);
        }
    }

    #[test]
    fn an_archive_ends_at_the_size_of_its_manifest() {
        let mut nothing = crate::verify::Nothing;
        let mut sink = AllowedSink::new(allowed(Layout::Sandbox), &mut nothing);
        let bytes = vec![0; 64 * 1024];
        let count = (0..100).take_while(|_| sink.data(0, &bytes).is_ok()).count();
        assert_eq!(count, 16, "1 MiB more than the manifest says");
    }
}
