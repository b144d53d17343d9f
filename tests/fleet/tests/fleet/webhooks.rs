//! Webhooks of a fleet: each node delivers its own events, and all sign alike.

use isolet_fleet_tests::addresses::CLIENTS;
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{SOON, Value, json, wait_until};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The bodies that a receiver has got, in order.
type Bodies = Arc<Mutex<Vec<Value>>>;

/// Reads a request and answers 204.
fn take(mut stream: TcpStream, got: &Bodies) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    got.lock().expect("not poisoned").push(serde_json::from_slice(&body)?);
    stream.write_all(b"HTTP/1.1 204 x\r\nconnection: close\r\n\r\n")
}

/// A receiver at the address of the clients. Returns its URL and what it gets.
fn receiver() -> (String, Bodies) {
    let listener = TcpListener::bind((CLIENTS, 0)).expect("the address of this namespace");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let got = Bodies::default();
    let own = Arc::clone(&got);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = take(stream, &own);
        }
    });
    (url, got)
}

fn config(key: &Path) -> String {
    let allowed = "allow_networks = [\"10.232.0.0/24\"]\nretry_after_s = [1]";
    format!("[webhooks]\nkey_file = \"{}\"\n{allowed}\n", key.display())
}

/// Promises: WH1.
#[test]
fn every_node_tells_a_webhook_about_its_own_sandboxes() {
    let folder = tempfile::tempdir().expect("in /tmp");
    let key = folder.path().join("webhooks.key");
    fs::write(&key, "k".repeat(32)).expect("writes");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("its owner");
    let options = FleetOptions { config: config(&key), nodes: 2, ..FleetOptions::default() };
    let fleet = LocalFleet::with(&options);
    let (url, got) = receiver();
    let made = fleet.node("a").http().post("/v1/webhooks", &json!({"url": url})).expect(201).json();
    let id = made["id"].as_str().expect("an id");
    let path = format!("/v1/webhooks/{id}");
    wait_until("the other node has it", SOON, || {
        (fleet.node("b").http().get(&path).status == 200).then_some(())
    });
    fleet.create_on("a", "one");
    fleet.create_on("b", "two");
    let seen = wait_until("both events", SOON, || {
        let got = got.lock().expect("not poisoned").clone();
        (got.len() >= 2).then_some(got)
    });
    let about = |one: &Value| format!("{} {}", one["data"]["node"], one["data"]["sandbox"]);
    let mut about: Vec<String> = seen.iter().map(about).collect();
    about.sort();
    assert_eq!(about, ["\"a\" \"one\"", "\"b\" \"two\""]);
    // A rotation on one node holds on the other.
    let rotated = fleet.node("b").http().post(&format!("{path}/rotate"), &json!({})).expect(200);
    assert_ne!(rotated.json()["secret"], made["secret"]);
    wait_until("the first node has it", SOON, || {
        let seen = fleet.node("a").http().get(&path).expect(200).json();
        seen["previous_secret_until_ms"].is_i64().then_some(())
    });
    fleet.node("b").http().delete(&path).expect(204);
    wait_until("it is gone everywhere", SOON, || {
        (fleet.node("a").http().get(&path).status == 404).then_some(())
    });
}

/// Promises: WH6.
#[test]
fn a_fleet_without_a_shared_key_says_which_setting_is_missing() {
    let fleet = LocalFleet::with(&FleetOptions { nodes: 1, ..FleetOptions::default() });
    let wish = json!({"url": "https://receiver.invalid/"});
    let refused = fleet.node("a").http().post("/v1/webhooks", &wish).expect(501);
    assert_eq!(refused.error(), "webhook_key");
    assert!(refused.text().contains("key_file"), "{}", refused.text());
}
