//! The directories of layers: `DATA/snapshots/layers/NAME/{root,usr}`. They never change.
//!
//! A layer begins as a copy of a running sandbox's directories, or takes those of a sleeping one.
//! Taking exchanges each directory with an empty one by one rename, before the record of the sandbox
//! names the layer. Until then a file in the layer names the sandbox, so that a start after a kill
//! gives the directories back. A start discards all layers that no record names, and while the
//! server runs, layers are discarded when the last record in memory that names them is gone.

use crate::model::ids::random;
use crate::model::record::snapshot_layers::{LAYERS_MAX, LayerHold, RecordedLayer, UnusedLayers};
use crate::model::record::{RecordBody, is_internal_name};
use isolet_storage::create_directory_like;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Notify;
use tracing::{info, warn};

/// The directory of all layers, below that of snapshots.
pub(super) const DIRECTORY: &str = "layers";
/// The parts of a layer, each of which becomes a lower directory of an overlay.
pub(crate) const PARTS: [&str; 2] = ["root", "usr"];
/// The file that names the sandbox whose directories were taken begins with this.
const TAKEN_FROM: &str = "taken-from.";
/// The file of a sandbox that names its layers, for operators: an orphaned directory has no record.
const LIST: &str = "layers";
/// The same while it is written.
const NEW_LIST: &str = "layers.new";

/// The directories of all layers.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    directory: PathBuf,
    sandboxes: PathBuf,
    orphaned: PathBuf,
    trash: PathBuf,
    pub(crate) unused: Arc<UnusedLayers>,
    /// Notified when a sandbox or a snapshot may have too many layers.
    pub(crate) more: Arc<Notify>,
}

impl Layers {
    pub(super) fn new(data: &Path) -> Self {
        Self {
            directory: data.join("snapshots").join(DIRECTORY),
            sandboxes: data.join("sandboxes"),
            orphaned: data.join("orphaned"),
            trash: data.join("trash"),
            unused: Arc::default(),
            more: Arc::default(),
        }
    }

    /// The directory of a part of a layer.
    pub(crate) fn part(&self, layer: &RecordedLayer, part: &str) -> PathBuf {
        self.directory.join(&layer.name).join(part)
    }

