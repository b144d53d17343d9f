//! The lease of a node, and the process that guards its sandboxes.

use crate::etcd_server::EtcdServer;
use crate::fleet::Node;
use crate::fleet::wait_for_end;
use isolet_cluster::membership::MemberState;
use isolet_cluster::model::LeaseDeadline;
use isolet_cluster::model::ReportedState;
use std::time::Duration;

/// The guard acknowledges the present deadline, and not the one of the renewal that follows.
async fn stands_after_one_renewal(node: &Node) -> LeaseDeadline {
    let mut deadlines = node.membership.deadline();
    let first = *deadlines.borrow_and_update();
    node.membership.acknowledgements().acknowledge(first);
    let renewed = tokio::time::timeout(Duration::from_secs(60), deadlines.changed()).await;
    renewed.expect("it is renewed").unwrap();
    *deadlines.borrow()
}

/// A guard that was stopped cannot freeze anything at the end of the lease, and the node renewed its
/// lease as if nothing had happened.
/// Promises: FL5.
#[tokio::test]
async fn a_lease_whose_guard_does_not_answer_is_not_renewed() {
    let server = EtcdServer::start().await;
    let node = Node::join_briefly(&server, "one").await;
    let last = stands_after_one_renewal(&node).await;
    wait_for_end(&server, "one").await;
    assert_eq!(*node.membership.deadline().borrow(), last, "it was renewed");
    node.wait_for(|state| *state == MemberState::Lost).await;
    // Another guard takes its place, and hears the deadline first.
    node.membership.acknowledgements().acknowledge(last);
    let is_new = |state: &MemberState| {
        state.registration().is_some_and(|registration| registration > last.registration)
    };
    node.wait_for(is_new).await;
}

/// Promises: FL5.
#[tokio::test]
async fn a_node_whose_guard_does_not_answer_takes_no_sandboxes_until_it_does() {
    let server = EtcdServer::start().await;
    let node = Node::join(&server, "one").await;
    let other = Node::join(&server, "two").await;
    let last = stands_after_one_renewal(&node).await;
    let seen = other
        .wait_for_members(|all| {
            all.get(&node.name).is_some_and(|one| one.record.state == ReportedState::Suspect)
        })
        .await;
    assert!(!seen.get(&node.name).unwrap().accepts_sandboxes());
    assert_eq!(node.membership.reported(), ReportedState::Suspect);
    node.wait_for(|state| matches!(state, MemberState::Suspect { .. })).await;
    node.membership.acknowledgements().acknowledge(last);
    other
        .wait_for_members(|all| all.get(&node.name).is_some_and(|one| one.accepts_sandboxes()))
        .await;
    assert_eq!(node.membership.reported(), ReportedState::Ready);
    node.wait_for(|state| matches!(state, MemberState::Member { .. })).await;
}
