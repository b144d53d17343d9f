//! The layers of snapshots that a record names.
//!
//! A layer is an immutable directory below `DATA/snapshots/layers/`. Records of sandboxes and of
//! snapshots name the layers that their files need. Every record in memory holds its layers; when
//! the last one that names a layer is gone, the layer is put on the list of unused ones, and its
//! directory is deleted.

use isolet_wire::launcher::SnapshotLayer;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Maximum number of layers of one sandbox or snapshot. The mount option with the paths of all
/// layers is limited. Folding begins earlier, so this is reached only if it does not keep up.
pub(crate) const LAYERS_MAX: usize = 24;

/// A sandbox or a snapshot with more layers is folded.
const FOLD_ABOVE: usize = 8;
/// How many of the lower layers stay as they are when the others are merged: they are the largest,
/// and other snapshots may share them.
const FOLD_REST: usize = 4;

/// Layers that no record in memory names any more. There is at most one entry for each directory of
/// a layer.
#[derive(Debug, Default)]
pub(crate) struct UnusedLayers {
    names: Mutex<Vec<String>>,
    pub(crate) more: Notify,
}

impl UnusedLayers {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What all records that name a layer share.
#[derive(Debug)]
pub(crate) struct LayerHold {
    name: String,
    unused: Arc<UnusedLayers>,
}

impl LayerHold {
    pub(crate) fn new(name: String, unused: &Arc<UnusedLayers>) -> Arc<Self> {
        Arc::new(Self { name, unused: Arc::clone(unused) })
    }
}

impl Drop for LayerHold {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        self.unused.names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        self.unused.more.notify_one();
    }
}

/// A layer that a record names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordedLayer {
    /// The name of its directory.
    pub(crate) name: String,
    /// The first id that its files have on disk: that of all files of the record.
    pub(crate) id_base: u32,
    /// `None` only between reading the record and the first use of it.
    #[serde(skip)]
    hold: Option<Arc<LayerHold>>,
}

impl RecordedLayer {
    pub(crate) fn new(name: String, id_base: u32, hold: Arc<LayerHold>) -> Self {
        Self { name, id_base, hold: Some(hold) }
    }
}

impl PartialEq for RecordedLayer {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.id_base == other.id_base
    }
}

/// Layers, the top one first, and a layer that shows the same as all of them.
#[derive(Debug, Clone)]
pub(crate) struct FoldedLayers {
    pub(crate) top: Vec<RecordedLayer>,
    pub(crate) merged: RecordedLayer,
}

/// The layers of a sandbox or a snapshot, the top one first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LayerStack(Vec<RecordedLayer>);

impl LayerStack {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, RecordedLayer> {
        self.0.iter()
    }

    /// The stack with one more layer on top.
    pub(crate) fn with_top(&self, top: RecordedLayer) -> Self {
        Self([vec![top], self.0.clone()].concat())
    }

    /// The stack with the merged layer in place of its top ones; `None` if its top ones are others.
    pub(crate) fn folded(&self, folded: &FoldedLayers) -> Option<Self> {
        let rest = self.0.strip_prefix(folded.top.as_slice())?;
        Some(Self([vec![folded.merged.clone()], rest.to_vec()].concat()))
    }

    /// The top layers that are to be merged, if there are too many.
    pub(crate) fn to_fold(&self) -> Option<&[RecordedLayer]> {
        let count = self.0.len().checked_sub(FOLD_REST).filter(|_| self.0.len() > FOLD_ABOVE)?;
        Some(&self.0[..count])
    }

    /// Holds the layers of a record that was just read.
    pub(crate) fn hold(&mut self, mut hold: impl FnMut(&str) -> Arc<LayerHold>) {
        for layer in &mut self.0 {
            layer.hold = Some(hold(&layer.name));
        }
    }

    /// The layers as the launcher needs them.
    pub(crate) fn to_spec(&self) -> Vec<SnapshotLayer> {
        let spec = |layer: &RecordedLayer| SnapshotLayer {
            name: layer.name.clone(),
            id_base: layer.id_base,
        };
        self.0.iter().map(spec).collect()
    }

    /// Whether all names are such as the server gives them, and all ids begin at that of the record:
    /// a sandbox has the ids of the snapshot that it comes from, and so have its layers.
    pub(crate) fn is_valid(&self, uid_base: u32, id_base: Option<u32>) -> bool {
        self.0.len() <= LAYERS_MAX
            && self.0.iter().all(|layer| {
                super::is_internal_name(&layer.name)
                    && Some(layer.id_base) == id_base
                    && isolet_jail::is_id_base(uid_base, layer.id_base)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_of_a_long_stack_is_folded() {
        let unused = Arc::new(UnusedLayers::default());
        let stack = |count: usize| {
            let hold = |_| LayerHold::new(String::new(), &unused);
            let layer = |at| RecordedLayer::new(crate::model::ids::random(), 0, hold(at));
            LayerStack((0..count).map(layer).collect())
        };
        let folded = |count| stack(count).to_fold().map(<[_]>::len);
        assert_eq!(folded(FOLD_ABOVE), None);
        assert_eq!(folded(FOLD_ABOVE + 1), Some(FOLD_ABOVE + 1 - FOLD_REST));
        let base = isolet_jail::UID_BASE;
        assert!(stack(LAYERS_MAX).is_valid(base, Some(0)));
        assert!(!stack(LAYERS_MAX + 1).is_valid(base, Some(0)));
        assert!(!stack(1).is_valid(base, Some(base)), "other ids than those of the record");
        assert!(!stack(1).is_valid(base, None));
    }

    #[test]
    fn a_layer_is_unused_when_the_last_record_that_names_it_is_gone() {
        let unused = Arc::new(UnusedLayers::default());
        let layer = |name: &str| {
            let hold = LayerHold::new(name.to_owned(), &unused);
            RecordedLayer::new(name.to_owned(), 0, hold)
        };
        let first = LayerStack::default().with_top(layer("a"));
        let second = first.with_top(layer("b"));
        assert_eq!(second.to_spec().len(), 2);
        drop(first);
        assert!(unused.take().is_empty());
        let top = vec![second.iter().next().unwrap().clone()];
        let fold = FoldedLayers { top, merged: layer("c") };
        let folded = second.folded(&fold).unwrap();
        drop(fold);
        drop(second);
        assert_eq!(unused.take(), ["b"]);
        assert_eq!(folded.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["c", "a"]);
        let other = FoldedLayers { top: vec![layer("x")], merged: layer("y") };
        assert!(folded.folded(&other).is_none() && folded.to_fold().is_none());
        drop(other);
        drop(folded);
        let mut left = unused.take();
        left.sort();
        assert_eq!(left, ["a", "c", "x", "y"]);
    }
}
