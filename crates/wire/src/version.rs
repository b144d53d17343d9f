//! The versions of the protocol, and which of them work together.
//!
//! Agents, the process that owns the veth pairs, and the lease guard outlive the server that started
//! them, so a server can meet programs of another release. Each connection begins with a greeting:
//!
//! ```text
//! server                          agent
//!   Hello { version: offered } →         the highest version that the server speaks
//!          ← Hello { version }           the lower one of both: the version of the connection
//! ```
//!
//! Without a common version, the answer is not in the range of the server, which closes the
//! connection ([`answer`], [`is_agreed`]).
//!
//! Within a version, messages do not change. A change after which the two sides would misunderstand
//! each other gets a new version:
//! - A new message to an agent names the version that added it
//!   ([`crate::request::AgentRequest::since`]). A server sends it to no older agent, and its caller
//!   gets the error `agent_too_old`.
//! - An agent sends a new message only on connections of at least its version.
//! - A change of an existing message also raises [`OLDEST_AGENT`] and [`OLDEST_SERVER`].
//!
//! | version | change |
//! |---|---|
//! | 1 | the first version |

mod since;

/// The highest protocol version that the programs of this build speak.
pub const VERSION: u16 = 1;

/// The oldest version of agents, and of the other processes that outlive their server, that a server
/// of this build works with.
pub const OLDEST_AGENT: u16 = 1;

/// The oldest version of servers that agents, and the other processes that outlive their server,
/// accept. An older server may start agents of this build between the installation of a package and
/// its restart.
pub const OLDEST_SERVER: u16 = 1;

/// The answer to a greeting with the version `offered`: the version of the connection. It is larger
/// than `offered` if this side speaks no version as old as that.
#[must_use]
pub fn answer(offered: u16) -> u16 {
    answer_within(offered, OLDEST_SERVER, VERSION)
}

fn answer_within(offered: u16, oldest: u16, highest: u16) -> u16 {
    offered.clamp(oldest, highest)
}

/// Whether a server of this build that offered `offered` works with the version `answered`.
#[must_use]
pub fn is_agreed(offered: u16, answered: u16) -> bool {
    is_agreed_from(OLDEST_AGENT, offered, answered)
}

fn is_agreed_from(oldest: u16, offered: u16, answered: u16) -> bool {
    (oldest..=offered).contains(&answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a greeting between a server of the versions 3 to 5 and an agent.
    fn greet(oldest: u16, highest: u16) -> Option<u16> {
        let answered = answer_within(5, oldest, highest);
        is_agreed_from(3, 5, answered).then_some(answered)
    }

    #[test]
    fn both_sides_use_the_lower_version() {
        assert_eq!(greet(4, 5), Some(5), "the same version");
        assert_eq!(greet(1, 4), Some(4), "an older agent");
        assert_eq!(greet(5, 7), Some(5), "a newer agent");
    }

    #[test]
    fn a_greeting_without_a_common_version_is_refused() {
        assert_eq!(greet(1, 2), None, "the agent is too old");
        assert_eq!(greet(6, 7), None, "the server is too old");
    }

    #[test]
    fn this_build_works_with_itself() {
        assert!(is_agreed(VERSION, answer(VERSION)));
        assert!(is_agreed(VERSION, answer(VERSION + 1)));
        assert!(!is_agreed(VERSION, VERSION + 1) && !is_agreed(VERSION, OLDEST_AGENT - 1));
    }
}
