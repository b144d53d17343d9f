//! Claims, fences, lists and the cache.

use crate::etcd_server::EtcdServer;
use crate::fleet::Node;
use crate::fleet::claim;
use crate::fleet::sandbox;
use isolet_cluster::model::Class;
use isolet_cluster::model::SandboxKey;
use isolet_cluster::ownership::Claim;
use isolet_cluster::ownership::Claimed;
use isolet_cluster::ownership::FENCED_BYTES_MAX;
use isolet_cluster::ownership::OwnershipError;
use std::time::Duration;

#[tokio::test]
async fn fifty_claims_at_once_have_one_winner() {
    let server = EtcdServer::start().await;
    let nodes = [Node::join(&server, "one").await, Node::join(&server, "two").await];
    let claims = (0..50).map(|index| {
        let ownership = nodes[index % 2].ownership.clone();
        tokio::spawn(async move { ownership.claim(&claim("s", Class::Store)).await.unwrap() })
    });
    let mut won = Vec::new();
    let mut owned = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        match claim.await.unwrap() {
            Claimed::Won(owner) => won.push(owner),
            Claimed::Owned(owner) => owned.push(owner),
        }
    }
    assert_eq!((won.len(), owned.len()), (1, 49));
    assert!(owned.iter().all(|owner| *owner == won[0]));
    let pair = server.client().get(b"isolet/owners/t/s").await.unwrap().unwrap();
    assert_eq!(pair.created_at, won[0].epoch.revision());
}

#[tokio::test]
async fn an_epoch_is_stale_after_release_and_a_new_claim() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let key = sandbox("s");
    let first = one.own("s", Class::Store).await;
    let fence = one.ownership.fence(&key, first.epoch);
    one.ownership.check(&fence).await.unwrap();
    one.ownership.write_fenced(&fence, "snapshot", b"1".into()).await.unwrap();
    one.ownership.release(&fence).await.unwrap();
    one.ownership.release(&fence).await.unwrap();
    assert_eq!(one.ownership.read_fenced(&key, "snapshot").await.unwrap(), None);
    let second = two.own("s", Class::Store).await;
    assert!(second.epoch > first.epoch);
    let stale = [
        one.ownership.check(&fence).await.map(drop),
        one.ownership.write_fenced(&fence, "snapshot", b"2".into()).await,
        one.ownership.release(&fence).await,
    ];
    for refused in stale {
        let Err(OwnershipError::Stale { owner: Some(owner), .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(*owner, second);
    }
    assert_eq!(one.ownership.read_fenced(&key, "snapshot").await.unwrap(), None);
    let fence = two.ownership.fence(&key, second.epoch);
    two.ownership.write_fenced(&fence, "snapshot", b"3".into()).await.unwrap();
    let fenced = one.ownership.read_fenced(&key, "snapshot").await.unwrap().unwrap();
    assert_eq!(fenced.value, b"3");
}

/// Another request may have reached the node on another way.
#[tokio::test]
async fn what_a_node_has_accepted_is_not_placed_elsewhere() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let registration = two.membership.state().borrow().registration().unwrap();
    let place = async || {
        let claim = claim("s", Class::Node);
        match one.ownership.claim_for(&claim, &two.name, registration).await.unwrap() {
            Claimed::Won(owner) => one.ownership.fence(&sandbox("s"), owner.epoch),
            Claimed::Owned(owner) => panic!("owned by {}", owner.node),
        }
    };
    let fence = place().await;
    assert!(two.ownership.accept(&fence).await.unwrap());
    assert!(!one.ownership.release_unaccepted(&fence, &two.name).await.unwrap());
    two.ownership.check(&fence).await.unwrap();
    two.ownership.release(&fence).await.unwrap();
    let fence = place().await;
    assert!(one.ownership.release_unaccepted(&fence, &two.name).await.unwrap());
    assert!(!two.ownership.accept(&fence).await.unwrap(), "it came too late");
    let again = one.ownership.release_unaccepted(&fence, &two.name).await;
    assert!(matches!(again, Err(OwnershipError::Stale { owner: None, .. })), "{again:?}");
    place().await;
}

