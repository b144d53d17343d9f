//! Stores that do not return what was written.

use super::*;

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
