//! A table of cases in one test: every row has a name, all rows run, and the end lists those that
//! failed.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Collects the names of failed rows.
#[derive(Debug, Default)]
pub struct Rows {
    failed: Vec<String>,
    count: usize,
}

impl Rows {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs one row and records a failure.
    pub fn row(&mut self, name: &str, test: impl FnOnce()) {
        self.count += 1;
        if catch_unwind(AssertUnwindSafe(test)).is_err() {
            eprintln!("^^^ row {name:?}");
            self.failed.push(name.to_owned());
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.failed.is_empty(), "of {} rows failed: {:?}", self.count, self.failed);
        }
    }
}
