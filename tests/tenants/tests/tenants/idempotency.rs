//! Idempotency keys: of any size, with another body, used concurrently, and across tenants.

use isolet_kit::{Http, LONG, Options, Rows, Server, Value, json, wait_until};
use std::collections::BTreeSet;

/// The limit on the stored answers of a tenant.
const ANSWERS_MAX: usize = 50_000;
/// The number of concurrent callers with one key.
const CALLERS: usize = 100;

/// Calls that create something, each with two different bodies.
fn calls() -> [(&'static str, Value, Value); 4] {
    let one = json!({"metadata": {"n": 1}});
    let two = json!({"metadata": {"n": 2}});
    [
        ("/v1/sandboxes", one.clone(), two.clone()),
        ("/v1/sessions", one.clone(), two.clone()),
        ("/v1/sandboxes/box/sessions", one, two),
        ("/v1/runs", json!({"timeout": 100}), json!({"timeout": 200})),
    ]
}

fn server() -> Server {
    Options::new().config("[images.aliases]\n\"node:22-slim\" = \"host\"\n").start()
}

/// The ids of everything that exists.
fn all(http: &Http) -> BTreeSet<String> {
    let lists = ["/v1/sandboxes", "/v1/sessions", "/v1/sandboxes/box/sessions"];
    let lists = lists.map(|path| http.get(path).json());
    let ids = lists.iter().flat_map(|list| list.as_array().into_iter().flatten());
    ids.map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
}

/// Promises: P8.
#[test]
fn i17_an_idempotency_key_with_another_body_is_refused_and_changes_nothing() {
    let mut server = server();
    let other = server.add_key(&["--tenant", "other"]);
    let own = server.http();
    let other = Http::new(server.port(), Some(&other));
    own.post("/v1/sandboxes", &json!({"id": "box"})).expect(201);
    let mut rows = Rows::new();
    for (at, (path, body, changed)) in calls().into_iter().enumerate() {
        let key = format!("key-{at}");
        let mut first = Value::Null;
        rows.row(&format!("{path}: the same answer, and 422 for another body"), || {
            let http = own.with("idempotency-key", &key);
            first = http.post(path, &body).expect(201).json();
            let before = all(&own);
            for _ in 0..3 {
                let again = http.post(path, &body).expect(201);
                assert_eq!(again.header("idempotency-replayed"), Some("true"));
                assert_eq!(again.json(), first);
                assert_eq!(http.post(path, &changed).expect(422).error(), "idempotency_mismatch");
            }
            assert_eq!(all(&own), before);
        });
        rows.row(&format!("{path}: another tenant's key of the same name is its own"), || {
            let made = other.with("idempotency-key", &key).post(path, &changed).expect(201);
            assert_eq!(made.header("idempotency-replayed"), None);
            assert_ne!(made.json()["id"], first["id"]);
        });
        rows.row(&format!("{path}: after a restart too"), || {
            server.restart();
            let http = own.with("idempotency-key", &key);
            assert_eq!(http.post(path, &body).expect(201).json(), first);
            http.post(path, &changed).expect(422);
        });
    }
    rows.row("one key for two different calls counts as another body", || {
        let http = own.with("idempotency-key", "both");
        http.post("/v1/sandboxes", &json!({})).expect(201);
        http.post("/v1/sessions", &json!({})).expect(422);
    });
}

/// Promises: P8.
#[test]
fn i17_an_idempotency_key_out_of_bounds_is_refused_and_creates_nothing() {
    let server = server();
    let mut rows = Rows::new();
    let bad = [
        ("empty", String::new(), 400),
        ("256 bytes", "k".repeat(256), 400),
        ("16 KiB", "k".repeat(16 << 10), 400),
        ("1 MiB", "k".repeat(1 << 20), 431),
        ("not ASCII", "k\u{fc}".to_owned(), 400),
    ];
    for (name, key, status) in bad {
        rows.row(name, || {
            for (path, body, _) in calls() {
                let reply = server.http().with("idempotency-key", &key).try_send(
                    "POST",
                    path,
                    Some(body.to_string().as_bytes()),
                );
                // A connection may be closed while a head that is too large is still being sent.
                let Ok(reply) = reply else { continue };
                let known = reply.status == status || (key.len() > 8192 && reply.status == 431);
                assert!(known, "{path}: {} {}", reply.status, reply.text());
            }
        });
    }
    rows.row("two of them", || {
        let http = server.http().with("idempotency-key", "a").with("idempotency-key", "b");
        http.post("/v1/sandboxes", &json!({})).expect(400);
    });
    drop(rows);
    assert_eq!(all(&server.http()), BTreeSet::new());
    server.healthy();
}

/// Promises: P8.
#[test]
fn heavy_i17_an_idempotency_key_in_a_hundred_concurrent_requests_has_one_effect() {
    let server = server();
    server.http().post("/v1/sandboxes", &json!({"id": "box"})).expect(201);
    let mut rows = Rows::new();
    for (path, body, changed) in calls() {
        rows.row(path, || {
            let before = all(&server.http());
            let http = server.http().with("idempotency-key", &format!("raced-{path}"));
            let barrier = std::sync::Barrier::new(CALLERS);
            let answers: Vec<(bool, u16, Value)> = std::thread::scope(|scope| {
                let ask = |n: usize| {
                    let http = &http;
                    let barrier = &barrier;
                    let same = n.is_multiple_of(2);
                    let body = if same { &body } else { &changed };
                    scope.spawn(move || {
                        barrier.wait();
                        let reply = http.post(path, body);
                        (same, reply.status, reply.json()["id"].clone())
                    })
                };
                let all: Vec<_> = (0..CALLERS).map(ask).collect();
                all.into_iter().map(|one| one.join().expect("it is answered")).collect()
            });
            // The request that arrived first decides which of the two bodies counts.
            let (good, bad): (Vec<_>, Vec<_>) =
                answers.iter().partition(|(_, status, _)| *status == 201);
            assert_eq!((good.len(), bad.len()), (CALLERS / 2, CALLERS / 2), "{answers:?}");
            assert!(good.iter().all(|one| one.0 == good[0].0 && one.2 == good[0].2), "{good:?}");
            assert!(bad.iter().all(|(_, status, _)| *status == 422), "{bad:?}");
            let after = all(&server.http());
            let new: Vec<_> = after.difference(&before).filter(|id| *id != "default").collect();
            assert_eq!(new.len(), 1, "{new:?}");
        });
    }
    drop(rows);
    server.healthy();
}

/// Stores answers as if the tenant had created this many sessions.
fn store_answers(records: &mut rusqlite::Connection, count: usize) {
    let all = records.transaction().expect("the records are free");
    let answer = "x".repeat(200);
    for n in 0..count {
        all.prepare_cached("INSERT INTO answers VALUES ('default', ?1, ?2, ?3, ?4)")
            .expect("a statement")
            .execute(rusqlite::params![format!("old-{n}"), [0_u8; 32], answer, i64::MAX])
            .expect("it is stored");
    }
    all.commit().expect("they are stored");
}

/// One tenant once made the records grow without limit, and they never shrank.
/// Promises: P20.
#[test]
fn a_tenant_stores_a_limited_number_of_answers_and_their_space_returns() {
    let mut server = server();
    let other = server.add_key(&["--tenant", "other"]);
    let http = server.http();
    let other = Http::new(server.port(), Some(&other));
    let create = |http: &Http, key: &str| {
        http.with("idempotency-key", key).post("/v1/sessions", &json!({"metadata": {}}))
    };
    let first = create(&http, "first").expect(201).json();
    let file = server.data().join("isolet.db");
    let mut records = rusqlite::Connection::open(&file).expect("opens");
    records.busy_timeout(LONG).expect("it waits");
    store_answers(&mut records, ANSWERS_MAX - 1);
    let refused = create(&http, "second").expect(429);
    assert_eq!(refused.error(), "too_many_idempotency_keys");
    assert_eq!(create(&http, "first").expect(201).json(), first, "stored answers stay");
    http.post("/v1/sessions", &json!({"metadata": {}})).expect(201);
    create(&other, "second").expect(201);
    let size = || std::fs::metadata(&file).expect("it is there").len();
    records.query_row("PRAGMA wal_checkpoint", [], |_| Ok(())).expect("a checkpoint");
    let before = size();
    records
        .execute("UPDATE answers SET expires_ms = 1 WHERE key LIKE 'old-%'", [])
        .expect("expire");
    wait_until("the file is smaller", LONG, || (size() < before / 2).then_some(()));
    create(&http, "second").expect(201);
    assert_eq!(create(&http, "first").expect(201).json(), first);
}
