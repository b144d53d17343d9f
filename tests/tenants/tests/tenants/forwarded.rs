//! Headers by which reverse proxies report their clients: they count from trusted proxies only.

use isolet_kit::{Http, Options, Sandbox, Server, Value, json};
use std::time::{Duration, Instant};

/// The client that every request below claims.
const CLIENT: &str = "203.0.113.7";

fn server(trusted: &str) -> Server {
    let config = format!(
        "hosts = [\"box.example\"]\nports_domain = \"ports.example\"\nnot_found_limit_per_10s = 5\ntrusted_proxies = [{trusted}]\n"
    );
    Options::new().config(&config).start()
}

fn reported(http: &Http) -> Http {
    http.with("x-forwarded-for", &format!("6.6.6.6, {CLIENT}"))
        .with("x-forwarded-proto", "https")
        .with("x-forwarded-host", "box.example")
}

/// The address that the audit log has for the creation of a sandbox.
fn audited(server: &Server, http: &Http) -> String {
    http.post("/v1/sandboxes", &json!({})).expect(201);
    let log = server.http().get("/v1/audit").expect(200).text();
    let mut entries = log.lines().filter_map(|line| line.parse::<Value>().ok());
    let created = entries.rfind(|entry| entry["event"] == "sandbox.create");
    created.expect("an entry")["data"]["from"].as_str().expect("an address").to_owned()
}

fn link(sandbox: &Sandbox, http: &Http) -> String {
    let made = http.post(&sandbox.path("/links"), &json!({"port": 8000})).expect(201).json();
    made["url"].as_str().expect("a URL").to_owned()
}

/// Follows a link as a browser does, and returns the cookie.
fn cookie(server: &Server, url: &str) -> String {
    let (_, token) = url.split_once("isolet-token=").expect("a token");
    let sandbox = url.split_once("8000-").expect("a host").1;
    let name = sandbox.split('.').next().expect("a label");
    let host = format!("8000-{name}.ports.example");
    let page = Http::new(server.port(), None)
        .with("host", &host)
        .with("accept", "text/html")
        .with("x-forwarded-proto", "https");
    let reply = page.get(&format!("/?isolet-token={token}")).expect(303);
    reply.header("set-cookie").expect("a cookie").to_owned()
}

fn seen_inside(sandbox: &Sandbox, http: &Http) -> String {
    http.get(&sandbox.path("/ports/8000/echo")).expect(200).json()["headers"].to_string()
}

/// Promises: T22.
#[test]
fn t22_a_trusted_proxy_states_the_client_the_scheme_and_the_host() {
    let server = server("\"127.0.0.0/8\"");
    let http = reported(&server.http());
    assert_eq!(audited(&server, &http), CLIENT);
    let standard = format!("for=6.6.6.6, for={CLIENT};proto=https;host=box.example");
    assert_eq!(audited(&server, &server.http().with("forwarded", &standard)), CLIENT);
    let direct = server.http();
    assert_eq!(audited(&server, &direct), "127.0.0.1", "the proxy itself may be a client");

    let sandbox = server.sandbox();
    sandbox.listen(8000);
    let url = link(&sandbox, &http);
    assert!(url.starts_with("https://8000-") && url.contains(".ports.example/"), "{url}");
    assert!(cookie(&server, &url).ends_with("; Secure"));
    let inside = seen_inside(&sandbox, &http);
    assert!(inside.contains(&format!("\"6.6.6.6, {CLIENT}\"")), "{inside}");
    assert!(inside.contains("[\"x-forwarded-host\",\"box.example\"]"), "{inside}");
    assert!(inside.contains("[\"x-forwarded-proto\",\"https\"]"), "{inside}");
    // A host that a proxy reports is checked as the header itself.
    let evil = server.http().with("x-forwarded-host", "evil.example").get("/v1/sandboxes");
    assert_eq!(evil.expect(421).error(), "bad_host");
    // Pages of the reported scheme only.
    assert_eq!(http.with("origin", "https://box.example").get("/v1/sandboxes").status, 200);
    assert_eq!(http.with("origin", "http://box.example").get("/v1/sandboxes").status, 403);
}

/// Promises: T22.
#[test]
fn t22_headers_of_any_other_client_are_ignored() {
    let server = server("\"192.0.2.1\", \"10.0.0.0/8\"");
    let http = reported(&server.http());
    assert_eq!(audited(&server, &http), "127.0.0.1");
    let sandbox = server.sandbox();
    sandbox.listen(8000);
    let url = link(&sandbox, &http);
    assert!(url.starts_with("http://8000-") && url.contains(&server.port().to_string()), "{url}");
    assert!(!cookie(&server, &url).contains("Secure"));
    let inside = seen_inside(&sandbox, &http);
    assert!(inside.contains(&format!("\"6.6.6.6, {CLIENT}, 127.0.0.1\"")), "{inside}");
}

/// Promises: T3, T22.
#[test]
fn t22_wrong_keys_count_against_the_client_behind_a_proxy() {
    let server = server("\"127.0.0.1\"");
    let guess = |address: &str| {
        let http = Http::new(server.port(), Some("wrong")).with("x-forwarded-for", address);
        http.get("/v1/sandboxes").status
    };
    // They count for ten seconds from the first one on, which a slow machine may miss.
    let mut clients = (7..17).map(|last| format!("203.0.113.{last}"));
    let in_time = clients.any(|client| {
        let begun = Instant::now();
        let statuses: Vec<u16> = (0..7).map(|_| guess(&client)).collect();
        let refused = statuses == [401, 401, 401, 401, 401, 429, 429];
        let late = begun.elapsed() >= Duration::from_secs(10);
        assert!(refused || late, "{statuses:?}");
        refused
    });
    assert!(in_time, "seven guesses take ten seconds");
    assert_eq!(guess("203.0.113.18"), 401, "another client of the same proxy is not affected");
    for malformed in ["", "unknown", ",,,", "6.6.6.6, \"", "1.2.3", &"9".repeat(5000)] {
        assert!(matches!(guess(malformed), 401 | 429), "{malformed}");
    }
}
