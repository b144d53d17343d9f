//! Webhooks: a change on one node holds on all, and each node keeps its own progress.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use crate::node::Authority;
use crate::node::Node;
use crate::node::names;
use isolet_fleet::replication::PutRecord;
use isolet_fleet::replication::ReplacedRecord;
use isolet_store::WebhookRow;
use isolet_webhook::WEBHOOKS_MAX;

async fn wait_for(nodes: &[&Node], expected: &[&str]) {
    for node in nodes {
        let what = || format!("the webhooks {expected:?}");
        wait_until(what, async || node.webhooks().await == expected).await;
    }
}

/// Promises: FW9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_changed_on_all_nodes_and_keeps_the_progress_of_each() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    assert_eq!(a.put_webhook("wh_1", "one").await.unwrap(), PutRecord::Created);
    let one = r#"t/wh_1 {"label":"one"}"#;
    assert_eq!(a.webhooks().await, [one]);
    wait_for(&[&b, &c], &[one]).await;
    b.store.set_webhook_progress("t", "wh_1", "progress".to_owned()).await.unwrap();
    assert_eq!(c.put_webhook("wh_1", "two").await.unwrap(), PutRecord::Replaced);
    wait_for(&[&a, &b], &[r#"t/wh_1 {"label":"two"}"#]).await;
    let progress = |rows: Vec<WebhookRow>| rows[0].progress.clone();
    assert_eq!(progress(b.store.webhooks().await.unwrap()).as_deref(), Some("progress"));
    assert_eq!(progress(a.store.webhooks().await.unwrap()), None);
    assert!(b.remove_webhook("wh_1").await.unwrap());
    assert!(!b.remove_webhook("wh_1").await.unwrap());
    wait_for(&[&a, &b, &c], &[]).await;
    for n in 0..WEBHOOKS_MAX {
        a.put_webhook(&format!("wh_{n}"), "x").await.unwrap();
    }
    let max = WEBHOOKS_MAX;
    assert_eq!(c.put_webhook("wh_more", "x").await.unwrap(), PutRecord::TooMany { max });
}

/// Promises: FW9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_change_a_webhook_none_undoes_what_the_other_has_done() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    a.put_webhook("wh_1", "one").await.unwrap();
    assert_eq!(b.replace_webhook("wh_1", "one", "two").await.unwrap(), ReplacedRecord::Replaced);
    assert_eq!(c.replace_webhook("wh_1", "one", "three").await.unwrap(), ReplacedRecord::Differs);
    wait_for(&[&a, &b, &c], &[r#"t/wh_1 {"label":"two"}"#]).await;
    assert!(a.remove_webhook("wh_1").await.unwrap());
    assert_eq!(c.replace_webhook("wh_1", "two", "three").await.unwrap(), ReplacedRecord::Missing);
    wait_for(&[&a, &b, &c], &[]).await;
}

/// Promises: FW9.
#[tokio::test]
async fn a_node_adds_its_own_webhooks_once_and_skips_what_does_not_read() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let a = Node::joined("a", &server, &mut authority).await;
    let mut b = Node::new("b", &server, &mut authority).await;
    let own = |id: &str| WebhookRow {
        tenant: "t".to_owned(),
        id: id.to_owned(),
        body: r#"{"label":"own"}"#.to_owned(),
        progress: None,
    };
    b.store.insert_webhook(own("wh_own"), 9, None).await.unwrap();
    b.join().await;
    let expected = r#"t/wh_own {"label":"own"}"#;
    wait_for(&[&a, &b], &[expected]).await;
    // Later, what the fleet does not have is an outdated copy.
    b.leave();
    b.store.insert_webhook(own("wh_stray"), 9, None).await.unwrap();
    b.join().await;
    assert_eq!(b.webhooks().await, [expected]);
    let key = names().webhook("t", "wh_own");
    for value in ["garbage", "{\"v\":9}", "{\"v\":1,\"webhook\":[]}"] {
        server.client().put(&key, value.as_bytes()).await.unwrap();
    }
    a.put_webhook("wh_last", "last").await.unwrap();
    wait_for(&[&a, &b], &[r#"t/wh_last {"label":"last"}"#, expected]).await;
}
