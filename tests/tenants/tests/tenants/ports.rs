//! Ports of sandboxes under host names and by signed URLs: who is admitted, and what a hostile
//! client and a hostile program can do to each other and to the server.

use isolet_kit::{Http, Options, Reply, Rows, SOON, Sandbox, Server, Value, json, wait_until};
use std::io::Read as _;
use std::time::Duration;

const DOMAIN: &str = "ports.example";

fn server() -> Server {
    Options::new().config(&format!("ports_domain = \"{DOMAIN}\"\n")).start()
}

/// Creates a sandbox with a program on port 8000.
fn guest(server: &Server, id: &str) -> Sandbox {
    let sandbox = server.sandbox_with(&json!({ "id": id }));
    sandbox.listen(8000);
    sandbox
}

/// A client of a port's own host name, without a key.
fn at(server: &Server, name: &str) -> Http {
    let host = format!("{name}.{DOMAIN}:{}", server.port());
    Http::new(server.port(), None).with("host", &host)
}

fn port_url(sandbox: &Sandbox, spec: &Value) -> Value {
    sandbox.post("/links", spec).expect(201).json()
}

fn token(sandbox: &Sandbox) -> String {
    let made = port_url(sandbox, &json!({"port": 8000}));
    made["token"].as_str().expect("a token").to_owned()
}

fn headers(reply: &Reply) -> String {
    reply.json()["headers"].to_string()
}

