//! The guides of docs/tls.md: the real nginx and Caddy of Debian in front of a server, each with the
//! configuration that the page shows. Only ports and the paths of the certificate differ.

use crate::programs::{checkout, run};
use isolet_kit::https::Authority;
use isolet_kit::{
    Http, Message, Options, SOON, Sandbox, Server, Value, json, process, quickly, tries, wait_until,
};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const HOST: &str = "box.example";
const PORTS_DOMAIN: &str = "ports.example";
const CERTIFICATE: &str = "/etc/letsencrypt/live/box.example/fullchain.pem";
const KEY: &str = "/etc/letsencrypt/live/box.example/privkey.pem";
const UPSTREAM: &str = "127.0.0.1:7300";
/// The part of the page that begins with the settings of a server behind a proxy.
const PROXIES: &str = "\n## Trusted proxies\n";
/// The size of the upload: a gigabyte under `make soak`.
const UPLOAD_MIB: (usize, usize) = (64, 1024);
const MIB: usize = 1 << 20;
/// The limit of either direction: 4 MiB/s on a loaded machine, for the gigabyte.
const TRANSFER_MAX: Duration = Duration::from_secs(256);

/// The first code block of this language about proxies in docs/tls.md.
fn block(language: &str) -> String {
    let page = fs::read_to_string(checkout().join("docs/tls.md")).expect("the page is there");
    let (_, rest) = page.split_once(PROXIES).expect("the page has the heading");
    let (_, rest) = rest.split_once(&format!("```{language}\n")).expect("the page has the block");
    rest.split_once("```").expect("the block ends").0.to_owned()
}

/// Replaces a text that must be there.
#[track_caller]
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from:?} is missing: {text}");
    text.replace(from, to)
}

/// A reverse proxy in front of a server.
struct Site {
    child: Child,
    port: u16,
    authority: Authority,
    folder: TempDir,
    server: Server,
}

impl Site {
    /// Starts a proxy with a configuration block of the page; `wrap` makes a complete configuration
    /// of it, and returns the command.
    fn start(language: &str, wrap: impl FnOnce(&Path, u16, String) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Options::new().config(&own_settings()).start();
        let authority = Authority::new();
        let pair = authority.issue(&[HOST, &format!("*.{PORTS_DOMAIN}")]);
        let (certificate, key) = pair.write(folder.path());
        fs::write(folder.path().join("ca.pem"), authority.pem()).expect("it is written");
        let text = block(language);
        let text = replaced(&text, CERTIFICATE, &certificate.display().to_string());
        let text = replaced(&text, KEY, &key.display().to_string());
        let text = replaced(&text, UPSTREAM, &format!("127.0.0.1:{}", server.port()));
        let port = crate::doctor::free_port();
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let mut command = wrap(folder.path(), port, text);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", folder.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{:?} does not start ({error}): make packages", command.get_program())
        });
        let site = Self { child, port, authority, folder, server };
        let http = site.http();
        wait_until("the proxy answers", SOON, || {
            http.try_send("GET", "/health", None)
                .is_ok_and(|reply| reply.status == 200)
                .then_some(())
        });
        site
    }

    /// A client of the proxy.
    fn http(&self) -> Http {
        self.at(HOST, Some(self.server.key()))
    }

    fn at(&self, name: &str, key: Option<&str>) -> Http {
        let http = Http::new(self.port, key).with("host", &format!("{name}:{}", self.port));
        http.over_tls(&self.authority.client())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("--- the proxy's log ---\n{log}");
        }
        // SIGTERM: nginx ends its workers, too.
        process::signal(i32::try_from(self.child.id()).unwrap_or_default(), process::TERM);
        let _ = self.child.wait();
    }
}

/// The settings that the page shows for Isolet. The tests set the address themselves.
fn own_settings() -> String {
    let settings = block("toml");
    assert!(settings.contains(&format!("listen = \"{UPSTREAM}\"")), "{settings}");
    settings
}

