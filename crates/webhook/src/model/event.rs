//! The events that webhooks can receive, and which of them one receives.

use crate::error::Error;
use isolet_store::audit::ReadEntry;
use serde::{Deserialize, Serialize};

/// An event that the server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventKind {
    /// Its name, as in the audit log.
    pub name: &'static str,
    /// When the server sends it.
    pub meaning: &'static str,
}

const fn kind(name: &'static str, meaning: &'static str) -> EventKind {
    EventKind { name, meaning }
}

/// All events that a webhook can choose. The others of the audit log are not sent.
pub const EVENTS: &[EventKind] = &[
    kind("sandbox.created", "A sandbox runs for the first time."),
    kind("sandbox.slept", "A sandbox has been put to sleep."),
    kind("sandbox.woke", "A sandbox that slept runs again."),
    kind("sandbox.paused", "A sandbox has been paused."),
    kind("sandbox.resumed", "A sandbox that was paused runs again."),
    kind("sandbox.failed", "A sandbox has failed; `details.cause` says why."),
    kind("sandbox.unreachable", "The agent of a sandbox does not answer."),
    kind("sandbox.answers", "A sandbox answers again, or runs after a recovery."),
    kind("sandbox.destroyed", "A sandbox is gone."),
    kind("sandbox.superseded", "Another node has taken a sandbox over."),
    kind("sandbox.evicted", "A sandbox has left this node; the object store has it."),
    kind("sandbox.moved", "A sandbox has moved to another node."),
    kind("snapshot.create", "A client has taken a snapshot."),
    kind("snapshot.delete", "A client has deleted a snapshot."),
    kind("key.create", "A client has created an API key."),
    kind("key.revoke", "A client has revoked an API key."),
    kind("webhook.disabled", "The server has stopped the deliveries of another webhook."),
];

/// Maximum number of patterns.
const PATTERNS_MAX: usize = 32;

/// Which events a webhook receives: names, or the first part of names followed by `.*`, or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct EventFilter(Vec<String>);

impl Default for EventFilter {
    fn default() -> Self {
        Self(vec!["sandbox.*".to_owned()])
    }
}

impl EventFilter {
    /// Checks patterns.
    ///
    /// # Errors
    /// [`Error::BadField`] if a pattern matches no event.
    pub(crate) fn parse(patterns: Vec<String>) -> Result<Self, Error> {
        let bad = |reason| Error::BadField { field: "events", reason };
        if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
            return Err(bad(format!("1 to {PATTERNS_MAX} names or patterns")));
        }
        let known = |pattern: &&String| EVENTS.iter().any(|event| matches(pattern, event.name));
        if let Some(unknown) = patterns.iter().find(|pattern| !known(pattern)) {
            let shown: String = unknown.chars().take(64).collect();
            return Err(bad(format!(
                "no event is named {shown:?}; allowed are \"*\", \"sandbox.*\", and names such as \"sandbox.failed\""
            )));
        }
        Ok(Self(patterns))
    }

    pub(crate) fn patterns(&self) -> &[String] {
        &self.0
    }

    /// Whether the webhook receives an entry of the audit log. Calls that failed have changed nothing.
    pub(crate) fn wants(&self, entry: &ReadEntry) -> bool {
        let failed = entry.data.get("status").and_then(serde_json::Value::as_u64);
        failed.is_none_or(|status| status < 400)
            && EVENTS.iter().any(|event| event.name == entry.event)
            && self.0.iter().any(|pattern| matches(pattern, &entry.event))
    }
}

fn matches(pattern: &str, event: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(prefix) => prefix.ends_with('.') && !prefix.contains('*') && event.starts_with(prefix),
        None => pattern == event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: &str, data: &str) -> ReadEntry {
        serde_json::from_str(&format!(
            r#"{{"seq":1,"ts":"","sandbox_id":"a","event":"{event}","data":{data},"prev":"","hmac":""}}"#
        ))
        .unwrap()
    }

    #[test]
    fn patterns_choose_events_that_exist() {
        let parse = |patterns: &[&str]| {
            EventFilter::parse(patterns.iter().copied().map(str::to_owned).collect())
        };
        let filter = parse(&["sandbox.*"]).unwrap();
        assert!(filter.wants(&entry("sandbox.failed", "{}")));
        assert!(!filter.wants(&entry("sandbox.create", "{}")), "a call, not a state");
        assert!(!filter.wants(&entry("key.create", "{}")));
        let filter = parse(&["key.create", "sandbox.failed"]).unwrap();
        assert!(filter.wants(&entry("key.create", r#"{"status":201}"#)));
        assert!(!filter.wants(&entry("key.create", r#"{"status":503}"#)));
        assert!(!filter.wants(&entry("sandbox.woke", "{}")));
        assert!(parse(&["*"]).unwrap().wants(&entry("snapshot.create", "{}")));
        assert!(!parse(&["*"]).unwrap().wants(&entry("exec.start", "{}")));
        for bad in
            [&[][..], &["sandbox"], &["sandbox.fail*"], &["**"], &["exec.start"], &["sandbox.*.*"]]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
