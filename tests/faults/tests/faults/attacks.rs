//! Requests whose text is small and whose cost was large. Each test measures how much more memory the
//! server held at any moment than before: the limit is at most half of what the attack once cost, and
//! more than twice of what an honest request of that size costs.

use isolet_kit::attacks::{
    ENDLESS_HEAD, Form, MANY_DISPLAYED, MemoryPeak, forged_display, many_values, mcp_message,
    sandbox_body,
};
use isolet_kit::{Http, Server, json, one};
use std::io::Read as _;

/// The peak of a server's memory from a moment on.
struct Peak(MemoryPeak);

impl Peak {
    fn from_now(server: &Server) -> Self {
        Self(MemoryPeak::from_now(server.pid().unsigned_abs()).expect("root may"))
    }

    #[track_caller]
    fn grew_less_than(&self, mib: u64) {
        let grown = self.0.grown_mib().expect("it runs");
        assert!(grown < mib, "the server took {grown} MiB more, and should take less than {mib}");
    }
}

/// A message of 15 MiB by a key that may only read cost 2.9 GB.
///
/// Promises: T26.
#[test]
fn t21_a_message_with_many_values_costs_little_more_than_its_bytes() {
    let mut server = Server::start();
    let reads = Http::new(server.port(), Some(&server.add_key(&["--read-only"])));
    let writes = server.http();
    let text = mcp_message(&many_values(15 << 20));
    let peak = Peak::from_now(&server);
    for http in [&reads, &writes] {
        let http = http.with("accept", "application/json, text/event-stream");
        // The server may close the connection before it has read all, which the client may see first.
        if let Ok(reply) = http.try_send("POST", "/mcp", Some(text.as_bytes())) {
            assert!(matches!(reply.status, 400 | 413), "{} {}", reply.status, reply.text());
        }
    }
    peak.grew_less_than(160);
    server.healthy();
}

/// Eight bodies of 2 MiB cost 437 to 611 MiB.
///
/// Promises: T26.
#[test]
fn t21_bodies_with_many_values_cost_little_more_than_their_bytes() {
    let server = Server::start();
    let http = server.http();
    let text = sandbox_body(&many_values((2 << 20) - 100));
    let peak = Peak::from_now(&server);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let reply = http.send("POST", "/v1/sandboxes", Some(text.as_bytes())).expect(400);
                assert!(reply.text().contains("too many values"), "{}", reply.text());
            });
        }
    });
    peak.grew_less_than(200);
    server.healthy();
}

/// Code in a sandbox pretends to be the driver of its interpreter. A displayed value of 31 MiB cost
/// 3.0 GB.
///
/// Promises: T26.
#[test]
fn t21_a_forged_displayed_value_costs_little_more_than_its_bytes() {
    let (server, sandbox) = one();
    let own = json!({"id": "c", "language": "python", "kernel": "none"});
    sandbox.post("/contexts", &own).expect(201);
    let run =
        |code: &str| sandbox.post("/contexts/c/run", &json!({"code": code})).expect(200).json();
    assert_eq!(run("1 + 1")["results"][0]["data"]["text/plain"], "2");
    let peak = Peak::from_now(&server);
    let answer = run(&forged_display(MANY_DISPLAYED));
    let shown = answer["results"].as_array().expect("a list").len();
    let lost = answer["results_lost"].as_u64().expect("a number");
    assert_eq!((shown as u64 + lost, &answer["exception"]), (1, &json!(null)), "{lost} lost");
    // The bytes are in memory as they came, as a value and in the answer, in buffers that double.
    peak.grew_less_than(500);
    server.healthy();
}

/// A preamble or head that never ends held 190 MiB and 24 s of processor time for one connection.
///
/// Promises: T28.
#[test]
fn t21_a_form_without_end_costs_little_memory() {
    let (server, sandbox) = one();
    let peak = Peak::from_now(&server);
    for start in ["", ENDLESS_HEAD] {
        let mut stream = sandbox.http.connect();
        let form = Form {
            sandbox: &sandbox.id,
            key: sandbox.http.key.as_deref().unwrap_or_default(),
            start,
            // As much as the server once held. After its answer it discards what still arrives, for a while.
            mib: 192,
            end: "",
            length: 1 << 40,
        };
        form.send(&mut stream).expect("it is sent");
        // What was sent after that may have reset the connection.
        let mut answer = [0; 12];
        if stream.read_exact(&mut answer).is_ok() {
            assert_eq!(&answer, b"HTTP/1.1 400");
        }
    }
    peak.grew_less_than(80);
    server.healthy();
}
