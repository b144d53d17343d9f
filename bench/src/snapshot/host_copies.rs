//! What the host offers to copy the same files: `cp`, reflinks, subvolumes and podman.

use super::Data;
use super::place::{Kind, Place, run};
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The ways to copy a directory that one file system offers.
pub(crate) struct HostCopies {
    kind: Kind,
    ways: Vec<&'static str>,
    folder: PathBuf,
    container: Option<String>,
}

const PLAIN: &str = "cp -a, and sync -f";
const REFLINK: &str = "cp -a --reflink=always, and sync -f";
const SUBVOLUME: &str = "btrfs subvolume snapshot, and sync -f";
const PODMAN: &str = "podman commit";

impl HostCopies {
    /// Writes the same data as the sandbox has, beside the data directory, and into a container.
    pub(crate) fn prepare(place: &Place, data: &Data) -> Result<Self> {
        let folder = place.path().join("host");
        std::fs::create_dir(&folder)?;
        let source = folder.join("source");
        if place.kind == Kind::Btrfs {
            run(Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(&source))?;
        }
        let at = source.display().to_string();
        run(Command::new("sh").args(["-ec", &data.script(&format!("{at}/data"))]))?;
        let mut ways = vec![PLAIN];
        match place.kind {
            Kind::Ext4 => {}
            Kind::Xfs => ways.push(REFLINK),
            Kind::Btrfs => ways.extend([REFLINK, SUBVOLUME]),
        }
        let mut copies = Self { kind: place.kind, ways, folder, container: None };
        match copies.container() {
            Ok(container) => {
                copies.container = Some(container);
                copies.ways.push(PODMAN);
            }
            Err(error) => println!("\npodman is not measured: {error:#}"),
        }
        run(Command::new("sync").arg("-f").arg(&copies.folder))?;
        Ok(copies)
    }

    /// Names of the ways, in the order of their numbers.
    pub(crate) fn ways(&self) -> &[&'static str] {
        &self.ways
    }

    /// Copies once in one of the ways, and removes the copy.
    pub(crate) fn copy(&self, way: usize) -> Result<Duration> {
        let from = self.folder.join("source").display().to_string();
        let to = self.folder.join("copy").display().to_string();
        let (copy, remove) = match self.ways[way] {
            PLAIN => {
                (format!("cp -a --reflink=never {from} {to}; sync -f {to}"), format!("rm -rf {to}"))
            }
            REFLINK => (
                format!("cp -a --reflink=always {from} {to}; sync -f {to}"),
                format!("rm -rf {to}"),
            ),
            SUBVOLUME => (
                format!("btrfs -q subvolume snapshot {from} {to}; sync -f {to}"),
                format!("btrfs -q subvolume delete {to}"),
            ),
            _ => {
                let podman = self.podman().join(" ");
                let container = self.container.as_deref().unwrap_or_default();
                (
                    format!("{podman} commit -q {container} copy >/dev/null 2>&1"),
                    format!("{podman} rmi -f copy >/dev/null 2>&1"),
                )
            }
        };
        let begun = Instant::now();
        run(Command::new("sh").args(["-ec", &copy]))?;
        let time = begun.elapsed();
        run(Command::new("sh").args(["-ec", &remove]))?;
        Ok(time)
    }

    fn podman(&self) -> Vec<String> {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let options = ["--root", &at("podman"), "--runroot", &at("podman-run")].map(str::to_owned);
        // Podman refuses overlays on btrfs.
        let driver = if self.kind == Kind::Btrfs { "btrfs" } else { "overlay" };
        let driver = ["--storage-driver", driver].map(str::to_owned);
        // A commit writes the layer to a temporary file first, which belongs on the same file system.
        let temporary = format!("TMPDIR={}", self.folder.display());
        let program = ["env".to_owned(), temporary, "podman".to_owned()];
        program.into_iter().chain(options).chain(driver).collect()
    }

    /// Creates a container with the data in its own layer. It never runs.
    fn container(&self) -> Result<String> {
        let source = self.folder.join("source").display().to_string();
        let empty = self.folder.join("empty.tar").display().to_string();
        let podman = self.podman().join(" ");
        let script = format!(
            "tar -cf {empty} -T /dev/null; {podman} import {empty} empty >/dev/null 2>&1
             c=$({podman} create empty none); m=$({podman} mount $c)
             cp -a {source}/data $m/; {podman} umount $c >/dev/null; echo $c"
        );
        let output = Command::new("sh").args(["-ec", &script]).stdin(Stdio::null()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or("no message");
        ensure!(output.status.success(), "{}: {last}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for HostCopies {
    fn drop(&mut self) {
        let podman = self.podman().join(" ");
        let folder = self.folder.display();
        let script = format!(
            "{podman} rm -fa; {podman} rmi -fa; umount {folder}/podman/overlay
             btrfs subvolume delete {folder}/source; rm -rf {folder}"
        );
        let _ = Command::new("sh").args(["-c", &script]).output();
    }
}
