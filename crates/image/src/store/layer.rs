//! Layers on the disk: their paths, and which tenants have proven that they may read them.

use super::Store;
use crate::disk::staging::StagedDirectory;
use crate::disk::{self, present};
use crate::error::Error;
use crate::reference::Digest;
use crate::unpack::{LayerStats, tar_split};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directory of all layers, below the image directory.
pub(crate) const DIRECTORY: &str = "layers";

impl Store {
    /// The statistics of a layer that is on the disk.
    pub(crate) fn layer(&self, name: &str) -> Option<LayerStats> {
        let text = fs::read(self.root.join("layers").join(name).join("stats.json")).ok()?;
        let tree = self.root.join("layers").join(name).join("tree");
        present(&tree).then(|| serde_json::from_slice(&text).ok()).flatten()
    }

    /// The record of a layer's archive, if there is one.
    pub(crate) fn tar_split(&self, name: &str) -> Option<PathBuf> {
        let path = split_path(&self.root.join(DIRECTORY).join(name));
        present(&path).then_some(path)
    }

    /// Whether a tenant has downloaded or imported a layer itself.
    pub(crate) fn has_proof(&self, name: &str, tenant: &str) -> bool {
        present(&self.proof_path(name, tenant))
    }

    fn proof_path(&self, name: &str, tenant: &str) -> PathBuf {
        let tenant = Digest::of(tenant.as_bytes());
        self.root.join("layers").join(name).join("of").join(tenant.hex())
    }

    pub(crate) fn record_proof(&self, name: &str, tenant: &str) -> Result<(), Error> {
        Ok(fs::write(self.proof_path(name, tenant), "")?)
    }

    /// Moves a staged layer into its place, and replaces a damaged one.
    pub(crate) fn install(
        &self,
        staged: &StagedDirectory,
        name: &str,
        stats: &LayerStats,
    ) -> Result<(), Error> {
        let text = serde_json::to_vec(stats).map_err(|error| Error::Disk(error.to_string()))?;
        fs::write(staged.0.join("stats.json"), text)?;
        fs::create_dir_all(staged.0.join("of"))?;
        disk::sync(&staged.0)?;
        let place = self.root.join("layers").join(name);
        // The layer there is damaged, otherwise nothing would be installed.
        if present(&place) {
            let old = self.staging.stage()?;
            fs::rename(&place, old.0.join("old"))?;
        }
        fs::rename(&staged.0, &place)?;
        disk::sync(&self.root.join("layers"))
    }
}

/// The path of the record of a layer's archive, in the directory of the layer.
pub(crate) fn split_path(directory: &Path) -> PathBuf {
    directory.join(tar_split::FILE)
}

/// Removes the record of the archive of a staged layer if the archive cannot be made of it.
pub(crate) fn keep_split(staged: &StagedDirectory, is_complete: bool) -> Result<(), Error> {
    let path = split_path(&staged.0);
    if !is_complete && present(&path) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// The name of the layer whose tree has this path below the image directory.
pub(crate) fn name(path: &str) -> Option<&str> {
    let name = path.strip_prefix("layers/")?.strip_suffix("/tree")?;
    Digest::parse(&format!("sha256:{name}")).map(|_| name)
}

/// The path of a layer's tree below the image directory.
pub(crate) fn tree(name: &str) -> String {
    format!("layers/{name}/tree")
}

pub(crate) fn make_tree(staged: &Path) -> Result<std::os::fd::OwnedFd, Error> {
    let tree = staged.join("tree");
    fs::create_dir(&tree)?;
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o755))?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let flags = flags | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(&tree, flags, rustix::fs::Mode::empty())?)
}
