//! What the guard knows: the deadline and the sandboxes. No I/O.

use isolet_wire::lease::{BootTime, Epoch, Guard, LeaseDeadline};
use isolet_wire::lease_guard::{GuardedSandbox, GuardedState, LIST_MAX};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

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
    guard: Guard,
    sandboxes: BTreeMap<String, Entry>,
}

/// A sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) state: GuardedState,
    /// Whether it was paused before it was stopped, so that it stays frozen when it is admitted.
    pub(super) was_paused: bool,
    /// The registration under which it was last admitted; `None` if it never was.
    admitted_under: Option<Epoch>,
}

impl Entry {
    /// A sandbox that the guard has stopped.
    pub(super) fn stopped(state: GuardedState, was_paused: bool) -> Self {
        Self { state, was_paused, admitted_under: None }
    }
}

impl Guarded {
    pub(super) fn deadline(&self) -> Option<LeaseDeadline> {
        self.guard.deadline()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sandboxes.is_empty()
    }

    /// Takes a new deadline, unless a later one is known.
    pub(super) fn extend(&mut self, deadline: LeaseDeadline) {
        self.guard = self.guard.renewed(deadline);
    }

    /// Whether a sandbox may run under this registration. Returns what is known about it.
    pub(super) fn may_run(
        &self,
        name: &str,
        registration: Epoch,
        now: BootTime,
    ) -> Result<Option<Entry>, Refusal> {
        if !self.guard.admits(registration, now) {
            return Err(Refusal::Expired);
        }
        let known = self.sandboxes.get(name).copied();
        if known.is_none() {
            self.check_count()?;
        }
        Ok(known)
    }

    /// A sandbox runs, or may start, under this registration, which [`Self::may_run`] has checked.
    pub(super) fn admitted(&mut self, name: String, registration: Epoch) {
        let state = GuardedState::Watched;
        let entry = Entry { state, was_paused: false, admitted_under: Some(registration) };
        self.sandboxes.insert(name, entry);
    }

    /// Adds sandboxes that are to be stopped now. Returns those that are not stopped yet.
    pub(super) fn begin_stop(&mut self, names: Vec<String>) -> Result<Vec<String>, Refusal> {
        let mut running = Vec::with_capacity(names.len());
        for name in names {
            match self.sandboxes.get(&name) {
                Some(entry) if entry.state != GuardedState::Watched => {}
                Some(_) => running.push(name),
                None => {
                    self.check_count()?;
                    self.sandboxes
                        .insert(name.clone(), Entry::stopped(GuardedState::Watched, false));
                    running.push(name);
                }
            }
        }
        Ok(running)
    }

    fn check_count(&self) -> Result<(), Refusal> {
        if self.sandboxes.len() < SANDBOXES_MAX {
            return Ok(());
        }
        Err(Refusal::Other(format!("{SANDBOXES_MAX} sandboxes are guarded already")))
    }

    /// Forgets a sandbox. Returns what was known.
    pub(super) fn release(&mut self, name: &str) -> Option<Entry> {
        self.sandboxes.remove(name)
    }

    /// What is known about a sandbox.
    pub(super) fn get(&self, name: &str) -> Option<Entry> {
        self.sandboxes.get(name).copied()
    }

    /// The number of sandboxes that are stopped.
    pub(super) fn stopped(&self) -> u32 {
        let stopped = self.sandboxes.values().filter(|one| one.state != GuardedState::Watched);
        u32::try_from(stopped.count()).unwrap_or(u32::MAX)
    }

    pub(super) fn set(&mut self, name: &str, entry: Entry) {
        if let Some(known) = self.sandboxes.get_mut(name) {
            *known = entry;
        }
    }

    /// The names of sandboxes that run and must not run any more.
    pub(super) fn must_stop(&self, now: BootTime) -> Vec<String> {
        let runs_on = |entry: &Entry| {
            entry.admitted_under.is_some_and(|under| !self.guard.must_freeze(under, now))
        };
        self.of(GuardedState::Watched)
            .filter(|name| !self.sandboxes.get(*name).is_some_and(runs_on))
            .cloned()
            .collect()
    }

