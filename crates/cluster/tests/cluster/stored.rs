//! Sandboxes that were stored away: any node may take them over, and nobody before.

use crate::etcd_server::EtcdServer;
use crate::fleet::Node;
use crate::fleet::claim;
use crate::fleet::sandbox;
use isolet_cluster::model::Class;
use isolet_cluster::model::Custody;
use isolet_cluster::ownership::Claimed;
use isolet_cluster::ownership::Discarded;
use isolet_cluster::ownership::OwnershipError;
use isolet_cluster::ownership::STORED_BYTES_MAX;
use isolet_cluster::ownership::StoredNote;
use isolet_cluster::ownership::TakenOver;

fn about(description: &[u8]) -> StoredNote {
    StoredNote { description: description.to_vec(), ..StoredNote::default() }
}

#[tokio::test]
async fn a_stored_sandbox_is_taken_over_although_its_former_node_lives() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    for (id, class) in [("n", Class::Node), ("s", Class::Store)] {
        let key = sandbox(id);
        let from = one.own(id, class).await;
        let fence = one.ownership.fence(&key, from.epoch);
        one.ownership.write_fenced(&fence, "pushed", b"p".to_vec()).await.unwrap();
        let refused = two.ownership.take_over(&key, &from, "test").await.unwrap();
        assert_eq!(refused, TakenOver::NodeAlive);
        one.ownership.store_away(&fence, &from, about(b"about it")).await.unwrap();
        // The id stays taken, the node's list does not name it, and its description does.
        let stored = two.ownership.owner(&key).await.unwrap().unwrap();
        assert!(stored.is_stored() && stored.epoch > from.epoch && stored.node == one.name);
        assert_eq!(two.ownership.cached(&key), None, "any node may take it over");
        assert_eq!(one.ownership.cached(&key), None);
        let claimed = two.ownership.claim(&claim(id, class)).await.unwrap();
        assert_eq!(claimed, Claimed::Owned(stored.clone()));
        let held = one.ownership.held(&one.name, None, 10).await.unwrap();
        assert!(held.sandboxes.is_empty(), "{held:?}");
        let described = two.ownership.stored(&key).await.unwrap().unwrap();
        assert_eq!((&*described.description, described.epoch), (&b"about it"[..], stored.epoch));
        // The former owner can do nothing any more, and a repetition says why.
        let again = one.ownership.store_away(&fence, &from, about(b"")).await;
        let Err(OwnershipError::Stale { owner: Some(owner), .. }) = again else {
            panic!("{again:?}")
        };
        assert!(owner.is_stored());
        let late = one.ownership.write_fenced(&fence, "pushed", Vec::new()).await;
        assert!(matches!(late, Err(OwnershipError::Stale { .. })), "{late:?}");
        let taken = two.ownership.take_over_into(&key, &stored, "us", "test").await.unwrap();
        let TakenOver::Won(owner) = taken else { panic!("{taken:?}") };
        assert_eq!((owner.custody, owner.class, &*owner.region), (Custody::Fetched, class, "us"));
        assert_eq!(two.ownership.stored(&key).await.unwrap(), None);
        let held = two.ownership.held(&two.name, None, 10).await.unwrap();
        assert!(held.sandboxes.iter().any(|one| one.epoch == owner.epoch));
        let kept = two.ownership.read_fenced(&key, "pushed").await.unwrap().unwrap();
        assert_eq!(kept.value, b"p", "its snapshots are still named");
        let second = one.ownership.take_over(&key, &stored, "test").await.unwrap();
        assert_eq!(second, TakenOver::Changed(Some(owner.clone())));
        // It is a sandbox like any other now.
        let refused = one.ownership.take_over(&key, &owner, "test").await.unwrap();
        assert_eq!(refused, TakenOver::NodeAlive);
    }
}

