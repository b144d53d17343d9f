//! Rows of the tables, as callers see them.
//!
//! Columns hold what the store must keep unique; the rest is a versioned JSON text that belongs
//! to the caller, so that one text that does not read hides no other record.

/// How long an answer is given again to the same idempotency key.
pub const ANSWER_MS: i64 = 24 * 3600 * 1000;

/// One sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRow {
    /// The server's own name for it.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// The client's name for it, unique within the tenant.
    pub id: String,
    /// Its uid range, unique.
    pub slot: u32,
    /// Where it stands.
    pub state: String,
    /// The rest, as JSON.
    pub body: String,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Name of its sandbox.
    pub sandbox: String,
    /// Its id.
    pub id: String,
    /// The rest, as JSON.
    pub body: String,
}

/// What was answered to an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// Whose key.
    pub tenant: String,
    /// The key.
    pub key: String,
    /// SHA-256 of the body that came with it.
    pub body: [u8; 32],
    /// The answer, as JSON.
    pub answer: String,
}

/// A member of an object in a sandbox's body, named so that a later one under the same key is
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The object's name in the body.
    pub object: String,
    /// The member's key in the object.
    pub key: String,
    /// A field of the member, which is text.
    pub field: String,
    /// What it says; a member with another value is not removed.
    pub value: String,
}

/// Ended sandboxes that are held for a tenant; older ones are in the sums alone.
pub const HISTORY_MAX: usize = 1000;

/// What a tenant's ended sandboxes had used together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// How many they are.
    pub count: u64,
    /// Processor time, in µs.
    pub cpu_us: u64,
    /// Memory that they might use, times how long they were awake: in MiB times ms.
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

/// A sandbox that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSandbox {
    /// Whose it was.
    pub tenant: String,
    /// The details for clients, as JSON.
    pub body: String,
    /// What it adds to the sums; `count` is 1.
    pub sums: UsageTotals,
}