#[tokio::test]
async fn a_fenced_value_has_a_limit() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let owner = one.own("s", Class::Store).await;
    let fence = one.ownership.fence(&sandbox("s"), owner.epoch);
    let most = vec![0; FENCED_BYTES_MAX];
    one.ownership.write_fenced(&fence, "a", most.clone()).await.unwrap();
    let more = [most, vec![0]].concat();
    let refused = one.ownership.write_fenced(&fence, "a", more).await;
    assert!(matches!(refused, Err(OwnershipError::TooLarge { .. })), "{refused:?}");
    let refused = one.ownership.write_fenced(&fence, &"n".repeat(129), Vec::new()).await;
    assert!(matches!(refused, Err(OwnershipError::TooLarge { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_known_owner_costs_etcd_nothing_and_an_outdated_one_is_forgotten() {
    let mut server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    let key = sandbox("s");
    assert_eq!(two.ownership.owner(&key).await.unwrap(), None);
    let first = one.own("s", Class::Node).await;
    assert_eq!(two.ownership.owner(&key).await.unwrap(), Some(first.clone()));
    one.ownership.release(&one.ownership.fence(&key, first.epoch)).await.unwrap();
    let second = one.own("s", Class::Node).await;
    assert_eq!(two.ownership.owner(&key).await.unwrap(), Some(first.clone()), "from the cache");
    two.ownership.forget(&key, first.epoch);
    assert_eq!(two.ownership.owner(&key).await.unwrap(), Some(second.clone()));
    server.kill();
    assert_eq!(two.ownership.owner(&key).await.unwrap(), Some(second), "without etcd");
}

#[tokio::test]
async fn the_sandboxes_of_a_node_and_of_a_tenant_are_listed_in_pages() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join(&server, "two").await;
    for index in 0..7 {
        one.own(&format!("s{index}"), Class::Store).await;
    }
    two.own("on-two", Class::Node).await;
    let other = SandboxKey::new("t/o", "s").unwrap();
    let of_other = Claim { sandbox: other.clone(), ..claim("s", Class::Node) };
    one.ownership.claim(&of_other).await.unwrap();
    server.client().put(b"isolet/held/one/t/%zz", b"store").await.unwrap();
    server.client().put(b"isolet/owners/t/%zz", b"").await.unwrap();
    let mut held = Vec::new();
    let mut skipped = 0;
    let mut next = None;
    loop {
        let page = two.ownership.held(&one.name, next.as_ref(), 3).await.unwrap();
        assert!(page.sandboxes.len() + page.skipped.len() <= 3);
        held.extend(page.sandboxes);
        skipped += page.skipped.len();
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!((held.len(), skipped), (8, 1));
    assert!(held.iter().any(|held| held.sandbox == other && held.class == Class::Node));
    let owners = two.ownership.owned_by_tenant("t", None, 100).await.unwrap();
    assert_eq!((owners.sandboxes.len(), owners.skipped.len()), (8, 1));
    for owned in owners.sandboxes {
        let listed = held.iter().find(|held| held.sandbox == owned.sandbox);
        if owned.owner.node == one.name {
            assert_eq!(listed.unwrap().epoch, owned.owner.epoch);
        } else {
            assert_eq!(listed, None);
        }
    }
    assert_eq!(two.ownership.count("t/o").await.unwrap(), 1);
}

#[tokio::test]
async fn an_owner_that_cannot_be_read_is_an_error_about_that_sandbox_alone() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    server.client().put(b"isolet/owners/t/bad", b"garbage").await.unwrap();
    let read = one.ownership.owner(&sandbox("bad")).await;
    assert!(matches!(read, Err(OwnershipError::Unreadable { .. })), "{read:?}");
    let claimed = one.ownership.claim(&claim("bad", Class::Node)).await;
    assert!(matches!(claimed, Err(OwnershipError::Unreadable { .. })), "{claimed:?}");
    one.own("good", Class::Node).await;
}

#[tokio::test]
async fn a_claim_whose_answers_were_lost_belongs_to_its_node() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    // etcd stops in the middle of claims, so some are applied without an answer.
    let claims: Vec<_> = (0..20)
        .map(|index| {
            let ownership = one.ownership.clone();
            tokio::spawn(
                async move { ownership.claim(&claim(&format!("s{index}"), Class::Node)).await },
            )
        })
        .collect();
    server.signal("-STOP");
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.signal("-CONT");
    for claim in claims {
        let claimed = claim.await.unwrap().unwrap();
        assert!(matches!(claimed, Claimed::Won(_)), "{claimed:?}");
    }
}

/// A node that deletes a sandbox of another one, whose lease has ended, may learn late that it has one
/// again.
#[tokio::test]
async fn the_ownership_of_a_node_that_has_returned_is_not_given_up() {
    let server = EtcdServer::start().await;
    let one = Node::join(&server, "one").await;
    let two = Node::join_briefly(&server, "two").await;
    let name = two.name.clone();
    let key = sandbox("s");
    let owner = two.own("s", Class::Node).await;
    let fence = one.ownership.fence(&key, owner.epoch);
    assert!(!one.ownership.release_of_lost(&fence, &name).await.unwrap());
    assert_eq!(one.ownership.check(&fence).await.unwrap().node, name);
    two.kill();
    crate::fleet::wait_for_end(&server, "two").await;
    assert!(one.ownership.release_of_lost(&fence, &name).await.unwrap());
    let gone = one.ownership.release_of_lost(&fence, &name).await;
    assert!(matches!(gone, Err(OwnershipError::Stale { .. })), "{gone:?}");
}
