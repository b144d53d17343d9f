//! T20: strangers with wrong credentials, many addresses of them, keep nobody out who has a right one.

use isolet_kit::{Http, Options, Rows, SOON, Sandbox, Server, json, signed_file, wait_until};

/// The limit on wrong credentials of an address in these tests.
const LIMIT: usize = 200;
/// More addresses than the server counts one by one.
const ADDRESSES: usize = 4_104;
/// An address that guesses alone.
const GUESSER: &str = "203.0.113.7";

fn server() -> Server {
    let config = format!("not_found_limit_per_10s = {LIMIT}\ntrusted_proxies = [\"127.0.0.1\"]\n");
    Options::new().config(&config).start()
}

fn from(http: &Http, address: &str) -> Http {
    http.with("x-forwarded-for", address)
}

/// Sends one wrong key from each address.
fn send_wrong_keys(server: &Server, addresses: impl Iterator<Item = String>) {
    let port = server.port();
    let head = |address: &str| {
        format!(
            "GET /v1/sandboxes HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\
             authorization: Bearer wrong\r\nx-forwarded-for: {address}\r\n"
        )
    };
    let all: Vec<String> = addresses.collect();
    // The client reads only after it has sent everything.
    for some in all.chunks(100) {
        let many: String = some.iter().map(|address| format!("{}\r\n", head(address))).collect();
        let last = format!("{}connection: close\r\n\r\n", head(GUESSER));
        let _ = server.client(None).raw(format!("{many}{last}").as_bytes(), SOON);
    }
}

/// More addresses than have a counter of their own, and one that guesses above the limit.
fn flood(server: &Server) {
    let address = |n: usize| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
    send_wrong_keys(server, (0..ADDRESSES).map(address));
    send_wrong_keys(server, (0..LIMIT + 20).map(|_| "198.51.100.1".to_owned()));
    send_wrong_keys(server, (0..LIMIT + 20).map(|_| GUESSER.to_owned()));
}

/// Right credentials of all kinds, as requests that they authorize.
struct Credentials {
    sandbox: Sandbox,
    signed: String,
    chosen: String,
    /// Of a sandbox in E2B's dialect.
    id: String,
    token: String,
    upload: String,
}

impl Credentials {
    fn create(server: &Server) -> Self {
        let sandbox = server.sandbox();
        sandbox.listen(8000);
        let link = |body| {
            let made = sandbox.post("/links", &body).expect(201).json();
            made["token"].as_str().expect("a token").to_owned()
        };
        let signed = link(json!({"port": 8000}));
        let chosen = link(json!({"port": 8000, "token": "chosen-by-a-stranger"}));
        let http = server.http();
        let made = http.post("/v2/sandboxes", &json!({"templateID": "base"})).expect(201).json();
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        let hash = "a".repeat(64);
        let upload = http.get(&format!("/templates/tools/files/{hash}")).expect(201).json();
        let url = upload["url"].as_str().expect("a URL");
        let upload = format!("/{}", url.splitn(4, '/').nth(3).expect("a path"));
        Self {
            sandbox,
            signed,
            chosen,
            id: text("sandboxID"),
            token: text("envdAccessToken"),
            upload,
        }
    }

    /// The answers to one request with each credential, from one address.
    fn statuses(&self, server: &Server, key: &str, address: &str) -> Vec<(&'static str, u16)> {
        let nobody = from(&server.client(None), address);
        let with_key = |key: &str| from(&server.client(Some(key)), address).get("/v1/sandboxes");
        let link = |token: &str| nobody.get(&format!("/v1/links/{token}/echo")).status;
        let plane = nobody.with("e2b-sandbox-id", &self.id);
        let file = plane.get(&signed_file("/etc/hostname", &self.token, None));
        vec![
            ("the key of a tenant", with_key(key).status),
            ("the operator's key", with_key(server.key()).status),
            ("a signed link", link(&self.signed)),
            ("a link with a chosen token", link(&self.chosen)),
            ("an access token", plane.with("x-access-token", &self.token).get("/health").status),
            ("the URL of a file", file.status),
            ("the URL of an upload", nobody.send("PUT", &self.upload, Some(b"no archive")).status),
        ]
    }

    /// The answers to wrong ones.
    fn wrong(&self, server: &Server, address: &str) -> Vec<(&'static str, u16)> {
        let nobody = from(&server.client(None), address);
        let wrong = from(&server.client(Some("wrong")), address);
        let plane = nobody.with("e2b-sandbox-id", &self.id);
        let file = plane.get(&signed_file("/etc/hostname", "wrong", None));
        vec![
            ("a key", wrong.get("/v1/sandboxes").status),
            ("a link", nobody.get("/v1/links/wrong/echo").status),
            ("an access token", plane.with("x-access-token", "wrong").get("/health").status),
            ("the URL of a file", file.status),
            ("the URL of an upload", nobody.send("PUT", &format!("{}0", self.upload), None).status),
        ]
    }
}

/// With more addresses than have counters, a key without a counter of its own once shared that of the
/// strangers: all tenants and the operator were refused.
/// Promises: T30.
#[test]
fn t20_wrong_credentials_of_many_addresses_refuse_no_right_one() {
    let mut server = server();
    let key = server.add_key(&["--tenant", "other"]);
    let own = Credentials::create(&server);
    let mut rows = Rows::new();
    rows.row("wrong ones are refused", || {
        wait_until("the guesser is above the limit", SOON, || {
            flood(&server);
            own.wrong(&server, GUESSER).iter().all(|(_, status)| *status == 429).then_some(())
        });
    });
    for address in ["192.0.2.1", "2001:db8::1", "198.51.100.1", GUESSER] {
        rows.row(&format!("right ones from {address} are answered"), || {
            flood(&server);
            for (name, status) in own.statuses(&server, &key, address) {
                assert!(![401, 429].contains(&status), "{name}: {status}");
            }
        });
    }
    rows.row("ids that a key cannot find count against this key only", || {
        let guesses = server.client(Some(&key));
        wait_until("it is above the limit", SOON, || {
            (0..LIMIT + 5).any(|_| guesses.get("/v1/sandboxes/none").status == 429).then_some(())
        });
        own.sandbox.http.get(&own.sandbox.path("")).expect(200);
    });
}

/// Promises: T30.
#[test]
fn t20_the_addresses_of_an_ipv6_network_are_one_client() {
    let server = server();
    let guess =
        |address: &str| from(&server.client(Some("wrong")), address).get("/v1/sandboxes").status;
    wait_until("the network is above the limit", SOON, || {
        let hosts = (0..LIMIT + 20).map(|host| format!("2001:db8:1:2:{host:x}::{host:x}"));
        send_wrong_keys(&server, hosts);
        (guess("2001:db8:1:2:ffff::1") == 429).then_some(())
    });
    assert_eq!(guess("2001:db8:1:3::1"), 401, "another network");
}
