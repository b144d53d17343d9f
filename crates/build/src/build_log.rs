//! The log of a build, with a limit.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum number of entries.
const ENTRIES_MAX: usize = 4000;
/// Maximum size of all messages, in bytes.
const BYTES_MAX: usize = 512 * 1024;
/// The longest message, in bytes; the rest is cut off.
const MESSAGE_BYTES_MAX: usize = 2000;
/// What stands in place of the entries beyond the limit.
const CUT: &str = "the log is full; what follows of it is left out";
/// Number of the last lines of output that explain why a program failed.
const TAIL_LINES: usize = 5;

/// How important an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For the search for errors.
    Debug,
    /// Steps, and what programs write to standard output.
    Info,
    /// What programs write to standard error.
    Warn,
    /// Why the build failed.
    Error,
}

/// An entry of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// In milliseconds since 1970.
    pub at_ms: i64,
    /// How important it is.
    pub level: LogLevel,
    /// One line.
    pub message: String,
    /// The step that it belongs to, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
}

/// The log of a build. It grows up to a limit, and never forgets what it has.
#[derive(Debug)]
pub(crate) struct BuildLog {
    entries: Mutex<Entries>,
    /// The number of entries.
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Entries {
    all: Vec<LogEntry>,
    bytes: usize,
    is_full: bool,
    /// The entries are in the record of the build, on the disk.
    is_stored: bool,
    /// The last lines of the program that runs.
    tail: VecDeque<String>,
}

impl Default for BuildLog {
    fn default() -> Self {
        Self { entries: Mutex::default(), count: watch::Sender::new(0) }
    }
}

impl BuildLog {
    /// The log of a build that has ended, whose entries are on the disk.
    pub(crate) fn stored() -> Self {
        let log = Self::default();
        log.forget();
        log
    }

    /// Frees the memory of the entries, which are on the disk now.
    pub(crate) fn forget(&self) {
        let mut entries = self.lock();
        *entries = Entries { is_stored: true, ..Entries::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, level: LogLevel, step: Option<usize>, message: impl Into<String>) {
        let mut message: String = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            message.push('…');
        }
        let mut entries = self.lock();
        if entries.is_full && level < LogLevel::Error {
            return;
        }
        let full = entries.all.len() >= ENTRIES_MAX || entries.bytes + message.len() > BYTES_MAX;
        let mut entry = LogEntry { at_ms: isolet_clock::now_ms(), level, message, step };
        if full && level < LogLevel::Error {
            entries.is_full = true;
            entry.level = LogLevel::Warn;
            entry.message = CUT.to_owned();
        }
        entries.bytes += entry.message.len();
        entries.all.push(entry);
        self.count.send_replace(entries.all.len());
    }

    /// Records a line of output.
    pub(crate) fn output(&self, level: LogLevel, step: usize, line: &str) {
        {
            let mut entries = self.lock();
            if entries.tail.len() == TAIL_LINES {
                entries.tail.pop_front();
            }
            entries.tail.push_back(line.chars().take(200).collect());
        }
        self.put(level, Some(step), line);
    }

    /// Takes the last lines of output.
    pub(crate) fn take_tail(&self) -> String {
        Vec::from(std::mem::take(&mut self.lock().tail)).join("\n")
    }

    /// Entries from `offset` on, at most `limit`; `None` if they are on the disk.
    pub(crate) fn read(&self, offset: usize, limit: usize) -> Option<Vec<LogEntry>> {
        let entries = self.lock();
        let read = || entries.all.iter().skip(offset).take(limit).cloned().collect();
        (!entries.is_stored).then(read)
    }

    pub(crate) fn all(&self) -> Vec<LogEntry> {
        self.lock().all.clone()
    }

    /// The number of entries, which only grows.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_says_so_and_still_takes_the_error() {
        let log = BuildLog::default();
        for _ in 0..ENTRIES_MAX + 10 {
            log.put(LogLevel::Info, None, "x");
        }
        log.put(LogLevel::Error, Some(3), "it failed");
        let all = log.all();
        assert_eq!(all.len(), ENTRIES_MAX + 2);
        assert_eq!(all[ENTRIES_MAX].message, CUT);
        assert_eq!(all[ENTRIES_MAX + 1].message, "it failed");
        assert_eq!(log.read(ENTRIES_MAX + 1, 100).unwrap().len(), 1);
        assert!(log.read(1_000_000, 100).unwrap().is_empty());
        log.forget();
        assert!(log.all().is_empty() && log.read(0, 1).is_none());
    }

    #[test]
    fn messages_and_all_of_them_have_limits() {
        let log = BuildLog::default();
        for _ in 0..1000 {
            log.put(LogLevel::Info, None, "ü".repeat(5000));
        }
        let bytes: usize = log.all().iter().map(|entry| entry.message.len()).sum();
        assert!(bytes <= BYTES_MAX + MESSAGE_BYTES_MAX, "{bytes}");
        assert!(log.all().iter().all(|entry| entry.message.len() <= MESSAGE_BYTES_MAX + 3));
    }

    #[test]
    fn the_last_lines_of_output_are_at_hand_once() {
        let log = BuildLog::default();
        for line in ["a", "b", "c", "d", "e", "f"] {
            log.output(LogLevel::Warn, 0, line);
        }
        assert_eq!(log.take_tail(), "b\nc\nd\ne\nf");
        assert_eq!(log.take_tail(), "");
    }
}
