//! The protocol versions, and which of them work together.
//!
//! Agents and the process that owns the veth pairs outlive the server that started them, so an
//! upgraded server meets older ones. Each connection begins with a greeting:
//!
//! ```text
//! server                          agent
//!   Hello { version: offered } →         the highest version that the server speaks
//!          ← Hello { version }           the lower one of both: the version of the connection
//! ```
//!
//! Version 3 has no such choice: its agents refuse every greeting with another version, and the
//! owner of the veth pairs closes the connection. The server then connects again and offers 3.
//!
//! A message that was added later may only be sent on a connection of at least its version; see
//! [`crate::request::AgentRequest::since`]. Existing messages never change.
//!
//! | version | change |
//! |---|---|
//! | 3 | the baseline |
//! | 4 | greetings agree on a version; launcher and egress proxy check it when they start; files of sandboxes have ids of their own on disk |
//! | 5 | `StopClock`, for a pause |
//! | 6 | `FollowPatiently`, for clients that must not miss output |
//! | 7 | `Attributes` and `SetAttributes`, for extended attributes of files; `LastExit`, which agents send to connections of this version or later |
//! | 8 | `Fingerprints`, for changes of files since a version; `SaveIf`, for writes of files that nobody has changed |

mod since;

/// The highest protocol version that the programs of this build speak.
pub const VERSION: u16 = 8;

/// The first version of connections on which agents send `LastExit`.
pub const LAST_EXIT: u16 = 7;

/// The oldest version of agents, and of the owner of the veth pairs, that a server of this build
/// works with: that of `tests/baseline/commit`. It may increase only when an upgrade from that
/// release is no longer supported.
pub const OLDEST_AGENT: u16 = 3;

/// The oldest version of servers that agents and the owner of the veth pairs accept. An older
/// server may start agents of this build between the installation of a package and its restart.
pub const OLDEST_SERVER: u16 = 3;

/// The last version without a choice in its greeting.
pub const FIXED_GREETING: u16 = 3;

/// The version of a connection on which the other side offered `offered`; `None` if the offer is
/// older than `oldest`.
#[must_use]
pub fn agree(offered: u16, oldest: u16) -> Option<u16> {
    (offered >= oldest).then(|| offered.min(VERSION))
}

/// Whether a server of this build works with an agent, or an owner of the veth pairs, that answered
/// with this version.
#[must_use]
pub fn supported(version: u16) -> bool {
    (OLDEST_AGENT..=VERSION).contains(&version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_use_the_lower_version() {
        assert_eq!(agree(VERSION + 1, OLDEST_SERVER), Some(VERSION));
        assert_eq!(agree(OLDEST_SERVER, OLDEST_SERVER), Some(OLDEST_SERVER));
        assert_eq!(agree(OLDEST_SERVER - 1, OLDEST_SERVER), None);
        assert!(supported(OLDEST_AGENT) && supported(VERSION));
        assert!(!supported(OLDEST_AGENT - 1) && !supported(VERSION + 1));
    }
}
