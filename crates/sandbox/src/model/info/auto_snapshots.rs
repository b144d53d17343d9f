//! Snapshots that the server takes without a request: at intervals, and before a sandbox is
//! destroyed.

use super::TTL_S_MAX;
use crate::model::clock::now_ms;
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::info::class::SandboxClass;
use serde::{Deserialize, Serialize};

/// How many scheduled snapshots of a sandbox exist unless the client says otherwise.
pub const KEEP_DEFAULT: u32 = 5;
/// Maximum number of scheduled snapshots of one sandbox.
pub const KEEP_MAX: u32 = 100;

/// The interval of a sandbox of the class `store` unless the client says otherwise, in seconds.
pub const STORE_EVERY_S: u64 = 300;
/// How many scheduled snapshots of such a sandbox exist on its node unless the client says otherwise:
/// those in the object store count apart.
const STORE_KEEP: u32 = 1;

/// When the server takes snapshots of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoSnapshots {
    /// The interval in seconds; `None` means no scheduled snapshots.
    pub every_s: Option<u64>,
    /// How many scheduled snapshots exist at most; the oldest ones are deleted.
    pub keep: u32,
    /// Whether a snapshot is taken before the sandbox is destroyed.
    pub on_destroy: bool,
    /// When the interval was set, in milliseconds since 1970. The first snapshot is due one interval
    /// later.
    since_ms: i64,
}

/// A request to change [`AutoSnapshots`]. Fields that are `None` stay unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AutoSnapshotsChange {
    /// The interval in seconds; 0 means no scheduled snapshots.
    pub every_s: Option<u64>,
    /// How many scheduled snapshots exist at most: 1 to [`KEEP_MAX`].
    pub keep: Option<u64>,
    /// Whether a snapshot is taken before the sandbox is destroyed.
    pub on_destroy: Option<bool>,
}

/// Why a snapshot was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A client requested it.
    #[default]
    Request,
    /// The interval of the sandbox had passed.
    Schedule,
    /// The sandbox was about to be destroyed.
    Destroy,
}

impl Trigger {
    /// The word for clients.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Schedule => "schedule",
            Self::Destroy => "destroy",
        }
    }
}

impl Default for AutoSnapshots {
    fn default() -> Self {
        Self { every_s: None, keep: KEEP_DEFAULT, on_destroy: false, since_ms: 0 }
    }
}

impl AutoSnapshots {
    /// Whether no client has changed anything. Such settings are not stored.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The settings of a new sandbox of this class.
    pub(crate) fn of_class(config: &Config, class: SandboxClass) -> Self {
        match class {
            SandboxClass::Node => Self::default(),
            SandboxClass::Store => Self {
                every_s: Some(STORE_EVERY_S.max(config.snapshot_every_s_min)),
                keep: STORE_KEEP,
                on_destroy: false,
                since_ms: now_ms(),
            },
        }
    }

    /// These settings, or those of the class if they have no interval.
    pub(crate) fn or_of_class(self, config: &Config, class: SandboxClass) -> Self {
        let on_destroy = self.on_destroy;
        match self.every_s {
            Some(_) => self,
            None if class.is_node() => self,
            None => Self { on_destroy, ..Self::of_class(config, class) },
        }
    }

    /// The settings after a change.
    ///
    /// # Errors
    /// [`Error::BadField`] for a value out of bounds.
    pub(crate) fn changed(
        self,
        config: &Config,
        change: AutoSnapshotsChange,
    ) -> Result<Self, Error> {
        let mut new = self;
        if let Some(every_s) = change.every_s {
            new.every_s = match every_s {
                0 => None,
                seconds => Some(within(
                    "snapshot_every_s",
                    seconds,
                    config.snapshot_every_s_min.max(1),
                    TTL_S_MAX,
                )?),
            };
            new.since_ms = if new.every_s.is_some() { now_ms() } else { 0 };
        }
        if let Some(keep) = change.keep {
            let keep = within("keep", keep, 1, KEEP_MAX.into())?;
            new.keep = u32::try_from(keep).unwrap_or(KEEP_MAX);
        }
        new.on_destroy = change.on_destroy.unwrap_or(new.on_destroy);
        Ok(new)
    }

    /// The settings after all files were replaced, and those of a new sandbox that takes them from a
    /// snapshot.
    pub(crate) fn begun_again(self) -> Self {
        Self { since_ms: if self.every_s.is_some() { now_ms() } else { 0 }, ..self }
    }

    /// Whether a snapshot of that time was taken after the files were last replaced as a whole.
    pub(crate) fn is_current(&self, created_at_ms: i64) -> bool {
        created_at_ms >= self.since_ms
    }

    /// Milliseconds until the next snapshot is due, if the last scheduled one was taken at
    /// `last_ms`; `None` without an interval. At most one interval, whatever the clock says.
    pub(crate) fn due_in_ms(&self, last_ms: Option<i64>, now_ms: i64) -> Option<u64> {
        let every_ms = self.every_s?.saturating_mul(1000);
        let from_ms = last_ms.unwrap_or(self.since_ms).max(self.since_ms);
        let passed_ms = u64::try_from(now_ms.saturating_sub(from_ms)).unwrap_or(0);
        Some(every_ms.saturating_sub(passed_ms))
    }
}

fn within(field: &'static str, value: u64, min: u64, max: u64) -> Result<u64, Error> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(Error::BadField { field, reason: format!("{value} is not within {min} and {max}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("/nowhere".into(), std::path::Path::new("/nowhere"))
    }

    fn change(every_s: Option<u64>, keep: Option<u64>) -> Result<AutoSnapshots, Error> {
        let change = AutoSnapshotsChange { every_s, keep, on_destroy: None };
        AutoSnapshots::default().changed(&config(), change)
    }

    #[test]
    fn values_out_of_bounds_are_refused_with_their_field() {
        let field = |result| match result {
            Err(Error::BadField { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(field(change(Some(59), None)), "snapshot_every_s");
        assert_eq!(field(change(Some(u64::MAX), None)), "snapshot_every_s");
        assert_eq!(field(change(None, Some(0))), "keep");
        assert_eq!(field(change(None, Some(101))), "keep");
        assert_eq!(change(Some(60), Some(100)).unwrap().keep, 100);
        assert!(change(Some(0), None).unwrap().is_default());
    }

    #[test]
    fn the_interval_counts_from_the_newest_snapshot_or_from_its_setting() {
        let set = AutoSnapshots { every_s: Some(60), since_ms: 1_000_000, ..Default::default() };
        assert_eq!(AutoSnapshots::default().due_in_ms(None, 5), None);
        assert_eq!(set.due_in_ms(None, 1_010_000), Some(50_000));
        assert_eq!(set.due_in_ms(Some(900_000), 1_010_000), Some(50_000), "of another interval");
        assert_eq!(set.due_in_ms(Some(1_055_000), 1_060_000), Some(55_000));
        assert_eq!(set.due_in_ms(Some(1_055_000), 9_000_000), Some(0));
        assert_eq!(set.due_in_ms(Some(9_000_000), 1_060_000), Some(60_000), "clock set back");
    }
}
