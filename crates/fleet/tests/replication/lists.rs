//! Revocation lists: what one node has reaches all.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use crate::node::Authority;
use crate::node::Node;
use crate::node::names;
use crate::node::now_s;
use isolet_peer::certificates::Revocation;
use isolet_peer::tls::ListNumber;
use isolet_wire::node::NodeName;
use std::fs;

/// Revokes the certificates of a node that does not exist, and copies the lists to node `to`.
fn revoke_and_copy(authority: &mut Authority, revoked: &str, to: &str) -> Vec<u8> {
    authority.issue(revoked);
    let name = NodeName::parse(revoked).unwrap();
    authority.cluster.revoke(&Revocation::Node(name), now_s()).unwrap();
    let lists = fs::read(authority.cluster.lists_file()).unwrap();
    fs::write(authority.directory(to).join("revoked.pem"), &lists).unwrap();
    lists
}

async fn wait_for_lists(nodes: &[&Node], lists: &[ListNumber]) {
    let what = || format!("the lists {lists:?}");
    wait_until(what, async || nodes.iter().all(|node| node.tls.list_numbers() == lists)).await;
}

async fn wait_for_newer(node: &Node, than: &[ListNumber]) -> Vec<ListNumber> {
    wait_until(|| "a newer list".into(), async || node.tls.list_numbers() != than).await;
    node.tls.list_numbers()
}

/// Promises: FW10.
#[tokio::test]
async fn a_list_that_one_node_gets_reaches_all_and_later_ones_too() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, mut c] = Node::three(&server, &mut authority).await;
    // The last certificate came with the newest list.
    wait_for_lists(&[&a, &b], &c.tls.list_numbers()).await;
    let before = a.tls.list_numbers();
    c.leave();
    let lists = revoke_and_copy(&mut authority, "d", "b");
    let newer = wait_for_newer(&b, &before).await;
    wait_for_lists(&[&a], &newer).await;
    assert_eq!(fs::read(authority.directory("a").join("revoked.pem")).unwrap(), lists);
    assert_eq!(c.tls.list_numbers(), before, "it is away");
    c.join().await;
    assert_eq!(c.tls.list_numbers(), newer, "before it serves anything");
    assert_eq!(fs::read(authority.directory("c").join("revoked.pem")).unwrap(), lists);
    // A node that was away brings a newer list.
    c.leave();
    revoke_and_copy(&mut authority, "e", "c");
    let newest = wait_for_newer(&c, &newer).await;
    c.join().await;
    wait_for_lists(&[&a, &b], &newest).await;
}

/// Promises: FW10.
#[tokio::test]
async fn an_older_or_foreign_list_in_etcd_is_replaced() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    let current = c.tls.list_numbers();
    wait_for_lists(&[&a, &b], &current).await;
    let first = fs::read(authority.cluster.lists_file()).unwrap();
    let key = names().revocation_list(&current[0].authority);
    revoke_and_copy(&mut authority, "d", "a");
    let newer = wait_for_newer(&a, &current).await;
    wait_for_lists(&[&b, &c], &newer).await;
    let etcd = server.client();
    let number = async || {
        let found = etcd.get(&key).await.unwrap();
        found.and_then(|pair| a.tls.number_of_list(&current[0].authority, &pair.value))
    };
    let foreign = fs::read(Authority::new().cluster.lists_file()).unwrap();
    for value in [first.as_slice(), &foreign, b"garbage", b""] {
        etcd.put(&key, value).await.unwrap();
        let what = || "the newest list in etcd".to_owned();
        wait_until(what, async || number().await == Some(newer[0].number)).await;
    }
    etcd.delete(&key).await.unwrap();
    wait_until(|| "the list".into(), async || number().await == Some(newer[0].number)).await;
    for node in [&a, &b, &c] {
        assert_eq!(node.tls.list_numbers(), newer);
    }
    // An old file does not bring the certificate back.
    fs::write(authority.directory("b").join("revoked.pem"), &first).unwrap();
    let later = revoke_and_copy(&mut authority, "e", "c");
    let newest = wait_for_newer(&c, &newer).await;
    wait_for_lists(&[&a, &b], &newest).await;
    assert_eq!(fs::read(authority.directory("b").join("revoked.pem")).unwrap(), later);
}

/// During a rotation some nodes trust an authority that others do not know yet.
///
/// Promises: FW10.
#[tokio::test]
async fn lists_of_two_authorities_do_not_replace_each_other() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    authority.cluster.start_rotation(now_s()).unwrap();
    for node in ["a", "b"] {
        let into = authority.directory(node);
        fs::copy(authority.cluster.authorities_file(), into.join("ca.pem")).unwrap();
        fs::copy(authority.cluster.lists_file(), into.join("revoked.pem")).unwrap();
    }
    for node in [&a, &b] {
        wait_until(|| "two".into(), async || node.tls.list_numbers().len() == 2).await;
    }
    let etcd = server.client();
    let count = async || etcd.count(&names().revocation_lists()).await.unwrap();
    wait_until(|| "a list of each".into(), async || count().await == 2).await;
    wait_for_lists(&[&c], &a.tls.list_numbers()[..1]).await;
    let before = a.tls.list_numbers();
    revoke_and_copy(&mut authority, "d", "a");
    let newer = wait_for_newer(&a, &before).await;
    assert!(newer.iter().zip(&before).all(|(newer, before)| newer.number > before.number));
    wait_for_lists(&[&b], &newer).await;
    wait_for_lists(&[&c], &newer[..1]).await;
}
