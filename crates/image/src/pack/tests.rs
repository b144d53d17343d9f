//! Trees as a tenant might leave them, packed and unpacked again.

use super::*;
use crate::disk::free_space::FreeSpace;
use crate::unpack::{self, Budget};
use rustix::fs::{CWD, XattrFlags};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

const BUDGET: Budget = Budget { compressed_bytes: 1 << 30, bytes: 1 << 30, entries: 10_000 };

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, DIRECTORY, Mode::empty()).expect("opens")
}

fn pack(root: &Path, workspace: Option<&Path>) -> Result<(Vec<u8>, Packed), Error> {
    let mut packer = Packer::new(Vec::new(), 0, 10_000);
    let without = &["usr", "proc"];
    packer.tree(&layer(&[open(root)], without))?;
    if let Some(workspace) = workspace {
        packer.tree(&SourceTree {
            directories: &[open(workspace)],
            prefix: "workspace",
            is_layer: false,
            without: &[],
            replaces: true,
        })?;
    }
    packer.finish()
}

fn layer<'a>(directories: &'a [OwnedFd], without: &'static [&'static str]) -> SourceTree<'a> {
    SourceTree { directories, prefix: "", is_layer: true, without, replaces: false }
}

fn unpack(tar: &[u8], to: &Path) {
    fs::create_dir(to).expect("makes");
    let free_space = FreeSpace::new(to.to_owned(), 0);
    let tree = open(to);
    unpack::layer(tar, Some(tree.as_fd()), BUDGET, &free_space, None).expect("unpacks");
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).expect("sets");
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).ok()?;
    value.truncate(length);
    Some(value)
}

fn node(path: &Path, kind: FileType, device: u64) {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device).expect("makes");
}

