//! The table without etcd: which actions are due, and in which order.

use super::*;
use isolet_sandbox::{SandboxId, TenantId};

fn of(revision: i64) -> Epoch {
    Epoch::of_revision(revision)
}

fn sandbox(name: &str, class: SandboxClass) -> LocalSandbox {
    let id = SandboxId::parse(name).unwrap();
    LocalSandbox { tenant: TenantId::default_tenant(), id, name: name.to_owned(), class }
}

fn running(name: &str, class: SandboxClass) -> Table {
    let mut table = Table::default();
    table.own(&sandbox(name, class), of(3), of(1));
    let work = table.begin(name).unwrap();
    assert_eq!(work.action, Some(Action::Admit { epoch: of(3), registration: of(1) }));
    table.ended(name, Some(Event::Admitted { epoch: of(3), registration: of(1) }));
    assert!(table.begin(name).is_none(), "nothing is left to do");
    table
}

#[test]
fn a_view_is_recorded_once_and_again_after_a_failure() {
    let mut table = running("a", SandboxClass::Store);
    let views = table.take_unrecorded();
    assert_eq!(views.len(), 1);
    assert!(!views[0].suspended && table.take_unrecorded().is_empty());
    table.not_recorded(&views);
    assert_eq!(table.take_unrecorded(), views);
    table.learn_all(Event::LeaseLost);
    let views = table.take_unrecorded();
    assert!(views[0].suspended);
    let mut next = Table::default();
    next.load(views, &[sandbox("a", SandboxClass::Store)]);
    assert_eq!(next.phase("a"), Some(Phase::Suspended { epoch: of(3) }));
    assert!(next.take_unrecorded().is_empty());
}

#[test]
fn actions_of_one_sandbox_are_performed_one_after_the_other() {
    let mut table = running("a", SandboxClass::Store);
    table.learn_all(Event::LeaseRegained { registration: of(9) });
    table.learn_all(Event::LeaseRegained { registration: of(9) });
    let suspended = table.begin_suspensions();
    assert_eq!(suspended.len(), 1);
    assert!(table.begin_questions().is_empty(), "it is being suspended");
    table.ended("a", None);
    let questions = table.begin_questions();
    assert_eq!((questions.len(), questions[0].epoch), (1, of(3)));
    assert!(table.begin("a").is_none());
    let compared = Event::Compared { epoch: of(3), registration: of(9), owner: Some(of(3)) };
    table.ended("a", Some(compared));
    let work = table.begin("a").unwrap();
    assert_eq!(work.action, Some(Action::Admit { epoch: of(3), registration: of(9) }));
}

#[test]
fn what_failed_is_asked_again_and_what_runs_is_left_alone() {
    let mut table = running("a", SandboxClass::Node);
    table.retry(Some(of(1)));
    assert!(table.begin_questions().is_empty(), "the same registration");
    table.retry(None);
    assert!(table.with_work().is_empty());
    for _ in 0..2 {
        table.retry(Some(of(9)));
        let questions = table.begin_questions();
        assert_eq!((questions.len(), questions[0].registration), (1, of(9)));
        table.ended("a", None);
    }
    table.learn_all(Event::DeclaredDead);
    assert_eq!(table.begin_suspensions().len(), 1);
    table.ended("a", None);
    table.retry(Some(of(9)));
    assert_eq!(table.begin_questions().len(), 1);
}

#[test]
fn a_sandbox_that_is_gone_is_given_up_and_forgotten() {
    let mut table = running("a", SandboxClass::Node);
    let own = vec![sandbox("a", SandboxClass::Node), sandbox("b", SandboxClass::Node)];
    assert_eq!(table.sync(own), [sandbox("b", SandboxClass::Node)]);
    assert!(table.with_work().is_empty());
    table.sync(Vec::new());
    assert_eq!(table.begin("a").unwrap().action, Some(Action::Stop { epoch: of(3) }));
    // It still runs.
    table.ended("a", None);
    table.retry(None);
    assert_eq!(table.begin("a").unwrap().action, Some(Action::Stop { epoch: of(3) }));
    table.ended("a", Some(Event::Stopped { epoch: of(3) }));
    assert_eq!(table.begin("a").unwrap().action, Some(Action::Release { epoch: of(3) }));
    table.ended("a", Some(Event::Released { epoch: of(3) }));
    assert_eq!(table.begin("a").unwrap().action, None, "the record is to be removed");
    table.forget("a");
    assert_eq!(table.phase("a"), None);
}

#[test]
fn a_node_whose_records_were_lost_owns_its_sandbox_anew() {
    let mut table = running("a", SandboxClass::Node);
    table.learn_all(Event::LeaseRegained { registration: of(9) });
    table.own_anew("a", of(12), of(9));
    assert_eq!(table.phase("a"), Some(Phase::Claimed { epoch: of(12), registration: of(9) }));
    assert!(table.begin_questions().is_empty(), "the former question is dropped");
}
