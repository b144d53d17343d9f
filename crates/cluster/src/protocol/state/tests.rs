//! Properties of single steps. The test `model` checks what follows from many of them.

use super::*;
use proptest::prelude::*;

fn epoch() -> impl Strategy<Value = Epoch> {
    (1_i64..4).prop_map(Epoch::of_revision)
}

fn any_phase() -> impl Strategy<Value = Phase> {
    (0_u8..7, epoch(), epoch()).prop_map(|(kind, epoch, registration)| match kind {
        0 => Phase::Absent,
        1 => Phase::Claimed { epoch, registration },
        2 => Phase::Running { epoch, registration },
        3 => Phase::Suspended { epoch },
        4 => Phase::Superseded { epoch },
        5 => Phase::Stopping { epoch },
        _ => Phase::Released { epoch },
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    (0_u8..14, epoch(), epoch(), proptest::option::of(epoch())).prop_map(
        |(kind, epoch, registration, owner)| match kind {
            0 => Event::Owned { epoch, registration },
            1 => Event::Admitted { epoch, registration },
            2 => Event::NotAdmitted { epoch, registration },
            3 => Event::LeaseLost,
            4 => Event::LeaseRegained { registration },
            5 => Event::GuardExpired,
            6 => Event::DeclaredDead,
            7 => Event::Compared { epoch, registration, owner },
            8 => Event::Outdated { epoch },
            9 => Event::Delete,
            10 => Event::Stopped { epoch },
            11 => Event::Released { epoch },
            12 => Event::Ended { epoch },
            _ => Event::Restarted,
        },
    )
}

fn any_class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::Node), Just(Class::Store)]
}

fn epoch_of(phase: Phase) -> Option<Epoch> {
    match phase {
        Phase::Absent => None,
        Phase::Claimed { epoch, .. }
        | Phase::Running { epoch, .. }
        | Phase::Suspended { epoch }
        | Phase::Superseded { epoch }
        | Phase::Stopping { epoch }
        | Phase::Released { epoch } => Some(epoch),
    }
}

proptest! {
    #[test]
    fn only_a_new_claim_changes_the_epoch(
        class in any_class(), phase in any_phase(), event in any_event(),
    ) {
        let (next, actions) = step(View { class, phase }, event);
        let before = epoch_of(phase);
        let after = epoch_of(next.phase);
        match (before, event) {
            (None, Event::Owned { epoch, .. }) => prop_assert_eq!(after, Some(epoch)),
            _ => prop_assert!(after.is_none() || after == before, "{before:?} {after:?}"),
        }
        for action in actions {
            if let Action::Admit { epoch, .. } | Action::Compare { epoch, .. }
            | Action::End { epoch } | Action::Stop { epoch } | Action::Release { epoch } = action
            {
                prop_assert_eq!(Some(epoch), before.or(after));
            }
        }
        prop_assert_eq!(next.class, class);
    }

    #[test]
    fn a_frozen_sandbox_is_admitted_only_after_its_epoch_was_compared(
        class in any_class(), owned in epoch(), event in any_event(),
    ) {
        let view = View { class, phase: Phase::Suspended { epoch: owned } };
        let (next, actions) = step(view, event);
        let admits = actions.iter().any(|action| matches!(action, Action::Admit { .. }));
        let was_compared = matches!(
            event, Event::Compared { epoch, owner, .. } if epoch == owned && owner == Some(owned)
        );
        prop_assert_eq!(admits, was_compared);
        let is_running = matches!(next.phase, Phase::Running { .. });
        prop_assert!(!is_running);
    }

    #[test]
    fn whoever_was_superseded_only_ends(
        class in any_class(), owned in epoch(), events in proptest::collection::vec(any_event(), 0..20),
    ) {
        let mut view = View { class, phase: Phase::Superseded { epoch: owned } };
        for event in events {
            let (next, actions) = step(view, event);
            if view.phase == Phase::Absent {
                break;
            }
            for action in actions {
                let is_end = matches!(action, Action::End { .. } | Action::Suspend);
                prop_assert!(is_end, "{action:?}");
            }
            view = next;
        }
    }

    #[test]
    fn an_answer_about_another_epoch_changes_nothing(
        class in any_class(), phase in any_phase(), event in any_event(),
    ) {
        let of = match event {
            Event::Admitted { epoch, .. } | Event::NotAdmitted { epoch, .. }
            | Event::Compared { epoch, .. } | Event::Outdated { epoch }
            | Event::Stopped { epoch } | Event::Released { epoch } | Event::Ended { epoch } => epoch,
            _ => return Ok(()),
        };
        prop_assume!(epoch_of(phase) != Some(of));
        let view = View { class, phase };
        prop_assert_eq!(step(view, event), (view, Vec::new()));
    }

    #[test]
    fn a_loss_of_the_lease_concerns_only_what_others_may_take(
        phase in any_phase(), is_guard in any::<bool>(),
    ) {
        let event = if is_guard { Event::GuardExpired } else { Event::LeaseLost };
        let node = View { class: Class::Node, phase };
        prop_assert_eq!(step(node, event), (node, Vec::new()));
        let (next, _) = step(View { class: Class::Store, phase }, event);
        let may_run = matches!(next.phase, Phase::Claimed { .. } | Phase::Running { .. });
        prop_assert!(!may_run);
    }

    #[test]
    fn a_restart_repeats_what_the_phase_waits_for(class in any_class(), phase in any_phase()) {
        let (next, actions) = step(View { class, phase }, Event::Restarted);
        prop_assert_eq!(next.phase, phase);
        prop_assert_eq!(actions.is_empty(), phase == Phase::Absent);
    }
}

#[test]
fn a_view_is_stored_and_read() {
    let phase =
        Phase::Running { epoch: Epoch::of_revision(3), registration: Epoch::of_revision(2) };
    let view = View { class: Class::Store, phase };
    let text = serde_json::to_string(&view).unwrap();
    assert_eq!(text, r#"{"class":"store","phase":{"phase":"running","epoch":3,"registration":2}}"#);
    assert_eq!(serde_json::from_str::<View>(&text).unwrap(), view);
}
