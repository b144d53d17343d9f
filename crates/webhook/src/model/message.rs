//! The request that tells a receiver about one event.

use isolet_clock::rfc3339;
use isolet_store::audit::{AuditGap, AuditPosition, GapReason, ReadEntry};
use serde::Serialize;
use serde_json::{Map, Value};

/// Length of the random part of an id in hexadecimal digits.
const ID_HEX: usize = 32;

/// An event that is to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// The same for all attempts.
    pub(crate) id: String,
    /// The body, as JSON.
    pub(crate) body: String,
    /// The position in the log behind it; `None`: it is not of the log.
    pub(crate) position: Option<AuditPosition>,
}

/// The body of a request.
#[derive(Serialize)]
struct Body<'a, D> {
    r#type: &'a str,
    timestamp: &'a str,
    data: D,
}

/// What an event is about.
#[derive(Serialize)]
struct EventData<'a> {
    tenant: &'a str,
    sandbox: Option<&'a str>,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    /// As in the audit log.
    details: &'a Map<String, Value>,
}

/// Which events may be missing.
#[derive(Serialize)]
struct GapData<'a> {
    tenant: &'a str,
    from: u64,
    to: u64,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
}

#[derive(Serialize)]
struct TestData<'a> {
    tenant: &'a str,
    webhook: &'a str,
}

/// What every event of a webhook has in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) node: Option<&'a str>,
}

fn json<D: Serialize>(r#type: &str, timestamp: &str, data: D) -> String {
    serde_json::to_string(&Body { r#type, timestamp, data })
        .expect("members are strings, numbers and JSON values")
}

impl Message {
    /// The message about an entry of the audit log.
    pub(crate) fn of(entry: &ReadEntry, origin: Origin<'_>) -> Self {
        let data = EventData {
            tenant: origin.tenant,
            sandbox: entry.sandbox.as_deref(),
            seq: entry.seq,
            node: origin.node,
            details: &entry.data,
        };
        // The signature of the entry in the log tells it from every other entry of every node.
        let short = entry.hmac.get(..ID_HEX).unwrap_or(&entry.hmac);
        Self {
            id: format!("evt_{short}"),
            body: json(&entry.event, &entry.ts, data),
            position: Some(entry.position()),
        }
    }

    /// The message about entries that are missing; `behind` is the position before them.
    pub(crate) fn gap(
        gap: &AuditGap,
        behind: &AuditPosition,
        origin: Origin<'_>,
        now_ms: i64,
    ) -> Self {
        let data = GapData {
            tenant: origin.tenant,
            from: gap.from,
            to: gap.to,
            reason: match gap.reason {
                GapReason::Dropped => "dropped",
                GapReason::Lost => "lost",
            },
            node: origin.node,
        };
        let short = |mark: &str| mark.get(..ID_HEX / 2).unwrap_or(mark).to_owned();
        let id = format!("gap_{}{}", short(&behind.mark), short(&gap.next.mark));
        let body = json("webhook.gap", &rfc3339(now_ms), data);
        Self { id, body, position: Some(gap.next.clone()) }
    }

    /// The message of a test.
    pub(crate) fn test(id: String, tenant: &str, webhook: &str, now_ms: i64) -> Self {
        let body = json("webhook.test", &rfc3339(now_ms), TestData { tenant, webhook });
        Self { id, body, position: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_happened_to_which_sandbox() {
        let entry: ReadEntry = serde_json::from_str(
            r#"{"seq":7,"ts":"2026-05-04T10:00:00.123Z","sandbox_id":"demo","event":"sandbox.failed",
                "data":{"from":"server","cause":"agent killed"},"prev":"0","hmac":"0123456789abcdef0123456789abcdef0123"}"#,
        )
        .unwrap();
        let message = Message::of(&entry, Origin { tenant: "default", node: None });
        assert_eq!(message.id, "evt_0123456789abcdef0123456789abcdef");
        let expected = r#"{"type":"sandbox.failed","timestamp":"2026-05-04T10:00:00.123Z","data":{"tenant":"default","sandbox":"demo","seq":7,"details":{"cause":"agent killed","from":"server"}}}"#;
        assert_eq!(message.body, expected);
        assert_eq!(message.position.unwrap().seq, 7);
    }

    #[test]
    fn a_gap_names_what_is_missing_and_keeps_its_id() {
        let next = AuditPosition { seq: 40, mark: "ab".repeat(32), ts: String::new() };
        let gap = AuditGap { from: 11, to: 40, reason: GapReason::Dropped, next };
        let behind = AuditPosition { seq: 10, mark: "cd".repeat(32), ts: String::new() };
        let origin = Origin { tenant: "t", node: Some("node-1") };
        let message = Message::gap(&gap, &behind, origin, 0);
        assert_eq!(message.id, Message::gap(&gap, &behind, origin, 99).id);
        assert!(message.body.contains(r#""from":11,"to":40,"reason":"dropped","node":"node-1""#));
    }
}
