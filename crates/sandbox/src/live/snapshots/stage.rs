//! Staging a sandbox that runs, in two passes: everything while it runs, and the difference while it
//! stands still. Used where a copy takes long: in full, or by reference of many files.

use crate::live::snapshots::files::{DISK, LINKS, STAGING, create_parent, create_private};
use crate::live::snapshots::{CopyGuard, SnapshotFiles, SpaceFloor};
use crate::model::held::cancel::CancelToken;
use crate::model::record::snapshot_layers::RecordedLayer;
use isolet_storage::{
    Copied, CopyError, LiveCopy, StillMoment, copy_file, copy_live, refresh_copy,
};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The first pass over a sandbox. What it wrote is incomplete.
#[derive(Debug)]
pub(crate) struct LiveStage {
    /// The layer that gets the sandbox's changes; `None` without layers, or with a disk.
    pub(crate) layer: Option<RecordedLayer>,
    /// One for each directory; none if all files are in the image of a disk.
    passes: Vec<TreePass>,
}

/// What was staged of a sandbox.
pub(crate) struct StagedFiles {
    pub(crate) copied: Copied,
    /// The part of `copied` that lies in a new layer, in bytes.
    pub(crate) layer_bytes: u64,
    /// Directories with further names of files, which the caller removes.
    pub(crate) links: Vec<PathBuf>,
}

/// The first pass over one directory.
#[derive(Debug)]
struct TreePass {
    /// The path of the directory inside the sandbox, for errors.
    shown: &'static str,
    from: PathBuf,
    to: PathBuf,
    /// The directory for names of files with several names.
    links: PathBuf,
    live: LiveCopy,
}

impl SnapshotFiles {
    /// Copies the image of a running sandbox's disk into the staging area. Blocks.
    pub(crate) fn stage_live_disk(
        &self,
        name: &str,
        sandbox: &Path,
        mut guard: CopyGuard,
    ) -> Result<LiveStage, CopyError> {
        let staged = self.create_staged(name)?;
        let mut check = |bytes: u64| guard.check(bytes);
        let disk = sandbox.join(DISK);
        let data = fs::metadata(&disk).map_err(|error| CopyError::io(DISK, &error))?.blocks() * 512;
        check(data)?;
        copy_file(self.backend().copies(), &disk, &staged.join(DISK), &mut check)?;
        Ok(LiveStage { layer: None, passes: Vec::new() })
    }

    /// Copies the files of a sandbox that has run since a moment: the workspace into the staging
    /// area, and its changes into a new layer, if there is one, otherwise there too. Blocks.
    pub(crate) fn stage_live_trees(
        &self,
        name: &str,
        sandbox: &Path,
        since: StillMoment,
        layer: Option<RecordedLayer>,
        mut guard: CopyGuard,
    ) -> Result<LiveStage, CopyError> {
        let staged = self.create_staged(name)?;
        let mut check = |bytes: u64| guard.check(bytes);
        let changes = |part: &str| match &layer {
            Some(layer) => self.layers.part(layer, part),
            None => staged.join(part).join("upper"),
        };
        let trees = [
            ("workspace", sandbox.join("workspace"), staged.join("workspace")),
            ("", sandbox.join("root/upper"), changes("root")),
            ("usr", sandbox.join("usr/upper"), changes("usr")),
        ];
        let mut passes = Vec::with_capacity(trees.len());
        for (shown, from, to) in trees {
            create_parent(&to).map_err(|error| CopyError::io(shown, &error))?;
            // Apart for each tree, because a file cannot have names in two mounts of a sandbox.
            let links = to.with_extension(LINKS);
            create_private(&links).map_err(|error| CopyError::io(LINKS, &error))?;
            let live = copy_live(self.backend().copies(), since, &from, &to, &links, &mut check)
                .map_err(|error| error.below(shown))?;
            passes.push(TreePass { shown, from, to, links, live });
        }
        Ok(LiveStage { layer, passes })
    }

    /// Copies what changed since the first pass over a sandbox, which stands still now, and the states
    /// of its shells. Returns the size of everything. Blocks.
    pub(crate) fn stage_rest(
        &self,
        name: &str,
        sandbox: &Path,
        stage: LiveStage,
        floor: SpaceFloor,
        tokens: Vec<CancelToken>,
    ) -> Result<StagedFiles, CopyError> {
        let staged = self.directory(STAGING).join(name);
        let mut guard = self.guard_with(floor, tokens);
        let mut check = |bytes: u64| guard.check(bytes);
        // Also where there is nothing to copy, it may be cancelled.
        check(0)?;
        let mut copied = Copied::default();
        let mut layer_bytes = 0;
        if stage.passes.is_empty() {
            copied = refresh_copy(&sandbox.join(DISK), &staged.join(DISK), &mut check)?;
        }
        let mut links = Vec::with_capacity(stage.passes.len());
        for pass in stage.passes {
            let TreePass { shown, from, to, links: own, live } = pass;
            let one = live
                .complete(self.backend().copies(), &from, &to, &own, &mut check)
                .map_err(|error| error.below(shown))?;
            links.push(own);
            copied += one;
            if !to.starts_with(&staged) {
                layer_bytes += one.size_bytes();
            }
        }
        copied += self.copy_shells(sandbox, &staged, &mut check)?;
        Ok(StagedFiles { copied, layer_bytes, links })
    }
}

/// Creates a directory for the names of files with several names while a tree is copied. Apart for
/// each tree, because a file cannot have names in two mounts of a sandbox.
pub(super) fn with_links<R>(
    tree: &Path,
    run: impl FnOnce(&Path) -> Result<R, CopyError>,
) -> Result<R, CopyError> {
    let links = tree.with_file_name(LINKS);
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&links)
        .map_err(|error| CopyError::io(LINKS, &error))?;
    let done = run(&links)?;
    isolet_sys::tree::remove(&links).map_err(|errno| CopyError::at(LINKS.as_bytes(), errno))?;
    Ok(done)
}
