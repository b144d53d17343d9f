//! Pages in a browser, on a node that does not own the sandbox: forms of other sites, pages of programs,
//! and text of a tenant that a page could show.

use crate::cluster::{Cluster, PORTS_DOMAIN};
use isolet_kit::{Http, Reply, Sandbox, Shell, Terminal, json};

/// Promises: FW4, T5.
#[test]
fn t6_a_form_of_another_site_changes_nothing_on_the_owner() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.listen(8000);
    let made = sandbox.post("/links", &json!({"port": 8000})).expect(201).json();
    let token = made["token"].as_str().expect("a token").to_owned();
    let cookie = format!("isolet-port={token}");
    let command = json!({"command": "echo forged >/workspace/forged"}).to_string();
    let exec = sandbox.path("/exec");
    let before = cluster.node("b").received().len();
    // A browser sends a form with the cookies of its user, and without a key.
    let keyless = cluster.node("a").client(None).with("cookie", &cookie);
    let kinds = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];
    for kind in kinds.iter().chain(&["application/json"]) {
        let form = keyless.with("content-type", kind);
        assert_eq!(form.send("POST", &exec, Some(command.as_bytes())).status, 401, "{kind}");
        let crossing = form.with("sec-fetch-site", "cross-site").with("origin", "null");
        let refused = crossing.send("POST", &exec, Some(command.as_bytes()));
        assert!(matches!(refused.status, 401 | 403), "{kind}: {}", refused.status);
    }
    assert_eq!(cluster.node("b").received().len(), before, "none was forwarded");
    // With a key, the owner reads no body of another type than JSON either.
    for kind in kinds {
        let form = sandbox.http.with("content-type", kind);
        let refused = form.send("POST", &exec, Some(command.as_bytes()));
        assert!(matches!(refused.status, 400 | 415), "{kind}: {}", refused.text());
    }
    assert_eq!(sandbox.says("cat /workspace/forged 2>/dev/null; echo none"), "none\n");
    // The cookie of a port counts for the pages of its own host name alone.
    let host = format!("8000-box.{PORTS_DOMAIN}:{}", keyless.port);
    let page = keyless.with("host", &host);
    let own = format!("http://{host}");
    let post = |http: Http| http.send("POST", "/echo", None).status;
    assert_eq!(post(page.with("origin", &own)), 200);
    for origin in ["null", "http://evil.example", "http://8000-other.box.example"] {
        assert_eq!(post(page.with("origin", origin)), 403, "{origin}");
    }
    for site in ["cross-site", "same-site"] {
        let form = page.with("sec-fetch-site", site).with("sec-fetch-mode", "navigate");
        assert_eq!(post(form), 403, "{site}");
    }
}

