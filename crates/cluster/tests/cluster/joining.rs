//! Joining, losing the lease, and joining again.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use crate::fleet::BRIEF;
use crate::fleet::Node;
use crate::fleet::record;
use crate::fleet::settings;
use crate::fleet::wait_for_end;
use isolet_cluster::membership::JoinError;
use isolet_cluster::membership::MemberState;
use isolet_cluster::membership::Operator;
use isolet_cluster::model::BootTime;
use isolet_cluster::model::Class;
use isolet_cluster::model::Load;
use isolet_cluster::model::NodeState;
use isolet_cluster::model::ReportedState;
use isolet_cluster::ownership::OwnershipError;
use std::time::Duration;

#[tokio::test]
async fn nodes_see_each_other_and_the_load_of_each_other() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    one.wait_for_node(&two.name, NodeState::Ready).await;
    two.wait_for_node(&one.name, NodeState::Ready).await;
    let load = Load { memory_reserved_mib: 77, sandboxes: 3, ..Load::default() };
    one.membership.set_load(load.clone());
    two.wait_for_members(|all| all.get(&one.name).unwrap().record.load == load).await;
    one.membership.set_state(ReportedState::Stopping);
    two.wait_for_members(|all| !all.get(&one.name).unwrap().accepts_sandboxes()).await;
    let images = vec!["0".to_owned(); 1000];
    one.membership.set_load(Load { images, ..load });
    two.wait_for_members(|all| all.get(&one.name).unwrap().record.load.images.len() == 64).await;
}

#[tokio::test]
async fn the_deadline_moves_with_renewals_and_ends_before_the_lease() {
    let server = EtcdServer::start().await;
    let node = Node::join_briefly(&server, "one").await;
    let mut deadlines = node.membership.deadline();
    let first = *deadlines.borrow_and_update();
    // The margin is a tenth.
    let most = BRIEF - BRIEF / 10;
    let mut last = first;
    for _ in 0..3 {
        deadlines.changed().await.unwrap();
        let next = *deadlines.borrow_and_update();
        assert!(next.at > last.at && next.registration == first.registration);
        assert!(next.at.since(BootTime::now()) <= most);
        last = next;
    }
    // etcd lets the lease live longer than the deadline says.
    server.signal("-STOP");
    let lost = node.wait_for(|state| *state == MemberState::Lost).await;
    assert_eq!(lost, MemberState::Lost);
    assert!(BootTime::now() >= deadlines.borrow().at);
    server.signal("-CONT");
    let again = node.wait_for(|state| matches!(state, MemberState::Member { .. })).await;
    assert!(again.registration().is_some());
}

#[tokio::test]
async fn renewals_that_fail_make_a_node_suspect_before_it_is_lost() {
    let mut server = EtcdServer::start().await;
    let settings = settings(&server, "one", Duration::from_secs(8));
    let record = record(&settings, "identity");
    let etcd = server.client();
    let membership =
        isolet_cluster::membership::Membership::join(etcd, &settings, record).await.unwrap();
    let mut states = membership.state();
    let registration = states.borrow().registration().unwrap();
    server.kill();
    states.wait_for(|state| *state == MemberState::Suspect { registration }).await.unwrap();
    server.restart().await;
    let is_member = |state: &MemberState| matches!(state, MemberState::Member { .. });
    let state = *states.wait_for(is_member).await.unwrap();
    assert_eq!(state.registration(), Some(registration), "the lease was not lost");
}

