//! Decides which busy sandboxes move to which processors. Moves as few as possible, and none if that
//! gains little, because a moved program loses its caches.

use std::collections::BTreeSet;

/// From this load of sandboxes on, a processor may have no time left: programs outside sandboxes use
/// it too, and are not measured.
const CONTENDED: f64 = 0.3;
/// By how much a move must reduce the difference between two processors.
const GAIN_MIN: f64 = 0.25;

/// A sandbox that uses processor time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BusySandbox {
    /// The processors that it runs on.
    pub(super) processors: Vec<u32>,
    /// How many processors it has used on average.
    pub(super) load: f64,
}

impl BusySandbox {
    /// Its load on each of its processors.
    fn share(&self) -> f64 {
        self.load / self.processors.len().max(1) as f64
    }
}

/// Changes the processors of sandboxes until no move gains enough; returns the indices of those that
/// changed.
pub(super) fn spread(available: &[u32], sandboxes: &mut [BusySandbox]) -> Vec<usize> {
    let wanted = wanted_shares(available, sandboxes);
    let mut moved = BTreeSet::new();
    // Each move makes the spread more even, so this ends; the bound is a second reason.
    for _ in 0..sandboxes.len() * 2 {
        let load = |processor: u32| total(processor, sandboxes, &wanted);
        let order = |a: &&u32, b: &&u32| load(**a).total_cmp(&load(**b));
        let Some(from) = available.iter().max_by(order).copied() else { break };
        let Some(to) = available.iter().min_by(order).copied() else { break };
        let gap = load(from) - load(to);
        let movable = sandboxes
            .iter()
            .enumerate()
            .filter(|(_, one)| one.processors.contains(&from) && !one.processors.contains(&to));
        let gain = |index: usize| gap - (gap - 2.0 * wanted[index]).abs();
        let best = movable.map(|(index, _)| index).max_by(|a, b| gain(*a).total_cmp(&gain(*b)));
        let Some(index) = best.filter(|index| gain(*index) >= GAIN_MIN) else { break };
        let processors = &mut sandboxes[index].processors;
        processors.retain(|processor| *processor != from);
        processors.push(to);
        processors.sort_unstable();
        moved.insert(index);
    }
    moved.into_iter().collect()
}

/// What each sandbox would use of each of its processors if it had them to itself. On a contended
/// processor, a measured load says how the time was divided, and not how much each wants: those that
/// get about as much as the others may want all of it.
fn wanted_shares(available: &[u32], sandboxes: &[BusySandbox]) -> Vec<f64> {
    let measured: Vec<f64> = sandboxes.iter().map(BusySandbox::share).collect();
    let wants_all = |one: &BusySandbox| {
        let own = available.iter().filter(|processor| one.processors.contains(processor));
        own.copied().any(|processor| {
            let load = total(processor, sandboxes, &measured);
            let here = sandboxes.iter().filter(|one| one.processors.contains(&processor)).count();
            load >= CONTENDED && one.share() * 2.0 * here as f64 >= load
        })
    };
    sandboxes.iter().map(|one| if wants_all(one) { 1.0 } else { one.share() }).collect()
}

/// The load on one processor.
fn total(processor: u32, sandboxes: &[BusySandbox], shares: &[f64]) -> f64 {
    let here = sandboxes.iter().zip(shares).filter(|(one, _)| one.processors.contains(&processor));
    here.map(|(_, share)| share).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(processors: &[u32], load: f64) -> BusySandbox {
        BusySandbox { processors: processors.to_vec(), load }
    }

    fn counts(available: &[u32], sandboxes: &[BusySandbox]) -> Vec<usize> {
        let on = |processor: &u32| {
            sandboxes.iter().filter(|one| one.processors.contains(processor)).count()
        };
        available.iter().map(on).collect()
    }

    #[test]
    fn ten_sandboxes_on_one_processor_spread_over_all() {
        let available = [0, 1, 2, 3, 4];
        let mut all = vec![sandbox(&[0], 0.1); 10];
        assert_eq!(spread(&available, &mut all).len(), 8);
        assert_eq!(counts(&available, &all), [2; 5]);
        assert_eq!(spread(&available, &mut all), [0; 0], "an even spread stays");
    }

    #[test]
    fn a_processor_shared_by_many_counts_more_than_one_that_one_sandbox_fills() {
        let mut all = vec![sandbox(&[0], 0.25); 4];
        all.push(sandbox(&[1], 1.0));
        assert_eq!(spread(&[0, 1], &mut all).len(), 1);
        assert_eq!(counts(&[0, 1], &all), [3, 2]);
    }

    #[test]
    fn programs_outside_sandboxes_that_take_most_of_a_processor_do_not_prevent_the_spread() {
        let mut all = vec![sandbox(&[0], 0.07); 9];
        all.push(sandbox(&[1], 0.4));
        assert_eq!(spread(&[0, 1], &mut all).len(), 4);
        assert_eq!(counts(&[0, 1], &all), [5, 5]);
        let mut even = vec![sandbox(&[0], 0.25); 3];
        even.extend(vec![sandbox(&[1], 0.2); 2]);
        assert_eq!(spread(&[0, 1], &mut even), [0; 0], "the same number of each stays");
    }

    #[test]
    fn sandboxes_with_little_to_do_stay() {
        let mut all = vec![sandbox(&[0], 0.06), sandbox(&[0], 0.06)];
        assert_eq!(spread(&[0, 1], &mut all), [0; 0]);
    }

    #[test]
    fn a_wide_sandbox_keeps_its_number_of_processors() {
        let mut all = vec![sandbox(&[0, 1], 1.0), sandbox(&[0, 1], 1.0)];
        spread(&[0, 1, 2, 3], &mut all);
        assert_eq!(counts(&[0, 1, 2, 3], &all), [1; 4]);
        assert!(all.iter().all(|one| one.processors.len() == 2), "{all:?}");
    }

    #[test]
    fn sandboxes_on_every_processor_have_nowhere_to_go() {
        let mut all = vec![sandbox(&[0, 1], 2.0), sandbox(&[0, 1], 1.0)];
        assert_eq!(spread(&[0, 1], &mut all), [0; 0]);
        assert_eq!(spread(&[], &mut []), [0; 0]);
    }
}
