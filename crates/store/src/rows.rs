//! Rows of the tables, as callers see them.
//!
//! Columns hold what the store searches for or must keep unique. The rest is a versioned JSON text that
//! the caller parses, so that one invalid text does not hide other records.

/// How long the response to an idempotency key is stored, in ms.
pub const ANSWER_MS: i64 = 24 * 3600 * 1000;

/// The record of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRow {
    /// The server's name for it, unique on the host.
    pub name: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The client's name for it, unique within the tenant.
    pub id: String,
    /// Index of its uid range, unique.
    pub slot: u32,
    /// Its state, as in the API.
    pub state: String,
    /// Everything else, as JSON.
    pub body: String,
}

/// The record of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// The `name` of its sandbox.
    pub sandbox: String,
    /// Unique within the sandbox.
    pub id: String,
    /// Everything else, as JSON.
    pub body: String,
}

/// The record of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    /// The server's name for it, unique on the host.
    pub name: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The client's name for it, unique within the tenant.
    pub id: String,
    /// Everything else, as JSON.
    pub body: String,
}

/// What a node of a fleet knows about the ownership of a sandbox. It outlives the record of the sandbox
/// until the ownership has been given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipRow {
    /// The `name` of the sandbox.
    pub name: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The client's name for it.
    pub id: String,
    /// Whether another node may own it, so that nothing of it may run.
    pub suspended: bool,
    /// The view of the node as JSON, which only the fleet's protocol reads.
    pub view: String,
}

/// The record of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRow {
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The server's name for it, unique.
    pub id: String,
    /// What its owner has set, as JSON.
    pub body: String,
    /// How far its deliveries on this server are, as JSON; `None`: there was none.
    pub progress: Option<String>,
}

/// The stored response to an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The tenant that sent the key.
    pub tenant: String,
    /// The value of `Idempotency-Key`.
    pub key: String,
    /// SHA-256 of the request's body.
    pub body: [u8; 32],
    /// The response, as JSON.
    pub answer: String,
}

/// The stored responses of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerTotals {
    /// How many there are.
    pub count: u64,
    /// The length of all of them, in bytes.
    pub bytes: u64,
}

/// Identifies a member of an object in a sandbox's body, such that a later member under the same key is
/// not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The object's name in the body.
    pub object: String,
    /// The member's key in the object.
    pub key: String,
    /// A field of the member, whose value is a string.
    pub field: String,
    /// The field's value. A member with another value is not removed.
    pub value: String,
}

/// Ended sandboxes in a tenant's history. Older ones count only in the totals.
pub const HISTORY_MAX: usize = 1000;

/// Resource usage of all ended sandboxes of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Number of ended sandboxes.
    pub count: u64,
    /// Processor time, in µs.
    pub cpu_us: u64,
    /// Memory limit multiplied by the time awake, in MiB × ms.
    pub memory_mib_ms: u64,
}

impl UsageTotals {
    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            count: self.count.saturating_add(more.count),
            cpu_us: self.cpu_us.saturating_add(more.cpu_us),
            memory_mib_ms: self.memory_mib_ms.saturating_add(more.memory_mib_ms),
        }
    }
}

/// The history record of an ended sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSandbox {
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The details for clients, as JSON.
    pub body: String,
    /// What it adds to the totals; `count` is 1.
    pub sums: UsageTotals,
}
