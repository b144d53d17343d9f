//! The states of a sandbox, and all transitions between them.
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
//! A pause stops a running sandbox with its memory (`driver/pause.rs`). From the outside it is
//! left as `running` is:
//!
//! ```text
//!              Pause               Died
//!  running ◄───────────► paused ───────────► failed
//!              Resume     │   │  Rebooted
//!                         │   └────────────► sleeping
//!                         │        Delete
//!                         └────────────────► destroying
//! ```
//!
//! A restore of a snapshot in place (`Restore`, not in the diagrams) ends what runs, so that a
//! `running` or `paused` sandbox is `sleeping` while its files are replaced.
//!
//! A failed creation leaves nothing: `creating` goes to `destroying`, never to `failed`.
//! The agent of an `unreachable` sandbox may only be slow, so the server keeps retrying and kills
//! nothing. A `paused` one cannot answer, so it never becomes `unreachable`. A `failed` sandbox keeps its disk until it is deleted. Its files can be read
//! (`driver/reading.rs`), and a persistent one can be recovered to `sleeping` (`Recover`, not in
//! the diagram). A `sleeping` sandbox has no process and no namespace, and a persistent one keeps
//! its files; see `driver/sleep.rs`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The sandbox is being created.
    Creating,
    /// The agent answers, so calls can use the sandbox.
    Running,
    /// The agent does not answer. The sandbox continues to run, and the server keeps retrying.
    Unreachable,
    /// All processes are frozen and keep their memory. They continue when a client resumes the
    /// sandbox.
    Paused,
    /// Nothing of the sandbox runs. The next call that needs it wakes it.
    Sleeping,
    /// Nothing of the sandbox runs. Its disk is kept, and the record has the cause.
    Failed,
    /// The sandbox is being ended and removed.
    Destroying,
    /// The sandbox is gone.
    Destroyed,
}

/// An event that can change the state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The agent has answered the greeting.
    Greeted,
    /// The agent did not answer in time.
    Silent,
    /// The agent ended or could not be started.
    Died,
    /// A client pauses the sandbox.
    Pause,
    /// A client resumes the paused sandbox, or a call that needs it does.
    Resume,
    /// The sandbox is idle, or a client puts it to sleep.
    Sleep,
    /// The host was rebooted, so nothing of the sandbox runs.
    Rebooted,
    /// A client recovers a failed sandbox.
    Recover,
    /// A client replaces the files by those of a snapshot.
    Restore,
    /// A client deletes the sandbox, its ttl has passed, or recovery removes it.
    Delete,
    /// Nothing of the sandbox is left.
    Removed,
}

/// An invalid state transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} does not happen to a sandbox that is {state}")]
pub struct InvalidTransition {
    /// The state, with the data of that state.
    pub state: State,
    /// The event that does not apply to it.
    pub event: Transition,
}

impl State {
    /// The state after an event.
    ///
    /// # Errors
    /// [`InvalidTransition`] for an event that the diagram does not show.
    pub fn next(self, event: Transition) -> Result<Self, InvalidTransition> {
        use State as S;
        use Transition as E;
        match (self, event) {
            (S::Creating | S::Unreachable | S::Sleeping, E::Greeted) | (S::Paused, E::Resume) => {
                Ok(S::Running)
            }
            (S::Running, E::Pause) => Ok(S::Paused),
            (S::Running, E::Sleep)
            | (S::Running | S::Paused, E::Restore)
            | (S::Running | S::Unreachable | S::Paused, E::Rebooted)
            | (S::Failed, E::Recover) => Ok(S::Sleeping),
            (S::Running, E::Silent) => Ok(S::Unreachable),
            (S::Running | S::Unreachable | S::Paused, E::Died) => Ok(S::Failed),
            (S::Creating, E::Died) => Ok(S::Destroying),
            (state, E::Delete) if state.visible() => Ok(S::Destroying),
            (S::Destroying, E::Removed) => Ok(S::Destroyed),
            (state, event) => Err(InvalidTransition { state, event }),
        }
    }

    /// The word for clients and records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Unreachable => "unreachable",
            Self::Paused => "paused",
            Self::Sleeping => "sleeping",
            Self::Failed => "failed",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
        }
    }

    /// Whether the sandbox has processes, which may be frozen or silent.
    #[must_use]
    pub fn has_processes(self) -> bool {
        matches!(self, Self::Running | Self::Unreachable | Self::Paused)
    }

    /// Whether clients can see the sandbox. They cannot from the moment its deletion begins.
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

    fn events() -> impl Strategy<Value = Vec<Transition>> {
        let one = prop_oneof![
            Just(Transition::Greeted),
            Just(Transition::Silent),
            Just(Transition::Died),
            Just(Transition::Pause),
            Just(Transition::Resume),
            Just(Transition::Sleep),
            Just(Transition::Rebooted),
            Just(Transition::Recover),
            Just(Transition::Restore),
            Just(Transition::Delete),
            Just(Transition::Removed)
        ];
        proptest::collection::vec(one, 0..16)
    }

    proptest! {
        /// For any sequence of events, an invalid transition changes nothing, `running` follows
        /// only a greeting or a resume, `paused` is entered from `running` only, and no state
        /// follows `destroyed`.
        #[test]
        fn every_move_is_drawn_or_refused(events in events()) {
            let mut state = State::Creating;
            for event in events {
                match state.next(event) {
                    Ok(next) => {
                        prop_assert_ne!(next, state);
                        prop_assert!(next != State::Running
                            || matches!(event, Transition::Greeted | Transition::Resume));
                        prop_assert!(next != State::Paused || state == State::Running);
                        prop_assert!(state != State::Paused || next != State::Unreachable);
                        prop_assert!(!matches!(state, State::Destroyed));
                        prop_assert!(state != State::Destroying || next == State::Destroyed);
                        prop_assert!(next != State::Failed
                            || state.has_processes());
                        prop_assert!(next != State::Sleeping
                            || matches!(event, Transition::Sleep | Transition::Rebooted
                                | Transition::Recover | Transition::Restore));
                        state = next;
                    }
                    Err(refused) => prop_assert_eq!(refused, InvalidTransition { state, event }),
                }
            }
        }
    }

    #[test]
    fn every_state_that_is_seen_can_be_deleted() {
        use State as S;
        for state in [S::Creating, S::Running, S::Unreachable, S::Paused, S::Sleeping, S::Failed] {
            assert!(state.visible());
            assert_eq!(state.next(Transition::Delete), Ok(State::Destroying));
        }
        assert!(!State::Destroying.visible() && !State::Destroyed.visible());
        assert!(State::Destroying.next(Transition::Delete).is_err());
    }

    #[test]
    fn a_paused_sandbox_is_left_by_a_resume_its_end_or_a_loss() {
        use Transition as E;
        assert_eq!(State::Running.next(E::Pause), Ok(State::Paused));
        for (event, next) in [
            (E::Resume, State::Running),
            (E::Died, State::Failed),
            (E::Rebooted, State::Sleeping),
            (E::Restore, State::Sleeping),
            (E::Delete, State::Destroying),
        ] {
            assert_eq!(State::Paused.next(event), Ok(next));
        }
        for event in [E::Greeted, E::Silent, E::Sleep, E::Pause, E::Recover, E::Removed] {
            assert!(State::Paused.next(event).is_err(), "{event:?}");
        }
        for state in [State::Sleeping, State::Unreachable, State::Failed, State::Creating] {
            assert!(state.next(E::Pause).is_err(), "{state:?}");
        }
    }
}
