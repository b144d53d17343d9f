//! Archives that are recorded and made again, and what damage does to them.

use super::*;
use crate::disk::free_space::FreeSpace;
use crate::reference::Digest;
use crate::unpack::{self, Budget};
use isolet_kit::image::{EntryType, Layer};
use std::os::fd::AsFd;

const BUDGET: Budget = Budget { compressed_bytes: 1 << 30, bytes: 1 << 30, entries: 10_000 };

/// Unpacks an archive, and makes it again of what is on the disk. `None`: it was not recorded.
fn again(archive: &[u8], change: impl FnOnce(&Path)) -> Option<Result<Vec<u8>, Error>> {
    let folder = tempfile::tempdir().expect("a directory");
    let split = folder.path().join(FILE);
    let tree = crate::store::layer::make_tree(folder.path()).expect("makes");
    let free_space = FreeSpace::new(folder.path().to_owned(), 0);
    let writer = TarSplitWriter::create(&split).expect("creates");
    let (_, digests) =
        unpack::layer(archive, Some(tree.as_fd()), BUDGET, &free_space, Some(writer))
            .expect("unpacks");
    assert_eq!(digests.diff_id, Digest::of(archive));
    change(&folder.path().join("tree"));
    digests.is_recorded.then(|| {
        let mut made = Vec::new();
        write_archive(&split, tree.as_fd(), &mut made).map(|bytes| {
            assert_eq!(bytes, made.len() as u64);
            made
        })
    })
}

fn layer() -> Layer {
    let long = format!("{}/file", "long".repeat(20));
    Layer::new()
        .directory("etc")
        .file("etc/empty", b"")
        .file("etc/text", b"text")
        .file("block", &[7; 512])
        .link("lib", "etc")
        .file("lib/through-a-link", &[1; 700])
        .entry(EntryType::Link, "hard", "etc/text", 0o644, b"")
        .entry(EntryType::Char, "device", "", 0o600, b"")
        .entry(EntryType::Regular, "etc/.wh.gone", "", 0o600, b"content of a whiteout")
        .file(&long, b"long")
}

#[test]
fn an_archive_is_made_again_byte_for_byte() {
    let mut archive = layer().bytes();
    assert_eq!(again(&archive, |_| {}).expect("recorded"), Ok(archive.clone()));
    // What follows the end of the archive belongs to it.
    archive.extend_from_slice(b"more");
    assert_eq!(again(&archive, |_| {}).expect("recorded"), Ok(archive));
}

#[test]
fn an_archive_in_which_an_entry_replaces_another_is_not_recorded() {
    for replacing in [
        layer().file("etc/text", b"new"),
        layer().link("etc/text", "elsewhere"),
        layer().directory("lib"),
        layer().entry(EntryType::Link, "block", "etc/text", 0o644, b""),
    ] {
        assert!(again(&replacing.bytes(), |_| {}).is_none());
    }
    // The same link twice replaces nothing.
    let twice = layer().entry(EntryType::Link, "hard", "etc/text", 0o644, b"").bytes();
    assert_eq!(again(&twice, |_| {}).expect("recorded"), Ok(twice));
}

#[test]
fn a_damaged_tree_makes_another_archive_or_none() {
    let archive = layer().bytes();
    let after = |change: &dyn Fn(&Path)| again(&archive, change).expect("recorded");
    let changed = after(&|tree| std::fs::write(tree.join("etc/text"), "TEXT").expect("writes"));
    assert_ne!(changed.expect("of the same size"), archive);
    let removed = after(&|tree| std::fs::remove_file(tree.join("block")).expect("removes"));
    assert!(removed.is_err());
    let shorter = after(&|tree| std::fs::write(tree.join("block"), "x").expect("writes"));
    assert!(shorter.is_err());
    let outside = after(&|tree| {
        std::fs::remove_file(tree.join("block")).expect("removes");
        std::os::unix::fs::symlink("/etc/hostname", tree.join("block")).expect("links");
    });
    assert!(outside.is_err());
}

#[test]
fn an_archive_with_more_headers_than_content_is_not_recorded() {
    let mut archive = Layer::new().file("a", b"").bytes();
    archive.resize(archive.len() + 8 * 1024 * 1024, 0);
    assert!(again(&archive, |_| {}).is_none());
}

#[test]
fn a_damaged_record_makes_no_archive() {
    let folder = tempfile::tempdir().expect("a directory");
    let tree = crate::store::layer::make_tree(folder.path()).expect("makes");
    let split = folder.path().join(FILE);
    let mut writer = TarSplitWriter::create(&split).expect("creates");
    writer.bytes(&[1; 600]).expect("writes");
    assert!(writer.finish().expect("writes"));
    let text = zstd::decode_all(File::open(&split).expect("there")).expect("decompresses");
    let made = |text: &[u8]| {
        std::fs::write(&split, zstd::encode_all(text, LEVEL).expect("compresses")).expect("writes");
        write_archive(&split, tree.as_fd(), &mut Vec::new())
    };
    assert_eq!(made(&text), Ok(600));
    for length in 0..text.len() {
        assert!(made(&text[..length]).is_err(), "cut off after {length} bytes");
    }
    for (at, byte) in [(0, 9), (1, 255), (3, 255), (text.len() - 1, 1), (text.len() - 9, CONTENT)] {
        let mut damaged = text.clone();
        damaged[at] = byte;
        assert!(made(&damaged).is_err(), "byte {at}");
    }
}
