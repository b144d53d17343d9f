//! Archives are packed and extracted again, and hostile ones are refused.

use super::*;
use crate::archive::entry::FilePart;
use crate::archive::{ArchiveWriter, Tree, pack, read};
use crate::progress::{Progress, ProgressEvent};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};

struct Silent;

impl Progress for Silent {
    fn event(&self, _: &ProgressEvent) {}
    fn bytes(&self, _: u64) {}
}

fn packed(root: &Path) -> Vec<u8> {
    let no = |_: &[u8]| false;
    let tree = Tree { root, without: &no, empty: &no, live: false };
    let mut archive = ArchiveWriter::new(Vec::new());
    pack(&tree, &mut archive, &Silent).unwrap();
    archive.finish().unwrap()
}

fn extracted(bytes: &[u8], to: &Path) -> io::Result<u64> {
    let mut extractor = Extractor::new(to, 0o777)?;
    let entries = read(bytes, &mut extractor)?;
    extractor.finish()?;
    Ok(entries)
}

/// Everything about each file of a tree but its inode and the time of its last access.
fn describe(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    while let Some(path) = todo.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
        let first = names.entry(about.ino()).or_insert_with(|| format!("{name:?}")).clone();
        let content = match about.file_type() {
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
            kind if kind.is_file() => hex::encode(Sha256::digest(fs::read(&path).unwrap())),
            kind => {
                if kind.is_dir() {
                    todo.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
                }
                String::new()
            }
        };
        let mut list = vec![0; 4096];
        let count = rustix::fs::llistxattr(&path, list.as_mut_slice()).unwrap();
        let mut attributes = String::new();
        for name in list[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 4096];
            let count = rustix::fs::lgetxattr(&path, name, value.as_mut_slice()).unwrap();
            attributes.push_str(&format!("{name:?}={:?} ", &value[..count]));
        }
        let about = format!(
            "{:o} {} {} {} {} {} {}.{} {} {attributes} {first} {content}",
            about.mode(),
            about.uid(),
            about.gid(),
            about.nlink(),
            about.rdev(),
            about.len(),
            about.mtime(),
            about.mtime_nsec(),
            if about.is_file() { about.blocks() } else { 0 },
        );
        all.insert(name, about);
    }
    all
}

#[test]
fn every_property_of_a_file_comes_back() {
    let from = tempfile::tempdir().unwrap();
    let root = from.path();
    let deep = (0..300).fold(root.to_owned(), |path, _| path.join("d"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "x").unwrap();
    let odd = std::ffi::OsString::from_vec(b"odd \xff\n\x1b name".to_vec());
    fs::write(root.join(&odd), "odd").unwrap();
    fs::write(root.join("long".repeat(60)), "long").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("big"), vec![7u8; 1_000_001]).unwrap();
    fs::hard_link(root.join("big"), deep.join("again")).unwrap();
    symlink("/etc/passwd", root.join("link")).unwrap();
    symlink(OsStr::from_bytes(&[b'y'; 3000]), root.join("long link")).unwrap();
    fs::hard_link(root.join("link"), root.join("zlink")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 5 << 20).unwrap();
    sparse.set_len(40 << 20).unwrap();
    let hole = fs::File::create(root.join("hole")).unwrap();
    hole.set_len(64 << 20).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let white = root.join("white");
    rustix::fs::mknodat(rustix::fs::CWD, &white, FileType::CharacterDevice, Mode::empty(), 0)
        .unwrap();
    std::os::unix::fs::lchown(root.join("link"), Some(0x7001_0000), Some(0x7001_0007)).unwrap();
    for (name, mode) in [("empty", 0o4755), ("d", 0o2755), ("big", 0o000)] {
        std::os::unix::fs::chown(root.join(name), Some(0x7001_0000), Some(5)).unwrap();
        rustix::fs::chmod(root.join(name), Mode::from_raw_mode(mode)).unwrap();
    }
    let attribute = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::lsetxattr(root.join(name), key, value, XattrFlags::empty()).unwrap();
    };
    attribute("big", "user.note", b"a\nb=\0\xff");
    attribute("d", "trusted.overlay.opaque", b"y");
    attribute("link", "trusted.note", b"on a link");
    // cap_net_raw=ep in a namespace whose root is 0x70010000.
    let mut capability = vec![1, 0, 0, 3, 0, 0x20, 0, 0];
    capability.extend([0; 12]);
    capability.extend(0x7001_0000_u32.to_le_bytes());
    attribute("empty", "security.capability", &capability);
    // An access list of the user 1000 (rwx), which the directory also gives to new files.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, rights, id) in [
        (1u16, 7u16, u32::MAX),
        (2, 7, 1000),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 5, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    attribute("d", "system.posix_acl_access", &acl);
    attribute("d", "system.posix_acl_default", &acl);
    let time = Timespec { tv_sec: -77, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    for name in ["link", "sparse", "d", "fifo"] {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, root.join(name), &times, flags).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let bytes = packed(root);
    assert!(bytes.len() < 8 << 20, "holes are not packed: {} bytes", bytes.len());
    let to = tempfile::tempdir().unwrap();
    extracted(&bytes, to.path()).unwrap();
    fs::remove_file(root.join("socket")).unwrap();
    let mut before = describe(root);
    let mut after = describe(to.path());
    // Removing the socket changed the time of the root.
    before.remove(&Vec::new());
    after.remove(&Vec::new());
    for (name, about) in &before {
        assert_eq!(after.get(name), Some(about), "{:?}", String::from_utf8_lossy(name));
    }
    assert_eq!(before.len(), after.len());
    let tar = tempfile::tempdir().unwrap();
    fs::write(tar.path().join("a.tar"), &bytes).unwrap();
    let mut other = std::process::Command::new("tar");
    let other =
        other.args(["--xattrs", "--xattrs-include=*", "-xpf", "a.tar"]).current_dir(tar.path());
    let done = other.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(fs::metadata(tar.path().join("sparse")).unwrap().len(), 40 << 20);
    assert_eq!(fs::read(tar.path().join(&odd)).unwrap(), b"odd");
}

