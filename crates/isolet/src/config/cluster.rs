//! The table `[cluster]`.

use isolet_cluster::model::ClusterSettings;
use isolet_sandbox::FleetSettings;

/// What the service needs to know of the fleet.
pub(super) fn fleet(settings: &ClusterSettings) -> FleetSettings {
    FleetSettings {
        allows_store: settings.store,
        superseded_keep: settings.superseded_keep,
        evict_after: settings.evict_after.filter(|_| settings.store),
    }
}
