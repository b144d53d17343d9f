//! Every technique of `net_probes.py` to reach the network, tried by root in a sandbox whose rules
//! allow one name and one address. The probes run first behind a plain masquerade, which shows that
//! they work. The simulated internet counts what arrives, whatever the probes report.
#![allow(missing_docs)]

use isolet_kit::internet::{Internet, Masquerade, SIX, THIRD};
use isolet_kit::net::{self, HOST, METADATA, OTHER, PRIVATE, PUBLIC};
use isolet_kit::{Options, Sandbox, Server, Value, json, veth};
use std::collections::BTreeSet;
use std::fs::File;

const PROBES: &str = include_str!("../net_probes.py");
/// A second public address of the host, and the address of a bridge on it.
const HOSTS: [&str; 2] = ["198.51.100.77", "172.17.0.1"];

fn internet() -> Internet {
    let home = |at: &str| json!([at]);
    Internet::new(&json!({
        "web.example": [PUBLIC.to_string(), SIX], "side.example": home(&PUBLIC.to_string()),
        "other.example": home(&OTHER.to_string()), "dns.example": home(&OTHER.to_string()),
        "*.tunnel.example": home(&OTHER.to_string()), "*.web.example": home(&OTHER.to_string()),
        "private.rebind.example": home("10.9.9.9"), "cloud.rebind.example": home("169.254.169.254"),
        "host.rebind.example": home(&HOST.to_string()), "gateway.rebind.example": home("10.231.0.1"),
        "loop.rebind.example": home("127.0.0.1"), "mapped.rebind.example": home("0.0.0.0"),
        "turns.rebind.example": [[PUBLIC.to_string()], ["10.9.9.9"], ["169.254.169.254"]],
    }))
}

/// The addresses that the probes need, as seen from a sandbox or from behind a plain masquerade.
fn about(server: &Server, own: &str, gateway: &str, neighbour: &str) -> Value {
    // Behind a plain masquerade the probes query the internet's resolver directly.
    let resolver = if gateway == "10.231.0.1" { gateway.to_owned() } else { PUBLIC.to_string() };
    let broadcast = format!("{}.255", gateway.rsplit_once('.').expect("dots").0);
    json!({
        "public": PUBLIC.to_string(), "other": OTHER.to_string(), "third": THIRD.to_string(),
        "private": PRIVATE.to_string(), "metadata": METADATA.to_string(), "six": SIX,
        "host": [HOST.to_string(), HOSTS[0], HOSTS[1]], "api": server.port(),
        "own": own, "resolver": resolver, "gateway": gateway, "neighbour": neighbour, "broadcast": broadcast,
        "turned": {"private.rebind.example": PRIVATE.to_string(), "cloud.rebind.example": METADATA.to_string(),
            "host.rebind.example": HOST.to_string(), "gateway.rebind.example": gateway,
            "loop.rebind.example": "127.0.0.1", "mapped.rebind.example": "0.0.0.0"},
    })
}

/// Answers over TCP and UDP and prints the client's address.
const LISTENS: &str = r#"
import socket, threading
tcp = [socket.create_server(("0.0.0.0", port)) for port in PORTS]
udp = socket.socket(type=socket.SOCK_DGRAM)
udp.bind(("0.0.0.0", 7000))
def take(server):
    while True:
        it, who = server.accept()
        print("heard", who, flush=True)
        it.close()
for server in tcp: threading.Thread(target=take, args=[server]).start()
print("ready", flush=True)
while True:
    data, who = udp.recvfrom(9999)
    print("heard", who, flush=True)
    udp.sendto(data, who)
"#;

fn listens(ports: &str) -> String {
    LISTENS.replace("PORTS", ports)
}

/// The number of probes, and the names of those that got out.
fn out(said: &str) -> (usize, Vec<String>) {
    let answer: Value = serde_json::from_str(said).unwrap_or_else(|_| panic!("they said {said:?}"));
    let all = answer["probes"].as_object().expect("outcomes");
    let out = all.iter().filter(|(_, it)| it.as_str().is_none_or(|text| text.starts_with("out")));
    (all.len(), out.map(|(name, outcome)| format!("{name}: {outcome}")).collect())
}

fn tried(sandbox: &Sandbox, about: &Value) -> String {
    let load = json!({"argv": ["tee", "/tmp/probes.py"], "stdin": PROBES});
    assert_eq!(sandbox.post("/exec", &load).expect(200).json()["exit_code"], 0);
    let argv = json!({"argv": ["/usr/bin/python3", "/tmp/probes.py", about.to_string()]});
    let answer = sandbox.post("/exec", &argv).expect(200).json();
    assert_eq!(answer["exit_code"], 0, "{answer}");
    answer["stdout"].as_str().expect("text").to_owned()
}

/// A sandbox with a network and a listening program, and the sandbox's address.
fn listening(server: &Server, network: &Value) -> (Sandbox, String) {
    let sandbox = server.sandbox_with(&json!({"network": network}));
    let start = json!({"id": "listens", "argv": ["/usr/bin/python3", "-c", listens("(80, 7000)")]});
    sandbox.post("/processes", &start).expect(201);
    isolet_kit::wait_until("it listens", isolet_kit::SOON, || {
        heard(&sandbox).contains("ready").then_some(())
    });
    let ask = "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\n\
               s.connect(('192.0.2.1', 9))\nprint(s.getsockname()[0])";
    let address = sandbox.says(&format!("/usr/bin/python3 -c \"{ask}\""));
    (sandbox, address.trim().to_owned())
}

