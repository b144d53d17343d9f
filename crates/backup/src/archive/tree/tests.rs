//! Trees that tenants make to stop a backup.

use super::*;
use crate::archive::{Extractor, read};
use crate::progress::{Progress, ProgressEvent};
use crate::verify::Nothing;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

struct Silent;

impl Progress for Silent {
    fn event(&self, _: &ProgressEvent) {}
    fn bytes(&self, _: u64) {}
}

fn packed(root: &Path, memory_bytes: usize) -> Result<(Packed, Vec<u8>), PackError> {
    let no = |_: &[u8]| false;
    let tree = Tree { root, without: &no, empty: &no, live: false };
    let mut archive = ArchiveWriter::new(Vec::new());
    let packed = pack_within(memory_bytes, &tree, &mut archive, &Silent)?;
    Ok((packed, archive.finish()?))
}

/// A tenant made every backup unrestorable with one directory: its path had the maximum length, and
/// the slash after it exceeded the limit of the reader.
#[test]
fn the_longest_paths_come_back_and_longer_ones_are_left_out() {
    let from = tempfile::tempdir().unwrap();
    let mut parent = rustix::fs::open(from.path(), DIRECTORY, Mode::empty()).unwrap();
    let lengths = [255; 255].into_iter().chain([253]);
    for length in lengths {
        let name = "d".repeat(length);
        rustix::fs::mkdirat(&parent, &name, Mode::RWXU).unwrap();
        parent = rustix::fs::openat(&parent, &name, DIRECTORY, Mode::empty()).unwrap();
    }
    // The path of `parent` with a slash has 65,534 bytes.
    for name in ["d", "ee", "fff"] {
        rustix::fs::mkdirat(&parent, name, Mode::RWXU).unwrap();
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    for name in ["xx", "yyy"] {
        rustix::fs::openat(&parent, name, flags, Mode::RUSR).unwrap();
    }
    let (packed, bytes) = packed(from.path(), MEMORY_BYTES_MAX).unwrap();
    // The root, the directories above, `d` and `xx`.
    assert_eq!((packed.totals.entries, packed.totals.left_out), (1 + 256 + 2, 3));
    assert_eq!(read(&bytes[..], &mut Nothing).unwrap(), packed.totals.entries);
    let to = tempfile::tempdir().unwrap();
    let mut extractor = Extractor::new(to.path(), 0o777).unwrap();
    assert_eq!(read(&bytes[..], &mut extractor).unwrap(), packed.totals.entries);
    extractor.finish().unwrap();
}

/// A program takes a lease on its own file, and is then frozen: nothing can open the file.
#[test]
fn a_file_with_a_lease_is_left_out_alone_with_all_its_names() {
    let from = tempfile::tempdir().unwrap();
    for name in ["a", "b\x1b[2J", "z"] {
        fs::write(from.path().join(name), name).unwrap();
    }
    fs::hard_link(from.path().join("b\x1b[2J"), from.path().join("c")).unwrap();
    let program = "import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()";
    let mut command = Command::new("python3");
    let command = command.arg("-c").arg(program).arg(from.path().join("c"));
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let (packed, bytes) = packed(from.path(), MEMORY_BYTES_MAX).unwrap();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let skipped: Vec<&str> = packed.skipped.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(skipped, [r#""b\u{1b}[2J""#, r#""c""#], "no terminal reads an escape sequence");
    assert!(packed.skipped[0].reason.contains("lease"));
    assert_eq!((packed.totals.entries, packed.totals.left_out), (3, 2));
    let to = tempfile::tempdir().unwrap();
    let mut extractor = Extractor::new(to.path(), 0o777).unwrap();
    read(&bytes[..], &mut extractor).unwrap();
    extractor.finish().unwrap();
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 2);
}

#[test]
fn names_and_hard_links_take_a_limited_amount_of_memory() {
    let from = tempfile::tempdir().unwrap();
    let folder = from.path().join("d");
    fs::create_dir(&folder).unwrap();
    for number in 0..50 {
        fs::write(folder.join(number.to_string()), "").unwrap();
    }
    let stops = |memory_bytes| match packed(from.path(), memory_bytes) {
        Err(PackError::Source(error)) => error.to_string().contains("too much memory"),
        Err(error) => panic!("{error:?}"),
        Ok(_) => false,
    };
    assert!(!stops(4000) && stops(3000));
    for number in 0..50 {
        let to = from.path().join(format!("again-{number}"));
        fs::hard_link(folder.join(number.to_string()), to).unwrap();
    }
    assert!(!stops(20_000) && stops(8000));
}
