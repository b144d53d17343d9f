//! Webhooks: a real server tells a real receiver about its sandboxes.

use crate::webhook_receiver::{Received, Receiver};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use isolet_kit::{Http, LONG, Options, Reply, SOON, Server, Value, json, wait_until};
use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Receivers on this machine, and a second between two attempts.
const CONFIG: &str = "[webhooks]\nallow_networks = [\"127.0.0.0/8\"]\nretry_after_s = [1]\n";

/// How long the server waits for an answer.
const ATTEMPT: Duration = Duration::from_secs(10);

fn server() -> Server {
    Options::new().config(CONFIG).start()
}

fn add(http: &Http, body: &Value) -> Value {
    http.post("/v1/webhooks", body).expect(201).json()
}

fn id(webhook: &Value) -> String {
    webhook["id"].as_str().expect("an id").to_owned()
}

fn secret(webhook: &Value) -> String {
    webhook["secret"].as_str().expect("a secret").to_owned()
}

fn get(http: &Http, id: &str) -> Value {
    http.get(&format!("/v1/webhooks/{id}")).expect(200).json()
}

fn change(http: &Http, id: &str, body: &Value) -> Reply {
    http.patch(&format!("/v1/webhooks/{id}"), body)
}

/// HMAC-SHA256 by OpenSSL.
fn hmac(key: &[u8], text: &str) -> String {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-mac", "HMAC", "-macopt", &format!("hexkey:{hex}"), "-binary"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl is there");
    openssl.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("takes it");
    STANDARD.encode(openssl.wait_with_output().expect("ends").stdout)
}

/// The signature of a request with a secret, as the standard defines it.
fn signature(secret: &str, received: &Received) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("its prefix")).expect("base64");
    let timestamp = received.header("webhook-timestamp");
    let signed = format!("{}.{timestamp}.{}", received.id(), received.body);
    format!("v1,{}", hmac(&key, &signed))
}

/// Whether a file below a directory contains the text.
fn is_stored(folder: &Path, text: &str) -> bool {
    let found = Command::new("grep").args(["-rqF", "--", text]).arg(folder).status();
    found.expect("grep is there").success()
}

