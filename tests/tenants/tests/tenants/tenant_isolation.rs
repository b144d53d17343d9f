//! One tenant learns nothing about another, neither from an answer nor from its duration.

use crate::authorization::{Route, fresh, routes};
use isolet_kit::{Http, Options, Rows, SOON, Server, Value, json, system_calls, wait_until};
use std::collections::{BTreeMap, BTreeSet};

/// An unused id of the same length as the server's own ids.
const NOBODY: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaa";

fn server() -> Server {
    Options::new().config("[images.aliases]\n\"node:22-slim\" = \"host\"\n").start()
}

/// Status, headers and body of an answer, with the requested id removed.
fn shape(route: &Route, http: &Http, id: &str) -> (u16, Vec<String>, String) {
    let reply = route.send(http, id);
    let varies = |name: &str| matches!(name, "date" | "content-length" | "x-request-id");
    let names = reply.headers.iter().filter(|(name, _)| !varies(name));
    let headers = names.map(|(name, value)| format!("{name}: {value}").replace(id, "ID"));
    (reply.status, headers.collect(), reply.text().replace(id, "ID"))
}

/// Promises: T2.
#[test]
fn t2_another_tenants_id_is_answered_like_an_unknown_one() {
    let mut server = server();
    let other = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&other));
    let mut rows = Rows::new();
    for route in routes(&server.http()).into_iter().filter(|route| route.names_one()) {
        rows.row(&format!("{} {}", route.method, route.path), || {
            let (sandbox, id) = fresh(&server, &route);
            let nobody = if id.starts_with("sess_") { "sess_aaaaaaaaaaaa" } else { NOBODY };
            if !route.socket {
                let never = shape(&route, &other, nobody);
                assert_eq!(never.0, route.missed(), "{}", never.2);
                assert_eq!(shape(&route, &other, &id), never);
            }
            let missed = route.missed();
            assert_eq!((route.ask(&other, nobody), route.ask(&other, &id)), (missed, missed));
            assert!(server.ids(&other).is_empty(), "it created nothing");
            assert_eq!(server.named(&sandbox).says("cat /workspace/secret"), "canary-of-default\n");
            server.named(&sandbox).delete();
        });
    }
}

/// Promises: T2.
#[test]
fn t2_ids_in_bodies_queries_cursors_and_events_lead_to_the_callers_own_data() {
    let mut server = server();
    let key = server.add_key(&["--tenant", "other"]);
    let own = server.http();
    let other = Http::new(server.port(), Some(&key));
    let sandbox = server.sandbox_with(&json!({"id": "mine", "metadata": {"label": "canary"}}));
    let session = own.post("/v1/sessions", &json!({"sandbox_id": "mine"})).expect(201).json();
    let id = session["id"].as_str().expect("an id").to_owned();
    sandbox.command("s", "echo canary >/workspace/secret");
    let mut rows = Rows::new();
    rows.row("a sandbox in a body", || {
        let made = other.post("/v1/sessions", &json!({"sandbox_id": "mine"})).expect(201).json();
        assert_eq!(server.ids(&other), ["mine"], "one of its own");
        let exec = format!("/v1/sessions/{}/exec", made["id"].as_str().expect("an id"));
        let said = other.post(&exec, &json!({"command": "ls -A; ps aux"})).expect(200).text();
        assert!(!said.contains("secret"), "{said}");
    });
    rows.row("a session in a body and in a query", || {
        let body = json!({"command": "ls -A", "session": id});
        assert_eq!(other.post("/v1/sandboxes/mine/exec", &body).expect(404).error(), "no_session");
        other.get(&format!("/v1/sandboxes/mine/sessions/{id}")).expect(404);
        let body = json!({"command": "ls -A", "session": "s"});
        let said = other.post("/v1/sandboxes/mine/exec", &body).expect(200).json();
        assert_eq!(said["stdout"], "");
        let at = |http: &Http| http.get("/v1/sandboxes/mine/sessions/s").expect(200).json();
        assert_ne!(at(&own)["created_at_ms"], at(&other)["created_at_ms"], "one of its own");
    });
    rows.row("a cursor of another's page", || {
        for path in ["/v1/sandboxes", "/v1/sessions", "/v1/runs", "/v1/sandboxes/mine/sessions"] {
            let http = own.get(&format!("{path}?limit=1"));
            let link = http.header("link").unwrap_or("<?cursor=bWluZQ>").to_owned();
            let cursor = link.split("cursor=").nth(1).and_then(|rest| rest.split('>').next());
            let page = other.get(&format!("{path}?cursor={}", cursor.expect("one"))).expect(200);
            assert!(!page.text().contains("canary"), "{}", page.text());
        }
    });
    rows.row("changes to another tenant's sandbox cause no event", || {
        let mut events = other.try_open("GET", "/v1/events", None).expect("an answer");
        assert_eq!(events.status, 200);
        sandbox.command("s", "true");
        other.post("/v1/sandboxes/mine/exec", &json!({"command": "true"})).expect(200);
        other.delete("/v1/sandboxes/mine").expect(200);
        let mut seen = Vec::new();
        loop {
            let event = events.event().expect("it goes on");
            let data: Value = serde_json_of(&event.data);
            seen.push(event.name.clone());
            assert_ne!(data["session"], "s", "{seen:?}");
            if event.name == "destroyed" {
                break;
            }
        }
        assert_eq!(sandbox.says("cat /workspace/secret"), "canary\n");
    });
}

