//! What a copy of a tree contains.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as make_symlink};
use std::process::Command;

fn copied(from: &Path, folder: &Path) -> Copied {
    let links = folder.join("links");
    fs::create_dir(&links).unwrap();
    let method = CopyMethod::probe(folder).unwrap();
    let copied = copy_tree(method, from, &folder.join("copy"), &links, &mut |_| Ok(())).unwrap();
    isolet_sys::tree::remove(&links).unwrap();
    copied
}

/// What `find` says of a tree: type, mode, owner, size, links, time and target of each name.
fn listed(root: &Path) -> String {
    let format = "%P %y %m %U %G %s %n %T@ %l\n";
    let found = Command::new("find").arg(root).args(["-printf", format]).output().unwrap();
    let mut lines: Vec<_> =
        String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    // The links of directories and their sizes depend on the file system.
    let plain = |line: &String| {
        let mut words: Vec<&str> = line.split(' ').collect();
        if words.len() > 7 && words[1] == "d" {
            (words[5], words[6]) = ("-", "-");
        }
        words.join(" ")
    };
    lines.iter().map(plain).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_copy_equals_its_original_in_everything_that_find_shows() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::write(from.join("a/file"), "text").unwrap();
    fs::hard_link(from.join("a/file"), from.join("a/b/second")).unwrap();
    fs::hard_link(from.join("a/file"), from.join("third")).unwrap();
    make_symlink("/etc/shadow", from.join("absolute")).unwrap();
    make_symlink("a", from.join("to-directory")).unwrap();
    fs::write(from.join("setuid"), "x").unwrap();
    rustix::fs::chown(from.join("setuid"), Some(rustix::fs::Uid::from_raw(1234)), None).unwrap();
    fs::set_permissions(from.join("setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
    let fifo = |name: &str, kind| {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(rustix::fs::CWD, from.join(name), kind, mode, 0).unwrap();
    };
    fifo("pipe", FileType::Fifo);
    fifo("whiteout", FileType::CharacterDevice);
    let sparse = fs::File::create(from.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (64 << 20) - 3).unwrap();
    rustix::fs::setxattr(from.join("a"), "user.note", b"1", rustix::fs::XattrFlags::empty())
        .unwrap();
    fs::set_permissions(from.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();

    let what = copied(&from, folder.path());
    let copy = folder.path().join("copy");
    assert_eq!(listed(&copy), listed(&from));
    assert_eq!(what.entries, 12);
    assert!(what.bytes < 1 << 20, "{} bytes of data", what.bytes);
    assert_eq!(fs::read(copy.join("sparse")).unwrap(), fs::read(from.join("sparse")).unwrap());
    assert!(fs::metadata(copy.join("sparse")).unwrap().blocks() < 2048, "holes stay holes");
    let second = fs::metadata(copy.join("a/b/second")).unwrap();
    assert_eq!(second.ino(), fs::metadata(copy.join("third")).unwrap().ino());
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(copy.join("a"), "user.note", &mut value).unwrap();
    assert_eq!(&value[..length], b"1");
    // The copy and the original are apart.
    fs::write(copy.join("a/file"), "changed").unwrap();
    assert_eq!(fs::read_to_string(from.join("a/file")).unwrap(), "text");
}

#[test]
fn a_tree_deeper_than_any_path_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir(&from).unwrap();
    let mut at = rustix::fs::open(&from, DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "deep", Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, "deep", DIRECTORY, Mode::empty()).unwrap();
    }
    assert_eq!(copied(&from, folder.path()).entries, 3001);
    for name in ["from", "copy"] {
        isolet_sys::tree::remove(&folder.path().join(name)).unwrap();
    }
}

#[test]
fn a_copy_ends_when_the_caller_refuses_more() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), vec![1; 1 << 20]).unwrap();
    fs::create_dir(folder.path().join("links")).unwrap();
    let refused = copy_tree(
        CopyMethod::Full,
        &from,
        &folder.path().join("copy"),
        &folder.path().join("links"),
        &mut |_| Err(CopyError::Refused("enough".into())),
    );
    assert!(matches!(refused, Err(CopyError::Refused(_))));
}

/// The names of a wide tree once took up to 256 MiB. More than 2 MiB are read again now.
#[test]
fn a_tree_whose_names_do_not_fit_into_memory_is_copied_once_each() {
    const LEVELS: usize = 70;
    const NAMES: usize = 180;
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir(&from).unwrap();
    let long = "n".repeat(200);
    let mut at = rustix::fs::open(&from, DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..LEVELS {
        for name in 0..NAMES {
            let name = format!("{name:03}{long}");
            rustix::fs::symlinkat("nowhere", &at, name).unwrap();
        }
        for name in ["a", "z"] {
            rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)).unwrap();
        }
        at = rustix::fs::openat(&at, "a", DIRECTORY, Mode::empty()).unwrap();
    }
    let what = copied(&from, folder.path());
    assert_eq!(what.entries as usize, LEVELS * (NAMES + 2) + 1);
    let found = |root: &Path| {
        let found = Command::new("find").arg(root).args(["-printf", "."]).output().unwrap();
        found.stdout.len() as u64
    };
    assert_eq!(found(&folder.path().join("copy")), what.entries);
    let measured = crate::measure_tree(&from, &mut |_| Ok(())).unwrap();
    assert_eq!(measured.entries, what.entries);
}

#[test]
fn each_entry_is_checked_also_without_data() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir_all(from.join("directory")).unwrap();
    fs::write(from.join("empty"), "").unwrap();
    make_symlink("x", from.join("link")).unwrap();
    let value = vec![1; 3000];
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(from.join("empty"), "user.long", &value, set).unwrap();
    let links = folder.path().join("links");
    fs::create_dir(&links).unwrap();
    let mut checked = 0;
    let mut check = |bytes| {
        checked += bytes;
        Ok(())
    };
    let to = folder.path().join("copy");
    let what = copy_tree(CopyMethod::Full, &from, &to, &links, &mut check).unwrap();
    assert_eq!(what.size_bytes(), 4 * ENTRY_BYTES);
    assert!(checked >= 4 * ENTRY_BYTES + 3000, "{checked}");
}