/// Promises: O9.
#[test]
fn a_port_has_its_own_host_name_that_a_signed_url_opens() {
    let server = server();
    let sandbox = guest(&server, "demo");
    let made = port_url(&sandbox, &json!({"port": 8000, "name": "web"}));
    let token = made["token"].as_str().expect("a token");
    let own = server.http().with("host", &format!("127.0.0.1:{}", server.port()));
    let url = format!("http://8000-demo.{DOMAIN}:{}/?isolet-token={token}", server.port());
    assert_eq!((&made["url"], &made["name"]), (&json!(url), &json!("web")));
    let listed = own.get(&sandbox.path("/links")).expect(200).json();
    assert_eq!((&listed[0]["port"], listed.to_string().contains(token)), (&json!(8000), false));
    let host = at(&server, "8000-demo");
    assert_eq!(host.get("/echo").expect(401).error(), "bad_link");
    // A browser is admitted and gets a cookie for this host alone.
    let page = host.with("accept", "text/html,*/*");
    let settled = page.get(&format!("//echo/x?a=b&isolet-token={token}&c")).expect(303);
    assert_eq!(settled.header("location"), Some("/.//echo/x?a=b&c"));
    let cookie = settled.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.contains("HttpOnly") && !cookie.to_lowercase().contains("domain"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a pair");
    let inside = host.with("cookie", &format!("mine=1; {cookie}; other=2"));
    let said = inside.with("authorization", "Bearer of-the-guest").get("/echo?q").expect(200);
    let heard = headers(&said);
    assert!(!heard.contains(token), "{heard}");
    for wanted in ["mine=1; other=2", "Bearer of-the-guest", "localhost:8000", "8000-demo.ports"] {
        assert!(heard.contains(wanted), "{wanted}: {heard}");
    }
    // A program needs no cookie.
    let said = host.get(&format!("/echo?isolet-token={token}&x=1")).expect(200);
    assert_eq!(said.json()["path"], "/echo?x=1");
    assert!(said.header("content-security-policy").is_none(), "its origin is its own");
    assert!(said.header("x-content-type-options").is_none());
    // A key opens the port too, and is not passed on.
    let keyed = Http::new(server.port(), Some(server.key()));
    let keyed = keyed.with("host", &format!("8000-demo.{DOMAIN}"));
    let heard = headers(&keyed.get("/v1/sandboxes").expect(200));
    assert!(!heard.contains(server.key()) && !heard.contains("authorization"), "{heard}");
    let log = server.log();
    assert!(!log.contains(token), "no token is written down");
}

/// Port 49983 stands for the data plane of E2B, whose access token was a link to that port: a client
/// with a link ran programs as root.
///
/// Promises: O10.
#[test]
fn t16_a_link_to_the_port_of_a_data_plane_opens_a_program_and_nothing_of_the_server() {
    let server = server();
    let sandbox = guest(&server, "demo");
    sandbox.listen(49983);
    let link = |spec: Value| {
        let made = port_url(&sandbox, &spec);
        made["token"].as_str().expect("a token").to_owned()
    };
    let signed = link(json!({"port": 49983}));
    let chosen = link(json!({"port": 49983, "token": "chosen-token_0123456789"}));
    let keyless = Http::new(server.port(), None);
    let mut rows = Rows::new();
    for token in [&signed, &chosen] {
        for header in ["x-access-token", "e2b-traffic-access-token"] {
            let with = |http: Http| http.with(header, token);
            let planes = [
                ("headers", with(keyless.with("e2b-sandbox-id", "demo"))),
                ("a host name", with(at(&server, "49983-demo"))),
                ("the interpreter", with(at(&server, "49999-demo"))),
            ];
            for (what, plane) in planes {
                rows.row(what, || {
                    let stat = json!({"path": "/"});
                    let stat = plane.post("/filesystem.Filesystem/Stat", &stat);
                    assert_eq!(stat.status, 401, "{header}: {}", stat.text());
                    let file = plane.get("/files?path=/etc/passwd");
                    assert_eq!(file.status, 401, "{header}: {}", file.text());
                });
            }
        }
        rows.row("the program", || {
            let host = at(&server, "49983-demo");
            let said = host.get(&format!("/echo?isolet-token={token}&x=1")).expect(200);
            assert_eq!(said.json()["path"], "/echo?x=1");
            let said = host.with("cookie", &format!("isolet-port={token}")).get("/files");
            assert_eq!(said.expect(200).json()["path"], "/files");
            let below = keyless.get(&format!("/v1/links/{token}/echo")).expect(200);
            assert_eq!(below.json()["path"], "/echo");
        });
    }
    drop(rows);
    // The access token opens the data plane, and is no link.
    let connected = json!({"timeout": 60});
    let made = server.http().post("/sandboxes/demo/connect", &connected).json();
    let token = made["envdAccessToken"].as_str().unwrap_or_else(|| panic!("{made}"));
    let plane = at(&server, "49983-demo").with("x-access-token", token);
    assert_eq!(plane.get("/health").status, 204);
    assert_eq!(keyless.get(&format!("/v1/links/{token}/echo")).status, 401);
    let host = at(&server, "49983-demo");
    assert_eq!(host.get(&format!("/echo?isolet-token={token}")).status, 401);
}

/// Promises: O9.
#[test]
fn t16_a_port_is_written_in_one_way() {
    let server = server();
    let sandbox = guest(&server, "demo");
    let token = token(&sandbox);
    let connected = json!({"timeout": 60});
    let made = server.http().post("/sandboxes/demo/connect", &connected).json();
    let access = made["envdAccessToken"].as_str().unwrap_or_else(|| panic!("{made}"));
    let status = |name: &str| {
        let host = at(&server, name).with("x-access-token", access);
        let keyed = Http { key: Some(server.key().to_owned()), ..host.clone() };
        let linked = host.get(&format!("/health?isolet-token={token}")).status;
        [host.get("/health").status, keyed.get("/health").status, linked]
    };
    assert_eq!(status("49983-demo")[..2], [204, 204]);
    for name in [
        "+49983-demo",
        "049983-demo",
        "49983-demo--tother",
        "49983-demo--t",
        "49983--demo",
        "+8000-demo",
        "08000-demo",
        "65536-demo",
        "8000-demo--t0",
        "8000-",
        "demo",
    ] {
        assert_eq!(status(name), [404; 3], "{name}");
    }
    // Names of another tenant, if there is one. Without its key or link nobody learns whether there is.
    for name in ["49983-demo--t0123456789abcdef", "8000-demo--t0123456789abcdef"] {
        assert_eq!(status(name), [401, 404, 401], "{name}");
    }
    let by_header = Http::new(server.port(), None).with("e2b-sandbox-id", "demo");
    let by_header = by_header.with("x-access-token", access);
    for port in ["+49983", "049983"] {
        let reply = by_header.with("e2b-sandbox-port", port).get("/health");
        assert_eq!(reply.status, 400, "{port}");
    }
}

/// Promises: O9.
#[test]
fn t16_the_redirect_of_a_token_leads_to_no_other_host() {
    let server = server();
    let sandbox = guest(&server, "demo");
    let token = token(&sandbox);
    let page = at(&server, "8000-demo").with("accept", "text/html");
    for path in ["/\\evil.example", "/\\/evil.example"] {
        let reply = page.get(&format!("{path}?isolet-token={token}"));
        assert_eq!((reply.status, reply.header("location")), (400, None), "{path}");
    }
    let kept = page.get(&format!("/a\\b?isolet-token={token}")).expect(303);
    assert_eq!(kept.header("location"), Some("/a\\b"));
}

/// Keys and tokens of E2B's and SWE-ReX's clients reached the programs behind ports.
///
/// Promises: O3.
#[test]
fn t4_no_credential_of_the_server_reaches_a_program() {
    let server = server();
    let sandbox = guest(&server, "demo");
    let token = token(&sandbox);
    let names = ["x-api-key", "x-access-token", "e2b-traffic-access-token"];
    let sent = |http: Http| names.iter().fold(http, |http, name| http.with(name, "hush"));
    let heard = |reply: Reply| headers(&reply.expect(200));
    let with_key = Http::new(server.port(), Some(server.key()));
    let by_host = with_key.with("host", &format!("8000-demo.{DOMAIN}"));
    let mut rows = Rows::new();
    for (what, heard) in [
        ("a path", heard(sent(server.http()).get(&sandbox.path("/ports/8000/echo")))),
        ("a host with a key", heard(sent(by_host).get("/echo"))),
        (
            "a link's path",
            heard(sent(Http::new(server.port(), None)).get(&format!("/v1/links/{token}/echo"))),
        ),
    ] {
        rows.row(what, || {
            for name in names {
                assert!(!heard.contains(name) && !heard.contains("hush"), "{name}: {heard}");
            }
        });
    }
    // As `Authorization`, headers of these names belong to the program where a link opens its own host.
    let opened = sent(at(&server, "8000-demo")).get(&format!("/echo?isolet-token={token}"));
    let heard = heard(opened);
    for name in ["x-api-key", "x-access-token"] {
        assert!(heard.contains(name), "{name}: {heard}");
    }
    assert!(!heard.contains("e2b-traffic"), "{heard}");
}

/// Promises: O9.
#[test]
fn t9_a_program_sets_cookies_only_for_its_own_host_name() {
    let server = server();
    let sandbox = guest(&server, "demo");
    let own = format!("isolet-token={}", token(&sandbox));
    let asked = "/headers?set-cookie=a%3Db%3B%20Domain%3Dports.example%3B%20Path%3D%2F\
        &set-cookie=isolet-port%3Dx&set-cookie=c%3Dd&strict-transport-security=max-age%3D9&";
    let reply = at(&server, "8000-demo").get(&format!("{asked}{own}")).expect(200);
    let cookies: Vec<&str> = reply
        .headers
        .iter()
        .filter(|(name, _)| name == "set-cookie")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(cookies, ["a=b; Path=/", "c=d"]);
}

/// Promises: O10.
#[test]
fn t2_t16_a_port_url_opens_only_the_port_that_it_names() {
    let mut server = server();
    let other = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&other));
    let mine = guest(&server, "demo");
    mine.listen(8001);
    other.post("/v1/sandboxes", &json!({"id": "demo"})).expect(201);
    let theirs = Sandbox { id: "demo".into(), http: other.clone() };
    theirs.listen(8000);
    let right = token(&mine);
    // A port URL may expire while its answer is being sent, which is then cut off.
    let open = |name: &str, token: &str| {
        let path = format!("/echo?isolet-token={token}");
        at(&server, name).try_send("GET", &path, None).map_or(0, |reply| reply.status)
    };
    assert_eq!(open("8000-demo", &right), 200);
    let url = port_url(&theirs, &json!({"port": 8000}));
    let name = url["url"].as_str().expect("a URL").strip_prefix("http://").expect("a host");
    let name = name.split('.').next().expect("its first part").to_owned();
    assert_ne!(name, "8000-demo", "two tenants share no origin");
    let stranger = url["token"].as_str().expect("a token");
    assert_eq!(open(&name, stranger), 200);
    let mut rows = Rows::new();
    for (what, name, token) in [
        ("another port", "8001-demo", right.as_str()),
        ("another sandbox", "8000-dem", &right),
        ("another tenant's", name.as_str(), &right),
        ("theirs on ours", "8000-demo", stranger),
        ("nothing", "8000-demo", ""),
        ("cut", "8000-demo", &right[..right.len() - 1]),
        ("long", "8000-demo", &right.repeat(9)),
    ] {
        rows.row(what, || assert_eq!(open(name, token), 401));
    }
    let letter = |letter| if letter == b'A' { 'B' } else { 'A' };
    for at in (0..right.len()).step_by(7) {
        let mut bent = right.clone();
        bent.replace_range(at..=at, &letter(right.as_bytes()[at]).to_string());
        assert_eq!(open("8000-demo", &bent), 401, "letter {at}");
    }
    rows.row("keys", || {
        let keyed = |name: &str| {
            let key = other.key.as_deref();
            let host = format!("{name}.{DOMAIN}:{}", server.port());
            Http::new(server.port(), key).with("host", &host).get("/echo").status
        };
        assert_eq!((keyed(&name), keyed("8000-demo"), keyed("8000-never")), (200, 404, 404));
    });
    // The ways in which a port URL ends.
    let short = port_url(&mine, &json!({"port": 8000, "ttl_s": 1}));
    let short = short["token"].as_str().expect("a token");
    wait_until("it ends", SOON, || (open("8000-demo", short) == 401).then_some(()));
    assert_eq!(open("8000-demo", &right), 200);
    mine.http.delete(&mine.path("/links/8000")).expect(204);
    assert_eq!(open("8000-demo", &right), 401, "withdrawn");
    assert_eq!(mine.http.delete(&mine.path("/links/8000")).expect(404).error(), "no_link");
    let again = token(&mine);
    assert_eq!((open("8000-demo", &again), open("8000-demo", &right)), (200, 401));
    server.restart();
    assert_eq!(open_at(&server, &again), 200, "a restart ends none");
    mine.delete();
    let recreated = guest(&server, "demo");
    recreated.post("/links", &json!({"port": 8000})).expect(201);
    assert_eq!(open_at(&server, &again), 401, "of another incarnation");
    for bad in [
        json!({}),
        json!({"port": 0}),
        json!({"port": 65536}),
        json!({"port": "80"}),
        json!({"port": 80, "ttl_s": 0}),
        json!({"port": 80, "ttl_s": 2_592_001}),
        json!({"port": 80, "name": "x".repeat(129)}),
        json!({"port": 80, "nope": 1}),
    ] {
        assert_eq!(recreated.post("/links", &bad).status, 400, "{bad}");
    }
}

