//! Streams that no push writes.

use super::*;
use std::fs;
use std::path::Path;

fn tree() -> Root {
    Root { name: "workspace".into(), kind: RootKind::Tree }
}

fn attributes() -> Attributes {
    Attributes { mode: 0o755, ..Attributes::default() }
}

fn directory(name: &str) -> Record {
    Record::Directory { name: name.into() }
}

fn file(name: &str, bytes: u64) -> Record {
    Record::File { name: name.into(), bytes, link: None, attributes: attributes() }
}

fn leave() -> Record {
    Record::Leave { attributes: attributes() }
}

fn symlink(name: &str, target: &str) -> Record {
    Record::Symlink { name: name.into(), target: target.into(), attributes: attributes() }
}

/// Extracts records, with `data` behind the last one.
fn extracted(staging: &Path, records: &[Record], data: &[u8]) -> Result<(), Error> {
    let mut stream: Vec<u8> = records.iter().flat_map(|one| one.encode().unwrap()).collect();
    stream.extend_from_slice(data);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let staging = rustix::fs::open(staging, flags, Mode::empty()).unwrap();
    let roots = [tree()];
    let check = &mut |_| Ok(());
    let extraction = Extraction { roots: &roots, bytes: 1000, entries: 100, check };
    extract(&mut stream.as_slice(), staging, extraction)
}

#[test]
fn no_stream_reaches_outside_of_its_directory() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    let other = Root { name: "../workspace".into(), kind: RootKind::Tree };
    let begin = Record::Root(tree());
    let cases: Vec<Vec<Record>> = vec![
        vec![begin.clone(), directory(".."), file("x", 0)],
        vec![begin.clone(), directory("a/../.."), file("x", 0)],
        vec![begin.clone(), directory(target)],
        vec![begin.clone(), directory("")],
        vec![begin.clone(), file("../x", 0)],
        vec![begin.clone(), file("/x", 0)],
        vec![begin.clone(), file("a\0b", 0)],
        vec![begin.clone(), file(&"n".repeat(256), 0)],
        // A link to a directory outside, and then entries "below" it.
        vec![begin.clone(), symlink("out", target), directory("out"), file("x", 0)],
        vec![begin.clone(), symlink("x", &format!("{target}/x")), file("x", 0), leave()],
        vec![begin.clone(), Record::HardLink { name: b"x".to_vec(), link: 5 }],
        vec![begin.clone(), Record::HardLink { name: b"../x".to_vec(), link: 0 }],
        vec![begin.clone(), file("x", 0), file("x", 0)],
        vec![begin.clone(), leave(), leave()],
        vec![Record::Root(other)],
        vec![begin.clone(), leave(), begin.clone()],
        vec![directory("x")],
        vec![begin.clone(), begin.clone()],
        vec![begin, Record::End],
    ];
    for records in cases {
        let staging = tempfile::tempdir().unwrap();
        assert!(extracted(staging.path(), &records, b"").is_err(), "{records:?}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{records:?}");
    }
}

#[test]
fn data_stays_within_its_file_and_what_the_manifest_says() {
    let data = |offset, bytes| Record::Data { offset, bytes };
    let begin = Record::Root(tree());
    for records in [
        vec![begin.clone(), file("x", 10), data(5, 6)],
        vec![begin.clone(), file("x", u64::MAX), data(u64::MAX, 2)],
        vec![begin.clone(), file("x", 5000), data(0, 1001)],
        vec![begin.clone(), data(0, 1)],
    ] {
        let staging = tempfile::tempdir().unwrap();
        let refused = extracted(staging.path(), &records, &[0; 2000]);
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{records:?}: {refused:?}");
    }
    let staging = tempfile::tempdir().unwrap();
    let many: Vec<Record> = (0..200).map(|number| file(&number.to_string(), 0)).collect();
    let refused = extracted(staging.path(), &[vec![begin], many].concat(), b"");
    assert!(refused.is_err(), "more entries than the manifest says");
}

#[test]
fn a_stream_that_ends_early_is_an_error() {
    let all = [Record::Root(tree()), directory("a"), file("b", 3), leave(), leave(), Record::End];
    for count in 0..all.len() {
        let staging = tempfile::tempdir().unwrap();
        assert!(extracted(staging.path(), &all[..count], b"").is_err(), "{count}");
    }
    let staging = tempfile::tempdir().unwrap();
    extracted(staging.path(), &all, b"").unwrap();
    assert_eq!(fs::metadata(staging.path().join("workspace/a/b")).unwrap().len(), 3);
}