fn serde_json_of(text: &str) -> Value {
    isolet_kit::Reply { status: 200, headers: Vec::new(), body: text.as_bytes().to_vec() }.json()
}

/// Requests of each kind; enough that background work of the server does not change the average.
const REQUESTS: u64 = 200;

/// Whether data has arrived when the server reads, and whether a thread that gets work waits and is
/// woken by a write, depends on the machine's load.
const BY_CHANCE: [&str; 2] = ["recvfrom", "write"];

/// The work of the server for one request, as far as it does not depend on the machine's load.
fn work(server: &Server, request: impl Fn()) -> BTreeMap<String, u64> {
    let mut all = steps(server, request);
    all.retain(|name, _| !BY_CHANCE.contains(&name.as_str()));
    all
}

/// The average number of each system call that the server makes for one request, rounded.
fn steps(server: &Server, request: impl Fn()) -> BTreeMap<String, u64> {
    request();
    let all = system_calls(server.pid(), || (0..REQUESTS).for_each(|_| request()));
    let each = all.into_iter().map(|(name, count)| (name, (count + REQUESTS / 2) / REQUESTS));
    each.filter(|(_, count)| *count > 0).collect()
}

/// Work that is not done takes no time: the server reads no record, no file and no agent of another
/// tenant.
/// Promises: T2.
#[test]
fn heavy_t2_another_tenants_id_takes_the_same_steps_as_an_unknown_one() {
    let mut server = Options::new().config("not_found_limit_per_10s = 0").start();
    let key = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&key));
    let id = server.sandbox().id;
    server.named(&id).command("s", "true");
    let session = server.http().post("/v1/sessions", &json!({})).expect(201).json()["id"].clone();
    let session = session.as_str().expect("an id").to_owned();
    let mut rows = Rows::new();
    for rest in
        ["", "/files/a", "/sessions/s", "/terminals", "/recordings", "/processes", "/network"]
    {
        rows.row(rest, || {
            let steps = |id: &str| {
                let path = format!("/v1/sandboxes/{id}{rest}");
                work(&server, || drop(other.get(&path).expect(404)))
            };
            assert_eq!(steps(&id), steps(NOBODY));
        });
    }
    rows.row("a session across sandboxes", || {
        let steps = |id: &str| {
            let path = format!("/v1/sessions/{id}");
            work(&server, || drop(other.get(&path).expect(404)))
        };
        assert_eq!(steps(&session), steps("sess_aaaaaaaaaaaa"));
    });
    rows.row("the caller's own sandbox takes more steps", || {
        let own = server.http();
        let path = format!("/v1/sandboxes/{id}/files/");
        let seen = work(&server, || drop(own.get(&path).expect(200)));
        assert_ne!(seen, work(&server, || drop(other.get(&path).expect(404))));
    });
}