/// The programs of Debian's packages, as `make reverse-proxies` unpacks them.
fn proxies() -> PathBuf {
    checkout().join("target/clients/proxies/usr")
}

fn nginx() -> Site {
    Site::start("nginx", |folder, port, text| {
        let text = replaced(&text, "listen 443 ssl;", &format!("listen 127.0.0.1:{port} ssl;"));
        let at = folder.display();
        let whole = format!(
            "daemon off;\nuser root;\npid {at}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n\
             client_body_temp_path {at}/body;\nproxy_temp_path {at}/proxy;\nfastcgi_temp_path {at}/fastcgi;\n\
             uwsgi_temp_path {at}/uwsgi;\nscgi_temp_path {at}/scgi;\n{text}\n}}\n"
        );
        fs::write(folder.join("nginx.conf"), whole).expect("it is written");
        let mut command = Command::new(proxies().join("sbin/nginx"));
        command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
        command
    })
}

fn caddy() -> Site {
    Site::start("caddyfile", |folder, port, text| {
        let at = folder.display();
        let options = format!(
            "{{\n\tadmin off\n\tauto_https disable_redirects\n\
             \thttps_port {port}\n\tdefault_bind 127.0.0.1\n\tstorage file_system {at}/storage\n}}\n"
        );
        fs::write(folder.join("Caddyfile"), format!("{options}{text}")).expect("it is written");
        let mut command = Command::new(proxies().join("bin/caddy"));
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.join("Caddyfile"));
        command
    })
}

/// Checks everything that the guides promise.
fn check(site: &Site) {
    let sandbox = Sandbox { id: "demo".into(), http: site.http() };
    sandbox.http.post("/v1/sandboxes", &json!({"id": "demo"})).expect(201);
    events_arrive_when_they_are_sent(&sandbox);
    a_shell_works_over_a_web_socket(site, &sandbox);
    the_audit_log_names_the_client(site);
    a_port_has_its_own_host_name(site, &sandbox);
    a_large_file_passes(site, &sandbox);
}

fn events_arrive_when_they_are_sent(sandbox: &Sandbox) {
    let command = "echo first; until [ -e /tmp/go ]; do sleep 0.02; done; echo second";
    let mut events = sandbox.http.events(&sandbox.path("/exec"), &json!({"command": command}));
    assert_eq!(events.status, 200);
    let mut wait_for = |text: &str| while !events.event().expect("an event").data.contains(text) {};
    wait_for("first");
    sandbox.says("touch /tmp/go");
    wait_for("second");
    wait_for("exit_code");
}

fn a_shell_works_over_a_web_socket(site: &Site, sandbox: &Sandbox) {
    let mut socket = site.http().web_socket(&sandbox.path("/shell")).expect("an upgrade");
    let start = json!({"type": "shell_run", "id": "r1", "command": "echo through the proxy"});
    socket.send(Message::text(start.to_string())).expect("it is sent");
    let mut output = String::new();
    loop {
        let Message::Text(text) = socket.read().expect("a frame") else { continue };
        let frame: Value = text.parse().expect("JSON");
        match frame["type"].as_str() {
            Some("shell_out") => output.push_str(&frame.to_string()),
            Some("shell_exit") => break,
            _ => {}
        }
    }
    assert!(output.contains("through the proxy"), "{output}");
    socket.close(None).expect("it closes");
}

