//! Everything that changed in this round, and is therefore processed at its end.

/// Ids, each once, in the order in which they were marked.
#[derive(Debug, Default, Clone)]
pub(crate) struct PendingSet {
    ids: Vec<u64>,
}

impl PendingSet {
    /// Adds an id, unless it is there.
    pub(crate) fn mark(&mut self, id: u64) {
        if !self.ids.contains(&id) {
            self.ids.push(id);
        }
    }

    /// Takes all ids; those that are marked from now on are for the next call.
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

/// A set for each kind of thing that the agent looks at when a round ends.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Connections that may have sent more frames than were handled.
    pub(crate) connections: PendingSet,
    /// Shells, and contexts of bash by their own number.
    pub(crate) shells: PendingSet,
    /// Programs without a shell.
    pub(crate) execs: PendingSet,
    /// Terminals.
    pub(crate) terminals: PendingSet,
    /// Processes in the background.
    pub(crate) processes: PendingSet,
    /// Contexts.
    pub(crate) contexts: PendingSet,
}

impl Pending {
    /// Whether the next round must not wait: something is left that no descriptor tells of.
    #[must_use]
    pub(crate) fn is_urgent(&self) -> bool {
        let sets =
            [&self.connections, &self.shells, &self.terminals, &self.processes, &self.contexts];
        sets.iter().any(|set| !set.is_empty())
    }
}
