//! API keys: what one node adds or revokes holds on all.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use crate::node::Authority;
use crate::node::Node;
use crate::node::names;
use crate::node::wait_for_key;
use isolet_fleet::replication::KEYS_MAX;
use isolet_store::KeyDigest;
use isolet_store::keys::KeyRecord;
use isolet_store::keys::NewKey;

/// Promises: FW8.
#[tokio::test]
async fn a_key_works_on_all_nodes_until_one_of_them_revokes_it() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    let new = NewKey {
        tenant: "acme".into(),
        label: "\u{1}\"ci\"".into(),
        read_only: true,
        expires_at_ms: Some(isolet_clock::now_ms() + 3_600_000),
        ..NewKey::default()
    };
    let (limited, secret) = a.command().add(&new).unwrap();
    wait_for_key(&[&a, &b, &c], &secret, true).await;
    for node in [&b, &c] {
        let grant = node.grant(&secret).unwrap();
        assert_eq!((grant.key.as_str(), grant.tenant.as_str()), (limited.id.as_str(), "acme"));
        assert!(grant.read_only);
        let listed = node.keys.list().unwrap().remove(0);
        assert_eq!((listed.label, listed.expires_at_ms), (new.label.clone(), new.expires_at_ms));
    }
    // What `isolet keys rotate api` does, on another node than the one that added the key.
    let (_, replacement) = b.command().add(&new).unwrap();
    b.revoke(&limited.id);
    wait_for_key(&[&a, &b, &c], &replacement, true).await;
    wait_for_key(&[&a, &b, &c], &secret, false).await;
    assert!(a.keys.list().unwrap()[0].revoked_at_ms.is_some());
    // The first use of a key is not a change for other nodes.
    let used = |node: &Node| node.keys.list().unwrap()[1].last_used_at_ms;
    let before = used(&b);
    assert!(c.accepts(&replacement));
    assert_eq!(used(&b), before);
}

/// Promises: FW8.
#[tokio::test]
async fn a_node_that_was_away_accepts_no_key_that_was_revoked_meanwhile() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, mut c] = Node::three(&server, &mut authority).await;
    let (id, secret) = a.add_key("");
    let (own, own_secret) = c.add_key("");
    wait_for_key(&[&a, &b, &c], &secret, true).await;
    wait_for_key(&[&a, &b, &c], &own_secret, true).await;
    c.leave();
    b.revoke(&id);
    // The node that is away revokes one too.
    c.revoke(&own);
    wait_for_key(&[&a, &b], &secret, false).await;
    assert!(c.accepts(&secret), "it cannot know yet");
    c.join().await;
    assert!(!c.accepts(&secret), "before it serves anything");
    wait_for_key(&[&a, &b, &c], &own_secret, false).await;
    // Restarts bring nothing back.
    let mut nodes = [a, b, c];
    for node in &mut nodes {
        node.leave();
        node.join().await;
    }
    for node in &nodes {
        assert!(!node.accepts(&secret) && !node.accepts(&own_secret));
    }
}

/// Promises: FW8.
#[tokio::test]
async fn the_first_nodes_bring_their_keys_and_a_later_one_adds_its_own() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let mut a = Node::new("a", &server, &mut authority).await;
    let mut b = Node::new("b", &server, &mut authority).await;
    let (_, of_a) = a.add_key("of a");
    let (_, of_b) = b.add_key("of b");
    let (ended, ended_secret) = a.add_key("");
    // A copy of the records of node a, from before the key was revoked.
    b.keys.merge(&a.keys.records().unwrap()).unwrap();
    a.revoke(&ended);
    let (first, second) = tokio::join!(a.try_join(), b.try_join());
    first.and(second).unwrap();
    wait_for_key(&[&a, &b], &of_a, true).await;
    wait_for_key(&[&a, &b], &of_b, true).await;
    wait_for_key(&[&a, &b], &ended_secret, false).await;
    let count = server.client().count(&names().api_keys()).await.unwrap();
    assert_eq!(count, 3);
    // Another etcd, which is empty, gets what the nodes have.
    let other = EtcdServer::start().await;
    b.use_etcd(&other).await;
    b.join().await;
    let mut c = Node::new("c", &other, &mut authority).await;
    c.keys.merge(&[KeyRecord { revoked_at_ms: None, ..revoked(&a, &ended) }]).unwrap();
    assert!(c.accepts(&ended_secret), "an old backup of node a");
    c.join().await;
    assert!(c.accepts(&of_a) && c.accepts(&of_b) && !c.accepts(&ended_secret));
}

