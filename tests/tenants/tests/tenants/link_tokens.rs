//! Links with tokens that their callers chose: whose they are, and where they appear.

use isolet_kit::{Http, Options, Rows, SOON, Sandbox, Server, Value, json, wait_until};
use std::time::{Duration, Instant};

/// How long wrong guesses count, from the first one on.
const WINDOW: Duration = Duration::from_secs(10);

const TOKEN: &str = "chosen-by_Caller-1";

/// Creates the sandbox `demo` with a program on port 8000.
fn guest(http: Http) -> Sandbox {
    http.post("/v1/sandboxes", &json!({"id": "demo"})).expect(201);
    let sandbox = Sandbox { id: "demo".into(), http };
    sandbox.listen(8000);
    sandbox
}

fn link(sandbox: &Sandbox, spec: &Value) -> Value {
    sandbox.post("/links", spec).expect(201).json()
}

fn chosen(token: &str) -> Value {
    json!({"port": 8000, "token": token})
}

/// What a client without a key gets below the path of a link.
fn opened(server: &Server, token: &str) -> u16 {
    // The answer may be cut off when the link ends.
    let path = format!("/v1/links/{token}/echo");
    server.client(None).try_send("GET", &path, None).map_or(0, |reply| reply.status)
}

/// Promises: O14.
#[test]
fn a_chosen_token_keeps_its_url_until_the_link_ends() {
    let mut server = Server::start();
    let sandbox = guest(server.http());
    let made = link(&sandbox, &chosen(TOKEN));
    let token = made["token"].as_str().expect("a token").to_owned();
    assert_eq!(token, format!("~default~demo~8000~{TOKEN}"));
    assert!(made["url"].as_str().is_some_and(|url| url.ends_with(&format!("/v1/links/{token}/"))));
    assert_eq!(opened(&server, &token), 200);
    let mut rows = Rows::new();
    rows.row("the same request renews it", || {
        let again = link(&sandbox, &json!({"port": 8000, "token": TOKEN, "ttl_s": 7200}));
        assert_eq!(again["url"], made["url"]);
        assert!(again["expires_at"].as_str() > made["expires_at"].as_str(), "{again}");
    });
    rows.row("only the exact token of the port opens it", || {
        for wrong in [
            "~default~demo~8000~chosen-by_Caller-2",
            "~default~demo~8000~chosen-by_caller-1",
            "~default~demo~8001~chosen-by_Caller-1",
            "~default~dem~8000~chosen-by_Caller-1",
            "~other~demo~8000~chosen-by_Caller-1",
            "~default~demo~8000~chosen-by_Caller-1~",
            "~default~demo~8000~",
            TOKEN,
            "~",
        ] {
            assert_eq!(opened(&server, wrong), 401, "{wrong}");
        }
    });
    rows.row("what is no token is refused without a repetition of it", || {
        for bad in [
            "",
            "fifteen-letters",
            &"x".repeat(65),
            "sixteen~letters~",
            "with a space in it",
            "größer-als-sechzehn",
        ] {
            let refused = sandbox.post("/links", &chosen(bad)).expect(400);
            assert!(refused.text().contains("token"), "{}", refused.text());
            assert!(bad.is_empty() || !refused.text().contains(bad), "{}", refused.text());
        }
        for bad in [json!(7), json!(null), json!([TOKEN])] {
            sandbox.post("/links", &json!({"port": 8000, "token": bad})).expect(400);
        }
    });
    rows.row("a restart ends none", || {
        server.restart();
        assert_eq!(opened(&server, &token), 200);
    });
    rows.row("lists, records and logs do not contain it", || {
        let listed = sandbox.http.get(&sandbox.path("/links")).expect(200).text();
        assert!(listed.contains("8000") && !listed.contains(TOKEN), "{listed}");
        assert!(!sandbox.info().to_string().contains(TOKEN));
        assert!(!server.log().contains(TOKEN));
        for name in ["isolet.db", "isolet.db-wal"] {
            let bytes = std::fs::read(server.data().join(name)).unwrap_or_default();
            let found = bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
            assert!(!found, "{name} contains the token");
        }
    });
    rows.row("it expires", || {
        let short =
            link(&sandbox, &json!({"port": 8000, "token": "expires-at-once-1", "ttl_s": 1}));
        let short = short["token"].as_str().expect("a token").to_owned();
        wait_until("it ends", SOON, || (opened(&server, &short) == 401).then_some(()));
    });
    rows.row("a withdrawal ends it, and a new link needs its own request", || {
        sandbox.http.delete(&sandbox.path("/links/8000")).expect(204);
        assert_eq!(opened(&server, &token), 401);
        link(&sandbox, &json!({"port": 8000}));
        assert_eq!(opened(&server, &token), 401);
        assert_eq!(link(&sandbox, &chosen(TOKEN))["url"], made["url"]);
        assert_eq!(opened(&server, &token), 200);
    });
    rows.row("another sandbox of the same id does not accept it", || {
        sandbox.delete();
        let again = guest(server.http());
        link(&again, &json!({"port": 8000}));
        assert_eq!(opened(&server, &token), 401);
    });
    drop(rows);
    server.healthy();
}