fn entry(path: &str, kind: Kind) -> Entry {
    Entry {
        path: path.into(),
        kind,
        attributes: Attributes { mode: 0o755, ..Attributes::default() },
    }
}

fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut archive = ArchiveWriter::new(Vec::new());
    for entry in entries {
        archive.entry(entry).unwrap();
        if let Kind::File { length, .. } = &entry.kind {
            archive.data(&vec![b'x'; usize::try_from(*length).unwrap()]).unwrap();
        }
    }
    archive.finish().unwrap()
}

fn file() -> Kind {
    Kind::File { length: 3, parts: None }
}

#[test]
fn an_archive_writes_nothing_outside_and_replaces_nothing() {
    let link = |to: &str| Kind::Symlink { target: to.into() };
    let hard = |to: &str| Kind::HardLink { to: to.into() };
    let cases: [Vec<Entry>; 10] = [
        vec![entry("../out", file())],
        vec![entry("/out", file())],
        vec![entry("a/../../out", file())],
        vec![entry("a", link("..")), entry("a/out", file())],
        vec![entry("a", link("/")), entry("a", Kind::Directory), entry("a/out", file())],
        vec![entry("a", link("../out")), entry("a", file())],
        vec![entry("a", file()), entry("a", file())],
        vec![entry("a", hard("../kept"))],
        vec![entry("a", link("..")), entry("b", hard("a/kept"))],
        vec![entry("missing/a", file())],
    ];
    for (number, entries) in cases.iter().enumerate() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("kept"), "kept").unwrap();
        let to = top.path().join("to");
        fs::create_dir(&to).unwrap();
        assert!(extracted(&archive(entries), &to).is_err(), "case {number}");
        let names = fs::read_dir(top.path()).unwrap().count();
        assert_eq!((names, fs::read(top.path().join("kept")).unwrap()), (2, b"kept".to_vec()));
        assert_eq!(fs::metadata(top.path().join("kept")).unwrap().nlink(), 1, "case {number}");
    }
}

#[test]
fn an_archive_that_is_cut_or_changed_anywhere_is_refused_or_reads_as_it_is() {
    let parts = vec![FilePart { offset: 4096, length: 3 }];
    let sparse = entry("s", Kind::File { length: 9000, parts: Some(parts) });
    let mut archived = ArchiveWriter::new(Vec::new());
    archived.entry(&entry("d", Kind::Directory)).unwrap();
    archived.entry(&sparse).unwrap();
    archived.data(b"abc").unwrap();
    let bytes = archived.finish().unwrap();
    for end in 0..bytes.len() {
        let to = tempfile::tempdir().unwrap();
        assert!(extracted(&bytes[..end], to.path()).is_err(), "cut after {end} bytes");
    }
    let more = [&bytes[..], &[0; 1]].concat();
    assert!(extracted(&more, tempfile::tempdir().unwrap().path()).is_err());
    for at in (0..bytes.len()).step_by(3) {
        let mut other = bytes.clone();
        other[at] ^= 0x15;
        let top = tempfile::tempdir().unwrap();
        let to = top.path().join("to");
        fs::create_dir(&to).unwrap();
        // It must not panic or write elsewhere; the hash in the manifest finds every change.
        let _ = extracted(&other, &to);
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 1, "byte {at}");
    }
}

#[test]
fn devices_are_refused() {
    let mut bytes = archive(&[entry("a", Kind::Whiteout)]);
    let header = bytes.len() - 3 * 512;
    let mut device = tar::Header::from_byte_slice(&bytes[header..header + 512]).clone();
    device.set_device_major(1).unwrap();
    device.set_device_minor(3).unwrap();
    device.set_cksum();
    bytes[header..header + 512].copy_from_slice(device.as_bytes());
    let to = tempfile::tempdir().unwrap();
    assert!(extracted(&bytes, to.path()).is_err());
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
}
