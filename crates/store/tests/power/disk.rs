//! A model of a disk: only synced writes survive a power failure for certain.

use super::trace::TraceEvent;
use std::collections::BTreeMap;
use std::path::Path;

/// Size of an atomic write, in bytes.
const SECTOR: usize = 512;

/// Which unsynced calls survive.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Chance {
    /// No call reached the disk.
    None,
    /// All of them, as if only the process was killed.
    All,
    /// All but the last, and half of the last.
    Torn,
    /// A random selection, in random order.
    Any(u64),
    /// A random selection of their sectors.
    Sectors(u64),
}

impl Chance {
    /// All variants, the random ones with several seeds.
    pub(crate) const ALL: [Self; 6] =
        [Self::None, Self::All, Self::Torn, Self::Any(1), Self::Any(2), Self::Sectors(3)];
}

#[derive(Debug, Default)]
struct DiskFile {
    certain: Vec<u8>,
    pending: Vec<DiskChange>,
    /// The file was removed, and the directory is not synced yet.
    removed: bool,
}

#[derive(Debug, Clone)]
enum DiskChange {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

/// The files of one directory, by name.
#[derive(Debug, Default)]
pub(crate) struct Disk(BTreeMap<String, DiskFile>);

fn apply(bytes: &mut Vec<u8>, change: &DiskChange) {
    match change {
        DiskChange::Write(offset, data) => {
            let from = usize::try_from(*offset).expect("small");
            bytes.resize(bytes.len().max(from + data.len()), 0);
            bytes[from..from + data.len()].copy_from_slice(data);
        }
        DiskChange::Truncate(length) => bytes.resize(usize::try_from(*length).expect("small"), 0),
    }
}

/// A seeded generator, so that failures can be reproduced.
struct Dice(u64);

impl Dice {
    fn yes(&mut self) -> bool {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 63 == 1
    }
}

impl Disk {
    /// Applies a traced call.
    pub(crate) fn take(&mut self, event: &TraceEvent) {
        let (file, change) = match event {
            TraceEvent::Answered => return,
            TraceEvent::SyncNames => return self.0.retain(|_, file| !file.removed),
            TraceEvent::Remove(file) => {
                self.0.entry(file.clone()).or_default().removed = true;
                return;
            }
            TraceEvent::Write(file, offset, data) => {
                (file, Some(DiskChange::Write(*offset, data.clone())))
            }
            TraceEvent::Truncate(file, length) => (file, Some(DiskChange::Truncate(*length))),
            TraceEvent::Sync(file) => (file, None),
        };
        let file = self.0.entry(file.clone()).or_default();
        match change {
            Some(change) => file.pending.push(change),
            None => file.pending.drain(..).for_each(|change| apply(&mut file.certain, &change)),
        }
    }

    /// Whether all calls are synced.
    pub(crate) fn certain(&self) -> bool {
        self.0.values().all(|file| file.pending.is_empty() && !file.removed)
    }

    /// Writes the files as a power failure now may leave them. `moment` varies the seed.
    pub(crate) fn write(&self, folder: &Path, chance: Chance, moment: usize) {
        let there =
            |file: &DiskFile| !file.removed || matches!(chance, Chance::None | Chance::Any(1));
        for (name, file) in self.0.iter().filter(|(_, file)| there(file)) {
            let mut bytes = file.certain.clone();
            for change in left(&file.pending, chance, moment) {
                apply(&mut bytes, &change);
            }
            std::fs::write(folder.join(name), bytes).expect("writes");
        }
    }
}

fn left(pending: &[DiskChange], chance: Chance, moment: usize) -> Vec<DiskChange> {
    let seed = |own: u64| Dice(own.wrapping_add(moment as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    match chance {
        Chance::None => Vec::new(),
        Chance::All => pending.to_vec(),
        Chance::Torn => {
            let mut all = pending.to_vec();
            if let Some(DiskChange::Write(_, data)) = all.last_mut() {
                data.truncate(data.len() / 2);
            }
            all
        }
        Chance::Any(own) => {
            let mut dice = seed(own);
            pending.iter().filter(|_| dice.yes()).cloned().collect()
        }
        Chance::Sectors(own) => {
            let mut dice = seed(own);
            pending.iter().flat_map(|change| sectors(change, &mut dice)).collect()
        }
    }
}

fn sectors(change: &DiskChange, dice: &mut Dice) -> Vec<DiskChange> {
    let DiskChange::Write(offset, data) = change else {
        return dice.yes().then(|| change.clone()).into_iter().collect();
    };
    let parts = data.chunks(SECTOR).enumerate().filter(|_| dice.yes());
    parts.map(|(n, part)| DiskChange::Write(offset + (n * SECTOR) as u64, part.to_vec())).collect()
}
