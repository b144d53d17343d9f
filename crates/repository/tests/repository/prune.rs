//! What a prune deletes, and what it does not.

use super::*;
use isolet_repository::PRUNE_AGE;
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

async fn two() -> Place {
    let place = Place::new().await;
    fs::write(place.workspace().join("both"), noise(4 << 20, 6)).unwrap();
    place.push("t", "one").await.unwrap();
    fs::write(place.workspace().join("later"), noise(40 << 20, 7)).unwrap();
    place.push("t", "two").await.unwrap();
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_a_deleted_snapshot_are_marked_then_deleted() {
    let place = two().await;
    let before = place.store_bytes();
    let nothing = place.repository.prune(NOW).await.unwrap();
    assert_eq!((nothing.tenants, nothing.snapshots), (1, 2));
    assert_eq!((nothing.marked_packs, nothing.deleted_packs), (0, 0));
    place.repository.tenant("t").delete("two").await.unwrap();
    let marked = place.repository.prune(PRUNE_AGE).await.unwrap();
    assert!(marked.marked_packs >= 2 && marked.deleted_packs == 0, "{marked:?}");
    let waiting = place.repository.prune(PRUNE_AGE).await.unwrap();
    assert_eq!((waiting.marked_packs, waiting.deleted_packs), (0, 0));
    let deleted = place.repository.prune(NOW).await.unwrap();
    assert_eq!(deleted.deleted_packs, marked.marked_packs, "{deleted:?}");
    assert!(place.store_bytes() < before - (39 << 20));
    assert!(place.objects("doomed").is_empty());
    place.pull("t", "one", "pulled").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_began_before_the_mark_keeps_its_chunks() {
    let place = two().await;
    let manifests = place.objects("snapshots");
    let saved: Vec<_> = manifests.iter().map(|path| fs::read(path).unwrap()).collect();
    place.repository.tenant("t").delete("two").await.unwrap();
    assert!(place.repository.prune(PRUNE_AGE).await.unwrap().marked_packs > 0);
    // The manifest of that push arrives now. Its chunks are marked, and can be pulled.
    for (path, content) in manifests.iter().zip(saved) {
        fs::write(path, content).unwrap();
    }
    place.pull("t", "two", "marked").await.unwrap();
    let pruned = place.repository.prune(NOW).await.unwrap();
    assert_eq!(pruned.deleted_packs, 0, "{pruned:?}");
    assert!(place.objects("doomed").is_empty());
    place.repository.prune(NOW).await.unwrap();
    place.pull("t", "two", "pulled").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_after_the_mark_sends_its_chunks_again() {
    let place = two().await;
    place.repository.tenant("t").delete("two").await.unwrap();
    place.repository.prune(PRUNE_AGE).await.unwrap();
    let again = place.push("t", "three").await.unwrap();
    assert!(again.sent_bytes > 39 << 20);
    place.repository.prune(NOW).await.unwrap();
    place.pull("t", "three", "pulled").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_that_a_killed_push_left_are_deleted_when_they_are_old() {
    let place = two().await;
    let orphan = place.objects("packs")[0].with_file_name("0123456789abcdef0123456789abcdef");
    fs::write(&orphan, "left").unwrap();
    place.repository.prune(PRUNE_AGE).await.unwrap();
    assert!(orphan.try_exists().unwrap());
    assert_eq!(place.repository.prune(NOW).await.unwrap().deleted_packs, 1);
    assert!(!orphan.try_exists().unwrap());
    place.pull("t", "two", "pulled").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_of_which_little_is_needed_is_written_again() {
    let place = Place::new().await;
    fs::write(place.workspace().join("a"), noise(2 << 20, 8)).unwrap();
    fs::write(place.workspace().join("b"), noise(10 << 20, 9)).unwrap();
    place.push("t", "one").await.unwrap();
    fs::remove_file(place.workspace().join("b")).unwrap();
    place.push("t", "two").await.unwrap();
    place.repository.tenant("t").delete("one").await.unwrap();
    let pruned = place.repository.prune(NOW).await.unwrap();
    assert_eq!((pruned.repacked_packs, pruned.marked_packs), (1, 1), "{pruned:?}");
    assert_eq!(place.repository.prune(NOW).await.unwrap().deleted_packs, 1);
    assert!(place.store_bytes() < 5 << 20);
    place.pull("t", "two", "pulled").await.unwrap();
    let third = place.push("t", "three").await.unwrap();
    assert!(third.sent_bytes < 1 << 20, "its chunks have a place: {} bytes", third.sent_bytes);
}

/// A damaged object of one tenant kept what no snapshot of all tenants behind it needed.
/// Promises: SS4.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_does_not_read_keeps_the_chunks_of_its_tenant_only() {
    let place = Place::new().await;
    fs::write(place.workspace().join("both"), noise(4 << 20, 6)).unwrap();
    // The order of their directories is that of keyed hashes: one of them is the first.
    let tenants = ["t", "u", "v"];
    for tenant in tenants {
        place.push(tenant, "one").await.unwrap();
    }
    let manifests = place.objects("snapshots");
    let whole = fs::read(&manifests[0]).unwrap();
    fs::write(&manifests[0], &whole[1..]).unwrap();
    let packs_of = |manifest: &Path| {
        let packs = manifest.ancestors().nth(2).unwrap().join("packs");
        fs::read_dir(packs).unwrap().count()
    };
    let before = packs_of(&manifests[0]);
    for manifest in &manifests[1..] {
        fs::remove_file(manifest).unwrap();
    }
    let pruned = place.repository.prune(NOW).await.unwrap();
    assert_eq!((pruned.tenants, pruned.failed.len()), (3, 1), "{pruned:?}");
    let directory = manifests[0].ancestors().nth(2).unwrap().file_name().unwrap();
    let named = &pruned.failed[0].directory;
    assert!(named.ends_with(directory.to_str().unwrap()), "{named}");
    assert!(matches!(pruned.failed[0].error, Error::Damaged { .. }), "{pruned:?}");
    assert!(pruned.marked_packs >= 2, "{pruned:?}");
    assert!(place.repository.prune(NOW).await.unwrap().deleted_packs >= 2);
    assert_eq!(packs_of(&manifests[0]), before);
    fs::write(&manifests[0], whole).unwrap();
    let pruned = place.repository.prune(NOW).await.unwrap();
    assert!(pruned.failed.is_empty(), "{pruned:?}");
    assert_eq!(packs_of(&manifests[0]), before);
}

/// A store that lists an earlier state leaves out an index. Its packs were deleted, although a snapshot needed them.
/// Promises: FL41.
#[tokio::test(flavor = "multi_thread")]
async fn a_prune_without_an_index_that_a_snapshot_needs_deletes_nothing() {
    let place = Place::new().await;
    fs::write(place.workspace().join("file"), noise(1 << 20, 3)).unwrap();
    place.push("t", "one").await.unwrap();
    let index = place.objects("index").remove(0);
    fs::write(place.workspace().join("more"), "more").unwrap();
    place.push("t", "two").await.unwrap();
    place.repository.tenant("t").delete("one").await.unwrap();
    let hidden = place.path("hidden");
    fs::rename(&index, &hidden).unwrap();
    let packs = place.objects("packs");
    let repository = place.open().await.unwrap();
    let pruned = repository.prune(NOW).await.unwrap();
    assert_eq!(pruned.failed.len(), 1, "{pruned:?}");
    assert!(matches!(pruned.failed[0].error, Error::Damaged { .. }), "{pruned:?}");
    assert_eq!(place.objects("packs"), packs, "nothing is deleted");
    fs::rename(&hidden, &index).unwrap();
    place.pull("t", "two", "pulled").await.unwrap();
}
