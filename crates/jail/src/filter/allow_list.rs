//! The allow-list of system calls in `filter.json`.

use super::FilterKind;
use serde::Deserialize;

const SOURCE: &str = include_str!("../filter.json");

/// The content of `filter.json`. Its reasons are not read: they are for people.
#[derive(Debug, Deserialize)]
pub(super) struct AllowList {
    pub(super) allow: Vec<String>,
    pub(super) rules: Vec<SyscallRule>,
    pub(super) errno: Vec<ErrnoRule>,
    pub(super) agent: AgentCalls,
    pub(super) egress_proxy: EgressProxyCalls,
}

impl AllowList {
    /// # Panics
    /// When `filter.json` does not parse; a test reads it.
    pub(super) fn read() -> Self {
        serde_json::from_str(SOURCE).expect("filter.json parses")
    }

    pub(super) fn rules(&self, kind: FilterKind) -> &[SyscallRule] {
        if kind == FilterKind::EgressProxy { &self.egress_proxy.rules } else { &self.rules }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct SyscallRule {
    pub(super) call: String,
    pub(super) arg: u32,
    pub(super) one_of: Option<Vec<u32>>,
    pub(super) not_one_of: Option<Vec<u32>>,
    pub(super) none_of_bits: Option<u32>,
    pub(super) any_of_bits: Option<u32>,
    pub(super) and_arg: Option<u32>,
    pub(super) and_one_of: Option<Vec<u32>>,
    /// The errno when no rule of the call matches; `EPERM` unless the last of them names one.
    pub(super) otherwise: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrnoRule {
    pub(super) call: String,
    pub(super) errno: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct AgentCalls {
    pub(super) allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct EgressProxyCalls {
    pub(super) allow: Vec<String>,
    pub(super) rules: Vec<SyscallRule>,
}
