//! A table of cases in one test: each row has a name, all of them run, and those that failed are
//! told by name at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Collects what failed.
#[derive(Debug, Default)]
pub struct Rows {
    failed: Vec<String>,
    count: usize,
}

impl Rows {
    /// No row yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs one row.
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
