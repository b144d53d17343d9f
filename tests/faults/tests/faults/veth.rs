//! F30 for veth pairs and rules: whichever process is killed while a veth pair is created, changed
//! or removed, the rules hold at every moment, the next attempt succeeds, and nothing is left
//! behind.

use isolet_kit::internet::{Internet, THIRD, zone};
use isolet_kit::net::{self, OTHER, PUBLIC};
use isolet_kit::{
    LONG, Options, Rows, SOON, Sandbox, Server, Value, json, process, veth, wait_until,
};
use std::time::Duration;

/// Probes closed destinations continuously, by TCP, by UDP, by name and by DNS query, and an open
/// destination from time to time.
const PROBER: &str = r#"
import socket, time
def tcp(at, port, text=b""):
    with socket.socket() as it:
        it.settimeout(0.3)
        it.connect((at, port))
        if text: it.sendall(text)
        return it.recv(99)
def udp():
    with socket.socket(type=socket.SOCK_DGRAM) as it:
        it.settimeout(0.05)
        it.connect(("OTHER", 7000))
        it.send(b"x")
        return it.recv(99)
closed = [lambda: tcp("OTHER", 8000), udp, lambda: tcp("THIRD", 7000),
          lambda: b"200 OK" in tcp("PUBLIC", 80, b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")]
tries = got = reached = 0
begun = time.monotonic()
while True:
    for one in closed:
        tries += 1
        try: got += bool(one())
        except OSError: pass
    try: reached += bool(tcp("THIRD", 8000))
    except OSError: pass
    print(tries, got, reached, flush=True)
    time.sleep(0.005)
"#;

/// The number of veth pairs that the warm pool holds.
const WARM_VETH_MAX: usize = 6;

fn rules(named: bool) -> Value {
    let mut allow = vec![format!("{THIRD}:8000")];
    allow.extend(named.then(|| "web.example".to_owned()));
    json!({"allow": allow})
}

/// Three counts: probes, probes that got through, and probes of open destinations that did.
fn counts(sandbox: &Sandbox) -> [u64; 3] {
    let logs = sandbox.http.get(&sandbox.path("/processes/prober/logs")).expect(200).json();
    let text = logs["stdout"].as_str().unwrap_or_default();
    let last = text.lines().rev().find(|line| line.split(' ').count() == 3).unwrap_or("0 0 0");
    let mut numbers = last.split(' ').map(|word| word.parse().expect("a number"));
    std::array::from_fn(|_| numbers.next().expect("three"))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Server,
    Launcher,
    VethManager,
    EgressProxy,
}

impl Victim {
    /// The victim's pid, if it runs.
    fn pid(self, server: &Server) -> Option<i32> {
        match self {
            Self::Server => Some(server.pid()),
            // A killed launcher is started again on the next request for it.
            Self::Launcher => process::all().into_iter().find(|pid| {
                process::parent(*pid) == Some(server.pid())
                    && process::name(*pid).starts_with("isolet-launcher")
                    && process::alive(*pid)
            }),
            Self::VethManager => Some(veth::manager(&server.data())),
            Self::EgressProxy => veth::egress_proxy(veth::manager(&server.data())),
        }
    }
}

/// Checks that a sandbox reaches what its rules allow and nothing else.
#[track_caller]
fn holds(sandbox: &Sandbox) {
    // In a shell of its own, because connecting has a time limit, too.
    let open = format!("timeout 2 bash -c 'cat </dev/tcp/{THIRD}/8000'");
    wait_until("what is allowed is reached", SOON, || {
        let answer = sandbox.post("/exec", &json!({"command": open}));
        (answer.status == 200 && answer.json()["exit_code"] == 0).then_some(())
    });
    let answer = sandbox.exec(&format!("timeout 2 bash -c 'cat </dev/tcp/{OTHER}/8000'"));
    assert_ne!(answer["exit_code"], 0, "{answer}");
}

/// Runs `work` and kills the victim after `pause`; a killed server is started again.
fn killed<T: Send>(
    server: &mut Server,
    victim: Victim,
    pause: Duration,
    work: impl FnOnce() -> T + Send,
) -> T {
    let pid = victim.pid(server);
    let done = std::thread::scope(|scope| {
        let work = scope.spawn(work);
        std::thread::sleep(pause);
        if let Some(pid) = pid {
            process::kill(pid);
        }
        work.join().expect("it ends")
    });
    if victim == Victim::Server {
        server.restart();
    }
    done
}

/// Promises: Q8.
#[test]
fn long_f30_rules_hold_when_any_process_is_killed_while_veth_pairs_change() {
    let internet = Internet::new(&zone(&[("web.example", PUBLIC), ("other.example", OTHER)]));
    let mut server = Options::new().config(&internet.config()).start();
    let prober = server.sandbox_with(&json!({"network": rules(false)}));
    let at = [("OTHER", OTHER), ("THIRD", THIRD), ("PUBLIC", PUBLIC)];
    let program =
        at.iter().fold(PROBER.to_owned(), |text, (name, at)| text.replace(name, &at.to_string()));
    let start = json!({"id": "prober", "argv": ["/usr/bin/python3", "-c", program]});
    prober.post("/processes", &start).expect(201);
    wait_until("it probes", SOON, || (counts(&prober)[2] > 0).then_some(()));
    let mut named = false;
    let mut rows = Rows::new();
    for victim in [Victim::Server, Victim::Launcher, Victim::VethManager, Victim::EgressProxy] {
        for ms in [0, 9] {
            let pause = Duration::from_millis(ms);
            rows.row(&format!("{victim:?} after {ms} ms"), || {
                one_round(&mut server, &prober, victim, pause, &mut named);
            });
        }
    }
    drop(rows);
    let before = counts(&prober);
    // On a busy machine it has probed little so far.
    let [tries, got, reached] = wait_until("it goes on", LONG, || {
        let now = counts(&prober);
        (now[0] > 500 && now[2] > 50 && now[2] > before[2]).then_some(now)
    });
    println!("{tries} tries at what is closed, {got} got through; {reached} at what is open did");
    assert!(got == 0, "{tries} {got} {reached}");
    let arrived = internet.arrived();
    let closed = arrived.iter().any(|it| it.contains(&OTHER.to_string()) || it.ends_with(" 7000"));
    assert!(!closed, "{arrived:?}");
    prober.delete();
    server.healthy();
    let manager = veth::manager(&server.data());
    let mut seen = (0, 0, 0);
    let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_until(
            "only the warm pool has veth pairs, and the sets hold no other address",
            SOON,
            || {
                let (interfaces, addresses) = veth::counts(manager);
                seen = (interfaces, addresses, network_namespaces(manager));
                // Those of the warm pool, each with its address and its namespace.
                (seen.0 <= WARM_VETH_MAX && seen.1 == seen.0 && seen.2 <= seen.0 + 4).then_some(())
            },
        );
    }));
    assert!(left.is_ok(), "veth interfaces, set elements, namespaces: {seen:?}");
    let last = veth::egress_proxy(manager);
    drop(server);
    wait_until("the veth manager ends", SOON, || (!process::alive(manager)).then_some(()));
    wait_until("the egress proxy ends", SOON, || {
        last.is_none_or(|pid| !process::alive(pid)).then_some(())
    });
    wait_until("the uplink is gone", SOON, || net::links("isolet0").is_empty().then_some(()));
    assert!(!net::run("nft", "list ruleset").contains("isolet"));
}

