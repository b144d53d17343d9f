//! The files of a busy sandbox, and which of them must be there.
//!
//! Files have increasing numbers, and none is written twice. A hundred of them are a generation. When
//! the first file of a generation was acknowledged, the generation before the last one is deleted. So the
//! files of a sandbox at any moment are those of the newest generation that it has and of the one before.

use super::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// The number of files in a generation.
const GENERATION: usize = 100;
/// The size of a file, in bytes.
const BYTES: usize = 4_000;

/// The name of a file.
pub(super) fn name(number: usize) -> String {
    format!("f{}-{number}", number / GENERATION)
}

/// The number of the file with this name.
pub(super) fn numbered(name: &str) -> Option<usize> {
    name.strip_prefix('f')?.split_once('-')?.1.parse().ok()
}

/// What a file of a sandbox contains.
pub(super) fn content(sandbox: usize, number: usize) -> Vec<u8> {
    Random::new(((sandbox as u64) << 40) | number as u64).bytes(BYTES)
}

/// What a worker knows of its files.
#[derive(Debug, Default)]
pub(super) struct Files {
    next: usize,
    /// The acknowledged ones that the sandbox has, with the times at which they were acknowledged, in
    /// milliseconds since 1970.
    acknowledged: BTreeMap<usize, i64>,
    /// Those of a snapshot in the object store: no loss reaches them.
    safe: BTreeSet<usize>,
}

/// What a sandbox may have lost since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Nothing: it was not restored.
    None,
    /// What was acknowledged from this time on, because it was restored once from a snapshot of that
    /// time.
    Since(i64),
    /// All but the safe files, because it was restored several times.
    Unknown,
}

impl Files {
    /// The number of the file to write next.
    pub(super) fn take(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// Notes that a file was written. Returns a pattern of the files to delete now.
    pub(super) fn acknowledge(&mut self, number: usize, at_ms: i64) -> Option<String> {
        let generation = number / GENERATION;
        let of_it = generation * GENERATION..=number;
        let is_first = self.acknowledged.range(of_it).next().is_none();
        self.acknowledged.insert(number, at_ms);
        (is_first && generation >= 2).then(|| format!("f{}-*", generation - 2))
    }

    /// An acknowledged file.
    pub(super) fn any(&self, random: &mut Random) -> Option<usize> {
        let first = self.last()? / GENERATION * GENERATION;
        let newest: Vec<usize> = self.acknowledged.range(first..).map(|(file, _)| *file).collect();
        newest.get(random.below(newest.len())).copied()
    }

    /// All acknowledged files of the newest two generations.
    pub(super) fn all(&self) -> Vec<usize> {
        let last = self.last().unwrap_or_default();
        self.acknowledged.keys().copied().filter(|file| is_held(*file, last)).collect()
    }

    fn last(&self) -> Option<usize> {
        self.acknowledged.keys().next_back().copied()
    }

    /// Those of a snapshot that is taken now.
    pub(super) fn moment(&self) -> BTreeSet<usize> {
        self.all().into_iter().collect()
    }

    /// A snapshot of that moment is in the object store.
    pub(super) fn pushed(&mut self, moment: BTreeSet<usize>) {
        self.safe = moment;
    }

    /// Compares with the files that the sandbox has. Returns those that must be there and are not, and
    /// takes the others as its files.
    pub(super) fn compare(&mut self, there: &BTreeSet<usize>, loss: Loss) -> Vec<usize> {
        let last = there.last().copied().unwrap_or_default();
        let must = |file: &usize, at_ms: &i64| match loss {
            Loss::None => true,
            Loss::Since(since_ms) => *at_ms < since_ms || self.safe.contains(file),
            Loss::Unknown => self.safe.contains(file),
        };
        let newest = self.last().unwrap_or_default();
        // Without a loss, the sandbox has the newest generation that was acknowledged.
        let last = if loss == Loss::None { last.max(newest) } else { last };
        let missing = self.acknowledged.iter().filter(|(file, at_ms)| {
            is_held(**file, last) && must(file, at_ms) && !there.contains(file)
        });
        let missing = missing.map(|(file, _)| *file).collect();
        self.acknowledged.retain(|file, _| there.contains(file));
        missing
    }
}

/// Whether a sandbox whose newest file is `last` has not deleted a file yet.
fn is_held(file: usize, last: usize) -> bool {
    file / GENERATION + 1 >= last / GENERATION
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(count: usize) -> Files {
        let mut files = Files::default();
        for at_ms in 0..count {
            let number = files.take();
            files.acknowledge(number, at_ms as i64);
        }
        files
    }

    #[test]
    fn without_a_restore_every_acknowledged_file_must_be_there() {
        let there: BTreeSet<usize> = (0..49).collect();
        assert_eq!(written(50).compare(&there, Loss::None), [49]);
        assert_eq!(written(50).compare(&BTreeSet::new(), Loss::None).len(), 50, "all are lost");
    }

    #[test]
    fn a_restore_loses_what_was_acknowledged_after_its_snapshot() {
        let there: BTreeSet<usize> = (0..30).collect();
        assert!(written(50).compare(&there, Loss::Since(30)).is_empty());
        assert_eq!(written(50).compare(&there, Loss::Since(31)), [30]);
        let mut files = written(50);
        files.pushed(files.moment());
        assert_eq!(files.compare(&there, Loss::Unknown).len(), 20, "they were pushed");
    }

    #[test]
    fn generations_are_deleted_one_after_the_other() {
        let mut files = written(200);
        assert_eq!(files.acknowledge(200, 0), Some("f0-*".to_owned()));
        assert_eq!(files.acknowledge(201, 0), None);
        let there: BTreeSet<usize> = (100..=201).collect();
        assert!(files.compare(&there, Loss::None).is_empty());
        assert_eq!(numbered(&name(201)), Some(201));
    }
}
