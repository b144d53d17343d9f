//! What the network of a sandbox refused while a command ran.

use isolet_wire::network::Refused;
/// What one command is told of; what is more is counted.
pub const DENIED_MAX: usize = 64;

/// What was refused while something ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denied {
    /// Equal ones together, in the order of their first, at most [`DENIED_MAX`].
    pub list: Vec<Refused>,
    /// How many more times something was refused.
    pub lost: u64,
}