/// Nodes that come together with mostly the same keys find some of them written already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_the_same_keys_join_at_the_same_time() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let mut a = Node::new("a", &server, &mut authority).await;
    let mut b = Node::new("b", &server, &mut authority).await;
    let mut c = Node::new("c", &server, &mut authority).await;
    for n in 0..150 {
        a.add_key(&n.to_string());
    }
    let shared = a.keys.records().unwrap();
    let mut own = Vec::new();
    for node in [&b, &c] {
        node.keys.merge(&shared).unwrap();
        own.push(node.add_key("").1);
    }
    let joined = tokio::join!(a.try_join(), b.try_join(), c.try_join());
    joined.0.and(joined.1).and(joined.2).unwrap();
    let count = server.client().count(&names().api_keys()).await.unwrap();
    assert_eq!(count, 152, "when a node has joined, etcd has its keys");
    for secret in &own {
        wait_for_key(&[&a, &b, &c], secret, true).await;
    }
}

fn revoked(node: &Node, id: &str) -> KeyRecord {
    let all = node.keys.records().unwrap();
    let found = all.into_iter().find(|key| key.id == id).unwrap();
    assert!(found.revoked_at_ms.is_some());
    found
}

/// Promises: FW8.
#[tokio::test]
async fn records_that_somebody_deletes_or_changes_in_etcd_are_written_again() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    let (_, valid) = a.add_key("");
    let (ended, secret) = a.add_key("");
    wait_for_key(&[&b, &c], &valid, true).await;
    wait_for_key(&[&b, &c], &secret, true).await;
    a.revoke(&ended);
    wait_for_key(&[&b, &c], &secret, false).await;
    let etcd = server.client();
    let key = names().api_key(&ended);
    let with_revocation = etcd.get(&key).await.unwrap().unwrap().value;
    let text = String::from_utf8(with_revocation).unwrap();
    let without = text.split(",\"revoked_at_ms\"").next().unwrap().to_owned() + "}";
    let is_revoked = async || {
        let found = etcd.get(&key).await.unwrap();
        found.is_some_and(|pair| String::from_utf8_lossy(&pair.value).contains("revoked_at_ms"))
    };
    for value in [&*without, "garbage"] {
        etcd.put(&key, value.as_bytes()).await.unwrap();
        wait_until(|| format!("the revocation instead of {value}"), is_revoked).await;
    }
    server.etcdctl(&["del", "--prefix", "isolet/keys/"]);
    wait_until(
        || "both records".into(),
        async || etcd.count(&names().api_keys()).await.unwrap() == 2 && is_revoked().await,
    )
    .await;
    for node in [&a, &b, &c] {
        assert!(node.accepts(&valid) && !node.accepts(&secret));
    }
}

/// Promises: T4, FW8.
#[tokio::test]
async fn no_secret_of_a_key_is_in_etcd_or_in_other_nodes() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, _c] = Node::three(&server, &mut authority).await;
    let (id, secret) = a.add_key("label");
    wait_for_key(&[&b], &secret, true).await;
    a.revoke(&id);
    wait_for_key(&[&b], &secret, false).await;
    let all = server.etcdctl(&["get", "--prefix", ""]);
    assert!(all.contains(&id) && all.contains("revoked_at_ms"), "{all}");
    let random = secret.strip_prefix("isolet_").unwrap();
    assert!(!all.contains(random) && !all.contains("isolet_"), "{all}");
}

