//! A sleeping sandbox gives the directories that hold its changes to a layer, and gets empty ones
//! above it.
//!
//! The directories move first, and then the record names the layer. A start after a kill in between
//! gives them back; see [`crate::live::snapshots`]. Nothing runs in the sandbox, and the driver does
//! nothing else, so no process can see the directories before the record is written.

use crate::lifecycle::driver::Driver;
use crate::live::failpoint::pass;
use crate::live::snapshots::list_layers;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::record::snapshot_layers::{FoldedLayers, LayerStack, RecordedLayer};
use crate::model::state::State;
use tracing::warn;

/// Maximum number of merged layers that wait until the sandbox falls asleep.
const FOLDS_PENDING_MAX: usize = 8;

impl Driver {
    /// Moves the directories to the layer and records it. Returns all layers of the sandbox. If that
    /// fails, the sandbox has its directories.
    pub(super) async fn give_layer(
        &mut self,
        layer: RecordedLayer,
        runs: bool,
    ) -> Result<LayerStack, Error> {
        let body = &self.record.body;
        let stands = self.record.state == State::Sleeping && !runs;
        if !stands || !body.persistent || body.restore.is_some() {
            return Err(self.no_work());
        }
        let old = self.record.clone();
        let stack = old.body.layers.with_top(layer.clone());
        self.record.body.layers = stack.clone();
        let layers = self.inner.snapshots.files.layers.clone();
        let moved = layer.clone();
        let directory = self.entry.directory.clone();
        let body = self.record.body.clone();
        let taken = blocking(move || {
            list_layers(&directory, &body)?;
            layers.take(&moved, &directory)
        });
        let taken = match taken.await {
            Ok(taken) => taken.map_err(|error| self.not_moved(&error)),
            Err(error) => Err(error),
        };
        let recorded = match taken {
            Ok(()) => self.record_layer().await,
            Err(error) => Err(error),
        };
        let layers = self.inner.snapshots.files.layers.clone();
        match recorded {
            Ok(()) => {
                blocking(move || layers.settle(&layer)).await?;
                let _ = pass("layers.settled").await;
                self.publish(None);
                Ok(stack)
            }
            // A broken disk may have the new record nevertheless, and nothing can wake the sandbox.
            Err(error @ Error::StoreBroken) => Err(error),
            Err(error) => {
                self.record = old;
                let directory = self.entry.directory.clone();
                let given = blocking(move || layers.give_back(&layer, &directory)).await;
                if !matches!(given, Ok(Ok(()))) {
                    warn!(sandbox = %self.entry.id, ?given, "directories are not given back");
                    self.fail("its directories were not given back by a snapshot").await;
                }
                Err(error)
            }
        }
    }

    async fn record_layer(&self) -> Result<(), Error> {
        pass("layers.taken").await?;
        self.write(None).await?;
        pass("layers.recorded").await
    }

    fn not_moved(&self, error: &std::io::Error) -> Error {
        Error::Copy { of: format!("sandbox {}", self.entry.id), reason: error.to_string() }
    }

    /// Names a merged layer in place of others. A sandbox that runs does so when it falls asleep.
    pub(super) async fn fold(&mut self, folded: FoldedLayers) {
        let Some(stack) = self.record.body.layers.folded(&folded) else { return };
        if self.record.state != State::Sleeping {
            if self.folds_pending.len() < FOLDS_PENDING_MAX {
                self.folds_pending.push(folded);
            }
            return;
        }
        self.folds_pending.clear();
        let old = self.record.body.layers.clone();
        self.record.body.layers = stack;
        if let Err(error) = self.write(None).await {
            warn!(sandbox = %self.entry.id, %error, "folded layers are not recorded");
            self.record.body.layers = old;
            return;
        }
        self.list_layers().await;
        self.publish(None);
    }

    /// Names the merged layers that became ready while the sandbox ran. The caller writes the record.
    pub(super) fn apply_folds(&mut self) {
        for folded in std::mem::take(&mut self.folds_pending) {
            if let Some(stack) = self.record.body.layers.folded(&folded) {
                self.record.body.layers = stack;
            }
        }
    }

    pub(super) async fn list_layers(&self) {
        let directory = self.entry.directory.clone();
        let body = self.record.body.clone();
        if !body.layers.is_empty() && self.record.body.persistent {
            let _ = blocking(move || list_layers(&directory, &body)).await;
        }
    }
}
