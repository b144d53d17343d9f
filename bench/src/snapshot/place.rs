//! A new file system on a loop device, which is removed however this program ends.

use anyhow::{Context, Result, ensure};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Size of each file system in GiB. Its file has holes.
const SIZE_GIB: u64 = 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        })
    }
}

/// A mounted file system.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    folder: PathBuf,
    mount: PathBuf,
    /// A shell that unmounts when its standard input ends, which is also when this program is killed.
    cleaner: Child,
}

/// Removes what was mounted. It ignores the signals of a terminal.
const CLEAN: &str = "trap '' INT TERM HUP; cat >/dev/null
for n in 1 2 3 4 5 6 7 8 9 10; do umount \"$1/mount\" 2>/dev/null && break; sleep 0.5; done
mountpoint -q \"$1/mount\" && umount -l \"$1/mount\"
rm -f \"$1/disk\"; rmdir \"$1/mount\" \"$1\"";

impl Place {
    pub(crate) fn mount(kind: Kind) -> Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("isolet-bench-{kind}-{}", std::process::id()));
        let mount = folder.join("mount");
        std::fs::create_dir_all(&mount)?;
        let cleaner = Command::new("setsid")
            .args(["sh", "-c", CLEAN, "clean"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .spawn()
            .context("setsid")?;
        let place = Self { kind, folder, mount, cleaner };
        let disk = place.folder.join("disk");
        std::fs::File::create(&disk)?.set_len(SIZE_GIB << 30)?;
        let force = if kind == Kind::Ext4 { "-F" } else { "-f" };
        run(Command::new(format!("mkfs.{kind}")).args(["-q", force]).arg(&disk))?;
        run(Command::new("mount").args(["-o", "loop"]).args([&disk, &place.mount]))?;
        Ok(place)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }

    /// Gives the space of deleted files back to the host.
    pub(crate) fn trim(&self) -> Result<()> {
        run(Command::new("fstrim").arg(&self.mount)).map(drop)
    }

    /// Writes everything to the disk. Returns the used bytes.
    pub(crate) fn used_bytes(&self) -> Result<u64> {
        run(Command::new("sync").arg("-f").arg(&self.mount))?;
        // btrfs and xfs account for deleted files a moment later.
        std::thread::sleep(Duration::from_millis(500));
        let status = rustix::fs::statvfs(&self.mount)?;
        Ok((status.f_blocks - status.f_bfree) * status.f_frsize)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        let _ = self.cleaner.wait();
    }
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {} {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
