//! What the guard knows: the deadline and the sandboxes. No I/O.

use isolet_wire::lease_guard::{GuardedSandbox, GuardedState, LIST_MAX};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Maximum number of guarded sandboxes: that of all sandboxes of a server.
const SANDBOXES_MAX: usize = crate::config::SLOTS as usize;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    Expired,
    Other(String),
}

/// The deadline and the sandboxes.
#[derive(Debug, Default)]
pub(super) struct Guarded {
    deadline_ms: Option<u64>,
    sandboxes: BTreeMap<String, Entry>,
}

/// A sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) state: GuardedState,
    /// Whether it was paused before it was stopped, so that it stays frozen when it is resumed.
    pub(super) was_paused: bool,
}

impl Guarded {
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sandboxes.is_empty()
    }

    pub(super) fn extend(&mut self, deadline_ms: u64) {
        self.deadline_ms = Some(deadline_ms);
    }

    fn check(&self, now_ms: u64) -> Result<(), Refusal> {
        match self.deadline_ms {
            Some(deadline) if deadline > now_ms => Ok(()),
            _ => Err(Refusal::Expired),
        }
    }

    pub(super) fn guard(&mut self, name: String, now_ms: u64) -> Result<(), Refusal> {
        self.check(now_ms)?;
        if self.sandboxes.len() >= SANDBOXES_MAX && !self.sandboxes.contains_key(&name) {
            return Err(Refusal::Other(format!("{SANDBOXES_MAX} sandboxes are guarded already")));
        }
        let new = Entry { state: GuardedState::Watched, was_paused: false };
        let entry = self.sandboxes.entry(name).or_insert(new);
        match entry.state {
            GuardedState::Watched => Ok(()),
            _ => Err(Refusal::Other("it was stopped: resume or release it first".to_owned())),
        }
    }

    /// Forgets a sandbox. Returns what was known.
    pub(super) fn release(&mut self, name: &str) -> Option<Entry> {
        self.sandboxes.remove(name)
    }

    /// Whether a stopped sandbox may continue. One that runs may, too.
    pub(super) fn may_resume(&self, name: &str, now_ms: u64) -> Result<Entry, Refusal> {
        self.check(now_ms)?;
        match self.sandboxes.get(name) {
            None => Err(Refusal::Other("it is not guarded".to_owned())),
            Some(Entry { state: GuardedState::Killed, .. }) => {
                Err(Refusal::Other("its processes were killed: release it".to_owned()))
            }
            Some(entry) => Ok(*entry),
        }
    }

    /// Whether a sandbox was paused before it was stopped.
    pub(super) fn was_paused(&self, name: &str) -> bool {
        self.sandboxes.get(name).is_some_and(|entry| entry.was_paused)
    }

    pub(super) fn set(&mut self, name: &str, entry: Entry) {
        if let Some(known) = self.sandboxes.get_mut(name) {
            *known = entry;
        }
    }

    /// The time until the deadline if a sandbox is to be stopped then.
    pub(super) fn due_in_ms(&self, now_ms: u64) -> Option<u64> {
        let watched = self.of(GuardedState::Watched).next().is_some();
        self.deadline_ms.filter(|_| watched).map(|deadline| deadline.saturating_sub(now_ms))
    }

    /// The names of sandboxes in a state.
    pub(super) fn of(&self, state: GuardedState) -> impl Iterator<Item = &String> {
        self.sandboxes.iter().filter(move |(_, entry)| entry.state == state).map(|(name, _)| name)
    }

    pub(super) fn list(&self, after: &str) -> Vec<GuardedSandbox> {
        let from = (Bound::Excluded(after), Bound::Unbounded);
        let some = self.sandboxes.range::<str, _>(from).take(LIST_MAX);
        some.map(|(name, entry)| GuardedSandbox { name: name.clone(), state: entry.state })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn nothing_is_guarded_without_a_deadline_in_the_future() {
        let mut guarded = Guarded::default();
        assert_eq!(guarded.guard(name("a"), 5), Err(Refusal::Expired));
        guarded.extend(10);
        assert_eq!(guarded.guard(name("a"), 10), Err(Refusal::Expired), "it has passed");
        assert_eq!(guarded.guard(name("a"), 9), Ok(()));
        assert_eq!(guarded.guard(name("a"), 9), Ok(()), "twice is once");
        assert_eq!(guarded.due_in_ms(4), Some(6));
        assert_eq!(guarded.due_in_ms(11), Some(0));
    }

    #[test]
    fn a_stopped_sandbox_continues_only_with_a_later_deadline() {
        let mut guarded = Guarded::default();
        guarded.extend(10);
        guarded.guard(name("a"), 0).unwrap();
        let stopped = Entry { state: GuardedState::Stopped, was_paused: true };
        guarded.set("a", stopped);
        assert_eq!(guarded.due_in_ms(10), None, "it is stopped only once");
        assert_eq!(guarded.may_resume("a", 10).err(), Some(Refusal::Expired));
        guarded.extend(30);
        assert!(matches!(guarded.guard(name("a"), 20), Err(Refusal::Other(_))));
        assert!(guarded.may_resume("a", 20).unwrap().was_paused);
        assert!(matches!(guarded.may_resume("b", 20), Err(Refusal::Other(_))));
        guarded.set("a", Entry { state: GuardedState::Killed, was_paused: false });
        assert!(matches!(guarded.may_resume("a", 20), Err(Refusal::Other(_))));
        assert!(guarded.release("a").is_some() && guarded.is_empty());
    }

    #[test]
    fn lists_come_in_pages() {
        let mut guarded = Guarded::default();
        guarded.extend(10);
        for number in 0..LIST_MAX + 3 {
            guarded.guard(format!("{number:05}"), 0).unwrap();
        }
        let first = guarded.list("");
        assert_eq!(first.len(), LIST_MAX);
        let second = guarded.list(&first.last().unwrap().name);
        assert_eq!(second.len(), 3);
        assert!(second[0].name > first.last().unwrap().name);
        assert!(guarded.list(&second[2].name).is_empty());
    }
}
