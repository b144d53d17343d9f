//! Directories of sandboxes without a record. A directory that no client ever used is removed. Any
//! other holds files whose record was lost with a database. It is moved to `DATA/orphaned/`, where
//! the server never touches it again.

pub(crate) mod superseded;

use crate::live::entry::secret_store;
use isolet_jail::SandboxHandle;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::{info, warn};

/// The target directory, below the data directory.
const DIRECTORY: &str = "orphaned";
/// Name of the file that marks a sandbox of the warm pool until a create takes it, and a snapshot
/// until it is recorded.
const UNCLAIMED: &str = "unclaimed";
/// How long the processes of an orphan may take to die.
const KILL_WAIT: Duration = Duration::from_secs(4);
/// Maximum number of orphans with the same name.
const TURNS: u32 = 100;
/// Directories of a tenant's files, below the directory of a sandbox without a disk image.
const FILES: [&str; 3] = ["workspace", "root/upper", "usr/upper"];
/// The disk image of a sandbox. Whether it was used cannot be seen from outside.
const DISK: &str = "disk.ext4";
/// The file that names the layers of a sandbox.
const LAYERS: &str = "layers";

/// Marks a directory as unused. Blocks.
pub(crate) fn mark(directory: &Path) -> io::Result<()> {
    fs::write(directory.join(UNCLAIMED), "")
}

/// Whether a directory has the mark. Blocks.
pub(crate) fn is_marked(directory: &Path) -> bool {
    directory.join(UNCLAIMED).try_exists().unwrap_or(false)
}

/// Removes the mark after the record names the owner. Blocks.
pub(crate) fn unmark(directory: &Path) -> io::Result<()> {
    absent(fs::remove_file(directory.join(UNCLAIMED)))
}

/// Kills what runs of a sandbox without a record, and removes the directory or moves it aside.
/// Blocks.
pub(crate) fn end(jail: &isolet_jail::Config, name: &str) {
    let handle = SandboxHandle::open(jail, name);
    let killed = handle.kill();
    let empty = handle.wait_empty(KILL_WAIT);
    let directory = jail.sandbox_dir(name);
    let unused = unused(&directory).unwrap_or(false);
    let done = killed.and_then(|()| match unused {
        true => handle.remove(),
        false => handle.remove_cgroups().and_then(|()| put_aside(&jail.data_dir, name)),
    });
    match done {
        Ok(()) if unused => info!(sandbox = %name, empty, "sandbox without a record removed"),
        Ok(()) => {
            let to = jail.data_dir.join(DIRECTORY);
            warn!(sandbox = %name, to = %to.display(), empty, "files of a sandbox without a record were moved aside");
        }
        Err(error) => {
            warn!(sandbox = %name, %error, empty, "sandbox without a record is not removed yet")
        }
    }
}

/// Whether no client ever used the sandbox, because a create or the server was killed before.
fn unused(directory: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(directory)?.is_dir() {
        return Ok(false);
    }
    if directory.join(UNCLAIMED).try_exists()? {
        return Ok(true);
    }
    if directory.join(DISK).try_exists()? {
        return Ok(false);
    }
    // Its files lie in layers.
    if fs::metadata(directory.join(LAYERS)).is_ok_and(|list| list.len() > 0) {
        return Ok(false);
    }
    for name in FILES {
        let mut files = match fs::read_dir(directory.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            files => files?,
        };
        if files.next().is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn put_aside(data: &Path, name: &str) -> io::Result<()> {
    let to = move_aside(data, &data.join("sandboxes").join(name), name)?;
    absent(fs::rename(secret_store::path(data, name), to.join("credentials")))
}

/// Moves a directory without a record to where the server never touches it again, under a name
/// that is free there. Returns the new path. Blocks.
pub(crate) fn move_aside(data: &Path, from: &Path, name: &str) -> io::Result<PathBuf> {
    let aside = data.join(DIRECTORY);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
    for turn in 0..TURNS {
        let to = match turn {
            0 => aside.join(name),
            _ => aside.join(format!("{name}.{turn}")),
        };
        if to.symlink_metadata().is_ok() {
            continue;
        }
        fs::rename(from, &to)?;
        return Ok(to);
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(data: &Path, name: &str) -> PathBuf {
        let directory = data.join("sandboxes").join(name);
        for name in FILES {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        directory
    }

    fn ended(data: &Path, name: &str) -> bool {
        let jail = isolet_jail::Config::beside(data).unwrap();
        fs::create_dir_all(jail.trash()).unwrap();
        end(&jail, name);
        assert!(!jail.sandbox_dir(name).try_exists().unwrap(), "{name} is still there");
        data.join(DIRECTORY).join(name).try_exists().unwrap()
    }

    #[test]
    fn what_nobody_had_is_removed_and_what_somebody_may_have_had_is_put_aside() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        made(data, "new");
        assert!(!ended(data, "new"));
        for (name, file) in [("a", "workspace/f"), ("b", "root/upper/etc"), ("c", DISK)] {
            fs::write(made(data, name).join(file), name).unwrap();
            assert!(ended(data, name), "{file}");
            assert_eq!(
                fs::read_to_string(data.join(DIRECTORY).join(name).join(file)).unwrap(),
                name
            );
        }
        let warm = made(data, "warm");
        fs::write(warm.join(DISK), "").unwrap();
        mark(&warm).unwrap();
        assert!(!ended(data, "warm"));
        let taken = made(data, "taken");
        fs::write(taken.join(DISK), "").unwrap();
        mark(&taken).unwrap();
        unmark(&taken).unwrap();
        unmark(&taken).unwrap();
        assert!(ended(data, "taken"));
    }

    #[test]
    fn credentials_go_with_their_sandbox_and_no_name_is_in_the_way() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        for text in ["first", "second"] {
            fs::write(made(data, "one").join("workspace/f"), text).unwrap();
            fs::create_dir_all(data.join("credentials")).unwrap();
            fs::write(data.join("credentials/one"), text).unwrap();
            assert!(ended(data, "one"));
        }
        for (name, text) in [("one", "first"), ("one.1", "second")] {
            let at = data.join(DIRECTORY).join(name);
            assert_eq!(fs::read_to_string(at.join("workspace/f")).unwrap(), text);
            assert_eq!(fs::read_to_string(at.join("credentials")).unwrap(), text);
        }
    }
}