/// For both keys the server computes one digest, looks it up among the digests of all keys, and
/// compares once.
/// Promises: T4.
#[test]
fn heavy_t4_a_nearly_right_key_takes_the_same_steps_as_a_wrong_one() {
    let mut server = Options::new().config("not_found_limit_per_10s = 0").start();
    let stored = server.add_key(&["--tenant", "other"]);
    let mut rows = Rows::new();
    for (name, right) in [("the server's own", server.key().to_owned()), ("a stored one", stored)] {
        rows.row(name, || {
            let steps = |key: &str| {
                let http = Http::new(server.port(), Some(key));
                steps(&server, || drop(http.get("/v1/sandboxes").expect(401)))
            };
            let known = |all: &BTreeMap<String, u64>| {
                let mut all = all.clone();
                all.retain(|name, _| !BY_CHANCE.contains(&name.as_str()));
                all
            };
            let near = format!("{}!", &right[..right.len() - 1]);
            let wrong = steps(&"!".repeat(right.len()));
            assert!(wrong.contains_key("recvfrom") || wrong.contains_key("read"), "{wrong:?}");
            assert_eq!(known(&steps(&near)), known(&wrong));
        });
    }
}

/// Promises: T3.
#[test]
fn t3_ids_are_random_and_reveal_nothing_of_one_another() {
    let server = server();
    let http = server.http();
    let id_of = |path: &str, body: Value| -> String {
        http.post(path, &body).expect(201).json()["id"].as_str().expect("an id").to_owned()
    };
    let mut rows = Rows::new();
    rows.row("sessions: 128 bits", || {
        let all: Vec<_> =
            (0..300).map(|_| id_of("/v1/sandboxes/box/sessions", json!({}))).collect();
        spread(&all, |c| matches!(c, 'a'..='z' | '2'..='7'), 26);
    });
    rows.row("sandboxes: 128 bits", || {
        let all: Vec<_> = (0..2).map(|_| id_of("/v1/sandboxes", json!({}))).collect();
        for id in &all {
            http.delete(&format!("/v1/sandboxes/{id}")).expect(200);
            assert!(id.len() >= 26, "{id}");
        }
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    });
    rows.row("sessions across: their dialect's 48 bits", || {
        let all: Vec<_> = (0..300).map(|_| id_of("/v1/sessions", json!({}))).collect();
        spread(&all, |c| c.is_ascii_hexdigit(), 12);
    });
}

