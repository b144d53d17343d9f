//! What all workers did together.

use std::collections::BTreeMap;
use std::fmt;

/// The combined counts of all workers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) streams: usize,
    pub(super) bytes: usize,
    pub(super) resumes: usize,
    /// Commands that a killed server had not passed on.
    pub(super) never_began: usize,
    pub(super) commands: usize,
    pub(super) files: usize,
    pub(super) reached: usize,
    /// Sandboxes whose agents were killed, by the state that they had afterwards.
    pub(super) ended: BTreeMap<String, usize>,
    /// Files of failed sandboxes that the API returned, and those that it refused.
    pub(super) read_of_failed: [usize; 2],
    /// Answers other than success, by status and code.
    pub(super) refused: BTreeMap<String, usize>,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.bytes += other.bytes;
        self.resumes += other.resumes;
        self.never_began += other.never_began;
        self.commands += other.commands;
        self.files += other.files;
        self.reached += other.reached;
        self.read_of_failed[0] += other.read_of_failed[0];
        self.read_of_failed[1] += other.read_of_failed[1];
        for (state, count) in &other.ended {
            *self.ended.entry(state.clone()).or_default() += count;
        }
        for (what, count) in &other.refused {
            *self.refused.entry(what.clone()).or_default() += count;
        }
    }

    pub(super) fn refuse(&mut self, what: &str) {
        *self.refused.entry(what.to_owned()).or_default() += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self:?}")
    }
}