#[tokio::test]
async fn of_many_takeovers_of_a_stored_sandbox_one_wins() {
    let server = EtcdServer::start().await;
    let nodes = [Node::join(&server, "one").await, Node::join(&server, "two").await];
    let key = sandbox("s");
    let from = nodes[0].own("s", Class::Store).await;
    let fence = nodes[0].ownership.fence(&key, from.epoch);
    nodes[0].ownership.store_away(&fence, &from, about(b"")).await.unwrap();
    let stored = nodes[1].ownership.owner(&key).await.unwrap().unwrap();
    let attempts: Vec<_> = (0..20)
        .map(|index| {
            let ownership = nodes[index % 2].ownership.clone();
            let stored = stored.clone();
            tokio::spawn(async move {
                ownership.take_over(&sandbox("s"), &stored, "test").await.unwrap()
            })
        })
        .collect();
    let mut won = 0;
    for attempt in attempts {
        match attempt.await.unwrap() {
            TakenOver::Won(_) => won += 1,
            TakenOver::Changed(Some(owner)) => assert!(owner.epoch > stored.epoch),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn stored_sandboxes_are_listed_by_tenant_and_deleted_by_any_node() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    for id in ["a", "b", "c"] {
        let from = one.own(id, Class::Store).await;
        let fence = one.ownership.fence(&sandbox(id), from.epoch);
        one.ownership.store_away(&fence, &from, about(id.as_bytes())).await.unwrap();
    }
    let page = two.ownership.stored_of_tenant("t", None, 2).await.unwrap();
    let ids: Vec<_> = page.sandboxes.iter().map(|one| one.sandbox.id()).collect();
    assert_eq!((ids, page.has_more), (vec!["a", "b"], true));
    let rest = two.ownership.stored_of_tenant("t", Some(&sandbox("b")), 2).await.unwrap();
    assert_eq!((rest.sandboxes.len(), rest.has_more), (1, false));
    assert!(two.ownership.stored_of_tenant("other", None, 9).await.unwrap().sandboxes.is_empty());
    assert_eq!(two.ownership.count("t").await.unwrap(), 3, "they count for their tenant");
    let fence = two.ownership.fence(&sandbox("a"), page.sandboxes[0].epoch);
    two.ownership.release_stored(&fence, None).await.unwrap();
    assert_eq!(two.ownership.owner(&sandbox("a")).await.unwrap(), None);
    assert_eq!(two.ownership.stored(&sandbox("a")).await.unwrap(), None);
    let again = two.ownership.release_stored(&fence, None).await;
    assert!(matches!(again, Err(OwnershipError::Stale { owner: None, .. })), "{again:?}");
    // One that was taken over in between is not deleted.
    let b = one.ownership.owner(&sandbox("b")).await.unwrap().unwrap();
    one.ownership.take_over(&sandbox("b"), &b, "test").await.unwrap();
    let fence = two.ownership.fence(&sandbox("b"), b.epoch);
    let late = two.ownership.release_stored(&fence, None).await;
    assert!(matches!(late, Err(OwnershipError::Stale { owner: Some(_), .. })), "{late:?}");
}

/// Promises: FL51.
#[tokio::test]
async fn what_a_release_leaves_in_the_object_store_is_listed_until_it_is_forgotten() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let discarded = |id, epoch, not_before_ms| Discarded {
        not_before_ms,
        sandbox: sandbox(id),
        epoch,
        value: b"snapshots".to_vec(),
    };
    let held = one.own("held", Class::Store).await;
    let at_once = discarded("held", held.epoch, 0);
    one.ownership.release(&one.ownership.fence_leaving(&at_once)).await.unwrap();
    let away = one.own("away", Class::Store).await;
    let fence = one.ownership.fence(&sandbox("away"), away.epoch);
    one.ownership.store_away(&fence, &away, about(b"")).await.unwrap();
    let stored = two.ownership.owner(&sandbox("away")).await.unwrap().unwrap();
    // One that was not given up leaves nothing.
    let outdated = discarded("away", away.epoch, 5);
    let late = two.ownership.release_stored(&two.ownership.fence_leaving(&outdated), None).await;
    assert!(matches!(late, Err(OwnershipError::Stale { .. })), "{late:?}");
    let later = discarded("away", stored.epoch, 1000);
    two.ownership.release_stored(&two.ownership.fence_leaving(&later), None).await.unwrap();
    let all = [at_once, later];
    let due = |until_ms| two.ownership.discarded(until_ms, None, 9);
    assert_eq!(due(999).await.unwrap(), all[..1]);
    assert_eq!(due(1000).await.unwrap(), all);
    let behind = two.ownership.discarded(1000, Some(&all[0]), 9).await.unwrap();
    assert_eq!(behind, all[1..]);
    one.ownership.forget_discarded(&all[0]).await.unwrap();
    one.ownership.forget_discarded(&all[0]).await.unwrap();
    assert_eq!(due(1000).await.unwrap(), all[1..]);
}

#[tokio::test]
async fn a_description_that_is_too_long_stores_nothing() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let from = one.own("s", Class::Store).await;
    let fence = one.ownership.fence(&sandbox("s"), from.epoch);
    let long = vec![b' '; STORED_BYTES_MAX + 1];
    let refused = one.ownership.store_away(&fence, &from, about(&long)).await;
    assert!(matches!(refused, Err(OwnershipError::TooLarge { .. })), "{refused:?}");
    one.ownership.check(&fence).await.unwrap();
}