#[tokio::test]
async fn a_second_node_with_the_same_name_is_refused_while_the_first_lives() {
    let server = EtcdServer::start().await;
    let one = Node::join_briefly(&server, "one").await;
    let other = Node::try_join(&server, "one", "other", BRIEF).await;
    let Err(error) = other else { panic!("two nodes have one name") };
    assert!(matches!(&error, JoinError::NameTaken { left_s, .. } if *left_s <= 3), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:7301"), "{error}");
    one.kill();
    wait_for_end(&server, "one").await;
    Node::try_join(&server, "one", "other", BRIEF).await.unwrap();
}

#[tokio::test]
async fn a_node_of_another_format_is_named_and_not_joined() {
    let server = EtcdServer::start().await;
    let far = b"isolet/nodes/live/far";
    for (value, expected) in [(&br#"{"format": 2}"#[..], 2), (&b"{}"[..], 0)] {
        server.client().put(far, value).await.unwrap();
        let Err(error) = Node::try_join(&server, "one", "identity", BRIEF).await else {
            panic!("nodes of two formats are in one fleet")
        };
        let JoinError::OtherFormat { name, found, .. } = &error else { panic!("{error:?}") };
        assert_eq!((name.as_str(), *found), ("far", expected));
        assert_eq!(server.client().get(b"isolet/nodes/live/one").await.unwrap(), None);
    }
    server.client().delete(far).await.unwrap();
    Node::try_join(&server, "one", "identity", BRIEF).await.unwrap();
}

#[tokio::test]
async fn the_next_server_of_a_node_continues_its_registration() {
    let server = EtcdServer::start().await;
    let first = Node::join(&server, "one").await;
    let before = *first.membership.deadline().borrow();
    let owner = first.own("s", Class::Store).await;
    first.membership.stop().await;
    let next = Node::join(&server, "one").await;
    let after = *next.membership.deadline().borrow();
    assert_eq!(after.registration, before.registration);
    let fence = next.ownership.fence(&crate::fleet::sandbox("s"), owner.epoch);
    next.ownership.check(&fence).await.unwrap();
}

#[tokio::test]
async fn a_node_that_leaves_is_gone_at_once() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let name = two.name.clone();
    two.membership.leave().await.unwrap();
    assert_eq!(server.client().get(b"isolet/nodes/live/two").await.unwrap(), None);
    one.wait_for_node(&name, NodeState::Lost).await;
}

#[tokio::test]
async fn a_node_whose_lease_ended_registers_again_under_another_registration() {
    let server = EtcdServer::start().await;
    let node = Node::join(&server, "one").await;
    let first = *node.membership.deadline().borrow();
    let owner = node.own("s", Class::Store).await;
    let live = server.client().get(b"isolet/nodes/live/one").await.unwrap().unwrap();
    server.client().revoke_lease(live.lease).await.unwrap();
    let claim = crate::fleet::claim("other", Class::Node);
    let refused = node.ownership.claim(&claim).await;
    assert!(matches!(refused, Err(OwnershipError::NotAMember { .. })), "{refused:?}");
    let is_new = |state: &MemberState| {
        state.registration().is_some_and(|registration| registration > first.registration)
    };
    let state = node.wait_for(is_new).await;
    assert!(matches!(state, MemberState::Member { was_declared_dead: false, .. }));
    let second = *node.membership.deadline().borrow();
    assert_eq!(Some(second.registration), state.registration());
    let fence = node.ownership.fence(&crate::fleet::sandbox("s"), owner.epoch);
    node.ownership.check(&fence).await.unwrap();
    node.own("other", Class::Node).await;
}

#[tokio::test]
async fn a_node_whose_key_was_deleted_under_its_lease_registers_again() {
    let server = EtcdServer::start().await;
    let node = Node::join(&server, "one").await;
    let first = node.membership.state().borrow().registration();
    server.etcdctl(&["del", "isolet/nodes/live/one"]);
    let state = node.wait_for(|state| state.registration().is_some_and(|r| Some(r) > first)).await;
    assert!(matches!(state, MemberState::Member { .. }));
}

#[tokio::test]
async fn a_node_learns_that_it_was_declared_dead() {
    let server = EtcdServer::start().await;
    let settings = settings(&server, "one", Duration::from_secs(2));
    let operator = Operator::new(server.client(), settings.keys.clone());
    let node = Node::join_briefly(&server, "one").await;
    node.kill();
    wait_for_end(&server, "one").await;
    operator.declare_dead(&settings.node).await.unwrap();
    let again = Node::join(&server, "one").await;
    let state = *again.membership.state().borrow();
    assert!(matches!(state, MemberState::Member { was_declared_dead: true, .. }));
    assert_eq!(server.client().get(b"isolet/nodes/dead/one").await.unwrap(), None);
    let what = || "the node in its own list".to_owned();
    let members = again.membership.members();
    wait_until(what, async || {
        members.borrow().get(&settings.node).is_some_and(|node| node.state == NodeState::Ready)
    })
    .await;
}

/// A lease keeps the lifetime with which it was granted. A server with a longer `lease_ttl_s` renewed the
/// lease of the server before it too rarely.
#[tokio::test]
async fn a_lease_that_is_continued_is_renewed_by_its_own_lifetime() {
    let server = EtcdServer::start().await;
    let first = Node::join_briefly(&server, "one").await;
    first.kill();
    let long = Duration::from_secs(60);
    let next = Node::try_join(&server, "one", "identity", long).await.unwrap();
    let mut deadlines = next.membership.deadline();
    let begun = *deadlines.borrow_and_update();
    while deadlines.borrow_and_update().at.since(begun.at) < BRIEF {
        let renewed = tokio::time::timeout(BRIEF, deadlines.changed()).await;
        renewed.expect("it is renewed in time").unwrap();
        assert_eq!(deadlines.borrow().registration, begun.registration);
        assert!(deadlines.borrow().at.since(BootTime::now()) <= BRIEF);
    }
    assert!(matches!(*next.membership.state().borrow(), MemberState::Member { .. }));
}