    /// The time until the deadline if a sandbox is to be stopped then.
    pub(super) fn due(&self, now: BootTime) -> Option<Duration> {
        let watched = self.of(GuardedState::Watched).next().is_some();
        self.deadline().filter(|_| watched).map(|deadline| deadline.at.since(now))
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

    fn at(millis: u64) -> BootTime {
        BootTime::from_millis(millis)
    }

    fn of(registration: i64) -> Epoch {
        Epoch::of_revision(registration)
    }

    fn extend(guarded: &mut Guarded, registration: i64, millis: u64) {
        guarded.extend(LeaseDeadline { registration: of(registration), at: at(millis) });
    }

    fn admit(
        guarded: &mut Guarded,
        text: &str,
        registration: i64,
        now: u64,
    ) -> Result<(), Refusal> {
        guarded.may_run(text, of(registration), at(now))?;
        guarded.admitted(name(text), of(registration));
        Ok(())
    }

    #[test]
    fn nothing_is_admitted_without_a_deadline_in_the_future_and_its_registration() {
        let mut guarded = Guarded::default();
        assert_eq!(admit(&mut guarded, "a", 1, 5), Err(Refusal::Expired));
        extend(&mut guarded, 1, 10);
        assert_eq!(admit(&mut guarded, "a", 1, 10), Err(Refusal::Expired), "it has passed");
        assert_eq!(admit(&mut guarded, "a", 2, 9), Err(Refusal::Expired), "another registration");
        assert_eq!(admit(&mut guarded, "a", 1, 9), Ok(()));
        assert_eq!(admit(&mut guarded, "a", 1, 9), Ok(()), "twice is once");
        assert_eq!(guarded.due(at(4)), Some(Duration::from_millis(6)));
        assert!(guarded.must_stop(at(9)).is_empty());
        assert_eq!(guarded.must_stop(at(10)), ["a"]);
    }

    #[test]
    fn late_deadlines_change_nothing_and_a_new_registration_ends_what_the_last_allowed() {
        let mut guarded = Guarded::default();
        extend(&mut guarded, 1, 100);
        extend(&mut guarded, 1, 50);
        admit(&mut guarded, "a", 1, 60).unwrap();
        extend(&mut guarded, 2, 200);
        extend(&mut guarded, 1, 900);
        assert_eq!(guarded.deadline().unwrap().registration, of(2));
        assert_eq!(guarded.must_stop(at(60)), ["a"], "before the deadline of its registration");
        assert_eq!(admit(&mut guarded, "a", 1, 60), Err(Refusal::Expired));
        admit(&mut guarded, "a", 2, 60).unwrap();
        assert!(guarded.must_stop(at(199)).is_empty());
    }

    #[test]
    fn a_stopped_sandbox_stays_stopped_until_it_is_admitted() {
        let mut guarded = Guarded::default();
        extend(&mut guarded, 1, 10);
        admit(&mut guarded, "a", 1, 0).unwrap();
        guarded.set("a", Entry::stopped(GuardedState::Stopped, true));
        assert_eq!(guarded.due(at(10)), None, "it is stopped only once");
        extend(&mut guarded, 1, 30);
        assert!(guarded.must_stop(at(20)).is_empty());
        assert_eq!(
            (guarded.stopped(), guarded.get("a").unwrap().state),
            (1, GuardedState::Stopped)
        );
        assert!(guarded.may_run("a", of(1), at(20)).unwrap().unwrap().was_paused);
        assert!(guarded.release("a").is_some() && guarded.is_empty());
    }

    #[test]
    fn sandboxes_are_stopped_that_were_never_admitted() {
        let mut guarded = Guarded::default();
        extend(&mut guarded, 1, 10);
        admit(&mut guarded, "a", 1, 0).unwrap();
        let asked = vec![name("a"), name("b")];
        assert_eq!(guarded.begin_stop(asked.clone()).unwrap(), asked);
        assert_eq!(guarded.must_stop(at(0)), ["b"], "until the kernel has frozen it");
        guarded.set("b", Entry::stopped(GuardedState::Stopped, false));
        assert_eq!(guarded.begin_stop(asked).unwrap(), ["a"], "each is stopped once");
    }

    #[test]
    fn lists_come_in_pages() {
        let mut guarded = Guarded::default();
        extend(&mut guarded, 1, 10);
        for number in 0..LIST_MAX + 3 {
            admit(&mut guarded, &format!("{number:05}"), 1, 0).unwrap();
        }
        let first = guarded.list("");
        assert_eq!(first.len(), LIST_MAX);
        let second = guarded.list(&first.last().unwrap().name);
        assert_eq!(second.len(), 3);
        assert!(second[0].name > first.last().unwrap().name);
        assert!(guarded.list(&second[2].name).is_empty());
    }
}
