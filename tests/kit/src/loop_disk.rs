//! A small file system of a given kind, in a file behind a loop device.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct MountedDisk {
    image: PathBuf,
    at: PathBuf,
}

/// Runs a program and returns its output.
#[track_caller]
fn run(program: &str, args: &[&str]) -> String {
    let done = Command::new(program).args(args).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}; `make packages`"));
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is text")
}

impl MountedDisk {
    /// Creates a file system with `mkfs.KIND` and these options in a new file, and mounts it. btrfs
    /// needs 109 MiB, xfs 300 MiB; the file takes only what is written.
    ///
    /// # Panics
    /// When one of the programs fails.
    #[must_use]
    #[track_caller]
    pub fn mount(image: &Path, at: &Path, kind: &str, mib: u64, options: &[&str]) -> Self {
        File::create(image).and_then(|file| file.set_len(mib << 20)).expect("an image");
        let program = format!("mkfs.{kind}");
        run(&program, &[&["-q"][..], options, &[text(image)][..]].concat());
        run("mount", &["-o", "loop", text(image), text(at)]);
        Self { image: image.to_owned(), at: at.to_owned() }
    }
}

/// Takes everything from an offset on away from the image of a mounted file system, so that reads
/// there fail.
///
/// # Panics
/// When it is not possible.
#[track_caller]
pub fn cut(image: &Path, bytes: u64) {
    truncate(image, bytes);
    let device = run("losetup", &["-n", "-O", "NAME", "-j", text(image)]);
    run("losetup", &["-c", device.trim()]);
}

/// Truncates the image of a mounted file system, whose device keeps its size: reads behind the end of
/// the file are errors.
///
/// # Panics
/// When it is not possible.
#[track_caller]
pub fn truncate(image: &Path, bytes: u64) {
    let opened = OpenOptions::new().write(true).open(image).expect("its image");
    opened.set_len(bytes).expect("it is shorter");
}

/// The subvolumes of a mounted btrfs that are not deleted.
///
/// # Panics
/// When the program fails.
#[must_use]
#[track_caller]
pub fn subvolumes(at: &Path) -> Vec<String> {
    let listed = run("btrfs", &["subvolume", "list", text(at)]);
    let path = |line: &str| Some(line.split_once(" path ")?.1.to_owned());
    listed.lines().filter_map(path).collect()
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
        let _ = fs::remove_file(&self.image);
    }
}

/// Where the data of a file ends on its disk, in bytes.
///
/// # Panics
/// When `filefrag` fails.
#[must_use]
#[track_caller]
pub fn end_on_disk(file: &Path) -> u64 {
    let listed = run("filefrag", &["-v", "-b1", text(file)]);
    let end = |line: &str| {
        let physical = line.split(':').nth(2)?;
        physical.split("..").nth(1)?.trim().parse::<u64>().ok()
    };
    listed.lines().filter_map(end).max().expect("it has data")
}

/// Writes a file to its disk and removes it from the page cache.
///
/// # Panics
/// When it is not possible.
#[track_caller]
pub fn evict(file: &Path) {
    let opened = File::open(file).expect("opens");
    opened.sync_all().expect("it is written");
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).expect("it is evicted");
}