fn open_at(server: &Server, token: &str) -> u16 {
    at(server, "8000-demo").get(&format!("/echo?isolet-token={token}")).status
}

/// Promises: O9.
#[test]
fn t5_t6_a_cookie_is_valid_only_on_its_own_pages() {
    let server = server();
    let sandbox = guest(&server, "demo");
    let host = format!("8000-demo.{DOMAIN}:{}", server.port());
    let inside =
        at(&server, "8000-demo").with("cookie", &format!("isolet-port={}", token(&sandbox)));
    let status = |pairs: &[(&str, &str)], method: &str| {
        let http = pairs.iter().fold(inside.clone(), |http, (name, value)| http.with(name, value));
        http.send(method, "/echo", None).status
    };
    let own = format!("http://{host}");
    assert_eq!(status(&[("origin", &own)], "POST"), 200);
    assert_eq!(status(&[("sec-fetch-site", "same-origin")], "GET"), 200);
    assert_eq!(
        status(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], "GET"),
        200
    );
    for origin in
        ["null", "http://evil.example", "http://8000-other.ports.example", "http://localhost:8000"]
    {
        assert_eq!(status(&[("origin", origin)], "GET"), 403, "{origin}");
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(status(&[("sec-fetch-site", site)], "GET"), 403, "{site}");
        let form = [("sec-fetch-site", site), ("sec-fetch-mode", "navigate")];
        assert_eq!(status(&form, "POST"), 403, "{site}");
    }
    // A page of a port may not call the server's API.
    let api = server.http().with("origin", &own);
    assert_eq!(api.get("/v1/sandboxes").status, 403);
    for host in [format!("a.8000-demo.{DOMAIN}"), format!("8000-demo.{DOMAIN}.evil"), DOMAIN.into()]
    {
        assert_eq!(server.http().with("host", &host).get("/echo").status, 421, "{host}");
    }
}