/// Creates a sandbox with a veth pair, changes its rules and those of the prober, and deletes it;
/// the victim is killed during each step.
fn one_round(
    server: &mut Server,
    prober: &Sandbox,
    victim: Victim,
    pause: Duration,
    named: &mut bool,
) {
    let http = server.http();
    let spec = json!({"id": "one", "network": rules(true)});
    let text = spec.to_string();
    let _ = killed(server, victim, pause, || {
        http.try_send("POST", "/v1/sandboxes", Some(text.as_bytes()))
    });
    wait_until("the sandbox is complete", SOON, || {
        // A failed sandbox may still be deleted, and a lost create is repeated now.
        matches!(http.try_send("POST", "/v1/sandboxes", Some(text.as_bytes())), Ok(made) if made.status < 300)
            .then_some(())
            .or_else(|| (http.get("/v1/sandboxes/one").json()["state"] == "running").then_some(()))
    });
    let one = server.named("one");
    holds(&one);
    *named = !*named;
    let change = json!({"network": rules(*named)}).to_string();
    for sandbox in [&one, prober] {
        let path = sandbox.path("/network");
        let _ = killed(server, victim, pause, || {
            http.try_send("PATCH", &path, Some(change.as_bytes()))
        });
        wait_until("the network is changed", SOON, || {
            let done = http.try_send("PATCH", &path, Some(change.as_bytes()));
            done.is_ok_and(|reply| reply.status == 200).then_some(())
        });
        holds(sandbox);
    }
    let path = one.path("");
    let _ = killed(server, victim, pause, || http.try_send("DELETE", &path, None));
    wait_until("it is gone", SOON, || {
        let _ = http.try_send("DELETE", &path, None);
        (http.get(&path).status == 404).then_some(())
    });
    server.wait_until_tidy();
    let _ = veth::manager(&server.data());
}

/// The number of network namespaces that the veth manager holds open.
fn network_namespaces(manager: i32) -> usize {
    let all = std::fs::read_dir(format!("/proc/{manager}/fd")).into_iter().flatten().flatten();
    let each = all.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    each.filter(|at| at.to_string_lossy().starts_with("net:")).count()
}
