//! Keys under concurrent writes, and how long ended ones count.

use super::delegation::RECENT_MS;
use super::*;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any test.
const FOREVER: Duration = Duration::from_secs(3600);

fn open() -> (tempfile::TempDir, Keys) {
    let folder = tempfile::tempdir().unwrap();
    let keys = Keys::open(&folder.path().join("isolet.db")).unwrap();
    (folder, keys)
}

fn new(tenant: &str) -> NewKey {
    NewKey { tenant: tenant.into(), ..NewKey::default() }
}

/// Runs `others` while a call waits for the records, as on a disk that stands still.
fn while_held(
    keys: &Keys,
    call: impl FnOnce(&Keys) + Send + 'static,
    others: impl FnOnce() + Send,
) {
    keys.writer().connection.busy_timeout(FOREVER).unwrap();
    let other = Connection::open(&keys.shared.file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let own = keys.clone();
    let waiting = thread::spawn(move || call(&own));
    while keys.shared.writer.try_lock().is_ok() {
        thread::yield_now();
    }
    let (in_time, held) = thread::scope(|scope| {
        let others = scope.spawn(others);
        let until = Instant::now() + Duration::from_secs(60);
        while !others.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let ended = (others.is_finished(), !waiting.is_finished());
        // Also lets others end that wait for the write.
        other.execute_batch("ROLLBACK").unwrap();
        others.join().unwrap();
        ended
    });
    assert!(in_time, "a read waited for a write");
    assert!(held, "the write was held");
    waiting.join().unwrap();
}

/// Promises: T32.
#[test]
fn no_read_waits_for_a_write() {
    let (_folder, keys) = open();
    let (key, secret) = keys.add(&new("a")).unwrap();
    let digest = KeyDigest::of(&secret);
    let read = || {
        assert!(keys.grant_of(&digest).unwrap().is_some());
        assert!(keys.is_valid(&key.id).unwrap());
        assert_eq!(keys.list().unwrap().len(), 1);
        assert_eq!(keys.records().unwrap().len(), 1);
        keys.generation().unwrap();
        assert_eq!(keys.unrecorded_uses().len(), 1);
        keys.reload();
    };
    while_held(&keys, |keys| drop(keys.add(&new("b")).unwrap()), read);
    assert_eq!(keys.list().unwrap().len(), 2);
    let other = keys.list().unwrap().into_iter().find(|one| one.id != key.id).unwrap();
    while_held(
        &keys,
        move |keys| assert!(keys.revoke(&other.id).unwrap()),
        || assert!(keys.grant_of(&digest).unwrap().is_some()),
    );
}

/// Promises: T32.
#[test]
fn only_changed_keys_are_read_again() {
    let (folder, keys) = open();
    let (_, secret) = keys.add(&new("a")).unwrap();
    let digest = KeyDigest::of(&secret);
    // Without a new number of a change. A reader that reads the row again finds a revoked key.
    let raw = Connection::open(folder.path().join("isolet.db")).unwrap();
    raw.execute("UPDATE keys SET revoked_ms = 1", []).unwrap();
    assert!(keys.grant_of(&digest).unwrap().is_some());
    keys.add(&new("b")).unwrap();
    assert!(keys.grant_of(&digest).unwrap().is_some());
    assert_eq!(keys.list().unwrap().len(), 2);
}

/// Promises: T31.
#[test]
fn a_revoked_key_creates_none_even_if_its_revocation_is_only_a_tombstone() {
    let (folder, keys) = open();
    let limits = KeyLimits { valid_max: 10, recent_max: 10 };
    let with = |creator: &Key| {
        let delegation = Delegation { creator: Some(creator.id.clone()), limits };
        keys.add_delegated(&new("a"), &delegation)
    };
    let (one, _) = keys.add(&new("a")).unwrap();
    let (two, _) = keys.add(&new("a")).unwrap();
    with(&one).unwrap();
    // Another process, whose commit this one has not seen.
    let raw = Connection::open(folder.path().join("isolet.db")).unwrap();
    raw.execute("UPDATE keys SET revoked_ms = 1 WHERE id = ?1", [&one.id]).unwrap();
    assert!(matches!(with(&one), Err(Error::CreatorEnded)));
    let mut others = Tombstones::open(&keys.shared.file, KEY_RESERVE).unwrap();
    others.add(Removal::Key { id: two.id.clone() }).unwrap();
    keys.reload();
    assert!(matches!(with(&two), Err(Error::CreatorEnded)));
    assert_eq!(keys.list().unwrap().len(), 3);
}

/// Promises: T33.
#[test]
fn keys_that_ended_more_than_a_day_ago_do_not_count() {
    let (folder, keys) = open();
    let limits = KeyLimits { valid_max: 3, recent_max: 5 };
    let delegation = Delegation { creator: None, limits };
    let add = || keys.add_delegated(&new("a"), &delegation);
    let all: Vec<Key> = (0..3).map(|_| add().unwrap().0).collect();
    assert!(matches!(add(), Err(Error::TooManyKeys { most: 3 })));
    keys.add_delegated(&new("b"), &delegation).unwrap();
    for key in &all[..2] {
        keys.revoke(&key.id).unwrap();
    }
    add().unwrap();
    add().unwrap();
    keys.revoke(&all[2].id).unwrap();
    assert!(matches!(add(), Err(Error::TooManyRecentKeys { most: 5 })));
    let raw = Connection::open(folder.path().join("isolet.db")).unwrap();
    let old = now_ms() - RECENT_MS - 1;
    raw.execute("UPDATE keys SET revoked_ms = ?2 WHERE id = ?1", params![all[0].id, old]).unwrap();
    add().unwrap();
    assert!(matches!(add(), Err(Error::TooManyKeys { .. })));
}

/// Promises: T33.
#[test]
fn records_of_keys_that_ended_long_ago_are_forgotten() {
    let (folder, keys) = open();
    let file = folder.path().join("isolet.db");
    let long_ago = now_ms() - ENDED_KEPT_MS - 1;
    let expired = NewKey { expires_at_ms: Some(long_ago), ..new("a") };
    let (expired, _) = keys.add(&expired).unwrap();
    let (revoked, _) = keys.add(&new("a")).unwrap();
    keys.revoke(&revoked.id).unwrap();
    let (valid, secret) = keys.add(&new("a")).unwrap();
    let raw = Connection::open(&file).unwrap();
    raw.execute("UPDATE keys SET revoked_ms = ?2 WHERE id = ?1", params![revoked.id, long_ago])
        .unwrap();
    drop(keys);
    let ids = |keys: &Keys| -> Vec<String> {
        let all = keys.list().unwrap().into_iter();
        all.map(|key| key.id).collect()
    };
    let keys = Keys::open(&file).unwrap();
    assert_eq!(keys.forget_ended(false).unwrap(), 1);
    assert_eq!(ids(&keys), [revoked.id.clone(), valid.id.clone()], "{}", expired.id);
    assert_eq!(ids(&Keys::open(&file).unwrap()), ids(&keys));
    assert_eq!(keys.forget_ended(true).unwrap(), 1);
    assert_eq!(keys.forget_ended(true).unwrap(), 0);
    assert_eq!(ids(&Keys::open(&file).unwrap()), [valid.id]);
    // What follows is noticed by others.
    let other = Keys::open(&file).unwrap();
    let (_, later) = keys.add(&new("a")).unwrap();
    for secret in [secret, later] {
        assert!(other.grant_of(&KeyDigest::of(&secret)).unwrap().is_some());
    }
}
