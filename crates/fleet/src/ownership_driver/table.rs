//! The views of all sandboxes, and the actions that are not performed yet. No I/O.

use crate::ownership_driver::class;
use isolet_cluster::model::{Class, Epoch};
use isolet_cluster::protocol::{Action, Event, Phase, View, step};
use isolet_sandbox::{LocalSandbox, SandboxClass, StoredOwnership};
use std::collections::{HashMap, HashSet, VecDeque};
use tracing::warn;

/// One sandbox.
struct Tracked {
    sandbox: LocalSandbox,
    view: View,
    /// Actions that are not performed yet. An action that waits already is not added again, so their
    /// number is bounded by that of the kinds of actions and registrations.
    queue: VecDeque<Action>,
    /// The view is not the recorded one.
    is_unrecorded: bool,
    /// An action is under way.
    is_busy: bool,
}

/// All sandboxes, by their internal names. Their number is that of the sandboxes of a server.
#[derive(Default)]
pub(super) struct Table(HashMap<String, Tracked>);

/// An action that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) sandbox: LocalSandbox,
    /// `None`: only the view must be recorded.
    pub(super) action: Option<Action>,
}

/// A comparison that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) sandbox: LocalSandbox,
    pub(super) epoch: Epoch,
    pub(super) registration: Epoch,
}

impl Tracked {
    fn new(sandbox: LocalSandbox, phase: Phase) -> Self {
        let view = View { class: class(&sandbox), phase };
        Self { sandbox, view, queue: VecDeque::new(), is_unrecorded: false, is_busy: false }
    }

    fn learn(&mut self, event: Event) {
        let (view, actions) = step(self.view, event);
        self.is_unrecorded |= view != self.view;
        self.view = view;
        for action in actions {
            if !self.queue.contains(&action) {
                self.queue.push_back(action);
            }
        }
    }

    fn is_idle(&self) -> bool {
        !self.is_busy && self.queue.is_empty()
    }

    fn stored(&self) -> StoredOwnership {
        StoredOwnership {
            name: self.sandbox.name.clone(),
            tenant: self.sandbox.tenant.clone(),
            id: self.sandbox.id.clone(),
            suspended: matches!(
                self.view.phase,
                Phase::Suspended { .. } | Phase::Superseded { .. }
            ),
            // Numbers and enums only.
            view: serde_json::to_string(&self.view).unwrap_or_default(),
        }
    }
}

impl Table {
    /// Adds recorded views, also of sandboxes that are gone.
    pub(super) fn load(&mut self, stored: Vec<StoredOwnership>, local: &[LocalSandbox]) {
        let classes: HashMap<&str, SandboxClass> =
            local.iter().map(|one| (one.name.as_str(), one.class)).collect();
        for one in stored {
            let view: View = match serde_json::from_str(&one.view) {
                Ok(view) => view,
                Err(error) => {
                    warn!(sandbox = %one.id, tenant = %one.tenant, %error, "the recorded view of its ownership cannot be read; it is read from etcd again");
                    continue;
                }
            };
            let recorded = match view.class {
                Class::Node => SandboxClass::Node,
                Class::Store => SandboxClass::Store,
            };
            let class = classes.get(one.name.as_str()).copied().unwrap_or(recorded);
            let StoredOwnership { name, tenant, id, .. } = one;
            let sandbox = LocalSandbox { tenant, id, name: name.clone(), class };
            self.0.insert(name, Tracked::new(sandbox, view.phase));
        }
    }

    /// The phase of a sandbox; `None` if it is not in the table.
    pub(super) fn phase(&self, name: &str) -> Option<Phase> {
        self.0.get(name).map(|tracked| tracked.view.phase)
    }

    /// This node owns the sandbox. Ignored if the table knows it as owned.
    pub(super) fn own(&mut self, sandbox: &LocalSandbox, epoch: Epoch, registration: Epoch) {
        let new = || Tracked::new(sandbox.clone(), Phase::Absent);
        let tracked = self.0.entry(sandbox.name.clone()).or_insert_with(new);
        tracked.learn(Event::Owned { epoch, registration });
    }

    /// This node owns the sandbox at another epoch, and nobody else has owned it in between.
    pub(super) fn own_anew(&mut self, name: &str, epoch: Epoch, registration: Epoch) {
        if let Some(tracked) = self.0.get_mut(name) {
            tracked.view.phase = Phase::Absent;
            tracked.queue.clear();
            tracked.learn(Event::Owned { epoch, registration });
        }
    }

    pub(super) fn learn(&mut self, name: &str, event: Event) {
        if let Some(tracked) = self.0.get_mut(name) {
            tracked.learn(event);
        }
    }

    pub(super) fn learn_all(&mut self, event: Event) {
        self.0.values_mut().for_each(|tracked| tracked.learn(event));
    }

    /// The guard has stopped these sandboxes.
    pub(super) fn learn_stopped(&mut self, stopped: &[String]) {
        for name in stopped {
            if let Some(tracked) = self.0.get_mut(name)
                && tracked.sandbox.class == SandboxClass::Store
            {
                tracked.learn(Event::GuardExpired);
            }
        }
    }

