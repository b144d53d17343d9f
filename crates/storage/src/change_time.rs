//! The time at which the kernel changed a file last (`ctime`), which programs cannot set.

use rustix::fs::Stat;

/// A time of a file: seconds and nanoseconds.
pub(crate) type Time = (i64, i64);

/// When a file was changed last.
#[allow(clippy::useless_conversion)]
pub(crate) fn changed(stat: &Stat) -> Time {
    (i64::from(stat.st_ctime), i64::try_from(stat.st_ctime_nsec).unwrap_or(0))
}
