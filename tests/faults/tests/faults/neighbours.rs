//! F6 and F8, for the neighbours of the affected sandbox: connections through the egress proxy
//! continue when another sandbox's agent is killed, and end when the proxy is killed, until the
//! next call.

use isolet_kit::internet::{Internet, THIRD, zone};
use isolet_kit::net::{OTHER, PUBLIC};
use isolet_kit::{Options, SOON, Sandbox, Server, json, process, veth, wait_until};

/// Connects once to each of the given addresses, sends requests on each connection repeatedly, and
/// prints how many answers each has got; a connection that ended prints -1 and is not reopened.
const CLIENT: &str = r#"
import http.client, ssl, sys, time
free = ssl._create_unverified_context()
made = []
for at in sys.argv[1:]:
    scheme, _, place = at.partition("://")
    it = (http.client.HTTPSConnection(place, timeout=20, context=free) if scheme == "https"
          else http.client.HTTPConnection(place, timeout=20))
    it.connect()
    it.auto_open = 0
    made.append(it)
counts = [0] * len(made)
while True:
    for number, it in enumerate(made):
        if counts[number] < 0: continue
        try:
            it.request("GET", "/")
            it.getresponse().read()
            counts[number] += 1
        except (OSError, http.client.HTTPException):
            counts[number] = -1
    print(*counts, "", flush=True)
    time.sleep(0.02)
"#;

/// Destinations through the proxy: TLS that it passes through, and HTTP that it parses.
const BY_NAME: [&str; 2] = ["https://web.example", "http://web.example"];

fn internet() -> Internet {
    Internet::new(&zone(&[("web.example", PUBLIC), ("other.example", OTHER)]))
}

/// A sandbox with a shell variable, a file, and a client that gets answers from these addresses.
fn busy(server: &Server, allow: &str, at: &[&str]) -> Sandbox {
    let sandbox = server.sandbox_with(&json!({"network": {"allow": [allow]}}));
    sandbox.command("main", "x=kept; echo kept >/workspace/f");
    let argv = [&["/usr/bin/python3", "-c", CLIENT][..], at].concat();
    sandbox.post("/processes", &json!({"id": "client", "argv": argv})).expect(201);
    wait_until("it is answered", SOON, || {
        let now = counts(&sandbox);
        (now.len() == at.len() && now.iter().all(|count| *count > 0)).then_some(())
    });
    sandbox
}

/// The number of answers that its client has got on each connection.
fn counts(sandbox: &Sandbox) -> Vec<i64> {
    let logs = sandbox.http.get(&sandbox.path("/processes/client/logs")).expect(200).json();
    let text = logs["stdout"].as_str().unwrap_or_default();
    // Without the last, incomplete line.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let last = whole.lines().next_back().unwrap_or_default();
    last.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// Checks that each connection gets more answers than before.
fn go_on(sandbox: &Sandbox) {
    let before = counts(sandbox);
    wait_until("its connections continue", SOON, || {
        let now = counts(sandbox);
        assert!(now.iter().all(|count| *count >= 0), "one has ended: {now:?}");
        now.iter().zip(&before).all(|(now, before)| *now > before + 3).then_some(())
    });
}

/// Checks that the shell, files and process are unchanged.
fn is_unhurt(sandbox: &Sandbox) {
    assert_eq!(sandbox.info()["state"], "running");
    assert_eq!(sandbox.command("main", "echo $x; cat /workspace/f")["stdout"], "kept\nkept\n");
    let client = sandbox.http.get(&sandbox.path("/processes/client")).json();
    assert_eq!(client["status"], "running", "{client}");
}

/// The agent of a sandbox, which shares the sandbox's network; agents of the warm pool are skipped.
fn agent(server: &Server, sandbox: &Sandbox) -> i32 {
    let network = sandbox.says("readlink /proc/self/ns/net");
    let shares = |pid: &i32| {
        let at = std::fs::read_link(format!("/proc/{pid}/ns/net"));
        at.is_ok_and(|at| at.to_string_lossy() == network.trim())
    };
    server.agents().into_iter().find(shares).expect("the sandbox has an agent")
}

/// Promises: F8.
#[test]
fn f8_a_killed_agent_affects_no_other_sandbox_or_connection() {
    let internet = internet();
    let server = Options::new().config(&internet.config()).start();
    let mut all: Vec<_> = (0..2).map(|_| busy(&server, "web.example", &BY_NAME)).collect();
    all.push(busy(&server, &format!("{THIRD}:8080"), &[&format!("http://{THIRD}:8080")]));
    let proxy = veth::egress_proxy(veth::manager(&server.data())).expect("it runs");
    let failed = all.remove(0);
    process::kill(agent(&server, &failed));
    wait_until("it has failed", SOON, || (failed.info()["state"] == "failed").then_some(()));
    for other in &all {
        is_unhurt(other);
        go_on(other);
    }
    // Also when the failed sandbox is deleted, which removes its veth pair.
    failed.delete();
    for other in &all {
        is_unhurt(other);
        go_on(other);
    }
    assert_eq!(
        veth::egress_proxy(veth::manager(&server.data())),
        Some(proxy),
        "the same proxy still runs"
    );
    server.healthy();
}

/// Promises: F6.
#[test]
fn f6_a_killed_egress_proxy_ends_only_its_connections_and_the_next_call_works() {
    let internet = internet();
    let server = Options::new().config(&internet.config()).start();
    let sandbox = busy(&server, "web.example", &BY_NAME);
    let by_address = busy(&server, &format!("{THIRD}:8080"), &[&format!("http://{THIRD}:8080")]);
    process::kill(veth::egress_proxy(veth::manager(&server.data())).expect("it runs"));
    wait_until("the connections that it carried have ended", SOON, || {
        counts(&sandbox).iter().all(|count| *count < 0).then_some(())
    });
    // Traffic that only the packet filter handles does not involve the proxy.
    go_on(&by_address);
    is_unhurt(&by_address);
    assert_eq!(sandbox.command("main", "echo $x; cat /workspace/f")["stdout"], "kept\nkept\n");
    wait_until("the next call works", SOON, || {
        let answer = sandbox.exec("curl -sS -m 5 http://web.example/");
        (answer["exit_code"] == 0).then_some(())
    });
    // The rules are the same as before.
    for request in [format!("-H 'Host: other.example' {PUBLIC}"), format!("{OTHER}:8080")] {
        let answer = sandbox.exec(&format!("curl -sS -m 5 {request}"));
        let said = answer["stdout"].as_str().expect("text");
        assert!(said.contains("this sandbox may not connect to"), "{request}: {answer}");
    }
    let arrived = internet.arrived();
    assert!(!arrived.iter().any(|it| it.contains(&OTHER.to_string())), "{arrived:?}");
    server.healthy();
}
