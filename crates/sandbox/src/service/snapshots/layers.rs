//! Discards the layers of snapshots that no record names any more, and folds those of sandboxes and
//! snapshots that have many: each lookup of a file visits all of them.
//!
//! Folding merges the top layers into a new one. When it is on the disk, the records of snapshots
//! and sleeping sandboxes that have the same top layers name the merged one instead, and running
//! sandboxes do when they fall asleep. The layers that no record names then are discarded. After a kill
//! in between, a start discards the merged layer if no record names it, and folds again.

use crate::live::failpoint::pass;
use crate::live::inner::Inner;
use crate::live::snapshots::{SpaceFloor, list_layers};
use crate::model::blocking::blocking;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::ids::TenantId;
use crate::model::record::snapshot::SnapshotRecord;
use crate::model::record::snapshot_layers::{FoldedLayers, RecordedLayer};
use crate::model::state::State;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::{info, warn};

/// Maximum number of layers that are remembered because they were not folded.
const FAILED_MAX: usize = 10_000;

/// Discards unused layers. Runs until the server stops.
pub(in crate::service) async fn keep(inner: Arc<Inner>) {
    let layers = inner.snapshots.files.layers.clone();
    loop {
        let more = layers.unused.more.notified();
        let unused = layers.unused.take();
        // A stopping server forgets its records, which still name their layers. Whatever was unused
        // before that is discarded by the next start.
        if inner.stopping.load(Ordering::SeqCst) {
            return;
        }
        for name in unused {
            if pass("layers.unused").await.is_err() {
                continue;
            }
            let own = layers.clone();
            let shown = name.clone();
            match blocking(move || own.discard_unused(&name)).await {
                Ok(Ok(true)) => info!(layer = %shown, "unused layer discarded"),
                Ok(Ok(false)) => {
                    info!(layer = %shown, "layer stays: an orphaned directory needs it")
                }
                done => warn!(layer = %shown, ?done, "layer is discarded at the next start"),
            }
            inner.trash.notify_one();
        }
        more.await;
    }
}

/// Folds the layers of whatever has too many. Runs until the server stops.
pub(in crate::service) async fn fold(inner: Arc<Inner>) {
    let layers = inner.snapshots.files.layers.clone();
    let mut failed: HashSet<String> = HashSet::new();
    loop {
        while let Some((tenant, top)) = longest(&inner, &failed) {
            let name = top[0].name.clone();
            match inner.fold(&tenant, top).await {
                Ok(()) => {}
                Err(error) => warn!(layer = %name, %error, "layers are not folded"),
            }
            if failed.len() >= FAILED_MAX {
                failed.clear();
            }
            // Also after a success: a running sandbox names the layers until it falls asleep.
            failed.insert(name);
        }
        layers.more.notified().await;
    }
}

/// The layers that are to be merged next, of a snapshot or of a sandbox that sleeps.
fn longest(inner: &Inner, but: &HashSet<String>) -> Option<(TenantId, Vec<RecordedLayer>)> {
    let fits = |top: &[RecordedLayer]| !but.contains(&top[0].name);
    for entry in inner.registry.all() {
        let record = entry.view().record;
        let top = record.body.layers.to_fold().filter(|top| fits(top));
        if let Some(top) = top.filter(|_| record.state == State::Sleeping) {
            return Some((entry.tenant.clone(), top.to_vec()));
        }
    }
    for record in inner.snapshots.all() {
        if let Some(top) = record.body.settings.layers.to_fold().filter(|top| fits(top)) {
            return Some((record.tenant.clone(), top.to_vec()));
        }
    }
    None
}

impl Inner {
    /// Merges layers and lets all records name the merged one.
    async fn fold(&self, tenant: &TenantId, top: Vec<RecordedLayer>) -> Result<(), Error> {
        self.space.check()?;
        let begun = std::time::Instant::now();
        let count = top.len();
        let files = self.snapshots.files.clone();
        let id_base = top[0].id_base;
        let floor = SpaceFloor { floor_mib: self.config.free_space_floor_mib };
        let failed = |reason: String| Error::Copy { of: "layers of snapshots".into(), reason };
        let layers = files.layers.clone();
        let created = blocking(move || layers.create(id_base)).await?;
        let merged = created.map_err(|error| failed(error.to_string()))?;
        pass("fold.created").await?;
        let folded = FoldedLayers { top, merged };
        let own = folded.clone();
        let done = blocking(move || {
            files.merge(&own.top, &own.merged, floor)?;
            Ok::<_, isolet_storage::CopyError>(files.layers.sync(&own.merged))
        });
        let synced = done.await?.map_err(|error| failed(error.to_string()))?;
        synced.map_err(|error| failed(error.to_string()))?;
        pass("fold.merged").await?;
        for record in self.snapshots.all().iter().filter(|record| record.tenant == *tenant) {
            let Some(stack) = record.body.settings.layers.folded(&folded) else { continue };
            let mut new = SnapshotRecord::clone(record);
            new.body.settings.layers = stack;
            self.store.update_snapshot(&new.name, new.row()?.body).await?;
            let directory = self.snapshots.files.directory(&new.name);
            let settings = new.body.settings.clone();
            self.snapshots.replace(record, new);
            let listed = blocking(move || list_layers(&directory, &settings)).await?;
            if let Err(error) = listed {
                warn!(snapshot = %record.id, %error, "list of its layers is that before the fold");
            }
            pass("fold.snapshot").await?;
        }
        for entry in self.registry.all().iter().filter(|entry| entry.tenant == *tenant) {
            if entry.view().record.body.layers.folded(&folded).is_some() {
                // A driver that has ended needs no layers.
                let _ = entry.commands.send(DriverCommand::Fold(folded.clone())).await;
            }
        }
        let ms = begun.elapsed().as_millis();
        info!(%tenant, count, layer = %folded.merged.name, ms, "layers folded");
        pass("fold.done").await
    }
}