/// Promises: TP3.
#[test]
fn a_layer_has_what_an_image_can_have_and_nothing_else() {
    let folder = tempfile::tempdir().expect("makes");
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("etc/deep")).expect("makes");
    fs::create_dir_all(root.join("usr/bin")).expect("makes");
    fs::create_dir_all(root.join("gone/below")).expect("makes");
    fs::write(root.join("usr/bin/left-out"), "x").expect("writes");
    fs::write(root.join("etc/file"), "text").expect("writes");
    let long = root.join("etc").join("n".repeat(200));
    fs::write(&long, "long").expect("writes");
    fs::hard_link(root.join("etc/file"), root.join("etc/hard")).expect("links");
    symlink("/etc/shadow", root.join("etc/out")).expect("links");
    symlink("./a//../".to_owned() + &"t".repeat(150), root.join("etc/odd")).expect("links");
    fs::set_permissions(root.join("etc/file"), fs::Permissions::from_mode(0o4755)).expect("sets");
    rustix::fs::chownat(
        CWD,
        root.join("etc/deep"),
        rustix::fs::Uid::from_raw(1000).into(),
        rustix::fs::Gid::from_raw(70_000).into(),
        AtFlags::empty(),
    )
    .expect("chowns");
    set(&root.join("etc/file"), "user.note", b"kept");
    set(&root.join("etc/file"), "user.a=b", b"left out");
    set(&root.join("etc/file"), "user.overlay.origin", b"left out");
    set(&root.join("etc/file"), "trusted.overlay.opaque", b"y");
    let capability = [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    set(&root.join("etc/file"), "security.capability", &capability);
    set(&root.join("gone"), OPAQUE, b"y");
    node(&root.join("etc/deleted"), FileType::CharacterDevice, 0);
    node(&root.join("etc/null"), FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    node(&root.join("etc/disk"), FileType::BlockDevice, rustix::fs::makedev(7, 0));
    node(&root.join("etc/socket"), FileType::Socket, 0);
    node(&root.join("etc/pipe"), FileType::Fifo, 0);
    fs::write(root.join("etc/.wh.passwd"), "").expect("writes");
    fs::write(root.join("etc/.wh..wh..opq"), "").expect("writes");
    let (tar, packed) = pack(&root, None).expect("packs");
    // An attribute, three nodes, and two names.
    assert_eq!(packed.skipped, 6);
    let to = folder.path().join("unpacked");
    unpack(&tar, &to);
    let about = |name: &str| fs::symlink_metadata(to.join(name)).expect(name);
    assert_eq!(fs::read(to.join("etc/file")).expect("reads"), b"text");
    assert_eq!(about("etc/file").mode() & 0o7777, 0o4755);
    assert_eq!(about("etc/file").ino(), about("etc/hard").ino());
    assert_eq!(fs::read(to.join("etc").join("n".repeat(200))).expect("reads"), b"long");
    let target = |name: &str| fs::read_link(to.join(name)).expect("reads");
    assert_eq!(target("etc/out"), Path::new("/etc/shadow"));
    assert_eq!(target("etc/odd").to_str(), Some(&*("./a//../".to_owned() + &"t".repeat(150))));
    assert_eq!((about("etc/deep").uid(), about("etc/deep").gid()), (1000, NOBODY));
    assert_eq!(get(&to.join("etc/file"), "user.note").as_deref(), Some(&b"kept"[..]));
    for name in ["user.a=b", "user.overlay.origin", "security.capability"] {
        assert_eq!(get(&to.join("etc/file"), name), None, "{name}");
    }
    assert_eq!(get(&to.join("gone"), OPAQUE).as_deref(), Some(&b"y"[..]));
    assert_eq!(get(&to.join("etc"), OPAQUE), None, "a file of that name is no mark");
    let kind = |name: &str| FileType::from_raw_mode(about(name).mode());
    assert_eq!(kind("etc/deleted"), FileType::CharacterDevice);
    assert_eq!(about("etc/deleted").rdev(), 0);
    assert_eq!(kind("etc/pipe"), FileType::Fifo);
    for name in ["etc/null", "etc/disk", "etc/socket", "etc/passwd", "usr"] {
        assert!(fs::symlink_metadata(to.join(name)).is_err(), "{name}");
    }
}

/// Promises: TP3.
#[test]
fn marks_that_a_tenant_makes_in_a_workspace_hide_nothing() {
    let folder = tempfile::tempdir().expect("makes");
    let root = folder.path().join("root");
    let workspace = folder.path().join("workspace");
    fs::create_dir(&root).expect("makes");
    fs::create_dir_all(workspace.join("sub")).expect("makes");
    set(&workspace.join("sub"), OPAQUE, b"y");
    node(&workspace.join("white"), FileType::CharacterDevice, 0);
    fs::write(workspace.join("sub/.netrc"), "secret").expect("writes");
    let (tar, packed) = pack(&root, Some(&workspace)).expect("packs");
    assert_eq!(packed.skipped, 1);
    assert_eq!(packed.private_files.listed[0].path, "/workspace/sub/.netrc");
    let to = folder.path().join("unpacked");
    unpack(&tar, &to);
    assert_eq!(get(&to.join("workspace/sub"), OPAQUE), None);
    assert_eq!(get(&to.join("workspace"), OPAQUE).as_deref(), Some(&b"y"[..]), "it replaces");
    assert!(fs::symlink_metadata(to.join("workspace/white")).is_err());
}

#[test]
fn equal_trees_become_equal_layers_whatever_their_first_names() {
    let folder = tempfile::tempdir().expect("makes");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("makes");
    // The first bytes of gzip and bzip2.
    for name in [&b"\x1f\x8b\x08"[..], b"BZh9"] {
        let name = std::os::unix::ffi::OsStrExt::from_bytes(name);
        fs::write(root.join::<&std::ffi::OsStr>(name), "x").expect("writes");
    }
    let (first, _) = pack(&root, None).expect("packs");
    let (second, _) = pack(&root, None).expect("packs");
    assert_eq!(first, second);
    let to = folder.path().join("unpacked");
    unpack(&first, &to);
    assert_eq!(fs::read_dir(&to).expect("reads").count(), 2);
}

/// Promises: TP3.
#[test]
fn too_many_and_too_deep_directories_are_refused() {
    let folder = tempfile::tempdir().expect("makes");
    let deep = folder.path().join("deep");
    fs::create_dir_all(deep.join("d/".repeat(130))).expect("makes");
    let refused = pack(&deep, None).expect_err("too deep");
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    let wide = folder.path().join("wide");
    fs::create_dir(&wide).expect("makes");
    for number in 0..50 {
        fs::write(wide.join(number.to_string()), "").expect("writes");
    }
    let mut packer = Packer::new(Vec::new(), 0, 49);
    let refused = packer.tree(&layer(&[open(&wide)], &[]));
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
}

#[test]
fn several_trees_become_the_layer_that_an_overlay_of_them_shows() {
    let folder = tempfile::tempdir().expect("makes");
    let [top, low] = ["top", "low"].map(|name| folder.path().join(name));
    for path in ["top/both", "top/cut", "top/over-file", "low/both", "low/cut", "low/only"] {
        fs::create_dir_all(folder.path().join(path)).expect("makes");
    }
    for (path, text) in [
        ("top/file", "top"),
        ("top/both/top", "top"),
        ("low/file", "low"),
        ("low/both/low", "low"),
        ("low/both/gone", "low"),
        ("low/cut/hidden", "low"),
        ("low/over-file", "low"),
    ] {
        fs::write(folder.path().join(path), text).expect("writes");
    }
    set(&top.join("cut"), OPAQUE, b"y");
    node(&top.join("both/gone"), FileType::CharacterDevice, 0);
    let mut packer = Packer::new(Vec::new(), 0, 10_000);
    packer.tree(&layer(&[open(&top), open(&low)], &[])).expect("packs");
    let (tar, _) = packer.finish().expect("packs");
    let to = folder.path().join("unpacked");
    unpack(&tar, &to);
    let text = |name: &str| fs::read_to_string(to.join(name)).expect(name);
    assert_eq!(text("file") + &text("both/top") + &text("both/low"), "toptoplow");
    assert!(fs::symlink_metadata(to.join("cut/hidden")).is_err());
    assert!(to.join("only").is_dir());
    let opaque = |name: &str| get(&to.join(name), OPAQUE).is_some();
    assert!(opaque("cut") && opaque("over-file") && !opaque("both") && !opaque("only"));
    let gone = fs::symlink_metadata(to.join("both/gone")).expect("a whiteout");
    assert_eq!(FileType::from_raw_mode(gone.mode()), FileType::CharacterDevice);
}
