//! Nodes whose connection to etcd has faults, and an etcd that goes back in time.

use crate::etcd_server::EtcdServer;
use crate::fleet::BRIEF;
use crate::fleet::Node;
use crate::fleet::sandbox;
use crate::fleet::wait_for_end;
use isolet_cluster::membership::MemberState;
use isolet_cluster::model::Class;
use isolet_cluster::model::NodeState;
use isolet_kit::etcd_wire::EtcdWire;
use isolet_kit::etcd_wire::Silence;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

/// A node, and its connection to etcd.
async fn wired(server: &EtcdServer, name: &str, lease_ttl: Duration) -> (Node, EtcdWire) {
    let wire = EtcdWire::to(server.port());
    let node = Node::join_through(server, &wire.url(), name, lease_ttl).await;
    (node, wire)
}

/// Silences the watches of a node, and ends another one, of which it then hears nothing.
async fn one_that_missed_an_end(server: &EtcdServer, silence: Silence) -> (Node, EtcdWire, Node) {
    let (one, wire) = wired(server, "one", LONG).await;
    let two = Node::join_briefly(server, "two").await;
    one.wait_for_node(&two.name, NodeState::Ready).await;
    assert!(wire.silence_watches(silence) > 0, "it has no watch");
    (one, wire, two)
}

/// etcd can forget a watch on a connection that works: the node went on to count a dead node as alive.
/// Promises: FL6.
#[tokio::test]
async fn a_watch_of_which_nothing_is_heard_is_opened_again() {
    let server = EtcdServer::start().await;
    let (one, _wire, two) = one_that_missed_an_end(&server, Silence::Complete).await;
    let name = two.name.clone();
    two.kill();
    one.wait_for_node(&name, NodeState::Lost).await;
    one.wait_for_members(|all| all.is_current).await;
}

/// etcd answers that all changes were reported, and they were not.
/// Promises: FL6.
#[tokio::test]
async fn a_watch_that_does_not_report_what_its_node_writes_is_opened_again() {
    let server = EtcdServer::start().await;
    let (one, _wire, two) = one_that_missed_an_end(&server, Silence::Changes).await;
    let name = two.name.clone();
    two.kill();
    one.wait_for_node(&name, NodeState::Lost).await;
    one.wait_for_members(|all| all.is_current).await;
}

/// A request that does not reach a node must not wait for the watch.
/// Promises: FL6.
#[tokio::test]
async fn the_key_of_a_node_that_cannot_be_reached_is_read() {
    let server = EtcdServer::start().await;
    let (one, _wire, two) = one_that_missed_an_end(&server, Silence::Complete).await;
    let name = two.name.clone();
    let read = one.membership.suspect(&name).await;
    assert!(read.is_ok(), "its key was not read");
    one.wait_for_node(&name, NodeState::Suspect).await;
    two.kill();
    wait_for_end(&server, "two").await;
    one.membership.suspect(&name).await.expect("its key was read");
    let members = one.membership.members();
    assert_eq!(members.borrow().get(&name).unwrap().state, NodeState::Lost);
}

/// The next renewal of this lease is longer away than the test waits.
/// Promises: FL7.
#[tokio::test]
async fn a_node_sees_in_its_watch_that_its_lease_was_revoked() {
    let server = EtcdServer::start().await;
    let long = Duration::from_secs(300);
    let node = Node::try_join(&server, "one", "identity", long).await.unwrap();
    let mut registration = node.membership.deadline().borrow().registration;
    let live = b"isolet/nodes/live/one";
    for what in ["revoked", "deleted"] {
        let found = server.client().get(live).await.unwrap().unwrap();
        match what {
            "revoked" => server.client().revoke_lease(found.lease).await.unwrap(),
            _ => drop(server.client().delete(live).await.unwrap()),
        }
        let is_new = |state: &MemberState| state.registration().is_some_and(|r| r > registration);
        registration = node.wait_for(is_new).await.registration().unwrap();
    }
}

/// etcd heard each renewal, and no answer came back: the node was frozen, and nobody could take its
/// sandboxes over.
/// Promises: FL7.
#[tokio::test]
async fn the_lease_of_a_node_that_hears_nothing_ends() {
    let server = EtcdServer::start().await;
    let (node, wire) = wired(&server, "one", BRIEF).await;
    let registration = node.membership.deadline().borrow().registration;
    wire.deafen();
    node.wait_for(|state| *state == MemberState::Lost).await;
    wait_for_end(&server, "one").await;
    wire.mend();
    node.wait_for(|state| state.registration().is_some_and(|r| r > registration)).await;
}

/// Promises: FL8.
#[tokio::test]
async fn an_etcd_that_goes_back_in_time_counts_as_a_lost_lease() {
    let mut server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    server.back_up().await;
    let owner = one.own("s", Class::Store).await;
    assert_eq!(one.ownership.cached(&sandbox("s")).as_ref(), Some(&owner));
    for _ in 0..100 {
        server.client().put(b"isolet/x", b"").await.unwrap();
    }
    // It has seen one of the later revisions.
    one.ownership.owner_in_etcd(&sandbox("s")).await.unwrap();
    server.restore().await;
    one.wait_for(|state| matches!(state, MemberState::Member { history: 1, .. })).await;
    assert_eq!(one.ownership.cached(&sandbox("s")), None, "its owner is not known any more");
    assert_eq!(one.ownership.owner_in_etcd(&sandbox("s")).await.unwrap(), None);
    // Its revision is one that the watch before has passed already.
    let two = Node::join(&server, "two").await;
    one.wait_for_node(&two.name, NodeState::Ready).await;
}
