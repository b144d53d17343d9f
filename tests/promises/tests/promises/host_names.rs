//! Rules with host names in sandboxes of a running server: real clients reach the hosts that a rule
//! names, get reports of refusals, and reach a refused host after one call.

use isolet_kit::internet::{Internet, THIRD, zone};
use isolet_kit::net::{OTHER, PUBLIC};
use isolet_kit::{Options, Sandbox, Server, Value, json};

fn internet() -> Internet {
    Internet::new(&zone(&[
        ("web.example", PUBLIC),
        ("side.example", PUBLIC),
        ("wild.example", PUBLIC),
        ("a.wild.example", PUBLIC),
        ("b.a.wild.example", PUBLIC),
        ("other.example", OTHER),
        ("port.example", OTHER),
        ("shell.example", OTHER),
        ("alone.example", THIRD),
    ]))
}

/// The path of the internet authority's certificate in a sandbox.
const AUTHORITY: &str = "/etc/ssl/internet.pem";

/// A server whose sandboxes use the internet's resolver.
pub(crate) fn server(internet: &Internet) -> Server {
    Options::new().config(&internet.config()).start()
}

/// A sandbox with this network and the fields of `more`, which trusts the internet's authority.
pub(crate) fn trusting(
    internet: &Internet,
    server: &Server,
    network: Value,
    more: Value,
) -> Sandbox {
    let readers = [
        "CURL_CA_BUNDLE",
        "SSL_CERT_FILE",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "NODE_EXTRA_CA_CERTS",
        "NPM_CONFIG_CAFILE",
    ];
    let env: Value = readers.into_iter().map(|name| (name.to_owned(), json!(AUTHORITY))).collect();
    let mut spec = json!({"network": network, "env": env});
    let fields = spec.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    let sandbox = server.sandbox_with(&spec);
    let text = internet.authority();
    let write = format!("mkdir -p /etc/ssl && cat >{AUTHORITY} <<'END'\n{text}END");
    assert_eq!(sandbox.exec(&write)["exit_code"], 0);
    sandbox
}

/// Runs a command that must succeed and returns its output.
#[track_caller]
pub(crate) fn goes(sandbox: &Sandbox, command: &str) -> String {
    let answer = sandbox.exec(command);
    assert_eq!(answer["exit_code"], 0, "{command}: {answer}");
    assert!(answer["denied"].is_null(), "{command}: {answer}");
    answer["stdout"].as_str().expect("text").to_owned()
}

/// Runs a command that must fail; returns the hosts and ports that `default` refused.
#[track_caller]
pub(crate) fn denied(sandbox: &Sandbox, command: &str) -> Value {
    let answer = sandbox.exec(command);
    assert_ne!(answer["exit_code"], 0, "{command}: {answer}");
    assert!(answer["denied"].is_array(), "{command}: {answer}");
    answer["denied"].clone()
}

#[track_caller]
fn assert_refused(denied: &Value, host: &str, port: Value, protocol: &str, rule: &str) {
    let mut list = denied.as_array().unwrap_or_else(|| panic!("{denied}")).clone();
    list.iter_mut().for_each(|one| drop(one.as_object_mut().expect("one").remove("times")));
    let entry = json!({"host": host, "port": port, "protocol": protocol, "rule": rule});
    assert_eq!(list, [entry], "{denied}");
}

const CURL: &str = "curl -sS --max-time 60";

