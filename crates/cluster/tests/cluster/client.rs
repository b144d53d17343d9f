//! The client of etcd.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use isolet_cluster::etcd::Change;
use isolet_cluster::etcd::Compare;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::EtcdError;
use isolet_cluster::etcd::EtcdSettings;
use isolet_cluster::etcd::Operation;
use isolet_cluster::etcd::Transaction;
use std::net::TcpListener;
use std::time::Duration;

#[tokio::test]
async fn keys_are_written_listed_counted_and_deleted() {
    let server = EtcdServer::start().await;
    let etcd = server.client();
    assert_eq!(etcd.get(b"p/a").await.unwrap(), None);
    for index in 0..7 {
        etcd.put(format!("p/{index}").as_bytes(), b"v").await.unwrap();
    }
    etcd.put(b"q", b"other").await.unwrap();
    assert_eq!(etcd.count(b"p/").await.unwrap(), 7);
    let first = etcd.list(b"p/", None, 3, None).await.unwrap();
    assert_eq!(first.pairs.len(), 3);
    assert!(first.has_more);
    etcd.put(b"p/9", b"later").await.unwrap();
    let mut last = first.pairs[2].key.clone();
    let mut count = 3;
    loop {
        let page = etcd.list(b"p/", Some(&last), 3, Some(first.revision)).await.unwrap();
        count += page.pairs.len();
        if !page.has_more {
            break;
        }
        last.clone_from(&page.pairs[page.pairs.len() - 1].key);
    }
    assert_eq!(count, 7, "all pages are of the revision of the first");
    assert!(etcd.delete(b"p/9").await.unwrap());
    assert!(!etcd.delete(b"p/9").await.unwrap());
}

#[tokio::test]
async fn a_transaction_is_applied_whole_or_not_at_all() {
    let server = EtcdServer::start().await;
    let etcd = server.client();
    let write = |compares: Vec<Compare>| Transaction {
        compares,
        then: vec![
            Operation::put(b"a".into(), b"1".into()),
            Operation::put(b"b".into(), b"2".into()),
        ],
        otherwise: vec![Operation::Get { key: b"a".into() }],
    };
    let created = etcd.transaction(write(vec![Compare::absent(b"a".into())])).await.unwrap();
    assert!(created.succeeded);
    let again = etcd.transaction(write(vec![Compare::absent(b"a".into())])).await.unwrap();
    assert!(!again.succeeded);
    let pair = again.pair(0).unwrap();
    assert_eq!((pair.modified_at, pair.value.as_slice()), (created.revision, b"1".as_slice()));
    for (compare, holds) in [
        (Compare::modified_at(b"a".into(), created.revision), true),
        (Compare::modified_at(b"a".into(), created.revision - 1), false),
        (Compare::created_at(b"b".into(), created.revision), true),
        (Compare::present(b"b".into()), true),
        (Compare::present(b"c".into()), false),
        (Compare::none_below(b"c".into()), true),
        (Compare::none_below(b"a".into()), false),
    ] {
        let outcome = etcd
            .transaction(Transaction { compares: vec![compare.clone()], ..Default::default() })
            .await
            .unwrap();
        assert_eq!(outcome.succeeded, holds, "{compare:?}");
    }
    let deleted = etcd
        .transaction(Transaction {
            then: vec![
                Operation::DeletePrefix { prefix: b"a".into() },
                Operation::Delete { key: b"b".into() },
                Operation::Count { prefix: b"a".into() },
            ],
            ..Default::default()
        })
        .await
        .unwrap();
    let counts = [deleted.count(0), deleted.count(1), deleted.count(2)];
    assert_eq!(counts, [1, 1, 0]);
}

#[tokio::test]
async fn a_lease_is_renewed_asked_for_and_revoked() {
    let server = EtcdServer::start().await;
    let etcd = server.client();
    let lease = etcd.grant_lease(60).await.unwrap();
    assert_eq!(lease.ttl_s, 60);
    let write = Operation::Put { key: b"k".into(), value: b"v".into(), lease: lease.id };
    let put =
        etcd.transaction(Transaction { then: vec![write], ..Default::default() }).await.unwrap();
    let renewed = etcd.renew_lease(lease.id).await.unwrap();
    assert_eq!((renewed.ttl_s, renewed.term), (60, put.term));
    assert!(etcd.lease_time_to_live(lease.id).await.unwrap().left_s > 50);
    etcd.revoke_lease(lease.id).await.unwrap();
    etcd.revoke_lease(lease.id).await.unwrap();
    assert_eq!(etcd.get(b"k").await.unwrap(), None);
    let gone = Err(EtcdError::LeaseNotFound { lease: lease.id });
    assert_eq!(etcd.renew_lease(lease.id).await, gone.clone());
    assert_eq!(
        etcd.lease_time_to_live(lease.id).await.map(|left| {
            panic!("{left:?}");
        }),
        gone
    );
}