/// Checks that the ids are unordered and unique, and that in each of the last `places` letters,
/// except the very last (which may hold the few remaining bits), no letter is much more frequent
/// than others.
fn spread(ids: &[String], known: fn(char) -> bool, places: usize) {
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each is another");
    let rising = ids.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let half = ids.len() / 2;
    assert!(rising.abs_diff(half) < ids.len() / 5, "{rising} of {} rise", ids.len());
    for place in 2..places {
        let letters = ids.iter().map(|id| id.chars().rev().nth(place - 1).expect("long enough"));
        let mut counts = std::collections::BTreeMap::new();
        for letter in letters {
            assert!(known(letter), "{letter}");
            *counts.entry(letter).or_insert(0) += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        assert!(most < ids.len() / 6, "place {place}: {counts:?}");
        assert!(counts.len() >= 12, "place {place}: {counts:?}");
    }
}

/// The answers to a client that guesses ids or keys.
struct Guesses {
    /// Number of answers 401 and 404.
    answered: usize,
    /// Number of answers 429.
    refused: usize,
}

/// Promises: T3.
#[test]
fn t3_a_client_that_guesses_many_ids_is_rate_limited() {
    let mut server = Options::new().config("not_found_limit_per_10s = 200").start();
    let key = server.add_key(&["--tenant", "other"]);
    let own = server.http();
    let other = Http::new(server.port(), Some(&key));
    let ask = |key: &str, count: usize| {
        let head = format!(
            "GET /v1/sandboxes/{NOBODY} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\n",
            server.port()
        );
        let many = format!("{head}\r\n").repeat(count - 1);
        let all = format!("{many}{head}connection: close\r\n\r\n");
        let answers = other.raw(all.as_bytes(), SOON);
        let answers = String::from_utf8_lossy(&answers).into_owned();
        let count = |status: &str| answers.matches(&format!("HTTP/1.1 {status} ")).count();
        Guesses { answered: count("401") + count("404"), refused: count("429") }
    };
    let mut rows = Rows::new();
    rows.row("ids, by a key", || {
        let first = ask(&key, 200);
        let second = ask(&key, 200);
        let answered = first.answered + second.answered;
        let refused = first.refused + second.refused;
        assert!(answered <= 200 && refused > 0, "{answered} {refused}");
        let refused = other.get("/v1/sandboxes").expect(429);
        assert_eq!(refused.error(), "too_many_not_found");
        assert_eq!(
            own.get("/v1/sandboxes").expect(200).json(),
            json!([]),
            "no other client is limited"
        );
        wait_until("its time is over", SOON, || {
            (other.get("/v1/sandboxes").status == 200).then_some(())
        });
    });
    rows.row("keys, by an address", || {
        let first = ask("wrong", 200);
        let second = ask("wrong", 200);
        let answered = first.answered + second.answered;
        let refused = first.refused + second.refused;
        assert!(answered <= 200 && refused > 0, "{answered} {refused}");
        own.get("/v1/sandboxes").expect(200);
    });
}

/// Promises: T4.
#[test]
fn t4_a_key_counts_only_as_a_whole_and_only_in_its_header() {
    let mut server = server();
    let key = server.add_key(&["--tenant", "other"]);
    let status = |key: &str| Http::new(server.port(), Some(key)).get("/v1/sandboxes").status;
    assert_eq!((status(&key), status(server.key())), (200, 200));
    let mut rows = Rows::new();
    for good in [key.clone(), server.key().to_owned()] {
        let mut last = good.clone().into_bytes();
        *last.last_mut().expect("long") ^= 1;
        let bad = [
            good[..good.len() - 1].to_owned(),
            format!("{good}0"),
            format!("{good} {good}"),
            good.to_uppercase(),
            String::from_utf8(last).expect("ASCII"),
        ];
        for key in bad {
            rows.row(&format!("all but right: {}", key.len()), || assert_eq!(status(&key), 401));
        }
    }
    rows.row("no address carries it", || {
        let nobody = Http::new(server.port(), None);
        for query in ["token", "key", "api_key", "access_token", "authorization"] {
            let path = format!("/v1/sandboxes?{query}={key}");
            assert_eq!(nobody.get(&path).status, 401);
        }
        for name in ["cookie", "x-api-key", "sec-websocket-protocol", "proxy-authorization"] {
            assert_eq!(
                nobody.with(name, &format!("Bearer {key}")).get("/v1/sandboxes").status,
                401
            );
        }
    });
    drop(rows);
    let written = ["isolet.db", "isolet.db-wal"].map(|name| server.data().join(name));
    for file in written {
        let bytes = std::fs::read(&file).unwrap_or_default();
        for key in [key.as_str(), server.key()] {
            let found = bytes.windows(key.len()).any(|part| part == key.as_bytes());
            assert!(!found, "{} holds a key", file.display());
        }
    }
    assert!(!server.log().contains(&key));
    wait_until("it answers", SOON, || (status(&key) == 200).then_some(()));
}
