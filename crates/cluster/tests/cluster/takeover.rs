//! Takeovers: refused while the owner may still run the sandbox.

use crate::etcd_server::EtcdServer;
use crate::fleet::Node;
use crate::fleet::claim;
use crate::fleet::sandbox;
use crate::fleet::settings;
use crate::fleet::wait_for_end;
use isolet_cluster::membership::Operator;
use isolet_cluster::model::Class;
use isolet_cluster::ownership::OwnershipError;
use isolet_cluster::ownership::TakenOver;
use std::time::Duration;

#[tokio::test]
async fn a_takeover_is_refused_while_the_lease_lives_and_succeeds_after_it() {
    let server = EtcdServer::start().await;
    let one = Node::join_briefly(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let key = sandbox("s");
    let from = one.own("s", Class::Store).await;
    let taken = two.ownership.take_over(&key, &from, "test").await.unwrap();
    assert_eq!(taken, TakenOver::NodeAlive);
    let deadline = *one.membership.deadline().borrow();
    one.kill();
    wait_for_end(&server, "one").await;
    let now = isolet_cluster::model::BootTime::now();
    assert!(now > deadline.at, "the deadline of the node passed before its lease ended");
    let TakenOver::Won(owner) = two.ownership.take_over(&key, &from, "test").await.unwrap() else {
        panic!("not taken over");
    };
    assert!(owner.epoch > from.epoch && owner.node == two.name && owner.class == Class::Store);
    let fence = two.ownership.fence(&key, from.epoch);
    let stale = two.ownership.write_fenced(&fence, "a", Vec::new()).await;
    assert!(matches!(stale, Err(OwnershipError::Stale { .. })), "{stale:?}");
    let held = two.ownership.held(&two.name, None, 10).await.unwrap();
    assert_eq!(held.sandboxes[0].epoch, owner.epoch);
    let former = two.ownership.held(&from.node, None, 10).await.unwrap();
    assert!(former.sandboxes.is_empty());
}

#[tokio::test]
async fn one_of_many_takeovers_wins() {
    let server = EtcdServer::start().await;
    let one = Node::join_briefly(&server, "one").await;
    let from = one.own("s", Class::Store).await;
    one.kill();
    wait_for_end(&server, "one").await;
    let nodes = [Node::join(&server, "two").await, Node::join(&server, "three").await];
    let attempts: Vec<_> = (0..20)
        .map(|index| {
            let ownership = nodes[index % 2].ownership.clone();
            let from = from.clone();
            tokio::spawn(
                async move { ownership.take_over(&sandbox("s"), &from, "test").await.unwrap() },
            )
        })
        .collect();
    let mut won = 0;
    for attempt in attempts {
        match attempt.await.unwrap() {
            TakenOver::Won(_) => won += 1,
            TakenOver::Changed(Some(owner)) => assert!(owner.epoch > from.epoch),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn a_sandbox_of_the_class_node_is_taken_over_only_from_a_dead_node() {
    let server = EtcdServer::start().await;
    let one = Node::join_briefly(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let settings = settings(&server, "one", Duration::from_secs(2));
    let operator = Operator::new(server.client(), settings.keys);
    let from = one.own("s", Class::Node).await;
    one.kill();
    wait_for_end(&server, "one").await;
    let taken = two.ownership.take_over(&sandbox("s"), &from, "test").await.unwrap();
    assert_eq!(taken, TakenOver::NotDeclaredDead);
    operator.declare_dead(&settings.node).await.unwrap();
    let taken = two.ownership.take_over(&sandbox("s"), &from, "test").await.unwrap();
    assert!(matches!(taken, TakenOver::Won(_)), "{taken:?}");
}

#[tokio::test]
async fn a_node_that_registered_again_keeps_what_nobody_took() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let from = one.own("s", Class::Store).await;
    let first = one.membership.state().borrow().registration();
    let live = server.client().get(b"isolet/nodes/live/one").await.unwrap().unwrap();
    server.client().revoke_lease(live.lease).await.unwrap();
    one.wait_for(|state| state.registration() > first).await;
    let taken = two.ownership.take_over(&sandbox("s"), &from, "test").await.unwrap();
    assert_eq!(taken, TakenOver::NodeAlive);
    one.ownership.check(&one.ownership.fence(&sandbox("s"), from.epoch)).await.unwrap();
}

#[tokio::test]
async fn a_node_without_a_lease_takes_nothing_over() {
    let server = EtcdServer::start().await;
    let one = Node::join_briefly(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let from = one.own("s", Class::Store).await;
    one.kill();
    wait_for_end(&server, "one").await;
    // The key of `two` is gone, and it has not noticed.
    server.etcdctl(&["del", "isolet/nodes/live/two"]);
    let taken = two.ownership.take_over(&sandbox("s"), &from, "test").await;
    assert!(matches!(taken, Err(OwnershipError::NotAMember { .. })), "{taken:?}");
    let claimed = two.ownership.claim(&claim("other", Class::Store)).await;
    assert!(matches!(claimed, Err(OwnershipError::NotAMember { .. })), "{claimed:?}");
}

#[tokio::test]
async fn a_node_renews_the_epoch_of_a_sandbox_of_its_own() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let from = one.own("s", Class::Node).await;
    let taken = one.ownership.take_over(&sandbox("s"), &from, "test").await.unwrap();
    let TakenOver::Won(owner) = taken else { panic!("{taken:?}") };
    assert!(owner.epoch > from.epoch);
    let again = one.ownership.take_over(&sandbox("s"), &from, "test").await.unwrap();
    assert_eq!(again, TakenOver::Changed(Some(owner.clone())));
    one.ownership.release(&one.ownership.fence(&sandbox("s"), owner.epoch)).await.unwrap();
    let gone = one.ownership.take_over(&sandbox("s"), &owner, "test").await.unwrap();
    assert_eq!(gone, TakenOver::Changed(None));
}