#[tokio::test]
async fn a_watch_reports_changes_in_order_and_continues_where_it_ended() {
    let server = EtcdServer::start().await;
    let etcd = server.client();
    etcd.put(b"p/a", b"1").await.unwrap();
    let first = etcd.list(b"p/", None, 10, None).await.unwrap();
    let mut watch = etcd.watch(b"p/", first.revision + 1).await.unwrap();
    etcd.put(b"q", b"not watched").await.unwrap();
    etcd.put(b"p/b", b"2").await.unwrap();
    etcd.delete(b"p/a").await.unwrap();
    let mut changes = Vec::new();
    let mut revision = 0;
    while changes.len() < 2 {
        let batch = watch.next().await.unwrap();
        revision = batch.revision;
        changes.extend(batch.changes);
    }
    assert!(matches!(&changes[0], Change::Put(pair) if pair.key == b"p/b"));
    assert_eq!(changes[1], Change::Deleted { key: b"p/a".into() });
    drop(watch);
    etcd.put(b"p/c", b"3").await.unwrap();
    let mut resumed = etcd.watch(b"p/", revision + 1).await.unwrap();
    let batch = resumed.next().await.unwrap();
    assert!(matches!(&batch.changes[..], [Change::Put(pair)] if pair.key == b"p/c"));
}

/// Each of them used to stay open in etcd as long as the connection: a renewal every 2.5 s, and a
/// watch every 10 minutes for each kind of what nodes share.
#[tokio::test]
async fn renewals_and_dropped_watches_leave_no_stream_open_in_etcd() {
    let server = EtcdServer::start().await;
    let etcd = server.client();
    let lease = etcd.grant_lease(60).await.unwrap();
    for _ in 0..10 {
        etcd.renew_lease(lease.id).await.unwrap();
    }
    let mut watch = etcd.watch(b"p/", 1).await.unwrap();
    for _ in 0..10 {
        drop(etcd.watch(b"p/", 1).await.unwrap());
    }
    for (method, expected) in [("LeaseKeepAlive", 0), ("Watch", 1)] {
        let what = || format!("{expected} open calls of {method}");
        wait_until(what, async || server.open_calls(method).await == expected).await;
    }
    etcd.put(b"p/a", b"1").await.unwrap();
    let batch = watch.next().await.unwrap();
    assert!(matches!(&batch.changes[..], [Change::Put(pair)] if pair.key == b"p/a"));
    drop(watch);
    let what = || "the end of the last watch".to_owned();
    wait_until(what, async || server.open_calls("Watch").await == 0).await;
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_says_so() {
    let server = EtcdServer::start().await;
    let etcd = server.client();
    for value in 0..5 {
        etcd.put(b"p/a", &[value]).await.unwrap();
    }
    let page = etcd.list(b"p/", None, 10, None).await.unwrap();
    server.etcdctl(&["compact", &page.revision.to_string()]);
    let mut watch = etcd.watch(b"p/", 2).await.unwrap();
    let ended = watch.next().await.unwrap_err();
    assert_eq!(ended, EtcdError::Compacted { compacted: page.revision });
    let read = etcd.list(b"p/", None, 10, Some(2)).await;
    assert!(matches!(read, Err(EtcdError::Compacted { .. })), "{read:?}");
}

#[tokio::test]
async fn another_endpoint_answers_for_one_that_does_not() {
    let server = EtcdServer::start().await;
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoints = vec![
        format!("http://{refusing}"),
        format!("http://{}", silent.local_addr().unwrap()),
        server.url(),
    ];
    let etcd = Etcd::new(EtcdSettings { endpoints, tls: None }).unwrap();
    etcd.put(b"a", b"1").await.unwrap();
    // The endpoint that answered is preferred from now on, so a limit suffices that is shorter than an
    // attempt at the silent one.
    let quick = etcd.with_timeout(Duration::from_millis(1800));
    assert_eq!(quick.get(b"a").await.unwrap().unwrap().value, b"1");
    let statuses = quick.statuses().await;
    let answers: Vec<bool> = statuses.iter().map(|(_, status)| status.is_ok()).collect();
    assert_eq!(answers, [false, false, true]);
    let status = statuses[2].1.clone().unwrap();
    assert!(status.leader == status.member_id && status.version.starts_with("3."), "{status:?}");
    assert_eq!(etcd.members().await.unwrap()[0].client_urls, [server.url()]);
}

#[tokio::test]
async fn a_call_ends_at_its_limit_and_names_each_endpoint() {
    let server = EtcdServer::start().await;
    server.signal("-STOP");
    let etcd = server.client().with_timeout(Duration::from_millis(300));
    let error = etcd.put(b"a", b"1").await.unwrap_err();
    assert!(matches!(error, EtcdError::Unavailable { operation: "Put", .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&server.url()) && text.contains("within 300 ms"), "{text}");
    server.signal("-CONT");
    server.client().put(b"a", b"1").await.unwrap();
}

#[tokio::test]
async fn a_message_above_the_limit_is_refused_before_it_is_sent() {
    let server = EtcdServer::start().await;
    let etcd = server.client();
    let large = vec![0; 1024 * 1024 + 1];
    let error = etcd.put(b"a", &large).await.unwrap_err();
    assert!(matches!(error, EtcdError::TooLarge { .. }), "{error}");
    assert_eq!(etcd.get(b"a").await.unwrap(), None);
    // Ten values of 1,000,000 bytes are more than an answer may have.
    for index in 0..10 {
        etcd.put(format!("p/{index}").as_bytes(), &large[..1_000_000]).await.unwrap();
    }
    assert!(etcd.list(b"p/", None, 10, None).await.is_err());
    assert_eq!(etcd.list(b"p/", None, 5, None).await.unwrap().pairs.len(), 5);
}
