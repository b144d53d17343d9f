//! What a second push sends.

use super::*;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const MIB: u64 = 1 << 20;

async fn a_change_sends_little(file_mib: u64, changed_mib: u64, limit: u64) {
    let place = Place::new().await;
    let path = place.workspace().join("file");
    let file = fs::File::create(&path).unwrap();
    for at in 0..file_mib {
        file.write_all_at(&noise(1 << 20, at + 1), at * MIB).unwrap();
    }
    let first = place.push("t", "one").await.unwrap();
    assert!(first.sent_bytes >= file_mib * MIB);
    for at in 0..changed_mib {
        file.write_all_at(&noise(1 << 20, at + 1_000_001), (file_mib / 3 + at) * MIB + 12_345)
            .unwrap();
    }
    let second = place.push("t", "two").await.unwrap();
    println!("first {} bytes, second {} bytes", first.sent_bytes, second.sent_bytes);
    assert!(second.sent_bytes < limit, "{} bytes", second.sent_bytes);
    assert!(second.sent_bytes >= changed_mib * MIB);
    let third = place.push("t", "two").await.unwrap();
    assert!(third.existed && third.sent_bytes == 0);
    place.pull("t", "two", "pulled").await.unwrap();
    let pulled = place.path("pulled/workspace/file");
    let same = std::process::Command::new("cmp").arg(&path).arg(pulled).status();
    assert!(same.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_push_sends_what_changed() {
    // A chunk has at most 2 MiB, and a change ends in the middle of one at each side.
    a_change_sends_little(100, 1, 8 * MIB).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes 3 GB"]
async fn soak_10_mb_changed_in_1_gb_send_less_than_15_mb() {
    a_change_sends_little(1024, 10, 15_000_000).await;
}

/// Snapshots of many sandboxes do not make each push and pull slower.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_object_is_read_once() {
    let place = Place::new().await;
    fs::write(place.workspace().join("file"), noise(8 << 20, 1)).unwrap();
    place.push("t", "one").await.unwrap();
    let first = place.objects("index");
    place.pull("t", "one", "one").await.unwrap();
    first.iter().for_each(|object| fs::write(object, "damaged").unwrap());
    fs::write(place.workspace().join("other"), noise(1 << 20, 2)).unwrap();
    let second = place.push("t", "two").await.unwrap();
    // The last chunk of the first file, of at most 2 MiB, may go on in the other.
    assert!(second.sent_bytes < 6 << 20, "it knows the first file: {}", second.sent_bytes);
    place.pull("t", "two", "two").await.unwrap();
    assert_eq!(fs::read(place.path("two/workspace/file")).unwrap(), noise(8 << 20, 1));
    let other = place.open().await.unwrap();
    let fresh = Place { repository: other, ..place };
    assert!(matches!(fresh.pull("t", "two", "three").await, Err(Error::Damaged { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_failed_is_continued_and_was_never_visible() {
    let place = Place::new().await;
    fs::write(place.workspace().join("file"), noise(70 << 20, 3)).unwrap();
    for point in ["push.packed", "push.indexed", "push.uploaded"] {
        let passed = Arc::new(AtomicU32::new(0));
        let fails = Checkpoint::new(move |name| {
            // At the third pack, and at the only other points.
            let count = if name == point { passed.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
            let fails = count == 3 || (count == 1 && point == "push.uploaded");
            async move { if fails { Err("stopped".to_owned()) } else { Ok(()) } }
        });
        let tenant = format!("of {point}");
        let failed = place.push_with(&tenant, "one", &fails).await.unwrap_err();
        assert_eq!(failed.to_string(), "internal fault: stopped");
        assert!(place.repository.tenant(&tenant).snapshots().await.unwrap().is_empty());
        let again = place.push(&tenant, "one").await.unwrap();
        assert!(!again.existed);
        assert!(again.sent_bytes <= 62 * MIB, "{point}: {} bytes", again.sent_bytes);
        place.pull(&tenant, "one", point).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_trees_are_stored_once() {
    let place = Place::new().await;
    fs::write(place.workspace().join("file"), noise(20 << 20, 4)).unwrap();
    let source = |name: &str| Source {
        root: Root { name: name.into(), kind: RootKind::Tree },
        path: place.workspace(),
        ids: OwnerIds::From(0),
    };
    let sources = vec![source("root/layers/0"), source("root/layers/1"), source("workspace")];
    let none = Checkpoint::default();
    let pushed = place.push_sources("t", "one", sources, &none).await.unwrap();
    assert!(pushed.sent_bytes < 30 * MIB, "{} bytes", pushed.sent_bytes);
    place.pull("t", "one", "pulled").await.unwrap();
    let read = |name: &str| fs::read(place.path(name).join("file")).unwrap();
    assert_eq!(read("pulled/root/layers/1"), read("workspace"));
}

/// Prints the times of a push, a second push and a pull.
async fn measure(place: &Place, what: &str) {
    let begun = Instant::now();
    let first = place.push("t", "first").await.unwrap();
    let first_s = begun.elapsed().as_secs_f64();
    fs::write(place.workspace().join("one-more"), "changed").unwrap();
    let begun = Instant::now();
    let second = place.push("t", "second").await.unwrap();
    let second_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let (_, pulled) = place.pull("t", "second", "pulled").await.unwrap();
    let pull_s = begun.elapsed().as_secs_f64();
    println!(
        "{what}: push {first_s:.2} s, {} bytes in {} objects; second push {second_s:.2} s, {} bytes; \
         pull {pull_s:.2} s, {} bytes",
        first.sent_bytes,
        place.objects("packs").len(),
        second.sent_bytes,
        pulled.received_bytes
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes 1 GB, and prints times"]
async fn soak_times_of_300_mb_and_of_20000_files() {
    let place = Place::new().await;
    let mut data = noise(200_000_000, 11);
    data.resize(300_000_000, b'a');
    fs::write(place.workspace().join("file"), data).unwrap();
    measure(&place, "300 MB in one file, a third of it compressible").await;
    let place = Place::new().await;
    for number in 0..20_000_u64 {
        let folder = place.workspace().join((number / 200).to_string());
        fs::create_dir_all(&folder).unwrap();
        let data = noise(usize::try_from(number % 20_000).unwrap(), number);
        fs::write(folder.join(number.to_string()), hex(&data)).unwrap();
    }
    measure(&place, "20,000 files of 0 to 20 kB").await;
}

/// Text of about the same length, which compresses to half.
fn hex(data: &[u8]) -> String {
    data.iter().take(data.len() / 2).map(|byte| format!("{byte:02x}")).collect()
}