    /// Compares with the sandboxes of the server: those that are gone are to be given up. Returns
    /// those that are not in the table.
    pub(super) fn sync(&mut self, local: Vec<LocalSandbox>) -> Vec<LocalSandbox> {
        let names: HashSet<&str> = local.iter().map(|one| one.name.as_str()).collect();
        for tracked in self.0.values_mut() {
            if !names.contains(tracked.sandbox.name.as_str()) {
                tracked.learn(Event::Delete);
            }
        }
        local.into_iter().filter(|one| !self.0.contains_key(&one.name)).collect()
    }

    /// Asks again for what failed: from the view of each sandbox with which nothing is under way.
    pub(super) fn retry(&mut self, held: Option<Epoch>) {
        for tracked in self.0.values_mut().filter(|tracked| tracked.is_idle()) {
            match (tracked.view.phase, held) {
                (Phase::Suspended { .. }, Some(registration)) => {
                    tracked.learn(Event::LeaseRegained { registration });
                }
                (
                    Phase::Running { registration: known, .. }
                    | Phase::Claimed { registration: known, .. },
                    Some(registration),
                ) if known != registration => tracked.learn(Event::LeaseRegained { registration }),
                (Phase::Claimed { .. }, Some(_))
                | (Phase::Superseded { .. } | Phase::Stopping { .. } | Phase::Released { .. }, _) => {
                    tracked.learn(Event::Restarted)
                }
                (Phase::Absent, _) => tracked.is_unrecorded = true,
                (Phase::Running { .. } | Phase::Claimed { .. } | Phase::Suspended { .. }, _) => {}
            }
        }
    }

    /// The views that are not recorded. They count as recorded until [`Self::not_recorded`].
    pub(super) fn take_unrecorded(&mut self) -> Vec<StoredOwnership> {
        let changed = |one: &&mut Tracked| one.is_unrecorded && one.view.phase != Phase::Absent;
        let all = self.0.values_mut().filter(changed);
        let take = |tracked: &mut Tracked| {
            tracked.is_unrecorded = false;
            tracked.stored()
        };
        all.map(take).collect()
    }

    pub(super) fn not_recorded(&mut self, views: &[StoredOwnership]) {
        for view in views {
            if let Some(tracked) = self.0.get_mut(&view.name) {
                tracked.is_unrecorded = true;
            }
        }
    }

    /// The names of sandboxes with something to do.
    pub(super) fn with_work(&self) -> Vec<String> {
        let has_work = |one: &&Tracked| {
            !one.is_busy && (!one.queue.is_empty() || one.view.phase == Phase::Absent)
        };
        self.0.values().filter(has_work).map(|one| one.sandbox.name.clone()).collect()
    }

    /// Begins the next action of a sandbox. `None` if there is none, or one is under way.
    pub(super) fn begin(&mut self, name: &str) -> Option<Work> {
        let tracked = self.0.get_mut(name).filter(|tracked| !tracked.is_busy)?;
        let action = tracked.queue.pop_front();
        if action.is_none() && tracked.view.phase != Phase::Absent {
            return None;
        }
        tracked.is_busy = true;
        Some(Work { sandbox: tracked.sandbox.clone(), action })
    }

    /// Begins all suspensions that are due next.
    pub(super) fn begin_suspensions(&mut self) -> Vec<LocalSandbox> {
        self.begin_where(|action| matches!(action, Action::Suspend))
            .into_iter()
            .map(|(sandbox, _)| sandbox)
            .collect()
    }

    /// Sandboxes that must not run, and whose suspension waits for an action that is under way.
    pub(super) fn busy_suspended(&self) -> Vec<LocalSandbox> {
        let waits = |one: &&Tracked| one.is_busy && one.queue.contains(&Action::Suspend);
        self.0.values().filter(waits).map(|one| one.sandbox.clone()).collect()
    }

    /// Begins all comparisons that are due next.
    pub(super) fn begin_questions(&mut self) -> Vec<Question> {
        let begun = self.begin_where(|action| matches!(action, Action::Compare { .. }));
        let question = |(sandbox, action)| match action {
            Action::Compare { epoch, registration } => {
                Some(Question { sandbox, epoch, registration })
            }
            _ => None,
        };
        begun.into_iter().filter_map(question).collect()
    }

    fn begin_where(&mut self, wanted: impl Fn(&Action) -> bool) -> Vec<(LocalSandbox, Action)> {
        let mut begun = Vec::new();
        for tracked in self.0.values_mut().filter(|tracked| !tracked.is_busy) {
            if tracked.queue.front().is_some_and(&wanted)
                && let Some(action) = tracked.queue.pop_front()
            {
                tracked.is_busy = true;
                begun.push((tracked.sandbox.clone(), action));
            }
        }
        begun
    }

    /// An action has ended, possibly with something learned.
    pub(super) fn ended(&mut self, name: &str, learned: Option<Event>) {
        if let Some(tracked) = self.0.get_mut(name) {
            tracked.is_busy = false;
            if let Some(event) = learned {
                tracked.learn(event);
            }
        }
    }

    /// An action is left for later, as the next one.
    pub(super) fn put_back(&mut self, name: &str, action: Action) {
        if let Some(tracked) = self.0.get_mut(name) {
            tracked.is_busy = false;
            tracked.queue.push_front(action);
        }
    }

    /// Nothing of the sandbox is left.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests;
