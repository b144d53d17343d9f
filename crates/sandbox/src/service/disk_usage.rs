//! Counts what the files of tenants with a disk quota take on the server's disk.

use crate::live::inner::Inner;
use crate::live::snapshots::PARTS;
use crate::model::blocking::blocking;
use crate::model::ids::TenantId;
use crate::model::record::snapshot_layers::LayerStack;
use isolet_storage::measure_tree;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// The time between two counts.
const INTERVAL: Duration = Duration::from_secs(5);

/// Counts after each interval if any tenant has a quota. Runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    if !inner.quotas.any() {
        return;
    }
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut layers = LayerSizes::new();
    loop {
        ticks.tick().await;
        let counting = Arc::clone(&inner);
        let known = std::mem::take(&mut layers);
        if let Ok((used, sizes)) = blocking(move || count(&counting, known)).await {
            layers = sizes;
            inner.quotas.set_used(used);
        }
    }
}

/// The bytes of layers, by tenant and by the name of the layer. Layers never change.
type LayerSizes = HashMap<(TenantId, String), u64>;

/// The bytes of all tenants with a quota. A layer counts once for each tenant, however many
/// sandboxes and snapshots share it. Blocks.
fn count(inner: &Inner, known: LayerSizes) -> (HashMap<TenantId, u64>, LayerSizes) {
    let mut sizes = LayerSizes::new();
    let mut layers = |tenant: &TenantId, stack: &LayerStack| {
        for layer in stack.iter() {
            let key = (tenant.clone(), layer.name.clone());
            let measure = || {
                let files = &inner.snapshots.files.layers;
                let parts = PARTS.iter().map(|part| files.part(layer, part));
                let bytes = |part: PathBuf| {
                    measure_tree(&part, &mut |_| Ok(())).map(|all| all.size_bytes())
                };
                parts.map(|part| bytes(part).unwrap_or(0)).sum()
            };
            let bytes = known.get(&key).copied();
            sizes.entry(key).or_insert_with(|| bytes.unwrap_or_else(measure));
        }
    };
    let mut used: HashMap<TenantId, u64> = HashMap::new();
    for entry in inner.registry.all() {
        if inner.quotas.counts(&entry.tenant) {
            let bytes = isolet_jail::disk_bytes(&inner.jail, &entry.name).unwrap_or(0);
            *used.entry(entry.tenant.clone()).or_default() += bytes;
            layers(&entry.tenant, &entry.view().record.body.layers);
        }
    }
    for snapshot in inner.snapshots.all() {
        if inner.quotas.counts(&snapshot.tenant) {
            *used.entry(snapshot.tenant.clone()).or_default() +=
                snapshot.body.size_bytes.saturating_sub(snapshot.body.layer_bytes);
            layers(&snapshot.tenant, &snapshot.body.settings.layers);
        }
    }
    for (tenant, directory) in builds(&inner.config.data_dir) {
        if inner.quotas.counts(&tenant) {
            let all = measure_tree(&directory, &mut |_| Ok(()));
            *used.entry(tenant).or_default() += all.map_or(0, |all| all.size_bytes());
        }
    }
    for ((tenant, _), bytes) in &sizes {
        *used.entry(tenant.clone()).or_default() += bytes;
    }
    (used, sizes)
}

/// The directories of the tenants' builds, with the files that were uploaded for them. Blocks.
fn builds(data_dir: &Path) -> Vec<(TenantId, PathBuf)> {
    let all = fs::read_dir(data_dir.join("builds")).into_iter().flatten().flatten();
    let owned = all.filter_map(|entry| {
        let tenant = entry.file_name().to_str()?.parse().ok()?;
        Some((tenant, entry.path()))
    });
    owned.collect()
}
