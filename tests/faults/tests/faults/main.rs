//! Faults, and what must hold after them. Row numbers are those of the catalogue of faults; each
//! row ends with the general invariant: requests are answered, a new sandbox can be created, and
//! nothing is left over.

mod agent_versions;
mod agents;
mod attacks;
mod backups;
mod copies;
mod descriptors;
mod disk;
mod format;
mod full_disk;
mod full_snapshots;
mod hostile_backups;
mod images;
mod inside;
mod launcher;
mod live_copies;
mod memory;
mod neighbours;
mod pause;
mod power_cuts;
mod records;
mod server_kills;
mod sleep;
mod snapshot_kills;
mod snapshot_store;
mod soak;
mod steps;
mod terminals;
mod veth;
mod wall_clock;
