//! The states of a sandbox, and the only way from one to the next.
//!
//! ```text
//!              Greeted                    Died
//!  creating ───────────► running ───────────────────► failed
//!     │ │                │  ▲ │ ▲ │                      ▲ │
//!     │ │                │  │ │ │ │Sleep, Rebooted       │ │
//!     │ │                │  │ │ │ ▼                      │ │
//!     │ │                │  │ │ └─────── sleeping        │ │
//!     │ │                │  │ │  Greeted  │  ▲           │ │
//!     │ │                │  │ │           │  │Rebooted   │ │
//!     │ │          Silent▼  │ │Delete     │  │           │ │
//!     │ │       unreachable─┼─┼───────────┼──┴───────────┘ │
//!     │ │                │Greeted         │       Died     │
//!     │ │ Died     Delete│    ▼           │Delete          │ Delete
//!     │ └────────────►┐  └►   │           ▼                │
//!     │ Delete        └► destroying ◄──────────────────────┘
//!     └─────────────────►   │
//!                           │ Removed
//!                           ▼
//!                       destroyed   (its record is gone, its id is free)
//! ```
//!
//! A create that fails leaves nothing: `creating` goes to `destroying`, never to `failed`.
//! `unreachable` may only be slow: it is greeted again and again, and nothing of it is killed.
//! `failed` keeps its disk until it is deleted. Its files can be read (`driver/reading.rs`), and a
//! persistent one that is recovered is `sleeping` (`Recover`, not drawn).
//! `sleeping` has no process and no namespace; a persistent one has its files. The way to it and
//! back is in `driver/sleep.rs`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being made.
    Creating,
    /// Its agent answers.
    Running,
    /// Its agent does not answer; it goes on running, and is asked again and again.
    Unreachable,
    /// Nothing of it runs; the next call that works in it wakes it.
    Sleeping,
    /// Nothing of it runs; its disk is kept. The record names the cause.
    Failed,
    /// It is being ended and removed.
    Destroying,
    /// It is gone.
    Destroyed,
}

/// What happens to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Its agent said hello.
    Greeted,
    /// Its agent does not answer in time.
    Silent,
    /// Its agent ended or could not be started.
    Died,
    /// Nobody uses it, or somebody puts it to sleep.
    Sleep,
    /// The host was started anew: nothing of it runs, and nothing is wrong with it.
    Rebooted,
    /// Somebody wants to work again in one that has failed.
    Recover,
    /// A client, its ttl or recovery ends it.
    Delete,
    /// Nothing of it is left.
    Removed,
}

/// A move that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} does not happen to a sandbox that is {state}")]
pub struct Refused {
    /// Where it stands.
    pub state: State,
    /// What was said to happen.
    pub event: Event,
}

impl State {
    /// The only way on.
    ///
    /// # Errors
    /// [`Refused`] for a move that the picture does not have.
    pub fn next(self, event: Event) -> Result<Self, Refused> {
        use {Event as E, State as S};
        match (self, event) {
            (S::Creating | S::Unreachable | S::Sleeping, E::Greeted) => Ok(S::Running),
            (S::Running, E::Sleep)
            | (S::Running | S::Unreachable, E::Rebooted)
            | (S::Failed, E::Recover) => Ok(S::Sleeping),
            (S::Running, E::Silent) => Ok(S::Unreachable),
            (S::Running | S::Unreachable, E::Died) => Ok(S::Failed),
            (S::Creating, E::Died)
            | (S::Creating | S::Running | S::Unreachable | S::Sleeping | S::Failed, E::Delete) => {
                Ok(S::Destroying)
            }
            (S::Destroying, E::Removed) => Ok(S::Destroyed),
            (state, event) => Err(Refused { state, event }),
        }
    }

    /// The word for clients and records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Unreachable => "unreachable",
            Self::Sleeping => "sleeping",
            Self::Failed => "failed",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
        }
    }

    /// Whether a client still sees it: deleted is gone from the moment the delete begins.
    #[must_use]
    pub fn visible(self) -> bool {
        !matches!(self, Self::Destroying | Self::Destroyed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let one = prop_oneof![
            Just(Event::Greeted),
            Just(Event::Silent),
            Just(Event::Died),
            Just(Event::Sleep),
            Just(Event::Rebooted),
            Just(Event::Recover),
            Just(Event::Delete),
            Just(Event::Removed)
        ];
        proptest::collection::vec(one, 0..16)
    }

    proptest! {
        /// Whatever happens, in whatever order: a refused move changes nothing, running is reached
        /// only by a greeting, and nothing comes back from being destroyed.
        #[test]
        fn every_move_is_drawn_or_refused(events in events()) {
            let mut state = State::Creating;
            for event in events {
                match state.next(event) {
                    Ok(next) => {
                        prop_assert_ne!(next, state);
                        prop_assert!(next != State::Running || event == Event::Greeted);
                        prop_assert!(!matches!(state, State::Destroyed));
                        prop_assert!(state != State::Destroying || next == State::Destroyed);
                        prop_assert!(next != State::Failed
                            || matches!(state, State::Running | State::Unreachable));
                        prop_assert!(next != State::Sleeping
                            || matches!(event, Event::Sleep | Event::Rebooted | Event::Recover));
                        state = next;
                    }
                    Err(refused) => prop_assert_eq!(refused, Refused { state, event }),
                }
            }
        }
    }

    #[test]
    fn every_state_that_is_seen_can_be_deleted() {
        use State as S;
        for state in [S::Creating, S::Running, S::Unreachable, S::Sleeping, S::Failed] {
            assert!(state.visible());
            assert_eq!(state.next(Event::Delete), Ok(State::Destroying));
        }
        assert!(!State::Destroying.visible() && !State::Destroyed.visible());
    }
}
