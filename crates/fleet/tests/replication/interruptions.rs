//! etcd ends, starts again, or forgets its history, and nodes lose their connection to it.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use crate::node::Authority;
use crate::node::Node;
use crate::node::names;
use crate::node::wait_for_key;
use crate::node::wait_for_profiles;

/// Promises: FW8, FW9.
#[tokio::test]
async fn a_node_that_was_cut_off_catches_up_also_behind_a_compaction() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    let (id, secret) = a.add_key("");
    let (_, other) = a.add_key("");
    a.put("t", "old", "old.example").await.unwrap();
    wait_for_key(&[&b, &c], &secret, true).await;
    wait_for_key(&[&b, &c], &other, true).await;
    wait_for_profiles(&[&c], &["t/old old.example"]).await;
    c.relay.cut(true);
    a.revoke(&id);
    let (_, added) = b.add_key("");
    let (_, of_c) = c.add_key("");
    assert!(a.remove("t", "old").await.unwrap());
    a.put("t", "new", "new.example").await.unwrap();
    wait_for_key(&[&a, &b], &secret, false).await;
    wait_for_key(&[&a, &b], &added, true).await;
    let revision = server.client().list(&names().fleet(), None, 1, None).await.unwrap().revision;
    server.etcdctl(&["compact", &revision.to_string()]);
    assert!(c.accepts(&secret) && !c.accepts(&added), "it is cut off");
    c.relay.cut(false);
    wait_for_key(&[&c], &secret, false).await;
    wait_for_key(&[&a, &b, &c], &added, true).await;
    wait_for_key(&[&a, &b, &c], &of_c, true).await;
    wait_for_profiles(&[&a, &b, &c], &["t/new new.example"]).await;
    assert!(c.accepts(&other));
}

#[tokio::test]
async fn a_record_that_was_deleted_while_its_node_was_cut_off_is_written_again() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let a = Node::joined("a", &server, &mut authority).await;
    let (id, _) = a.add_key("");
    let etcd = server.client();
    let key = names().api_key(&id);
    let is_there = async || etcd.get(&key).await.unwrap().is_some();
    wait_until(|| "the record".into(), is_there).await;
    a.relay.cut(true);
    etcd.delete(&key).await.unwrap();
    let revision = etcd.list(&names().fleet(), None, 1, None).await.unwrap().revision;
    server.etcdctl(&["compact", &revision.to_string()]);
    a.relay.cut(false);
    wait_until(|| "the record again".into(), is_there).await;
}

#[tokio::test]
async fn nodes_continue_while_etcd_is_away_and_catch_up_when_it_returns() {
    let mut server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    let (id, secret) = a.add_key("");
    wait_for_key(&[&b, &c], &secret, true).await;
    server.kill();
    let (_, added) = b.add_key("");
    c.revoke(&id);
    assert!(a.accepts(&secret) && b.accepts(&added), "each node continues with what it knows");
    server.restart().await;
    wait_for_key(&[&a, &b, &c], &secret, false).await;
    wait_for_key(&[&a, &b, &c], &added, true).await;
    wait_until(|| "a change".into(), async || a.put("t", "web", "w.example").await.is_ok()).await;
    wait_for_profiles(&[&a, &b, &c], &["t/web w.example"]).await;
}