/// The client connects from another address than the proxy, and claims a third one.
fn the_audit_log_names_the_client(site: &Site) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--fail-with-body", "-m", "20", "--interface", "127.0.0.77", "--cacert"])
        .arg(site.folder.path().join("ca.pem"))
        .args(["--resolve", &format!("{HOST}:{}:127.0.0.1", site.port)])
        .args(["-H", &format!("Authorization: Bearer {}", site.server.key())])
        .args(["-H", "Content-Type: application/json", "-d", "{\"id\":\"named\"}"])
        .args(["-H", "X-Forwarded-For: 6.6.6.6", "-H", "Forwarded: for=6.6.6.6;proto=http"])
        .arg(format!("https://{HOST}:{}/v1/sandboxes", site.port));
    run(&mut curl).well();
    let log = site.server.http().get("/v1/audit?sandbox=named").expect(200).text();
    let entry = log.lines().find(|line| line.contains("\"sandbox.create\"")).expect("an entry");
    assert!(entry.contains("\"from\":\"127.0.0.77\""), "{entry}");
}

fn a_port_has_its_own_host_name(site: &Site, sandbox: &Sandbox) {
    sandbox.listen(8000);
    let link = sandbox.post("/links", &json!({"port": 8000})).expect(201).json();
    let name = format!("8000-demo.{PORTS_DOMAIN}");
    let url = link["url"].as_str().expect("a URL");
    let own = format!("https://{name}:{}/?isolet-token=", site.port);
    let token = url.strip_prefix(&own).unwrap_or_else(|| panic!("{url} is not below {own}"));
    let page = site.at(&name, None).with("accept", "text/html");
    let cookie = page.get(&format!("/?isolet-token={token}")).expect(303);
    let cookie = cookie.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair");
    let echoed = page.with("cookie", pair).get("/echo").expect(200).json()["headers"].to_string();
    assert!(echoed.contains("[\"x-forwarded-proto\",\"https\"]"), "{echoed}");
    assert!(echoed.contains(&format!("{name}:{}", site.port)), "{echoed}");
    sandbox.says("rm /tmp/go");
    let mut events = page.with("cookie", pair).try_open("GET", "/events", None).expect("a stream");
    assert_eq!(events.event().expect("an event").data, "first");
    sandbox.says("touch /tmp/go");
    assert_eq!(events.event().expect("an event").data, "second");
}

/// The block of a file at this place: each differs from all others.
fn piece(at: usize) -> Vec<u8> {
    let mut bytes = format!("{at:08}").into_bytes();
    bytes.extend((8..MIB).map(|n| (n % 251) as u8));
    bytes
}

fn a_large_file_passes(site: &Site, sandbox: &Sandbox) {
    let count = tries(UPLOAD_MIB.0, UPLOAD_MIB.1);
    let path = sandbox.path("/files/large");
    let host = format!("{HOST}:{}", site.port);
    let head = |method: &str| {
        let key = site.server.key();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\nconnection: close\r\n"
        )
    };
    quickly("the upload", TRANSFER_MAX, || {
        let mut connection = site.http().open().expect("a connection");
        let announced = format!("{}content-length: {}\r\n\r\n", head("PUT"), count * MIB);
        connection.write_all(announced.as_bytes()).expect("it is sent");
        (0..count).for_each(|at| connection.write_all(&piece(at)).expect("it is accepted"));
        let mut status = String::new();
        BufReader::new(connection).read_line(&mut status).expect("an answer");
        assert!(status.contains(" 20"), "{status}");
    });
    assert_eq!(sandbox.says("stat -c %s large").trim(), (count * MIB).to_string());
    quickly("the download", TRANSFER_MAX, || {
        let mut stream = sandbox.http.try_open("GET", &path, None).expect("an answer");
        let mut bytes = vec![0; MIB];
        for at in 0..count {
            stream.body.read_exact(&mut bytes).expect("a block");
            assert!(bytes == piece(at), "block {at} differs");
        }
        assert_eq!(stream.body.read(&mut bytes).expect("the end"), 0);
    });
}

/// Promises: T22.
#[test]
fn heavy_nginx_passes_everything_with_the_configuration_of_the_guide() {
    check(&nginx());
}

/// Promises: T22.
#[test]
fn heavy_caddy_passes_everything_with_the_configuration_of_the_guide() {
    check(&caddy());
}
