//! The list of nodes, and what operators do with nodes.

use crate::etcd_server::EtcdServer;
use crate::fleet::Node;
use crate::fleet::settings;
use crate::fleet::wait_for_end;
use isolet_cluster::membership::Operator;
use isolet_cluster::membership::OperatorError;
use isolet_cluster::model::Class;
use isolet_cluster::model::NodeState;
use isolet_cluster::ownership::Restorable;
use isolet_wire::node::NodeName;
use std::time::Duration;

fn operator(server: &EtcdServer) -> Operator {
    let settings = settings(server, "any", Duration::from_secs(2));
    Operator::new(server.client(), settings.keys)
}

#[tokio::test]
async fn a_cordoned_node_takes_no_sandboxes_until_it_is_uncordoned() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let operator = operator(&server);
    operator.cordon(&one.name).await.unwrap();
    let cordoned = one.wait_for_members(|all| all.get(&one.name).unwrap().cordoned).await;
    assert!(!cordoned.get(&one.name).unwrap().accepts_sandboxes());
    operator.uncordon(&one.name).await.unwrap();
    one.wait_for_members(|all| all.get(&one.name).unwrap().accepts_sandboxes()).await;
    let unknown = NodeName::parse("unknown").unwrap();
    for refused in [operator.cordon(&unknown).await, operator.uncordon(&unknown).await] {
        assert!(matches!(refused, Err(OperatorError::Unknown { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_node_is_declared_dead_only_after_its_lease_and_forgotten_without_sandboxes() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join_briefly(&server, "two").await;
    let two_name = two.name.clone();
    let operator = operator(&server);
    let alive = operator.declare_dead(&two_name).await;
    assert!(matches!(alive, Err(OperatorError::Alive { .. })), "{alive:?}");
    let owner = two.own("s", Class::Node).await;
    two.kill();
    wait_for_end(&server, "two").await;
    one.wait_for_node(&two_name, NodeState::Lost).await;
    let lost = operator.forget(&two_name).await;
    assert!(matches!(lost, Err(OperatorError::OwnsSandboxes { sandboxes: 1, .. })), "{lost:?}");
    operator.declare_dead(&two_name).await.unwrap();
    operator.declare_dead(&two_name).await.unwrap();
    one.wait_for_node(&two_name, NodeState::Dead).await;
    let owns = operator.forget(&two_name).await;
    assert!(matches!(owns, Err(OperatorError::OwnsSandboxes { .. })), "{owns:?}");
    let fence = one.ownership.fence(&crate::fleet::sandbox("s"), owner.epoch);
    // The list entry is below the name of the former owner, so a takeover comes first.
    let from = one.ownership.check(&fence).await.unwrap();
    one.ownership.take_over(&crate::fleet::sandbox("s"), &from, "test").await.unwrap();
    operator.forget(&two_name).await.unwrap();
    one.wait_for_members(|all| all.get(&two_name).is_none()).await;
}

#[tokio::test]
async fn garbage_among_the_keys_is_reported_and_harmless() {
    let server = EtcdServer::start().await;
    let etcd = server.client();
    etcd.put(b"isolet/nodes/live/bad", b"garbage").await.unwrap();
    etcd.put(b"isolet/nodes/x", b"").await.unwrap();
    let one = Node::join(&server, "one").await;
    let members = one.wait_for_members(|all| all.get(&one.name).is_some()).await;
    assert_eq!(members.len(), 1);
    let skipped: Vec<&str> = members.skipped().iter().map(|skipped| skipped.key.as_str()).collect();
    assert_eq!(skipped, ["isolet/nodes/live/bad", "isolet/nodes/x"]);
    etcd.put(&[b"isolet/nodes/live/".as_slice(), &[0xFF, b'/']].concat(), &[0; 100_000])
        .await
        .unwrap();
    one.wait_for_members(|all| all.skipped().len() == 3).await;
    let two = Node::join(&server, "two").await;
    one.wait_for_node(&two.name, NodeState::Ready).await;
}

#[tokio::test]
async fn the_watch_continues_after_a_compaction_and_a_restart_of_etcd() {
    let mut server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    one.wait_for_node(&one.name, NodeState::Ready).await;
    server.kill();
    one.wait_for_members(|all| !all.is_current).await;
    server.restart().await;
    // While the watch of `one` was cut, the fleet changes and etcd forgets how.
    let two = Node::join(&server, "two").await;
    let revision = server.client().list(b"isolet/", None, 1, None).await.unwrap().revision;
    server.etcdctl(&["compact", &revision.to_string()]);
    one.wait_for_node(&two.name, NodeState::Ready).await;
    one.wait_for_members(|all| all.is_current).await;
    let three = Node::join(&server, "three").await;
    one.wait_for_node(&three.name, NodeState::Ready).await;
}

#[tokio::test]
async fn a_list_begins_again_when_its_revision_is_compacted() {
    let mut server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let known = one.wait_for_members(|all| all.is_current).await;
    server.kill();
    server.restart().await;
    let etcd = server.client();
    etcd.put(b"isolet/nodes/cordoned/one", b"{}").await.unwrap();
    etcd.put(b"isolet/x", b"").await.unwrap();
    let newest = etcd.list(b"isolet/", None, 1, None).await.unwrap().revision;
    assert!(newest > known.revision);
    server.etcdctl(&["compact", &newest.to_string()]);
    one.wait_for_members(|all| all.is_current && all.get(&one.name).unwrap().cordoned).await;
}

#[tokio::test]
async fn a_node_that_a_peer_cannot_reach_is_suspect_until_its_mark_ends() {
    let server = EtcdServer::start().await;
    let one = Node::join_briefly(&server, "one").await;
    let two = Node::join(&server, "two").await;
    one.wait_for_node(&two.name, NodeState::Ready).await;
    one.membership.suspect(&two.name);
    one.wait_for_node(&two.name, NodeState::Suspect).await;
    one.wait_for_node(&two.name, NodeState::Ready).await;
    one.membership.suspect(&NodeName::parse("unknown").unwrap());
}

#[tokio::test]
async fn an_operator_reads_nodes_and_their_sandboxes_without_a_server() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let operator = operator(&server);
    one.own("files", Class::Node).await;
    one.own("pushed", Class::Store).await;
    operator.cordon(&one.name).await.unwrap();
    let members = operator.members().await.unwrap();
    assert_eq!(members.len(), 1);
    let member = operator.member(&one.name).await.unwrap().unwrap();
    assert_eq!(members.get(&one.name), Some(&member));
    assert!(member.cordoned && member.registration.is_some());
    assert_eq!(member.state, NodeState::Ready);
    assert!(member.record.started_at_ms > 0);
    let owned = operator.owned(&one.name).await.unwrap();
    assert_eq!((owned.node, owned.store, owned.is_cut), (1, 1, false));
    assert_eq!(owned.first, [crate::fleet::sandbox("files")]);
    let unknown = NodeName::parse("unknown").unwrap();
    assert_eq!(operator.member(&unknown).await.unwrap(), None);
    assert_eq!(operator.owned(&unknown).await.unwrap(), Default::default());
}

#[tokio::test]
async fn the_sandboxes_of_a_dead_node_can_be_given_up_and_those_of_the_store_stay() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join_briefly(&server, "two").await;
    let name = two.name.clone();
    let operator = operator(&server);
    let restorable = Restorable { name: "pushed", is: |_, value| value == b"all of it" };
    two.own("a", Class::Node).await;
    let b = two.own("b", Class::Node).await;
    let fence = two.ownership.fence(&crate::fleet::sandbox("b"), b.epoch);
    two.ownership.write_fenced(&fence, "pushed", b"some of it".to_vec()).await.unwrap();
    let moved = two.own("moved", Class::Node).await;
    let fence = two.ownership.fence(&crate::fleet::sandbox("moved"), moved.epoch);
    two.ownership.write_fenced(&fence, "pushed", b"all of it".to_vec()).await.unwrap();
    two.own("pushed", Class::Store).await;
    one.own("other", Class::Node).await;
    let alive = operator.release_lost(&name, &restorable).await;
    assert!(matches!(alive, Err(OperatorError::Alive { .. })), "{alive:?}");
    two.kill();
    wait_for_end(&server, "two").await;
    let lost = operator.release_lost(&name, &restorable).await;
    assert!(matches!(lost, Err(OperatorError::NotDead { .. })), "{lost:?}");
    operator.declare_dead(&name).await.unwrap();
    let of = |id: &str| crate::fleet::sandbox(id);
    for (released, what) in [(2, "those whose files are lost"), (0, "nothing is left")] {
        let all = operator.release_lost(&name, &restorable).await.unwrap();
        assert_eq!((all.released, all.kept), (released, 1), "{what}");
        assert_eq!(all.kept_first, [of("moved")]);
    }
    let kept = one.ownership.read_fenced(&of("moved"), "pushed").await.unwrap().unwrap();
    assert_eq!(kept.value, b"all of it");
    assert_eq!(one.ownership.owner_in_etcd(&of("a")).await.unwrap(), None);
    assert!(one.ownership.owner_in_etcd(&of("pushed")).await.unwrap().is_some());
    assert!(one.ownership.owner_in_etcd(&of("other")).await.unwrap().is_some());
    let owns = operator.forget(&name).await;
    assert!(matches!(owns, Err(OperatorError::OwnsSandboxes { sandboxes: 2, .. })), "{owns:?}");
    one.own("a", Class::Node).await;
}
