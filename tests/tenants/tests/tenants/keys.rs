//! Keys of a tenant over HTTP.

use isolet_kit::{Http, Options, Server};
use std::io::{Read, Write};
use std::net::TcpStream;

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
