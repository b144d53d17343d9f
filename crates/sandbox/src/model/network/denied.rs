//! Network denials during a command or a process.

use isolet_wire::network::NetworkDenial;
/// Maximum number of different denials in one report. Further ones are only counted.
pub const DENIED_MAX: usize = 64;

/// The denials while a command or a process ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denied {
    /// Equal denials are merged. In the order of their first occurrence, at most [`DENIED_MAX`].
    pub list: Vec<NetworkDenial>,
    /// Number of denials that are not in the list.
    pub lost: u64,
}
