//! The records, on real files.

use isolet_store::keys::{Keys, NewKey};
use isolet_store::{Error, KeyDigest, SandboxRow, SessionRow, Store, StoredAnswer};
use std::path::PathBuf;

fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("isolet.db");
    (dir, file)
}

fn sandbox(name: &str, id: &str, slot: u32) -> SandboxRow {
    SandboxRow {
        name: name.into(),
        tenant: "t".into(),
        id: id.into(),
        slot,
        state: "creating".into(),
        body: "{\"v\":1}".into(),
    }
}

fn answer(key: &str) -> StoredAnswer {
    StoredAnswer { tenant: "t".into(), key: key.into(), body: [7; 32], answer: "{}".into() }
}

#[tokio::test]
async fn what_was_recorded_is_there_after_opening_again() {
    let (_dir, file) = file();
    let store = Store::open(&file).unwrap();
    store.insert(sandbox("a", "one", 0)).await.unwrap();
    store.update("a", "running", "{\"v\":1,\"x\":2}".into(), Some(answer("k"))).await.unwrap();
    let session = SessionRow { sandbox: "a".into(), id: "s".into(), body: "{}".into() };
    store.insert_session(session.clone(), None).await.unwrap();
    drop(store);
    let store = Store::open(&file).unwrap();
    let (found, bad) = store.sandboxes().await.unwrap();
    assert!(bad.is_empty());
    assert_eq!((found[0].state.as_str(), found[0].body.as_str()), ("running", "{\"v\":1,\"x\":2}"));
    assert_eq!(store.sessions().await.unwrap().0, [session]);
    assert_eq!(store.answer("t", "k").await.unwrap(), Some(answer("k")));
    assert_eq!(store.answer("u", "k").await.unwrap(), None);
}

#[tokio::test]
async fn a_name_a_slot_and_an_id_belong_to_one_sandbox() {
    let (_dir, file) = file();
    let store = Store::open(&file).unwrap();
    store.insert(sandbox("a", "one", 0)).await.unwrap();
    for taken in [sandbox("a", "two", 1), sandbox("b", "one", 1), sandbox("b", "two", 0)] {
        assert!(matches!(store.insert(taken).await, Err(Error::Exists)));
    }
    let mut other = sandbox("b", "one", 1);
    other.tenant = "u".into();
    store.insert(other).await.unwrap();
}

#[tokio::test]
async fn sessions_go_with_their_sandbox() {
    let (_dir, file) = file();
    let store = Store::open(&file).unwrap();
    store.insert(sandbox("a", "one", 0)).await.unwrap();
    let session = SessionRow { sandbox: "a".into(), id: "s".into(), body: "{}".into() };
    store.insert_session(session.clone(), None).await.unwrap();
    assert!(matches!(store.insert_session(session, Some(answer("k"))).await, Err(Error::Exists)));
    assert_eq!(store.answer("t", "k").await.unwrap(), None, "a refused insert stores no response");
    store.remove("a").await.unwrap();
    store.remove("a").await.unwrap();
    assert!(store.sessions().await.unwrap().0.is_empty());
    let orphan = SessionRow { sandbox: "a".into(), id: "s".into(), body: "{}".into() };
    assert!(store.insert_session(orphan, None).await.is_err());
}

#[tokio::test]
async fn one_bad_record_hides_no_other() {
    let (_dir, file) = file();
    let store = Store::open(&file).unwrap();
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        store.insert(sandbox(name, name, n as u32)).await.unwrap();
    }
    let raw = rusqlite::Connection::open(&file).unwrap();
    raw.execute("UPDATE sandboxes SET slot = -5 WHERE name = 'b'", []).unwrap();
    let (good, bad) = store.sandboxes().await.unwrap();
    assert_eq!(good.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(bad.len(), 1);
}

#[tokio::test]
async fn a_full_disk_is_told_as_such_and_changes_nothing() {
    let (_dir, file) = file();
    let store = Store::open(&file).unwrap();
    store.insert(sandbox("a", "one", 0)).await.unwrap();
    // SQLite's limit on pages fails as a full disk does, and applies to one connection.
    drop(store);
    let raw = rusqlite::Connection::open(&file).unwrap();
    let pages: i64 = raw.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    raw.pragma_update(None, "max_page_count", pages).unwrap();
    let big = "x".repeat(1 << 20);
    let error = raw.execute("UPDATE sandboxes SET body = ?1", [big]).unwrap_err();
    assert!(matches!(Error::from(error), Error::Full));
    let store = Store::open(&file).unwrap();
    assert_eq!(store.sandboxes().await.unwrap().0[0].body, "{\"v\":1}");
}

#[test]
fn the_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, file) = file();
    let _store = Store::open(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_key_opens_until_it_is_revoked_by_another_process() {
    let (_dir, file) = file();
    let server = Keys::open(&file).unwrap();
    let command = Keys::open(&file).unwrap();
    let new =
        NewKey { tenant: "acme".into(), label: "ci".into(), read_only: true, ..NewKey::default() };
    let (key, secret) = command.add(&new).unwrap();
    let grant = server.grant_of(&KeyDigest::of(&secret)).unwrap().expect("known at once");
    assert_eq!((grant.tenant.as_str(), grant.read_only, &grant.key), ("acme", true, &key.id));
    assert_eq!(server.grant_of(&KeyDigest::of(&format!("{secret}0"))).unwrap(), None);
    assert!(command.revoke(&key.id).unwrap());
    assert!(!command.revoke(&key.id).unwrap());
    assert_eq!(server.grant_of(&KeyDigest::of(&secret)).unwrap(), None);
    assert!(server.list().unwrap()[0].revoked_at_ms.is_some());
}

#[test]
fn an_expired_key_opens_nothing() {
    let (_dir, file) = file();
    let keys = Keys::open(&file).unwrap();
    let new = NewKey { tenant: "acme".into(), expires_at_ms: Some(1), ..NewKey::default() };
    let (_, secret) = keys.add(&new).unwrap();
    assert_eq!(keys.grant_of(&KeyDigest::of(&secret)).unwrap(), None);
}

/// A wrong signed URL read all keys of all tenants from the records.
///
/// Promises: T29.
#[test]
fn t21_the_valid_keys_of_a_tenant_are_known_without_those_of_others() {
    let (_dir, file) = file();
    let keys = Keys::open(&file).unwrap();
    let add = |tenant: &str, expires_at_ms| {
        keys.add(&NewKey { tenant: tenant.into(), expires_at_ms, ..NewKey::default() })
            .unwrap()
            .0
            .id
    };
    let valid = add("acme", None);
    let revoked = add("acme", None);
    add("acme", Some(1));
    add("other", None);
    assert!(keys.revoke(&revoked).unwrap());
    assert_eq!(keys.valid_ids_of("acme").unwrap(), [valid]);
    assert!(keys.valid_ids_of("none").unwrap().is_empty());
}

/// Promises: T4.
#[test]
fn no_secret_lies_in_the_file() {
    let (dir, file) = file();
    let keys = Keys::open(&file).unwrap();
    let (_, secret) = keys.add(&NewKey { tenant: "acme".into(), ..NewKey::default() }).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|w| w == secret.as_bytes()));
    }
}
