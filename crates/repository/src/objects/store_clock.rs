//! The clock of the store. Times of objects are compared with it and with no other, because servers whose
//! clocks differ use the same store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

/// Where the time of the store comes from.
#[derive(Clone)]
pub(crate) enum StoreClock {
    /// The `Date` of its answers.
    Answers(Arc<LastDate>),
    /// The time of a file that is written for this: a directory has no answers, and may be on another
    /// machine.
    Files,
}

/// The `Date` of the last answer, in milliseconds since 1970; `None`: it had none.
#[derive(Debug, Default)]
pub(crate) struct LastDate(Mutex<Option<i64>>);

impl LastDate {
    /// Remembers the date of an answer. Text that is no date counts as none.
    pub(super) fn answered(&self, date: Option<&str>) {
        let at = date.and_then(|text| httpdate::parse_http_date(text).ok());
        let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        *self.lock() = since.and_then(|since| i64::try_from(since.as_millis()).ok());
    }

    fn lock(&self) -> MutexGuard<'_, Option<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self) -> Option<i64> {
        *self.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_date_leaves_no_earlier_one() {
        let last = LastDate::default();
        last.answered(Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(last.get(), Some(784_111_777_000));
        for none in [None, Some(""), Some("yesterday"), Some("Sun, 06 Nov 1924 08:49:37 GMT")] {
            last.answered(Some("Sun, 06 Nov 1994 08:49:37 GMT"));
            last.answered(none);
            assert_eq!(last.get(), None, "{none:?}");
        }
    }
}
