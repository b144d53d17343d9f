//! What workers have done.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Files whose write was acknowledged.
    pub(super) written: usize,
    /// Files that were read and compared.
    pub(super) checked: usize,
    /// Complete comparisons of the list of files.
    pub(super) looks: usize,
    /// Snapshots whose push was acknowledged.
    pub(super) pushed: usize,
    /// Restores that the record of a sandbox reported.
    pub(super) restores: usize,
    /// Responses with the headers of a restore.
    pub(super) restored_in_headers: usize,
    /// Answers to commands that reported lost processes.
    pub(super) losses_reported: usize,
    /// Requests that a fault refused or cut off.
    refused: BTreeMap<String, usize>,
}

impl Tally {
    pub(super) fn refused(&mut self, reason: String) {
        *self.refused.entry(reason).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.checked += other.checked;
        self.looks += other.looks;
        self.pushed += other.pushed;
        self.restores += other.restores;
        self.restored_in_headers += other.restored_in_headers;
        self.losses_reported += other.losses_reported;
        for (reason, count) in &other.refused {
            *self.refused.entry(reason.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "files: {} written, {} read and compared, {} lists compared, {} snapshots pushed",
            self.written, self.checked, self.looks, self.pushed
        )?;
        writeln!(
            f,
            "restores: {} reported in records, {} in headers; {} commands reported lost processes",
            self.restores, self.restored_in_headers, self.losses_reported
        )?;
        write!(f, "refused: {:?}", self.refused)
    }
}