/// Promises: WH1.
#[test]
fn wh1_a_receiver_gets_signed_events_in_order_and_nobody_else_does() {
    let mut server = server();
    let key = server.add_key(&["--tenant", "other"]);
    let http = server.http();
    let other = Http::new(server.port(), Some(&key));
    let receiver = Receiver::start();
    let before = server.sandbox();
    let made = add(&http, &json!({"url": receiver.url(), "label": "ci"}));
    let theirs = Receiver::start();
    add(&other, &json!({"url": theirs.url(), "events": ["*"]}));
    let sandbox = server.sandbox();
    http.post(&format!("/v1/sandboxes/{}/sleep", sandbox.id), &json!({})).expect(200);
    sandbox.delete();
    let got = receiver.wait_for(3);
    let kinds: Vec<String> = got.iter().map(Received::kind).collect();
    assert_eq!(kinds, ["sandbox.created", "sandbox.slept", "sandbox.destroyed"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let log = http.get("/v1/audit").expect(200).text();
    for one in &got {
        assert_eq!(one.sandbox(), sandbox.id, "and not {}", before.id);
        assert_eq!(one.header("webhook-signature"), signature(&secret(&made), one));
        let age = now.abs_diff(one.header("webhook-timestamp").parse().expect("seconds"));
        assert!(age < 60, "{age} s");
        assert_eq!(one.header("request"), "POST /hook?a=b HTTP/1.1");
        assert_eq!(one.header("host"), receiver.address.to_string());
        assert_eq!(one.header("content-type"), "application/json");
        let event = one.json();
        assert_eq!(event["data"]["tenant"], "default");
        let entry = log.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let entry = entry.into_iter().find(|entry: &Value| entry["seq"] == event["data"]["seq"]);
        let entry = entry.expect("an entry");
        assert_eq!((&entry["event"], &entry["ts"]), (&event["type"], &event["timestamp"]));
    }
    let seen = wait_until("the cursor is at the end", SOON, || {
        let seen = get(&http, &id(&made));
        (seen["delivery"]["pending"] == 0).then_some(seen)
    });
    assert_eq!((&seen["delivery"]["delivered"], &seen["label"]), (&json!(3), &json!("ci")));
    assert_eq!(seen["delivery"]["last_status"], 204);
    // Another tenant sees nothing of it.
    assert_eq!(theirs.got().len(), 0);
    let path = format!("/v1/webhooks/{}", id(&made));
    assert_eq!(other.get("/v1/webhooks").json().as_array().expect("a list").len(), 1);
    other.get(&path).expect(404);
    change(&other, &id(&made), &json!({"enabled": false})).expect(404);
    other.post(&format!("{path}/rotate"), &json!({})).expect(404);
    other.post(&format!("{path}/test"), &json!({})).expect(404);
    other.delete(&path).expect(404);
    // The secret is in no answer but the first, and nowhere on the disk.
    for text in [seen.to_string(), http.get("/v1/webhooks").text(), log] {
        assert!(!text.contains("whsec_"), "{text}");
    }
    assert!(!is_stored(&server.data(), &secret(&made)));
    assert!(!is_stored(&server.data(), &secret(&made)["whsec_".len()..]));
}

/// Promises: WH2.
#[test]
fn wh2_a_failed_delivery_is_repeated_with_the_same_id_and_order_holds() {
    let server = server();
    let http = server.http();
    let receiver = Receiver::start();
    receiver.answers(&[500, 302]);
    let made = add(&http, &json!({"url": receiver.url()}));
    server.sandbox().delete();
    let got = receiver.wait_for(4);
    let ids: Vec<String> = got.iter().map(Received::id).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    assert!(got[..3].iter().all(|one| one.body == got[0].body));
    assert_eq!(got[3].kind(), "sandbox.destroyed");
    let delivery = wait_until("both were taken", SOON, || {
        let delivery = get(&http, &id(&made))["delivery"].clone();
        (delivery["delivered"] == 2).then_some(delivery)
    });
    assert_eq!(delivery["failures"], 0);
    // Every attempt is signed with its own time.
    assert!(
        got.iter().all(|one| one.header("webhook-signature") == signature(&secret(&made), one))
    );
}

/// Promises: WH2.
#[test]
fn wh2_a_killed_server_loses_no_event() {
    let mut server = server();
    let receiver = Receiver::start();
    add(&server.http(), &json!({"url": receiver.url(), "events": ["sandbox.created"]}));
    let mut made = Vec::new();
    for round in 0..6 {
        // Sometimes the receiver has taken the event before the kill, sometimes not.
        receiver.always((round % 2 == 0).then_some(503));
        let sandbox = server.sandbox();
        let path = format!("/v1/audit?sandbox={}", sandbox.id);
        wait_until("the event is in the log", SOON, || {
            server.http().get(&path).text().contains("sandbox.created").then_some(())
        });
        made.push(sandbox.id.clone());
        server.kill();
        server.launch();
        server.wait_until_ready();
    }
    receiver.always(None);
    let got = wait_until("every event", SOON, || {
        let got = receiver.got();
        let seen: HashSet<String> = got.iter().map(Received::sandbox).collect();
        made.iter().all(|id| seen.contains(id)).then_some(got)
    });
    let mut first = Vec::new();
    for one in got {
        if !first.contains(&one.sandbox()) {
            first.push(one.sandbox());
        }
    }
    assert_eq!(first, made, "in order");
}

/// Promises: WH2.
#[test]
fn wh2_a_log_that_was_lost_is_reported_first() {
    let mut server = server();
    let receiver = Receiver::start();
    let made = add(&server.http(), &json!({"url": receiver.url()}));
    let _running = server.sandbox();
    receiver.wait_for(1);
    wait_until("the cursor is recorded", SOON, || {
        (get(&server.http(), &id(&made))["delivery"]["delivered"] == 1).then_some(())
    });
    server.stop();
    fs::remove_dir_all(server.data().join("audit/tenants/default")).expect("is there");
    server.launch();
    server.wait_until_ready();
    let sandbox = server.sandbox();
    let got = wait_until("the event", SOON, || {
        let got = receiver.got();
        got.iter().any(|one| one.sandbox() == sandbox.id).then_some(got)
    });
    let gap = &got[1];
    assert_eq!(gap.kind(), "webhook.gap", "{got:?}");
    let data = gap.json()["data"].clone();
    assert_eq!(data["reason"], "lost");
    assert!(data["from"].as_u64() <= data["to"].as_u64(), "{data}");
    assert_eq!(gap.header("webhook-signature"), signature(&secret(&made), gap));
}

/// Promises: WH3.
#[test]
fn wh3_a_receiver_that_hangs_delays_no_other() {
    let server = server();
    let http = server.http();
    // The kernel accepts connections, and nobody answers.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = hanging.local_addr().expect("an address");
    let slow = add(&http, &json!({"url": format!("http://{address}/")}));
    let receiver = Receiver::start();
    add(&http, &json!({"url": receiver.url()}));
    let begun = Instant::now();
    server.sandbox().delete();
    receiver.wait_for(2);
    let delivery = get(&http, &id(&slow))["delivery"].clone();
    let waits = delivery["failures"] == 0 && delivery["delivered"] == 0;
    let late = begun.elapsed() >= ATTEMPT;
    assert!(waits || late, "its first attempt still waits for an answer: {delivery}");
    // Deleting it ends the attempt.
    let (mut stream, _) = hanging.accept().expect("a connection");
    http.delete(&format!("/v1/webhooks/{}", id(&slow))).expect(204);
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    stream.read_to_end(&mut Vec::new()).expect("the server closes");
}

/// Promises: WH4.
#[test]
fn wh4_a_webhook_leads_to_no_network_that_tenants_may_not_reach() {
    let server = Server::start();
    let http = server.http();
    for url in [
        "http://127.0.0.1:1/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:192.168.0.1]/",
        "https://[fd00:ec2::254]/",
        "http://100.64.0.1/",
    ] {
        let reply = http.post("/v1/webhooks", &json!({"url": url})).expect(400);
        assert_eq!(reply.error(), "bad_field", "{url}");
        assert!(reply.text().contains("allow_networks"), "{}", reply.text());
    }
    // A name is checked when it is resolved.
    let receiver = Receiver::start();
    let port = receiver.address.port();
    for host in ["localhost", "2130706433", "0x7f000001", "127.1"] {
        let made = add(&http, &json!({"url": format!("http://{host}:{port}/")}));
        let path = format!("/v1/webhooks/{}", id(&made));
        let result = http.post(&format!("{path}/test"), &json!({})).expect(200).json();
        assert_eq!(result["status"], Value::Null, "{host}: {result}");
        let error = result["error"].as_str().expect("an error");
        assert!(error.contains("no address that the server may connect to"), "{error}");
        change(&http, &id(&made), &json!({"url": "http://192.168.0.1/"})).expect(400);
        http.delete(&path).expect(204);
    }
    assert_eq!(receiver.got().len(), 0);
}

/// Promises: WH5.
#[test]
fn wh5_a_receiver_that_is_gone_ends_its_webhook_until_the_owner_starts_it_again() {
    let mut server = server();
    let http = server.http();
    let receiver = Receiver::start();
    receiver.always(Some(410));
    let made = add(&http, &json!({"url": receiver.url()}));
    let sandbox = server.sandbox();
    let stopped = wait_until("it is disabled", SOON, || {
        let seen = get(&http, &id(&made));
        (!seen["delivery"]["disabled"].is_null()).then_some(seen)
    });
    let delivery = &stopped["delivery"];
    assert_eq!(delivery["disabled"]["reason"], "gone");
    assert_eq!((&delivery["last_status"], &stopped["enabled"]), (&json!(410), &json!(true)));
    wait_until("the log has it", SOON, || {
        let log = http.get("/v1/audit").text();
        log.contains(r#""event":"webhook.disabled""#).then_some(())
    });
    server.restart();
    sandbox.delete();
    assert_eq!(receiver.got().len(), 1, "nothing more is sent");
    receiver.always(None);
    let tested = http.post(&format!("/v1/webhooks/{}/test", id(&made)), &json!({})).expect(200);
    assert_eq!(tested.json()["status"], 204);
    let again = change(&http, &id(&made), &json!({"enabled": true})).expect(200).json();
    assert_eq!(again["delivery"]["disabled"], Value::Null);
    let got = receiver.wait_for(4);
    let kinds: Vec<String> = got[1..].iter().map(Received::kind).collect();
    assert_eq!(kinds, ["webhook.test", "sandbox.created", "sandbox.destroyed"]);
    assert_eq!(got[2].id(), got[0].id(), "the event that was refused");
}

/// Promises: WH5.
#[test]
fn wh5_a_receiver_that_fails_for_too_long_is_given_up() {
    let config = format!("{CONFIG}give_up_after_s = 1\n");
    let server = Options::new().config(&config).start();
    let http = server.http();
    let receiver = Receiver::start();
    receiver.always(Some(500));
    let made = add(&http, &json!({"url": receiver.url()}));
    let _running = server.sandbox();
    let delivery = wait_until("it is disabled", SOON, || {
        let delivery = get(&http, &id(&made))["delivery"].clone();
        (!delivery["disabled"].is_null()).then_some(delivery)
    });
    assert_eq!(delivery["disabled"]["reason"], "failing");
    assert_eq!(delivery["failures"].as_u64(), Some(receiver.got().len() as u64));
    let told = || server.log().contains("a webhook is disabled").then_some(());
    wait_until("the log tells it", SOON, told);
}

/// Promises: WH6.
#[test]
fn wh6_both_secrets_sign_after_a_rotation() {
    let server = server();
    let http = server.http();
    let receiver = Receiver::start();
    let made = add(&http, &json!({"url": receiver.url()}));
    let path = format!("/v1/webhooks/{}", id(&made));
    let rotated = http.post(&format!("{path}/rotate"), &json!({})).expect(200).json();
    assert_ne!(secret(&rotated), secret(&made));
    assert!(rotated["previous_secret_until_ms"].is_i64(), "{rotated}");
    http.post(&format!("{path}/test"), &json!({})).expect(200);
    let got = receiver.wait_for(1);
    let signatures: Vec<&str> = got[0].header("webhook-signature").split(' ').collect();
    let expected = [signature(&secret(&rotated), &got[0]), signature(&secret(&made), &got[0])];
    assert_eq!(signatures, expected);
    let log = http.get("/v1/audit").text();
    for event in ["webhook.create", "webhook.rotate", "webhook.test"] {
        assert!(log.contains(&format!(r#""event":"{event}""#)), "{event}: {log}");
    }
    assert!(log.contains(&format!(r#""webhook":"{}""#, id(&made))), "{log}");
}

/// Promises: WH6.
#[test]
fn wh6_another_key_of_the_server_stops_deliveries_instead_of_signing_wrong() {
    let mut server = server();
    let receiver = Receiver::start();
    let made = add(&server.http(), &json!({"url": receiver.url()}));
    server.stop();
    fs::remove_file(server.data().join("webhooks.key")).expect("is there");
    server.launch();
    server.wait_until_ready();
    let http = server.http();
    let sandbox = server.sandbox();
    wait_until("it is disabled", SOON, || {
        let reason = get(&http, &id(&made))["delivery"]["disabled"]["reason"].clone();
        (reason == "key_changed").then_some(())
    });
    let path = format!("/v1/webhooks/{}", id(&made));
    let refused = http.post(&format!("{path}/test"), &json!({})).expect(503);
    assert_eq!(refused.error(), "webhook_key");
    assert!(!refused.text().contains("webhooks.key"), "{}", refused.text());
    let rotated = http.post(&format!("{path}/rotate"), &json!({})).expect(200).json();
    change(&http, &id(&made), &json!({"enabled": true})).expect(200);
    let got = receiver.wait_for(1);
    assert_eq!(got[0].sandbox(), sandbox.id);
    assert_eq!(got[0].header("webhook-signature"), signature(&secret(&rotated), &got[0]));
}

/// Promises: WH1.
#[test]
fn wh1_a_webhook_receives_what_it_asked_for() {
    let mut server = server();
    let reader = server.add_key(&["--tenant", "default", "--read-only"]);
    let http = server.http();
    let receiver = Receiver::start();
    let all = Receiver::start();
    let wish = json!({"url": receiver.url(), "events": ["sandbox.destroyed"], "sandbox": "mine"});
    let made = add(&http, &wish);
    add(&http, &json!({"url": all.url(), "events": ["sandbox.destroyed", "key.create"]}));
    server.sandbox().delete();
    server.sandbox_with(&json!({"id": "mine"})).delete();
    http.post("/v1/keys", &json!({})).expect(201);
    let got = all.wait_for(3);
    assert_eq!(got[2].kind(), "key.create");
    assert!(got[2].json()["data"]["details"]["key_id"].is_string(), "{}", got[2].body);
    let got = receiver.wait_for(1);
    assert_eq!((got.len(), got[0].sandbox().as_str()), (1, "mine"));
    // While it is not enabled nothing is sent, and nothing is lost.
    change(&http, &id(&made), &json!({"enabled": false})).expect(200);
    server.sandbox_with(&json!({"id": "mine"})).delete();
    all.wait_for(4);
    assert_eq!(receiver.got().len(), 1);
    change(&http, &id(&made), &json!({"enabled": true})).expect(200);
    receiver.wait_for(2);
    // A read-only key reads.
    let reader = Http::new(server.port(), Some(&reader));
    assert!(reader.get("/v1/webhooks").expect(200).text().contains("127.0.0.1/…"));
    reader.post("/v1/webhooks", &json!({"url": receiver.url()})).expect(403);
    change(&reader, &id(&made), &json!({"enabled": false})).expect(403);
    for bad in [
        json!({}),
        json!({"url": 1}),
        json!({"url": "ftp://a/"}),
        json!({"url": receiver.url(), "events": []}),
        json!({"url": receiver.url(), "events": ["exec.start"]}),
        json!({"url": receiver.url(), "sandbox": "../x"}),
        json!({"url": receiver.url(), "label": "x".repeat(201)}),
        json!({"url": receiver.url(), "secret": "whsec_mine"}),
    ] {
        let reply = http.post("/v1/webhooks", &bad);
        assert_eq!(reply.status, 400, "{bad}: {}", reply.text());
    }
    http.delete(&format!("/v1/webhooks/{}", id(&made))).expect(204);
    http.get(&format!("/v1/webhooks/{}", id(&made))).expect(404);
}

/// Promises: T12.
#[test]
fn t12_a_tenant_has_sixteen_webhooks_and_an_idempotency_key_creates_one() {
    let server = server();
    let http = server.http();
    let once = http.with("idempotency-key", "k1");
    let wish = json!({"url": "https://receiver.invalid/"});
    let first = once.post("/v1/webhooks", &wish).expect(201);
    let second = once.post("/v1/webhooks", &wish).expect(201);
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(id(&second.json()), id(&first.json()));
    assert_eq!(secret(&second.json()), secret(&first.json()));
    once.post("/v1/webhooks", &json!({"url": "https://other.invalid/"})).expect(422);
    let adding: Vec<_> = (0..24)
        .map(|_| {
            let http = http.clone();
            let wish = wish.clone();
            std::thread::spawn(move || http.post("/v1/webhooks", &wish).status)
        })
        .collect();
    let statuses: Vec<u16> = adding.into_iter().map(|one| one.join().expect("ends")).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 15, "{statuses:?}");
    let full = http.with("idempotency-key", "k2").post("/v1/webhooks", &wish).expect(429);
    assert_eq!(full.error(), "too_many_webhooks");
    http.delete(&format!("/v1/webhooks/{}", id(&first.json()))).expect(204);
    http.with("idempotency-key", "k2").post("/v1/webhooks", &wish).expect(201);
}

/// Promises: WH3.
#[test]
fn wh3_one_test_of_a_webhook_runs_at_a_time() {
    let server = server();
    let http = server.http();
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", hanging.local_addr().expect("an address"));
    let made = add(&http, &json!({"url": url}));
    let path = format!("/v1/webhooks/{}/test", id(&made));
    let begun = Instant::now();
    let first = {
        let http = http.clone();
        let path = path.clone();
        std::thread::spawn(move || http.post(&path, &json!({})))
    };
    let (stream, _) = hanging.accept().expect("a connection");
    let second = http.post(&path, &json!({}));
    assert!(second.status == 429 || begun.elapsed() >= ATTEMPT, "{}", second.text());
    assert!(second.status != 429 || second.error() == "webhook_busy", "{}", second.text());
    drop(stream);
    let result = first.join().expect("ends").expect(200).json();
    assert_eq!(result["status"], Value::Null);
    // It ends with the connection, unless its time was over before that.
    let timed_out = result["error"].as_str().is_some_and(|why| why.contains("no complete answer"));
    assert!(!timed_out || begun.elapsed() >= ATTEMPT, "{result}");
}
