//! Keys of a tenant over HTTP.

use isolet_kit::{Http, Options, Server, Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn with(server: &Server, key: &str) -> Http {
    Http::new(server.port(), Some(key))
}

#[test]
fn a_tenant_sees_and_revokes_its_own_keys_only() {
    let mut server = Options::new().start();
    let own = server.add_key(&["--tenant", "one", "--label", "mine"]);
    let foreign = server.add_key(&["--tenant", "two", "--label", "canary"]);
    let foreign_id = with(&server, &foreign).get("/v1/keys/current").expect(200).json();
    let id = foreign_id["id"].as_str().expect("an id");
    let own = with(&server, &own);
    let listed = own.get("/v1/keys").expect(200).json();
    let labels: Vec<_> =
        listed.as_array().expect("a list").iter().map(|key| &key["label"]).collect();
    assert_eq!(labels, ["mine"]);
    assert_eq!(own.delete(&format!("/v1/keys/{id}")).status, 404);
    with(&server, &foreign).get("/v1/keys").expect(200);
}

/// A thief could otherwise keep a request open until the key is revoked.
#[test]
fn a_key_that_is_revoked_during_its_request_creates_none() {
    let mut server = Options::new().start();
    let key = server.add_key(&["--label", "stolen"]);
    let id = with(&server, &key).get("/v1/keys/current").expect(200).json();
    let id = id["id"].as_str().expect("an id").to_owned();
    let mut open = TcpStream::connect(("127.0.0.1", server.port())).expect("connects");
    let body = r#"{"label":"survives"}"#;
    let (first, rest) = body.split_at(5);
    let head = format!(
        "POST /v1/keys HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{first}",
        server.port(),
        body.len()
    );
    open.write_all(head.as_bytes()).expect("sends");
    let other = with(&server, server.key());
    // The server has the head once it has answered a later request on another connection.
    other.get("/v1/keys").expect(200);
    other.delete(&format!("/v1/keys/{id}")).expect(204);
    open.write_all(rest.as_bytes()).expect("sends");
    let mut answer = String::new();
    open.read_to_string(&mut answer).expect("reads");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let left = other.get("/v1/keys").expect(200).text();
    assert!(!left.contains("survives"), "{left}");
}

/// The ids of the keys of a tenant that are not revoked.
fn valid(http: &Http) -> Vec<String> {
    let listed = http.get("/v1/keys").expect(200).json();
    let all = listed.as_array().expect("a list").iter();
    let valid = all.filter(|key| key["revoked_at_ms"].is_null());
    valid.map(|key| key["id"].as_str().expect("an id").to_owned()).collect()
}

/// Each request counted the keys before it added its own: 60 requests made up to 12 keys too many.
/// Promises: T12.
#[test]
fn t12_concurrent_requests_never_create_more_keys_than_allowed() {
    let mut server = Options::new().start();
    let key = server.add_key(&["--tenant", "many"]);
    let own = with(&server, &key);
    for _ in 1..190 {
        own.post("/v1/keys", &json!({})).expect(201);
    }
    let barrier = Barrier::new(60);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let all: Vec<_> = (0..60)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    own.post("/v1/keys", &json!({})).status
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().expect("it is answered")).collect()
    });
    let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(201), count(429)), (10, 50), "{statuses:?}");
    assert_eq!(valid(&own).len(), 200);
}

/// Promises: T31.
#[test]
fn a_key_that_is_revoked_creates_no_key_afterwards() {
    let mut server = Options::new().start();
    let keeper = server.add_key(&["--tenant", "raced"]);
    let keeper = with(&server, &keeper);
    for _ in 0..isolet_kit::tries(15, 300) {
        let made = keeper.post("/v1/keys", &json!({})).expect(201).json();
        let id = made["id"].as_str().expect("an id");
        let thief = with(&server, made["secret"].as_str().expect("a secret"));
        let is_revoked = AtomicBool::new(false);
        let create = |_| {
            // Whether the key was revoked before this request began.
            let late = is_revoked.load(Ordering::SeqCst);
            (late, thief.post("/v1/keys", &json!({"label": "late"})).status)
        };
        thread::scope(|scope| {
            let racing: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..5).map(create).collect::<Vec<_>>())).collect();
            keeper.delete(&format!("/v1/keys/{id}")).expect(204);
            is_revoked.store(true, Ordering::SeqCst);
            for (late, status) in racing.into_iter().flat_map(|one| one.join().expect("ends")) {
                assert!(matches!(status, 201 | 401), "{status}");
                assert!(!late || status == 401, "a revoked key created another");
            }
        });
        let listed = keeper.get("/v1/keys").expect(200).json();
        let all = listed.as_array().expect("a list");
        let ended = all.iter().find(|key| key["id"] == id).expect("it is listed");
        let ended_ms = ended["revoked_at_ms"].as_i64().expect("a time");
        let is_later =
            |key: &&Value| key["label"] == "late" && key["created_at_ms"].as_i64() > Some(ended_ms);
        let later: Vec<_> = all.iter().filter(is_later).collect();
        assert!(later.is_empty(), "made after {ended_ms}: {later:?}");
        for key in all.iter().filter(|key| key["label"] == "late" && key["revoked_at_ms"].is_null())
        {
            let id = key["id"].as_str().expect("an id");
            keeper.delete(&format!("/v1/keys/{id}")).expect(204);
        }
    }
}

/// Every request once waited for the lock over the write of any key.
/// Promises: T32.
#[test]
fn a_key_that_cannot_be_written_yet_delays_no_request_of_others() {
    let mut server = Options::new().start();
    let other = server.add_key(&["--tenant", "other"]);
    let other = with(&server, &other);
    let records = rusqlite::Connection::open(server.data().join("isolet.db")).expect("opens");
    // The write waits for five seconds at most, and a slow machine may need them.
    let seen = (0..5).any(|_| {
        records.execute_batch("BEGIN IMMEDIATE").expect("it has the write lock");
        let (pending, status) = thread::scope(|scope| {
            let adding = scope.spawn(|| server.http().post("/v1/keys", &json!({})).status);
            for _ in 0..30 {
                other.get("/v1/sandboxes").expect(200);
                other.get("/v1/keys").expect(200);
            }
            let pending = !adding.is_finished();
            records.execute_batch("ROLLBACK").expect("it gives the lock up");
            (pending, adding.join().expect("it is answered"))
        });
        assert!(matches!(status, 201 | 503), "{status}");
        pending && status == 201
    });
    assert!(seen, "requests of another tenant waited for the write");
}