fn heard(sandbox: &Sandbox) -> String {
    sandbox.http.get(&sandbox.path("/processes/listens/logs")).text()
}

/// Promises: Q32.
#[test]
fn e32_root_inside_reaches_only_what_the_rules_allow() {
    let internet = internet();
    // These hosts accept data in the first packet of a TCP connection, also from clients without a
    // cookie.
    internet.world.there("sysctl -q -w net.ipv4.tcp_fastopen=1539");
    for address in HOSTS {
        net::ip(&format!("addr add {address}/32 dev wan"));
    }
    // This host, and everything in between, would obey a source route.
    net::run("sysctl", "-q -w net.ipv4.conf.all.accept_source_route=1");
    let own = File::open("/proc/thread-self/ns/net").expect("its own");
    let mut host = net::background(&own, &listens("[7000]"));
    assert_eq!(host.line(), "ready");
    let server = Options::new().config(&internet.config()).on_all_addresses().start();
    let rules = json!({"allow": ["web.example", "*.rebind.example", format!("{THIRD}:8000")]});
    let (sandbox, address) = listening(&server, &rules);
    let (other, others) = listening(&server, &json!("open"));
    let gateway = veth::gateway_netns(veth::manager(&server.data())).expect("it is there");
    net::inside(&gateway, "sysctl", "-q -w net.ipv4.conf.all.accept_source_route=1");

    let said = tried(&sandbox, &about(&server, &address, "10.231.0.1", &others));
    let (count, successes) = out(&said);
    println!("in a sandbox {} of {count} get out", successes.len());
    let arrived = internet.arrived();
    let answer = internet.log();
    // The same probes where no rules apply.
    let plain = Masquerade::new();
    let about_plain = about(&server, "10.77.0.2", "10.77.0.1", "10.77.0.1");
    let output = plain.python(PROBES, &[&about_plain.to_string()]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let (tried_there, there) = out(&format!("{}{errors}", String::from_utf8_lossy(&output.stdout)));
    println!("behind a plain masquerade {} of {tried_there} get out", there.len());

    assert!(successes.is_empty(), "{} of {count} get out: {successes:#?}", successes.len());
    assert!(count > 200 && there.len() > 150, "{count}; {}: {there:#?}", there.len());
    assert!(internet.arrived().len() > arrived.len() + 20, "{arrived:?}");
    let allowed: BTreeSet<String> = [
        format!("{PUBLIC} udp 53"),
        format!("{PUBLIC} tcp 80"),
        format!("{PUBLIC} tcp 443"),
        format!("{THIRD} tcp 8000"),
    ]
    .into();
    assert_eq!(arrived, allowed);
    let held: Value = serde_json::from_str::<Value>(&said).expect("JSON")["held"].clone();
    assert_eq!(held["the page of the name"], format!("web.example {PUBLIC} plain\n"), "{held}");
    assert_eq!(held["the allowed address"], format!("{HOST} {THIRD}\n"), "{held}");
    // Data in the first packet of a connection does not change where it may go.
    for method in ["with a cookie", "without a cookie", "by connecting"] {
        let page = &held[format!("the page, fast open {method}")];
        assert_eq!(*page, format!("web.example {PUBLIC} plain\n"), "{method}: {held}");
        let address = &held[format!("the address, fast open {method}")];
        assert_eq!(*address, format!("{HOST} {THIRD}\n"), "{method}: {held}");
    }
    // Nothing in between can read what is inside TLS: the outer name decides where the connection
    // goes.
    assert_eq!(
        held["another name within"],
        format!("side.example {PUBLIC} web.example\n"),
        "{held}"
    );
    only_allowed(&answer);

    // The opposite direction, and what a neighbour received.
    let mut back = about(&server, &others, "10.231.0.1", &address);
    back["only"] = json!("a neighbour");
    let (count, successes) = out(&tried(&other, &back));
    assert!(count >= 3 && successes.is_empty(), "{successes:?}");
    for (one, who) in [(&sandbox, &others), (&other, &address)] {
        assert!(!heard(one).contains(who), "{who}: {}", heard(one));
    }
    server.healthy();
}

/// Checks that the internet's servers received only allowed requests: pages by name, and DNS
/// queries.
fn only_allowed(log: &[String]) {
    for line in log {
        let words: Vec<&str> = line.split(' ').collect();
        let fine = match words[0] {
            "web" => {
                let within = words[3] == "web.example" && words[4] == "side.example";
                words[4] == "web.example" || words[4].ends_with(".rebind.example") || within
            }
            "asked" => {
                let name = words[2].to_lowercase();
                name == "web.example" || name.ends_with(".rebind.example")
            }
            "tcp" => words[1] == THIRD.to_string(),
            "tls" | "up" => true,
            _ => false,
        };
        assert!(fine, "{line}");
    }
}
