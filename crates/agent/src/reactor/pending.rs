//! What was affected in this round and must be flushed at its end.

/// A set of ids in the order in which they were marked.
#[derive(Debug, Default, Clone)]
pub(crate) struct PendingSet {
    ids: Vec<u64>,
}

impl PendingSet {
    /// Adds an id unless it is in the set.
    pub(crate) fn mark(&mut self, id: u64) {
        if !self.ids.contains(&id) {
            self.ids.push(id);
        }
    }

    /// Takes all ids. Ids that are marked later are for the next call.
    pub(crate) fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ids)
    }

    #[must_use]
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.ids.contains(&id)
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// One set for each kind of thing that is flushed at the end of a round.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Connections that may have unhandled frames.
    pub(crate) connections: PendingSet,
    /// Shells, and bash contexts by their own number.
    pub(crate) shells: PendingSet,
    /// Programs without a shell.
    pub(crate) execs: PendingSet,
    pub(crate) terminals: PendingSet,
    /// Background processes by number.
    pub(crate) processes: PendingSet,
    /// Code contexts by number.
    pub(crate) contexts: PendingSet,
}

impl Pending {
    /// Whether the next round must not wait, because no descriptor reports the remaining work.
    #[must_use]
    pub(crate) fn is_urgent(&self) -> bool {
        let sets =
            [&self.connections, &self.shells, &self.terminals, &self.processes, &self.contexts];
        sets.iter().any(|set| !set.is_empty())
    }
}