/// Promises: O10.
#[test]
fn a_port_url_without_a_domain_leads_below_a_path() {
    let server = Server::start();
    let sandbox = guest(&server, "demo");
    let made = port_url(&sandbox, &json!({"port": 8000}));
    let base = format!("http://127.0.0.1:{}", server.port());
    let path = made["url"].as_str().expect("a URL").strip_prefix(&base).expect("ours").to_owned();
    let token = made["token"].as_str().expect("a token");
    assert_eq!(path, format!("/v1/links/{token}/"));
    let keyless = Http::new(server.port(), None).with("origin", "null").with("cookie", "a=b");
    let said =
        keyless.send("POST", &format!("{path}echo?isolet-token=x&y"), Some(b"abc")).expect(200);
    assert_eq!(
        (&said.json()["path"], &said.json()["bytes"]),
        (&json!("/echo?isolet-token=x&y"), &json!(3))
    );
    let heard = headers(&said);
    assert!(!heard.contains(token) && !heard.contains("cookie"), "{heard}");
    assert_eq!(said.header("access-control-allow-origin"), Some("*"));
    assert!(said.header("content-security-policy").is_some_and(|it| it.starts_with("sandbox ")));
    assert_eq!(said.header("referrer-policy"), Some("no-referrer"));
    let moved = keyless.get(&format!("{path}redirect?to=/next")).expect(302);
    assert_eq!(moved.header("location"), Some(format!("{path}next").as_str()));
    for wrong in ["/v1/links/", "/v1/links/x/", "/v1/links"] {
        assert!(matches!(keyless.get(wrong).status, 401 | 404 | 403), "{wrong}");
    }
    let evil = keyless.with("host", "evil.example");
    assert_eq!(evil.get(&path).status, 421);
    assert!(!server.log().contains(token));
}

