//! The server's own TLS: certificates that change while connections are open, unusable ones, clients
//! that break off or speak another protocol, and what must not be served without it.

use isolet_kit::https::{Authority, Certificate};
use isolet_kit::{
    Http, Options, SOON, Sandbox, Server, Stream, json, programs, quickly, wait_until,
};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The beginning of a TLS record, whose rest never arrives.
const RECORD_BEGIN: &[u8] = &[22, 3, 1, 1, 0];

/// A key that needs a passphrase, as far as its label says.
const ENCRYPTED: &str =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";

/// A folder with certificates, of which `live` leads to the one in use, as in a Kubernetes secret.
struct Pairs {
    folder: TempDir,
    authority: Authority,
}

impl Pairs {
    fn new() -> Self {
        let pairs =
            Self { folder: tempfile::tempdir().expect("a folder"), authority: Authority::new() };
        pairs.publish("first");
        pairs
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn live(&self) -> (PathBuf, PathBuf) {
        (self.at("live/cert.pem"), self.at("live/key.pem"))
    }

    fn issue(&self) -> Certificate {
        self.authority.issue(&["127.0.0.1", "localhost", "box.example"])
    }

    /// Writes a new pair and lets `live` lead to it.
    fn publish(&self, name: &str) -> Certificate {
        let pair = self.issue();
        fs::create_dir(self.at(name)).expect("it is new");
        pair.write(&self.at(name));
        symlink(name, self.at("next")).expect("a link");
        fs::rename(self.at("next"), self.at("live")).expect("the link is replaced");
        pair
    }

    fn server(&self, config: &str) -> Server {
        let (certificate, key) = self.live();
        let options = Options::new().tls(&certificate, &key, &self.authority.pem());
        options.config(config).start()
    }
}

fn presents(http: &Http, pair: &Certificate) -> Option<()> {
    let presented = http.open().ok()?.certificate()?;
    (presented == pair.der()).then_some(())
}

/// Checks that a stream that was opened with an earlier certificate continues.
#[track_caller]
fn announces(events: &mut Stream, sandbox: &Sandbox) {
    while !events.event().expect("the stream continues").data.contains(&sandbox.id) {}
}

/// Promises: T21.
#[test]
fn t21_a_new_certificate_is_used_and_no_connection_is_dropped() {
    let pairs = Pairs::new();
    let server = pairs.server("");
    let http = server.http();
    let mut events = http.try_open("GET", "/v1/events", None).expect("a stream");
    assert_eq!(events.status, 200);
    let second = pairs.publish("second");
    wait_until("new connections get the new certificate", SOON, || presents(&http, &second));
    announces(&mut events, &server.sandbox());

    // In place, and first one file and then the other.
    let third = pairs.issue();
    let (certificate, key) = pairs.live();
    fs::write(&certificate, &third.certificate).expect("it is written");
    wait_until("the reason is logged", SOON, || {
        server.log().contains("does not belong to the certificate").then_some(())
    });
    presents(&http, &second).expect("the previous pair stays in use");
    fs::write(&key, &third.key).expect("it is written");
    wait_until("the pair is complete", SOON, || presents(&http, &third));
    announces(&mut events, &server.sandbox());
}

/// Runs `serve` on a new data directory until it ends.
fn serve(data: &Path, environment: &[(&str, &str)]) -> Output {
    let mut program = Command::new("timeout");
    program
        .arg("60")
        .arg(programs().join("isolet"))
        .arg("serve")
        .env_remove("ISOLET_CONFIG")
        .env("ISOLET_DATA_DIR", data)
        .env("ISOLET_API_KEY", "a key that nobody uses")
        .envs(environment.iter().copied());
    program.stdin(Stdio::null()).output().expect("it starts")
}

/// Promises: T21.
#[test]
fn t21_an_unusable_pair_ends_a_start_with_the_reason() {
    let pairs = Pairs::new();
    let other = pairs.issue();
    let bad = pairs.at("bad.pem");
    let (certificate, key) = pairs.live();
    let data = pairs.at("data");
    let start = |certificate: &Path, key: &Path| {
        let path = |path: &Path| path.display().to_string();
        let environment = [
            ("ISOLET_TLS_CERT", path(certificate)),
            ("ISOLET_TLS_KEY", path(key)),
            ("ISOLET_LISTEN", "127.0.0.1:0".to_owned()),
        ];
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let ended = serve(&data, &environment);
        assert_eq!(ended.status.code(), Some(1));
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    for (text, reason) in [
        (other.key.as_str(), "does not belong to the certificate"),
        ("", "contains no private key"),
        (ENCRYPTED, "is encrypted"),
    ] {
        fs::write(&bad, text).expect("it is written");
        let said = start(&certificate, &bad);
        assert!(said.contains("bad.pem") && said.contains(reason), "{reason}: {said}");
        let said = start(&bad, &key);
        assert!(said.contains("bad.pem") && said.contains("contains no certificate"), "{said}");
    }
    let said = start(&certificate, &pairs.at("missing.pem"));
    assert!(said.contains("missing.pem"), "{said}");
    assert!(!data.join("isolet.db").try_exists().unwrap(), "nothing was created");
}

#[test]
fn a_key_that_everyone_may_read_is_reported() {
    let pairs = Pairs::new();
    let (_, key) = pairs.live();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("its mode");
    let server = pairs.server("");
    assert!(server.log().contains("chmod 600"), "{}", server.log());
}

/// Promises: T21.
#[test]
fn t21_a_client_that_speaks_plain_http_gets_the_reason() {
    let pairs = Pairs::new();
    let server = pairs.server("");
    let plain = Http::new(server.port(), Some(server.key()));
    for (method, body) in [("GET", None), ("POST", Some(&b"{}"[..]))] {
        let reply = plain.send(method, "/v1/sandboxes", body).expect(400);
        assert_eq!(reply.error(), "https_required");
        assert!(reply.text().contains("HTTPS"), "{}", reply.text());
        assert_eq!(reply.header("connection"), Some("close"));
    }
    assert!(server.ids(&server.http()).is_empty());
    let noise = plain.raw(b"\x01\x02\x03\x04\x05\x06", SOON);
    assert!(!noise.starts_with(b"HTTP"), "it gets an alert or nothing");
    server.http().get("/v1/sandboxes").expect(200);
}

/// Promises: T20, T21.
#[test]
fn t21_a_slow_handshake_ends_and_keeps_nobody_out() {
    let pairs = Pairs::new();
    let server = pairs.server("[connections]\nmax = 8\n");
    let stuck = || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it connects");
        stream.write_all(RECORD_BEGIN).expect("it is sent");
        stream
    };
    let mut slow = stuck();
    // The time of the handshake is 10 s, and a loaded machine gets more. Otherwise it has no end.
    let limit = SOON;
    quickly("the server ends the handshake", limit, || {
        slow.set_read_timeout(Some(limit)).expect("a timeout");
        let mut rest = Vec::new();
        let _ = slow.read_to_end(&mut rest);
    });
    let silent: Vec<TcpStream> = (0..40).map(|_| stuck()).collect();
    quickly("another client is served", Duration::from_secs(8), || {
        server.http().get("/v1/sandboxes").expect(200);
    });
    drop(silent);
}

/// Promises: T21.
#[test]
fn t21_bytes_pass_tls_unchanged() {
    let pairs = Pairs::new();
    let server = pairs.server("");
    let sandbox = server.sandbox();
    let body: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 251) as u8).collect();
    let file = sandbox.path("/files/large");
    let saved = sandbox.http.send("PUT", &file, Some(&body));
    assert!(matches!(saved.status, 200..=204), "{}", saved.text());
    assert!(sandbox.http.get(&file).expect(200).body == body);

    // An upgraded connection to a program inside.
    sandbox.listen(8000);
    let upgrade = |version: &str| {
        let mut connection = sandbox.http.open().expect("a connection");
        let head = format!(
            "GET {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: {version}\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            sandbox.path("/ports/8000/upgrade"),
            server.port(),
            server.key()
        );
        connection.write_all(head.as_bytes()).expect("it is sent");
        connection
    };
    // A refused one ends with its answer and a close_notify, or reading would be an error.
    let mut refusal = String::new();
    upgrade("12").read_to_string(&mut refusal).expect("a complete answer");
    assert!(refusal.contains("must be 13"), "{refusal}");
    let mut connection = upgrade("13");
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"host: localhost:8000\n") {
        connection.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    let sent = &body[..50_000];
    connection.write_all(sent).expect("it is sent");
    let mut echoed = vec![0; sent.len()];
    connection.read_exact(&mut echoed).expect("it comes back");
    assert!(echoed == sent);
}