/// Promises: O14.
#[test]
fn a_chosen_token_belongs_to_one_key_and_tenants_share_nothing() {
    let mut server = Server::start();
    let second = server.add_key(&["--label", "second"]);
    let second = server.client(Some(&second));
    let other = server.add_key(&["--tenant", "other"]);
    let mine = guest(server.http());
    let theirs = guest(server.client(Some(&other)));
    let colleague = Sandbox { id: "demo".into(), http: second };
    let by_second = link(&colleague, &chosen(TOKEN));
    let token = by_second["token"].as_str().expect("a token").to_owned();
    let mut rows = Rows::new();
    rows.row("another key of the tenant is refused, and the link stays its own", || {
        let refused = mine.post("/links", &chosen(TOKEN)).expect(409);
        assert_eq!(refused.error(), "link_token_in_use");
        assert!(!refused.text().contains(TOKEN), "{}", refused.text());
        assert_eq!(opened(&server, &token), 200);
        link(&mine, &json!({"port": 8001, "token": TOKEN}));
    });
    rows.row("another tenant uses the same token for its own sandbox", || {
        let made = link(&theirs, &chosen(TOKEN));
        let theirs_token = made["token"].as_str().expect("a token");
        assert_eq!(theirs_token, format!("~other~demo~8000~{TOKEN}"));
        assert_eq!((opened(&server, theirs_token), opened(&server, &token)), (200, 200));
        theirs.http.delete(&theirs.path("/links/8000")).expect(204);
        assert_eq!((opened(&server, theirs_token), opened(&server, &token)), (401, 200));
    });
    rows.row("it ends with its key, and is free then", || {
        let list = server.command(&["keys", "ls"]);
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let line = list.lines().find(|line| line.contains("second")).expect("the key");
        let id = line.split_whitespace().next().expect("an id");
        assert!(server.command(&["keys", "revoke", id]).status.success());
        wait_until("it ends", SOON, || (opened(&server, &token) == 401).then_some(()));
        link(&mine, &chosen(TOKEN));
        assert_eq!(opened(&server, &token), 200);
    });
}

/// Promises: O14.
#[test]
fn a_chosen_token_opens_the_host_name_of_its_port() {
    let server = Options::new().config("ports_domain = \"ports.example\"\n").start();
    let sandbox = guest(server.http());
    let made = link(&sandbox, &chosen(TOKEN));
    let port = server.port();
    let expected =
        format!("http://8000-demo.ports.example:{port}/?isolet-token=~default~demo~8000~{TOKEN}");
    assert_eq!(made["url"], expected);
    let host = format!("8000-demo.ports.example:{port}");
    let page = Http::new(port, None).with("host", &host);
    let token = made["token"].as_str().expect("a token");
    let said = page.get(&format!("/echo?isolet-token={token}&x=1")).expect(200);
    assert_eq!(said.json()["path"], "/echo?x=1");
    let settled =
        page.with("accept", "text/html").get(&format!("/echo?isolet-token={token}")).expect(303);
    let cookie = settled
        .header("set-cookie")
        .expect("a cookie")
        .split(';')
        .next()
        .expect("a pair")
        .to_owned();
    let inside = page.with("cookie", &cookie).get("/echo").expect(200);
    assert!(!inside.text().contains(TOKEN), "the program never receives it");
    let elsewhere = Http::new(port, None).with("host", &format!("8001-demo.ports.example:{port}"));
    elsewhere.get(&format!("/echo?isolet-token={token}")).expect(401);
}

/// The right token is answered at an address that has guessed too often, because other clients may have
/// the same address.
/// Promises: O14, T30.
#[test]
fn t20_an_address_that_guesses_tokens_is_refused_and_the_right_token_is_not() {
    let server = Server::start();
    let sandbox = guest(server.http());
    let token = link(&sandbox, &chosen(TOKEN))["token"].as_str().expect("a token").to_owned();
    assert_eq!(opened(&server, &token), 200);
    let guess = |n: usize| opened(&server, &format!("~default~demo~8000~guess-{n:012}"));
    let begun = Instant::now();
    let mut refused = (0..150).find(|n| guess(*n) == 429);
    if refused.is_none() && begun.elapsed() >= WINDOW {
        // This machine was too slow. The next guess begins a new count.
        std::thread::sleep(WINDOW);
        refused = (0..150).find(|n| guess(*n) == 429);
    }
    assert!(refused.is_some_and(|n| (50..=100).contains(&n)), "{refused:?}");
    assert_eq!(opened(&server, &token), 200);
    let signed = link(&sandbox, &json!({"port": 8000}))["token"].as_str().expect("one").to_owned();
    assert_eq!(opened(&server, &signed), 200);
}
