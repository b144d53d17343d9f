//! Stores that do not return what was written.

use super::*;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::mem::MaybeUninit;

async fn pushed() -> Place {
    let place = Place::new().await;
    fs::write(place.workspace().join("file"), noise(3 << 20, 5)).unwrap();
    fs::write(place.workspace().join("zeros"), vec![0; 3 << 20]).unwrap();
    place.push("t", "one").await.unwrap();
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_and_shortened_objects_are_found_out() {
    let mut place = pushed().await;
    let mut count = 0;
    for kind in ["packs", "index", "snapshots"] {
        for object in place.objects(kind) {
            let whole = fs::read(&object).unwrap();
            let mut changed = whole.clone();
            changed[whole.len() / 2] ^= 1;
            let longer = [whole.as_slice(), &[0; 100]].concat();
            for wrong in [changed, whole[..whole.len() / 2].to_vec(), Vec::new(), longer] {
                // Bytes behind the last chunk of a pack are never read.
                let is_harmless = kind == "packs" && wrong.len() > whole.len();
                fs::write(&object, wrong).unwrap();
                count += 1;
                // Another server, which has read none of them before.
                place.repository = place.open().await.unwrap();
                let to = format!("pulled-{count}");
                let pulled = place.pull("t", "one", &to).await;
                match pulled {
                    Err(Error::Damaged { .. } | Error::Store(_)) if !is_harmless => {}
                    Ok(_) if is_harmless => {}
                    other => panic!("{kind}: {other:?}"),
                }
            }
            fs::write(&object, whole).unwrap();
        }
    }
    assert_eq!(count, 12);
    place.pull("t", "one", "pulled").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_end_does_not_fill_the_memory() {
    let place = pushed().await;
    for kind in ["index", "snapshots"] {
        let object = place.objects(kind).remove(0);
        let whole = fs::read(&object).unwrap();
        fs::File::options().write(true).open(&object).unwrap().set_len(1 << 40).unwrap();
        let refused = place.pull("t", "one", kind).await.unwrap_err().to_string();
        assert!(refused.contains("is longer than"), "{refused}");
        fs::write(&object, whole).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_cannot_be_returned_under_another_id() {
    let place = pushed().await;
    let first = place.objects("snapshots").remove(0);
    fs::write(place.workspace().join("file"), "other").unwrap();
    place.push("t", "two").await.unwrap();
    let second = place.objects("snapshots").into_iter().find(|path| *path != first).unwrap();
    fs::copy(&first, &second).unwrap();
    let call = place.repository.tenant("t").snapshot("two").await.err();
    assert!(matches!(call, Some(Error::Damaged { .. })), "{call:?}");
    assert!(place.repository.tenant("t").snapshots().await.is_err());
    assert!(place.repository.tenant("t").snapshot("one").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_does_not_open_the_repository() {
    let place = pushed().await;
    assert!(place.open().await.is_ok());
    let key = place.path("key");
    fs::remove_file(&key).unwrap();
    let missing = place.open().await.err().unwrap().to_string();
    assert!(missing.contains("isolet store init"), "{missing}");
    isolet_repository::create_key_file(&key).unwrap();
    assert!(matches!(place.open().await, Err(Error::WrongKey)));
    assert!(matches!(
        Repository::create(&settings(place.folder.path())).await,
        Err(Error::WrongKey)
    ));
    fs::remove_file(place.path("store/isolet-repository")).unwrap();
    assert!(matches!(place.open().await, Err(Error::NoRepository(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_ends_when_the_disk_may_not_take_more() {
    let place = pushed().await;
    let tenant = place.repository.tenant("t");
    let manifest = tenant.snapshot("one").await.unwrap();
    let directory = place.path("pulled");
    fs::create_dir(&directory).unwrap();
    let check = Box::new(|_| Err(Error::Full));
    let progress = watch::channel(Progress::default()).0;
    let target = PullTarget { directory, check };
    let ended = tenant.pull(&manifest, target, &progress, &Checkpoint::default()).await;
    assert!(matches!(ended, Err(Error::Full)), "{ended:?}");
}

fn lose_packs(place: &Place) {
    let packs = place.objects("packs");
    assert!(!packs.is_empty());
    packs.iter().for_each(|pack| fs::remove_file(pack).unwrap());
}

/// A store acknowledged a pack and lost it. Later pushes succeeded, relied on it, and none could be pulled.
/// Promises: FL41.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_sends_again_what_the_store_has_lost() {
    let place = pushed().await;
    lose_packs(&place);
    fs::write(place.workspace().join("later"), "later").unwrap();
    let again = place.push("t", "two").await.unwrap();
    assert!(again.sent_bytes > 3 << 20, "{again:?}");
    fs::write(place.workspace().join("later"), "still later").unwrap();
    let third = place.push("t", "three").await.unwrap();
    assert!(third.sent_bytes < 1 << 20, "the store has it again: {third:?}");
    for id in ["two", "three"] {
        place.pull("t", id, &format!("pulled-{id}")).await.unwrap();
        let file = place.path(&format!("pulled-{id}/workspace/file"));
        assert_eq!(fs::read(file).unwrap(), noise(3 << 20, 5), "{id}");
    }
    // One that is shorter is lost too.
    for pack in place.objects("packs") {
        fs::File::options().write(true).open(&pack).unwrap().set_len(10).unwrap();
    }
    let fourth = place.push("t", "four").await.unwrap();
    assert!(fourth.sent_bytes > 3 << 20, "{fourth:?}");
    place.pull("t", "four", "pulled-four").await.unwrap();
}

/// Promises: FL41.
#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_is_lost_at_once_is_sent_again_or_the_push_fails() {
    for (losses, succeeds) in [(1, true), (usize::MAX, false)] {
        let place = Place::new().await;
        fs::write(place.workspace().join("file"), noise(1 << 20, 7)).unwrap();
        let store = place.path("store/tenants");
        let left = std::sync::Arc::new(std::sync::Mutex::new(losses));
        let lost = Checkpoint::new(move |name| {
            let mut left = left.lock().unwrap();
            if name == "push.packed" && *left > 0 {
                *left -= 1;
                for tenant in fs::read_dir(&store).unwrap().flatten() {
                    fs::remove_dir_all(tenant.path().join("packs")).unwrap();
                }
            }
            async { Ok(()) }
        });
        let end = place.push_with("t", "one", &lost).await;
        assert_eq!(end.is_ok(), succeeds, "{end:?}");
        if succeeds {
            place.pull("t", "one", "pulled").await.unwrap();
        } else {
            assert!(matches!(end, Err(Error::Store(_))), "{end:?}");
            let found = place.repository.tenant("t").snapshot("one").await;
            assert!(matches!(found, Err(Error::NoSnapshot(_))), "{found:?}");
        }
    }
}

/// The answers of a store may be wrong for a moment, also in the middle of a pull.
/// Promises: FL38.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_reads_again_what_is_too_short_for_a_moment() {
    let place = pushed().await;
    let pack = place.objects("packs").remove(0);
    let whole = pack.with_extension("whole");
    fs::rename(&pack, &whole).unwrap();
    let content = fs::read(&whole).unwrap();
    fs::write(&pack, &content[..content.len() - 1]).unwrap();
    let reads = inotify::init(CreateFlags::empty()).unwrap();
    inotify::add_watch(&reads, &pack, WatchFlags::CLOSE_NOWRITE).unwrap();
    let returning = std::thread::spawn(move || {
        // The pull has read what is too short.
        let mut buffer = [MaybeUninit::uninit(); 512];
        inotify::Reader::new(&reads, &mut buffer).next().unwrap();
        fs::rename(&whole, &pack).unwrap();
    });
    place.pull("t", "one", "pulled").await.unwrap();
    returning.join().unwrap();
}

/// Promises: FL41.
#[tokio::test(flavor = "multi_thread")]
async fn a_deep_check_finds_each_object_that_is_missing_or_damaged() {
    let place = pushed().await;
    let whole = place.repository.check_deep().await.unwrap();
    assert_eq!((whole.tenants, whole.snapshots, whole.damaged), (1, 1, 0), "{whole:?}");
    assert!(whole.packs > 0 && whole.bytes > 3 << 20, "{whole:?}");
    for kind in ["packs", "index", "snapshots"] {
        for object in place.objects(kind) {
            let content = fs::read(&object).unwrap();
            let mut changed = content.clone();
            changed[content.len() / 2] ^= 1;
            fs::write(&object, changed).unwrap();
            let found = place.repository.check_deep().await.unwrap();
            assert!(found.damaged > 0, "{kind}: {found:?}");
            let name = object.file_name().unwrap().to_str().unwrap();
            assert!(found.damages.iter().any(|one| one.contains(name)), "{kind}: {found:?}");
            fs::remove_file(&object).unwrap();
            let found = place.repository.check_deep().await.unwrap();
            // A deleted snapshot is no damage; the fleet's records say which must be there.
            assert_eq!(found.damaged > 0, kind != "snapshots", "{kind}: {found:?}");
            let names_it = |one: &String| one.contains("snapshot one of tenant t");
            assert_eq!(found.damages.iter().any(names_it), kind != "snapshots", "{found:?}");
            fs::write(&object, content).unwrap();
        }
    }
    assert_eq!(place.repository.check_deep().await.unwrap(), whole);
}