    /// Creates the directory of a new layer, without its parts. Blocks.
    pub(crate) fn create(&self, id_base: u32) -> io::Result<RecordedLayer> {
        let name = random();
        let hold = LayerHold::new(name.clone(), &self.unused);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.directory.join(&name))?;
        Ok(RecordedLayer::new(name, id_base, hold))
    }

    /// Writes the entries of a layer's directory to the disk. Blocks.
    pub(crate) fn sync(&self, layer: &RecordedLayer) -> io::Result<()> {
        sync(&self.directory.join(&layer.name))?;
        sync(&self.directory)
    }

    /// Takes the directories of a sandbox in which nothing runs, and leaves empty ones. If this
    /// fails, the sandbox has its directories. Blocks.
    pub(crate) fn take(&self, layer: &RecordedLayer, sandbox: &Path) -> io::Result<()> {
        let from = sandbox.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let own = self.directory.join(&layer.name);
        fs::File::create(own.join(format!("{TAKEN_FROM}{from}")))?;
        for part in PARTS {
            create_directory_like(&sandbox.join(part).join("upper"), &own.join(part))
                .map_err(io::Error::other)?;
        }
        // The name of the sandbox must be on the disk before anything moves.
        self.sync(layer)?;
        let taken = PARTS.iter().try_for_each(|part| self.exchange(layer, sandbox, part));
        let taken = taken.and_then(|()| {
            self.sync(layer)?;
            PARTS.iter().try_for_each(|part| sync(&sandbox.join(part)))
        });
        taken.inspect_err(|_| {
            if let Err(error) = give_back(&own, sandbox) {
                warn!(layer = %layer.name, %error, "directories of a sandbox are given back at the next start");
            }
        })
    }

    fn exchange(&self, layer: &RecordedLayer, sandbox: &Path, part: &str) -> io::Result<()> {
        exchange(&self.directory.join(&layer.name), sandbox, part)
    }

    /// Gives the directories back to a sandbox whose record does not name the layer. Blocks.
    pub(crate) fn give_back(&self, layer: &RecordedLayer, sandbox: &Path) -> io::Result<()> {
        give_back(&self.directory.join(&layer.name), sandbox)
    }

    /// Forgets which sandbox the directories were taken from, because its record names the layer.
    /// Blocks.
    pub(crate) fn settle(&self, layer: &RecordedLayer) {
        if let Err(error) = forget_origin(&self.directory.join(&layer.name)) {
            info!(layer = %layer.name, %error, "origin of a layer is forgotten at the next start");
        }
    }

    /// Writes everything on the file system of the layers to the disk. Blocks.
    pub(crate) fn sync_files(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(&self.directory)?)?)
    }

    /// Moves a layer that no record names to the trash, unless a directory that was put aside needs it.
    /// Returns whether it is gone. Blocks.
    pub(crate) fn discard_unused(&self, name: &str) -> io::Result<bool> {
        if self.listed_by_orphans()?.iter().any(|listed| listed == name) {
            return Ok(false);
        }
        self.discard(name).map(|()| true)
    }

    /// Moves a layer to the trash. No error if there is none. Blocks.
    fn discard(&self, name: &str) -> io::Result<()> {
        // A name in the trash is never used twice.
        let to = self.trash.join(format!("layer-{}", random()));
        match fs::rename(self.directory.join(name), to) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(()) => sync(&self.directory),
            failed => failed,
        }
    }

    /// Makes the layers agree with the records, of which those of `sandboxes` (internal names) were read:
    /// finishes or undoes what a kill interrupted, and
    /// discards layers that no record names, if all records are known. Blocks.
    pub(super) fn settle_all(
        &self,
        used: &HashMap<String, Arc<LayerHold>>,
        sandboxes: &HashSet<String>,
        all_known: bool,
    ) -> io::Result<()> {
        let mut listed = Vec::new();
        if all_known {
            listed = self.listed_by_orphans()?;
        }
        for name in names(&self.directory)? {
            let own = self.directory.join(&name);
            if used.contains_key(&name) {
                forget_origin(&own)?;
                continue;
            }
            // Its record does not name the layer, whatever other records say.
            if let Some(sandbox) = origin(&own)?
                && (all_known || sandboxes.contains(&sandbox))
            {
                let sandbox = self.sandboxes.join(sandbox);
                if sandbox.is_dir() {
                    give_back(&own, &sandbox)?;
                }
            }
            if !all_known || listed.contains(&name) {
                continue;
            }
            info!(layer = %name, "layer without a record discarded");
            self.discard(&name)?;
        }
        for name in used.keys().filter(|name| !self.directory.join(name).is_dir()) {
            warn!(layer = %name, "layer of a snapshot is missing; sandboxes that need it cannot start");
        }
        Ok(())
    }

    /// The layers to which a sandbox gave its files after its record was written, the top one first: its
    /// directory names them above those of the record. Records can be older than the files. Blocks.
    pub(super) fn newer(&self, sandbox: &str, body: &RecordBody) -> io::Result<Vec<String>> {
        // A restore in place exchanges the whole directory, and an ephemeral sandbox removes it.
        if !body.persistent || body.restore.is_some() || body.limits.disk_mib > 0 {
            return Ok(Vec::new());
        }
        let list = match fs::read_to_string(self.sandboxes.join(sandbox).join(LIST)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            list => list?,
        };
        let listed: Vec<&str> = list.lines().collect();
        let recorded: Vec<&str> = body.layers.iter().map(|layer| layer.name.as_str()).collect();
        let Some(newer) = listed.strip_suffix(recorded.as_slice()) else { return Ok(Vec::new()) };
        if listed.len() > LAYERS_MAX || !newer.iter().all(|name| is_internal_name(name)) {
            return Ok(Vec::new());
        }
        for name in newer {
            let own = self.directory.join(name);
            let complete = PARTS.iter().all(|part| own.join(part).is_dir());
            if !complete || origin(&own)?.is_some() {
                return Ok(Vec::new());
            }
        }
        Ok(newer.iter().map(|name| (*name).to_owned()).collect())
    }

    /// The layers of directories that were put aside because they have no record.
    fn listed_by_orphans(&self) -> io::Result<Vec<String>> {
        let mut all = Vec::new();
        for orphan in names(&self.orphaned)? {
            match fs::read_to_string(self.orphaned.join(orphan).join(LIST)) {
                // An operator may put any file there.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidData
                    ) => {}
                list => all.extend(list?.lines().map(str::to_owned)),
            }
        }
        Ok(all)
    }
}

/// Writes the names of the layers of a sandbox into its directory. Blocks.
pub(crate) fn list(sandbox: &Path, body: &RecordBody) -> io::Result<()> {
    let names = body.layers.iter().map(|layer| format!("{}\n", layer.name));
    let new = sandbox.join(NEW_LIST);
    let mut file = fs::File::create(&new)?;
    file.write_all(names.collect::<String>().as_bytes())?;
    file.sync_data()?;
    // A list is never seen in part: layers that it does not name can be discarded.
    fs::rename(new, sandbox.join(LIST))
}

fn exchange(layer: &Path, sandbox: &Path, part: &str) -> io::Result<()> {
    let upper = sandbox.join(part).join("upper");
    Ok(renameat_with(CWD, layer.join(part), CWD, upper, RenameFlags::EXCHANGE)?)
}

/// Exchanges the directories back, unless those of the layer are empty. Those of the sandbox are
/// empty, because nothing ran in it since.
fn give_back(layer: &Path, sandbox: &Path) -> io::Result<()> {
    for part in PARTS {
        let taken = match fs::read_dir(layer.join(part)) {
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            entries => entries?.next().transpose()?.is_some(),
        };
        if taken {
            exchange(layer, sandbox, part)?;
            sync(&sandbox.join(part))?;
        }
    }
    forget_origin(layer)
}

/// The sandbox whose directories were taken and which may not name the layer yet.
fn origin(layer: &Path) -> io::Result<Option<String>> {
    let all = names(layer)?;
    let mut all = all.iter().filter_map(|name| name.strip_prefix(TAKEN_FROM));
    Ok(all.find(|name| is_internal_name(name)).map(str::to_owned))
}

fn forget_origin(layer: &Path) -> io::Result<()> {
    let Some(sandbox) = origin(layer)? else { return Ok(()) };
    fs::remove_file(layer.join(format!("{TAKEN_FROM}{sandbox}")))?;
    sync(layer)
}

/// The names in a directory; none if it does not exist.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        }
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}