/// A later version may write what this one cannot read.
#[tokio::test]
async fn a_revocation_that_a_later_version_writes_is_respected() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let mut a = Node::joined("a", &server, &mut authority).await;
    let (id, secret) = a.add_key("");
    let (other, other_secret) = a.add_key("");
    let etcd = server.client();
    let key = |id: &str| names().api_key(id);
    for id in [&id, &other] {
        let what = || "the record".to_owned();
        wait_until(what, async || etcd.get(&key(id)).await.unwrap().is_some()).await;
    }
    let later = br#"{"v":9,"new":true,"revoked_at_ms":7}"#;
    etcd.put(&key(&id), later).await.unwrap();
    wait_for_key(&[&a], &secret, false).await;
    a.leave();
    etcd.put(&key(&other), br#"{"v":9,"new":true}"#).await.unwrap();
    a.revoke(&other);
    a.join().await;
    let value = etcd.get(&key(&other)).await.unwrap().unwrap().value;
    let text = String::from_utf8(value).unwrap();
    assert!(text.contains("\"new\":true") && text.contains("\"revoked_at_ms\":"), "{text}");
    assert!(!a.accepts(&other_secret));
    assert_eq!(etcd.get(&key(&id)).await.unwrap().unwrap().value, later, "nothing to add");
}

#[tokio::test]
async fn the_number_of_keys_is_bounded_and_expired_ones_are_removed() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let mut a = Node::new("a", &server, &mut authority).await;
    let day_ms = 86_400_000;
    let record = |n: usize, expires_at_ms: Option<i64>| KeyRecord {
        id: format!("key_{n:016x}"),
        digest: KeyDigest::of(&format!("isolet_{n}")),
        tenant: "t".into(),
        label: String::new(),
        read_only: false,
        created_at_ms: i64::try_from(n).unwrap(),
        expires_at_ms,
        revoked_at_ms: None,
    };
    let many: Vec<KeyRecord> = (0..KEYS_MAX - 1).map(|n| record(n, None)).collect();
    a.keys.merge(&many).unwrap();
    a.join().await;
    let etcd = server.client();
    let count = async || etcd.count(&names().api_keys()).await.unwrap();
    assert_eq!(count().await, KEYS_MAX as u64 - 1);
    // An expired key of an earlier time, which another node has written.
    let now_ms = isolet_clock::now_ms();
    let mut b = Node::new("b", &server, &mut authority).await;
    b.keys.merge(&[record(KEYS_MAX, Some(now_ms + 3000))]).unwrap();
    b.join().await;
    assert_eq!(count().await, KEYS_MAX as u64);
    let (id, secret) = b.add_key("one too many");
    wait_for_key(&[&b], &secret, true).await;
    let first = format!("key_{:016x}", 0);
    b.revoke(&first);
    wait_for_key(&[&a], "isolet_0", false).await;
    assert_eq!(count().await, KEYS_MAX as u64);
    assert!(!a.accepts(&secret), "a revocation is not refused, the new key is");
    // The record of the expired key, as it looks long after the end.
    let expired = record(KEYS_MAX, None).id;
    wait_until(|| "its end".into(), async || !b.keys.is_valid(&expired).unwrap()).await;
    let expired = names().api_key(&expired);
    let value = etcd.get(&expired).await.unwrap().unwrap().value;
    let old = now_ms - 8 * day_ms;
    let value = String::from_utf8(value).unwrap();
    let value = value.replace(&(now_ms + 3000).to_string(), &old.to_string());
    etcd.put(&expired, value.as_bytes()).await.unwrap();
    wait_for_key(&[&a], &secret, true).await;
    assert!(etcd.get(&expired).await.unwrap().is_none());
    assert!(etcd.get(&names().api_key(&id)).await.unwrap().is_some());
}