/// Promises: FW4, O4, T5.
#[test]
fn t10_a_page_of_a_program_reads_nothing_of_a_node_that_forwards_it() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.listen(8000);
    let before = cluster.node("b").received().len();
    // Its page has the origin of its own host name.
    let origin = format!("http://8000-box.{PORTS_DOMAIN}:{}", sandbox.http.port);
    let page = sandbox.http.with("origin", &origin);
    for path in ["/v1/sandboxes", "/v1/nodes", &sandbox.path(""), &sandbox.path("/files/x")] {
        let refused = page.get(path);
        assert_eq!(refused.status, 403, "{path}");
        assert_eq!(refused.header("access-control-allow-origin"), None, "{path}");
    }
    assert_eq!(Shell::open(&page, &sandbox.path("/shell")).err(), Some(403));
    assert_eq!(Terminal::open(&page, &sandbox.path("/terminal")).err(), Some(403));
    assert_eq!(cluster.node("b").received().len(), before, "none was forwarded");
    // Below the origin of the node, the page has an opaque origin, whatever the program says.
    let made = sandbox.post("/links", &json!({"port": 8000})).expect(201).json();
    let link = format!("/v1/links/{}", made["token"].as_str().expect("a token"));
    let asked = "headers?content-type=text%2Fhtml&content-security-policy=sandbox%20allow-same-origin\
                 &access-control-allow-origin=http%3A%2F%2Fevil.example&access-control-allow-credentials=true";
    let keyless = cluster.node("a").client(None);
    let by_path = sandbox.http.get(&sandbox.path(&format!("/ports/8000/{asked}"))).expect(200);
    let by_link = keyless.get(&format!("{link}/{asked}")).expect(200);
    for shown in [&by_path, &by_link] {
        let policies = shown.headers.iter().filter(|(name, _)| name == "content-security-policy");
        let policies: Vec<&str> = policies.map(|(_, value)| value.as_str()).collect();
        let confines =
            |policy: &&str| policy.starts_with("sandbox ") && !policy.contains("same-origin");
        assert!(policies.iter().any(confines), "{policies:?}");
    }
    assert_eq!(by_link.header("access-control-allow-credentials"), None, "{:?}", by_link.headers);
    assert_eq!(by_link.header("access-control-allow-origin"), Some("*"), "{:?}", by_link.headers);
    // No other site frames what a node shows itself.
    for path in ["/", "/docs"] {
        let own = keyless.get(path);
        let policy = own.header("content-security-policy").unwrap_or_default();
        let is_page = own.header("content-type").is_some_and(|kind| kind.contains("html"));
        // Without the console, the root is no page.
        assert!(is_page || path == "/", "{path}: {:?}", own.headers);
        assert!(!is_page || policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
    }
}

/// Promises: FW1, FW4.
#[test]
fn t11_text_of_a_tenant_stays_text_behind_another_node() {
    const MARKUP: &str = "<img src=x onerror=alert(1)>";
    const ESCAPED: &str = "%3Cimg%20src=x%20onerror=alert(1)%3E";
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let change = json!({"metadata": {"name": MARKUP}, "env": {"A": MARKUP}});
    sandbox.http.patch(&sandbox.path(""), &change).expect(200);
    let file = sandbox.path(&format!("/files/{ESCAPED}.html"));
    let saved = sandbox.http.send("PUT", &file, Some(MARKUP.as_bytes()));
    assert!(saved.status < 300, "{}", saved.text());
    sandbox.command("dev", &format!("echo '{MARKUP}'; echo '{MARKUP}' >&2"));
    sandbox.post("/snapshots", &json!({"name": "page"})).expect(201);
    let paths = [
        sandbox.path(""),
        sandbox.path("/files"),
        file,
        sandbox.path(&format!("/files/{ESCAPED}.none")),
        sandbox.path(&format!("/sessions/{ESCAPED}")),
        sandbox.path(&format!("/ports/{ESCAPED}/")),
        sandbox.path("/sessions"),
        "/v1/sandboxes".to_owned(),
        "/v1/runs".to_owned(),
        format!("/v1/snapshots/{ESCAPED}"),
        "/v1/snapshots/page".to_owned(),
    ];
    let near = Sandbox { id: "box".into(), http: cluster.node("b").http() };
    let said = |reply: &Reply, name: &str| reply.header(name).map(str::to_owned);
    let mut shows_markup = 0;
    for path in paths {
        let far = sandbox.http.get(&path);
        let near = near.http.get(&path);
        assert_eq!(far.status, near.status, "{path}");
        for header in ["content-type", "content-disposition", "content-security-policy"] {
            assert_eq!(said(&far, header), said(&near, header), "{path}: {header}");
        }
        let kind = said(&far, "content-type").unwrap_or_default();
        assert!(!kind.contains("html") && !kind.contains("svg"), "{path}: {kind}");
        assert_eq!(far.header("x-content-type-options"), Some("nosniff"), "{path}");
        shows_markup += usize::from(far.text().contains("<img"));
    }
    assert!(shows_markup >= 3, "{shows_markup}");
}