/// Promises: Q30.
#[test]
fn rules_with_host_names_confine_real_clients_and_one_call_allows_what_was_refused() {
    let internet = internet();
    let server = server(&internet);
    let rules = json!({"allow": ["web.example", "*.wild.example", "port.example:443", "shell.example:22", "alone.example"]});
    let sandbox = trusting(&internet, &server, rules, json!({}));
    let curl = |rest: &str| format!("{CURL} {rest}");
    let page = |host: &str, at, sni: &str| format!("{host} {at} {sni}\n");
    for (url, said) in [
        ("http://web.example/", page("web.example", PUBLIC, "plain")),
        ("https://web.example/", page("web.example", PUBLIC, "web.example")),
        ("https://web.example:8443/", page("web.example", PUBLIC, "web.example")),
        ("https://a.wild.example/", page("a.wild.example", PUBLIC, "a.wild.example")),
        ("http://b.a.wild.example/", page("b.a.wild.example", PUBLIC, "plain")),
        ("https://port.example/", page("port.example", OTHER, "port.example")),
    ] {
        assert_eq!(goes(&sandbox, &curl(url)), said, "{url}");
    }
    let banner = "timeout 60 cat </dev/tcp/shell.example/22";
    assert!(goes(&sandbox, banner).ends_with(&format!(" {OTHER}\n")));

    // Another name: its lookup; another name on an allowed address; another port; a name that the
    // wildcard does not cover; a protocol without a name, where no rule has its port.
    let other = denied(&sandbox, &curl("https://other.example/"));
    assert_refused(&other, "other.example", Value::Null, "dns", "default");
    let beside = curl(&format!("--connect-to ::{PUBLIC}: https://side.example/"));
    assert_refused(&denied(&sandbox, &beside), "side.example", json!(443), "tcp", "default");
    let beside = curl(&format!("-f --connect-to ::{PUBLIC}: http://side.example/"));
    let side = denied(&sandbox, &beside);
    assert_refused(&side, "side.example", json!(80), "tcp", "default");
    let port = denied(&sandbox, &curl("-f http://port.example/"));
    assert_refused(&port, "port.example", json!(80), "tcp", "default");
    let bare = denied(&sandbox, &curl("https://wild.example/"));
    assert_refused(&bare, "wild.example", Value::Null, "dns", "default");
    let banner = "exec 3<>/dev/tcp/alone.example/25 && echo hello >&3 && cat <&3 | grep .";
    let refused = denied(&sandbox, banner);
    assert_refused(&refused, "alone.example", json!(25), "tcp", "protocol");

    let all: Vec<Value> = [&other, &side, &port, &bare]
        .iter()
        .flat_map(|it| it.as_array().expect("a list").clone())
        .collect();
    sandbox.http.patch(&sandbox.path("/network"), &json!({"allow_add": all})).expect(200);
    assert_eq!(
        goes(&sandbox, &curl("https://other.example/")),
        page("other.example", OTHER, "other.example")
    );
    assert_eq!(
        goes(&sandbox, &curl("http://side.example/")),
        page("side.example", PUBLIC, "plain")
    );
    assert_eq!(
        goes(&sandbox, &curl("-f http://port.example/")),
        page("port.example", OTHER, "plain")
    );
    assert_eq!(
        goes(&sandbox, &curl("https://wild.example/")),
        page("wild.example", PUBLIC, "wild.example")
    );
    // Exactly what was reported is allowed now.
    assert_refused(
        &denied(&sandbox, &curl("https://side.example/")),
        "side.example",
        json!(443),
        "tcp",
        "default",
    );

    // A plain HTTP request to an address is reported with that address, which can then be allowed.
    let bare = curl(&format!("-f http://{PUBLIC}/"));
    let refused = denied(&sandbox, &bare);
    assert_refused(&refused, &PUBLIC.to_string(), json!(80), "tcp", "default");
    sandbox.http.patch(&sandbox.path("/network"), &json!({"allow_add": refused})).expect(200);
    goes(&sandbox, &bare);
    // A protocol other than TLS on a port where one address serves many names: no name allows that.
    let hello = "exec 3<>/dev/tcp/alone.example/443 && echo hello >&3 && cat <&3 | grep .";
    let refused = denied(&sandbox, hello);
    assert_refused(&refused, "alone.example", json!(443), "tcp", "no name");
    let change = json!({"allow_add": refused});
    let said = sandbox.http.patch(&sandbox.path("/network"), &change).expect(400).text();
    assert!(said.contains("only a rule with the address itself"), "{said}");

    // What was not allowed was not even looked up.
    let log = internet.log();
    let asked = log
        .iter()
        .position(|line| line.contains("other.example"))
        .expect("the refusal was allowed");
    let before = log[..asked].iter().filter(|line| line.starts_with("web"));
    assert_eq!(before.count(), 6, "{log:#?}");
    server.healthy();
}

/// Promises: Q30.
#[test]
fn a_deny_rule_precedes_a_wildcard_and_a_name_for_a_closed_address_is_refused() {
    let mut zone = zone(&[
        ("web.example", PUBLIC),
        ("bad.example", PUBLIC),
        ("home.example", [10, 9, 9, 9].into()),
        ("cloud.example", [169, 254, 169, 254].into()),
    ]);
    zone["mixed.example"] = json!(["10.9.9.9", PUBLIC.to_string()]);
    let internet = Internet::new(&zone);
    let server = server(&internet);
    let rules = json!({"allow": ["*.example", "*:22"], "deny": ["bad.example", "203.0.113.0/24"]});
    let sandbox = trusting(&internet, &server, rules, json!({}));
    let curl = |url: &str| format!("{CURL} -f {url}");
    assert_eq!(
        goes(&sandbox, &curl("https://web.example/")),
        format!("web.example {PUBLIC} web.example\n")
    );
    assert_refused(
        &denied(&sandbox, &curl("https://bad.example/")),
        "bad.example",
        Value::Null,
        "dns",
        "bad.example",
    );
    let straight = format!("--connect-to ::{PUBLIC}: https://bad.example/");
    assert_refused(
        &denied(&sandbox, &curl(&straight)),
        "bad.example",
        json!(443),
        "tcp",
        "bad.example",
    );
    assert_refused(
        &denied(&sandbox, &curl("https://home.example/")),
        "home.example",
        Value::Null,
        "dns",
        "private",
    );
    assert_refused(
        &denied(&sandbox, &curl("https://cloud.example/")),
        "cloud.example",
        Value::Null,
        "dns",
        "link-local",
    );
    // Of two addresses, the one that is not closed counts.
    assert_eq!(
        goes(&sandbox, &curl("http://mixed.example/")),
        format!("mixed.example {PUBLIC} plain\n")
    );
    let ssh = format!("exec 3<>/dev/tcp/{OTHER}/22 && echo hello >&3 && cat <&3 | grep .");
    assert_refused(&denied(&sandbox, &ssh), &OTHER.to_string(), json!(22), "tcp", "203.0.113.0/24");
    let arrived = internet.arrived();
    assert!(arrived.iter().all(|it| it.starts_with(&format!("{PUBLIC} "))), "{arrived:?}");
    assert!(arrived.len() >= 3, "{arrived:?}");
}