#[tokio::test]
async fn stored_sandboxes_are_listed_by_the_end_of_their_lifetime() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let store = async |id: &str, ends_at_ms| {
        let from = one.own(id, Class::Store).await;
        let fence = one.ownership.fence(&sandbox(id), from.epoch);
        let note = StoredNote { ends_at_ms, ..StoredNote::default() };
        one.ownership.store_away(&fence, &from, note).await.unwrap();
        one.ownership.owner(&sandbox(id)).await.unwrap().unwrap()
    };
    let late = store("a", Some(1_000)).await;
    let early = store("b", Some(20)).await;
    let next = store("c", Some(300)).await;
    store("d", None).await;
    let endings = async |until_ms| one.ownership.endings(until_ms, None, 10).await.unwrap();
    let ids = async |until_ms| {
        let all = endings(until_ms).await.into_iter();
        all.map(|one| one.sandbox.id().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(19).await, [""; 0]);
    assert_eq!(ids(999).await, ["b", "c"]);
    assert_eq!(ids(1_000).await, ["b", "c", "a"]);
    // A takeover and a deletion end that, and a later record is not forgotten for an earlier one.
    let read = endings(999).await;
    assert_eq!(early.ends_at_ms, Some(20));
    let rest = one.ownership.endings(1_000, Some(&read[0]), 1).await.unwrap();
    assert_eq!(rest, read[1..], "behind the first one");
    one.ownership.take_over(&sandbox("b"), &early, "test").await.unwrap();
    assert_eq!(ids(1_000).await, ["c", "a"]);
    let fence = one.ownership.fence(&sandbox("a"), late.epoch);
    one.ownership.release_stored(&fence, late.ends_at_ms).await.unwrap();
    let taken = one.ownership.take_over(&sandbox("c"), &next, "test").await.unwrap();
    let TakenOver::Won(owner) = taken else { panic!("{taken:?}") };
    let fence = one.ownership.fence(&sandbox("c"), owner.epoch);
    let note = StoredNote { ends_at_ms: Some(300), ..StoredNote::default() };
    one.ownership.store_away(&fence, &owner, note).await.unwrap();
    one.ownership.forget_ending(&read[1]).await.unwrap();
    assert_eq!(ids(1_000).await, ["c"]);
    one.ownership.forget_ending(&endings(1_000).await[0]).await.unwrap();
    assert_eq!(ids(1_000).await, [""; 0]);
}
