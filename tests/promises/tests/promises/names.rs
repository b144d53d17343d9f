//! Rules with names, in sandboxes of a running server: real clients go where a name may go, are
//! told what was refused, and go there after one call.

use isolet_kit::net::{OTHER, PUBLIC};
use isolet_kit::town::{THIRD, Town, zone};
use isolet_kit::{Options, Sandbox, Server, Value, json};

fn town() -> Town {
    Town::new(&zone(&[
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

/// Where the certificate of the town's authority lies in a sandbox.
const AUTHORITY: &str = "/etc/ssl/town.pem";

/// A server whose sandboxes ask the town's resolver.
pub(crate) fn server(town: &Town) -> Server {
    Options::new().config(&town.config()).start()
}

/// A sandbox with this network, made as `more` says, which trusts the town's authority.
pub(crate) fn trusting(town: &Town, server: &Server, network: Value, more: Value) -> Sandbox {
    let readers = [
        "CURL_CA_BUNDLE",
        "SSL_CERT_FILE",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "NODE_EXTRA_CA_CERTS",
        "NPM_CONFIG_CAFILE",
    ];
    let env: Value = readers.into_iter().map(|name| (name.to_owned(), json!(AUTHORITY))).collect();
    let mut wish = json!({"network": network, "env": env});
    let fields = wish.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    let sandbox = server.sandbox_with(&wish);
    let text = town.authority();
    let write = format!("mkdir -p /etc/ssl && cat >{AUTHORITY} <<'END'\n{text}END");
    assert_eq!(sandbox.exec(&write)["exit_code"], 0);
    sandbox
}

/// A command that ends well; what it said.
#[track_caller]
pub(crate) fn goes(sandbox: &Sandbox, command: &str) -> String {
    let told = sandbox.exec(command);
    assert_eq!(told["exit_code"], 0, "{command}: {told}");
    assert!(told["denied"].is_null(), "{command}: {told}");
    told["stdout"].as_str().expect("text").to_owned()
}

/// A command that does not end well; the hosts and ports that it was refused by `default`.
#[track_caller]
pub(crate) fn denied(sandbox: &Sandbox, command: &str) -> Value {
    let told = sandbox.exec(command);
    assert_ne!(told["exit_code"], 0, "{command}: {told}");
    assert!(told["denied"].is_array(), "{command}: {told}");
    told["denied"].clone()
}

#[track_caller]
fn told(denied: &Value, host: &str, port: Value, protocol: &str, rule: &str) {
    let mut list = denied.as_array().unwrap_or_else(|| panic!("{denied}")).clone();
    list.iter_mut().for_each(|one| drop(one.as_object_mut().expect("one").remove("times")));
    let entry = json!({"host": host, "port": port, "protocol": protocol, "rule": rule});
    assert_eq!(list, [entry], "{denied}");
}

const CURL: &str = "curl -sS --max-time 10";

#[test]
fn names_lead_real_clients_where_rules_let_them_and_one_call_opens_what_was_refused() {
    let town = town();
    let server = server(&town);
    let rules = json!({"allow": ["web.example", "*.wild.example", "port.example:443", "shell.example:22", "alone.example"]});
    let sandbox = trusting(&town, &server, rules, json!({}));
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
    let banner = "timeout 5 cat </dev/tcp/shell.example/22";
    assert!(goes(&sandbox, banner).ends_with(&format!(" {OTHER}\n")));

    // Another name: its lookup; another name on an address that is allowed; another port; a name
    // that a wildcard is not for; a protocol that says no name, where no rule has its port.
    let other = denied(&sandbox, &curl("https://other.example/"));
    told(&other, "other.example", Value::Null, "dns", "default");
    let beside = curl(&format!("--connect-to ::{PUBLIC}: https://side.example/"));
    told(&denied(&sandbox, &beside), "side.example", json!(443), "tcp", "default");
    let beside = curl(&format!("-f --connect-to ::{PUBLIC}: http://side.example/"));
    let side = denied(&sandbox, &beside);
    told(&side, "side.example", json!(80), "tcp", "default");
    let port = denied(&sandbox, &curl("-f http://port.example/"));
    told(&port, "port.example", json!(80), "tcp", "default");
    let bare = denied(&sandbox, &curl("https://wild.example/"));
    told(&bare, "wild.example", Value::Null, "dns", "default");
    let banner = "exec 3<>/dev/tcp/alone.example/25 && echo hello >&3 && cat <&3 | grep .";
    let refused = denied(&sandbox, banner);
    told(&refused, "alone.example", json!(25), "tcp", "protocol");

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
    // And no more than that.
    told(
        &denied(&sandbox, &curl("https://side.example/")),
        "side.example",
        json!(443),
        "tcp",
        "default",
    );

    // Plain HTTP that names an address is told by that, which opens it.
    let bare = curl(&format!("-f http://{PUBLIC}/"));
    let refused = denied(&sandbox, &bare);
    told(&refused, &PUBLIC.to_string(), json!(80), "tcp", "default");
    sandbox.http.patch(&sandbox.path("/network"), &json!({"allow_add": refused})).expect(200);
    goes(&sandbox, &bare);
    // Something else than TLS on a port where one address serves many names: no name opens that.
    let hello = "exec 3<>/dev/tcp/alone.example/443 && echo hello >&3 && cat <&3 | grep .";
    let refused = denied(&sandbox, hello);
    told(&refused, "alone.example", json!(443), "tcp", "no name");
    let change = json!({"allow_add": refused});
    let said = sandbox.http.patch(&sandbox.path("/network"), &change).expect(400).text();
    assert!(said.contains("only a rule with the address itself"), "{said}");

    // What was not allowed was not even asked for.
    let log = town.log();
    let asked = log.iter().position(|line| line.contains("other.example")).expect("it was opened");
    let before = log[..asked].iter().filter(|line| line.starts_with("web"));
    assert_eq!(before.count(), 6, "{log:#?}");
    server.healthy();
}

#[test]
fn a_rule_of_deny_goes_before_a_wildcard_and_a_name_that_leads_home_leads_nowhere() {
    let mut zone = zone(&[
        ("web.example", PUBLIC),
        ("bad.example", PUBLIC),
        ("home.example", [10, 9, 9, 9].into()),
        ("cloud.example", [169, 254, 169, 254].into()),
    ]);
    zone["mixed.example"] = json!(["10.9.9.9", PUBLIC.to_string()]);
    let town = Town::new(&zone);
    let server = server(&town);
    let rules = json!({"allow": ["*.example", "*:22"], "deny": ["bad.example", "203.0.113.0/24"]});
    let sandbox = trusting(&town, &server, rules, json!({}));
    let curl = |url: &str| format!("{CURL} -f {url}");
    assert_eq!(
        goes(&sandbox, &curl("https://web.example/")),
        format!("web.example {PUBLIC} web.example\n")
    );
    told(
        &denied(&sandbox, &curl("https://bad.example/")),
        "bad.example",
        Value::Null,
        "dns",
        "bad.example",
    );
    let straight = format!("--connect-to ::{PUBLIC}: https://bad.example/");
    told(&denied(&sandbox, &curl(&straight)), "bad.example", json!(443), "tcp", "bad.example");
    told(
        &denied(&sandbox, &curl("https://home.example/")),
        "home.example",
        Value::Null,
        "dns",
        "private",
    );
    told(
        &denied(&sandbox, &curl("https://cloud.example/")),
        "cloud.example",
        Value::Null,
        "dns",
        "link-local",
    );
    // Of two addresses the one that is not closed counts.
    assert_eq!(
        goes(&sandbox, &curl("http://mixed.example/")),
        format!("mixed.example {PUBLIC} plain\n")
    );
    let ssh = format!("exec 3<>/dev/tcp/{OTHER}/22 && echo hello >&3 && cat <&3 | grep .");
    told(&denied(&sandbox, &ssh), &OTHER.to_string(), json!(22), "tcp", "203.0.113.0/24");
    let arrived = town.arrived();
    assert!(arrived.iter().all(|it| it.starts_with(&format!("{PUBLIC} "))), "{arrived:?}");
    assert!(arrived.len() >= 3, "{arrived:?}");
}