/// Promises: O10.
#[test]
fn t13_port_connections_end_with_their_key() {
    let mut server = server();
    let key = server.add_key(&["--tenant", "default"]);
    let http = Http::new(server.port(), Some(&key));
    let sandbox = guest(&server, "demo");
    let own = Sandbox { id: "demo".into(), http: http.clone() };
    let token = token(&own);
    let mut streams = vec![
        http.try_open("GET", &sandbox.path("/ports/8000/endless"), None).expect("an answer"),
        at(&server, "8000-demo")
            .try_open("GET", &format!("/endless?isolet-token={token}"), None)
            .expect("an answer"),
    ];
    for stream in &mut streams {
        stream.body.read_exact(&mut [0; 5]).expect("bytes");
    }
    let list = server.command(&["keys", "ls"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let id = list.lines().rev().find_map(|line| line.split_whitespace().next()).expect("a key");
    assert!(server.command(&["keys", "revoke", id]).status.success());
    for stream in &mut streams {
        let begun = std::time::Instant::now();
        let mut rest = Vec::new();
        let _ = stream.body.read_to_end(&mut rest);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    assert_eq!(open_at(&server, &token), 401, "its port URLs end with it");
}

/// Promises: O11.
#[test]
fn i10_a_malformed_answer_of_a_program_is_one_clear_502() {
    let server = Server::start();
    let mut rows = Rows::new();
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(1000));
    let bad: [(&str, &[u8]); 14] = [
        ("nothing", b""),
        ("another protocol", b"SSH-2.0-OpenSSH_9\r\n"),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-le"),
        ("noise", &[0xff; 300]),
        ("two lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"),
        (
            "length and chunks",
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("a length below zero", b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
        ("a folded line", b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n"),
        ("a name with a space", b"HTTP/1.1 200 OK\r\nx y: a\r\n\r\n"),
        ("NUL", b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n"),
        ("an endless header", long.as_bytes()),
        ("endless headers", many.as_bytes()),
        ("a switch unasked", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n"),
        ("no version", b"HTTP/9.9 200 OK\r\n\r\n"),
    ];
    let sandbox = server.sandbox();
    for (port, (what, answer)) in (9000..).zip(bad) {
        rows.row(what, || {
            sandbox.answers(port, answer);
            for method in ["GET", "POST"] {
                let path = sandbox.path(&format!("/ports/{port}/"));
                let reply = server.http().send(method, &path, None).expect(502);
                assert!(["bad_answer", "port_closed"].contains(&reply.error().as_str()));
                assert!(reply.json()["message"].to_string().contains(&port.to_string()));
            }
        });
    }
    drop(rows);
    // A second answer after the first belongs to no request.
    sandbox.answers(
        9100,
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    );
    for _ in 0..10 {
        assert_eq!(server.http().get(&sandbox.path("/ports/9100/")).expect(200).text(), "ok");
    }
    // The client can detect that a body was cut off.
    sandbox.answers(9101, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
    assert!(server.http().try_send("GET", &sandbox.path("/ports/9101/"), None).is_err());
    server.healthy();
}

/// Promises: O11.
#[test]
fn i10_an_ambiguous_request_never_reaches_a_program_as_two() {
    let server = Server::start();
    let sandbox = guest(&server, "demo");
    let path = sandbox.path("/ports/8000/count");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\n",
        server.port(),
        server.key()
    );
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    let length = smuggled.len();
    let mut rows = Rows::new();
    for (what, rest) in [
        ("two lengths", format!("content-length: 0\r\ncontent-length: {length}\r\n\r\n{smuggled}")),
        (
            "length and chunks",
            format!(
                "content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
            ),
        ),
        (
            "chunked twice",
            format!("transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        ),
        ("identity", format!("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}")),
        ("bare line feeds", format!("content-length: 0\n\n{smuggled}")),
        ("a folded length", format!("content-length:\r\n {length}\r\n\r\n{smuggled}")),
        (
            "a length in Connection",
            format!("connection: content-length\r\ncontent-length: {length}\r\n\r\n{smuggled}"),
        ),
        (
            "a host in Connection",
            format!("connection: host, close\r\ncontent-length: {length}\r\n\r\n{smuggled}"),
        ),
        (
            "an upgrade with a body",
            format!(
                "connection: upgrade\r\nupgrade: websocket\r\ncontent-length: {length}\r\n\r\n{smuggled}"
            ),
        ),
        ("a negative chunk", format!("transfer-encoding: chunked\r\n\r\n-1\r\n{smuggled}")),
    ] {
        rows.row(what, || {
            let answer =
                server.http().raw(format!("{head}{rest}").as_bytes(), Duration::from_millis(300));
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(!answer.contains("/smuggled\""), "{answer}");
        });
    }
    drop(rows);
    // The target of a request does not lead elsewhere either.
    for target in [
        "http://169.254.169.254/".to_owned(),
        format!("http://x@127.0.0.1:{}/", server.port()),
        "//169.254.169.254/".into(),
    ] {
        let line = format!(
            "GET {target} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\n\r\n",
            server.port(),
            server.key()
        );
        let answer = server.http().raw_status(line.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 4"), "{target}: {answer}");
    }
    for name in ["localhost", "[::1]", "0.0.0.0", "2130706433", "127.0.0.1:80", "80@evil"] {
        let status = server.http().get(&sandbox.path(&format!("/ports/{name}/"))).status;
        assert_eq!(status, 400, "{name}");
    }
    server.healthy();
}