/// The scheme decides about links, cookies and origins.
#[test]
fn the_scheme_of_a_server_with_tls_is_https() {
    let pairs = Pairs::new();
    let server = pairs.server("");
    let sandbox = server.sandbox();
    sandbox.listen(8000);
    let link = sandbox.post("/links", &json!({"port": 8000})).expect(201).json();
    let own = format!("https://127.0.0.1:{}/", server.port());
    assert!(link["url"].as_str().is_some_and(|url| url.starts_with(&own)), "{link}");
    let echoed = sandbox.http.get(&sandbox.path("/ports/8000/echo")).expect(200).json();
    let proto = json!(["x-forwarded-proto", "https"]);
    assert!(echoed["headers"].as_array().is_some_and(|all| all.contains(&proto)), "{echoed}");
    let page = |origin: &str| server.http().with("origin", origin).get("/v1/sandboxes").status;
    let host = format!("127.0.0.1:{}", server.port());
    assert_eq!(page(&format!("https://{host}")), 200);
    assert_eq!(page(&format!("http://{host}")), 403, "anyone on the path can write such a page");
}

/// Promises: T18.
#[test]
fn t18_plaintext_beyond_loopback_must_be_allowed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let everywhere = ("ISOLET_LISTEN", "0.0.0.0:0");
    let refused = serve(&data, &[everywhere]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("tls_cert") && said.contains("allow_plaintext"), "{said}");
    assert!(!data.try_exists().unwrap(), "nothing was created");

    let mut server = Server::start();
    server.stop();
    server.launch_with("ISOLET_LISTEN", &format!("0.0.0.0:{}", server.port()));
    assert_eq!(server.wait().code(), Some(1), "it was used on loopback only: {}", server.log());
}
