//! Requests whose text is small and whose cost was large. Each test measures how much more memory the
//! server held at any moment than before: the limit is at most half of what the attack once cost, and
//! more than twice of what an honest request of that size costs.

use isolet_kit::{Http, Server, json, one};
use std::fs;
use std::io::{Read, Write};

/// The peak of a server's memory from a moment on.
struct Peak {
    pid: i32,
    before_kib: u64,
}

impl Peak {
    fn from_now(server: &Server) -> Self {
        let pid = server.pid();
        // Resets the peak to what the server holds now.
        fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("root may");
        Self { pid, before_kib: Self::kib(pid, "VmRSS:") }
    }

    fn kib(pid: i32, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is there");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[track_caller]
    fn grew_less_than(&self, mib: u64) {
        let grown = Self::kib(self.pid, "VmHWM:").saturating_sub(self.before_kib) / 1024;
        assert!(grown < mib, "the server took {grown} MiB more, and should take less than {mib}");
    }
}

/// A list of as many values as fit into `bytes`.
fn many_values(bytes: usize) -> String {
    let one = r#"{"a":0},"#;
    format!("[{}0]", one.repeat(bytes / one.len()))
}

fn message(content: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"x":{content}}}}}"#)
}

/// A message of 15 MiB by a key that may only read cost 2.9 GB.
///
/// Promises: T26.
#[test]
fn t21_a_message_with_many_values_costs_little_more_than_its_bytes() {
    let mut server = Server::start();
    let reads = Http::new(server.port(), Some(&server.add_key(&["--read-only"])));
    let writes = server.http();
    let text = message(&many_values(15 << 20));
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
    let text = format!(r#"{{"metadata":{{"a":{}}}}}"#, many_values((2 << 20) - 100));
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
    const FORGE: &str = r#"
import os
many = b'[' + b'[],' * (10 << 20) + b'0]'
said = b'{"kind":"display","data":{"a/b":' + many + b'},"metadata":{}}'
left = memoryview(len(said).to_bytes(4, 'big') + b'\x02' + said)
while left:
    try:
        left = left[os.write(3, left):]
    except BlockingIOError:
        pass
"#;
    let (server, sandbox) = one();
    let own = json!({"id": "c", "language": "python", "kernel": "none"});
    sandbox.post("/contexts", &own).expect(201);
    let run =
        |code: &str| sandbox.post("/contexts/c/run", &json!({"code": code})).expect(200).json();
    assert_eq!(run("1 + 1")["results"][0]["data"]["text/plain"], "2");
    let peak = Peak::from_now(&server);
    let answer = run(FORGE);
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
    const HEAD: &str = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"";
    let (server, sandbox) = one();
    let peak = Peak::from_now(&server);
    for start in ["", HEAD] {
        let mut stream = sandbox.http.connect();
        let key = sandbox.http.key.as_deref().unwrap_or_default();
        let request = format!(
            "POST /v1/swerex/{}/upload HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nx-api-key: {key}\r\n\
             content-type: multipart/form-data; boundary=x\r\ncontent-length: {}\r\n\r\n{start}",
            sandbox.id,
            sandbox.http.port,
            1_u64 << 40
        );
        stream.write_all(request.as_bytes()).expect("it is sent");
        let piece = vec![b'a'; 1 << 20];
        // As much as the server once held. After its answer it discards what still arrives, for a while.
        let _ = (0..192).try_for_each(|_| stream.write_all(&piece));
        // What was sent after that may have reset the connection.
        let mut answer = [0; 12];
        if stream.read_exact(&mut answer).is_ok() {
            assert_eq!(&answer, b"HTTP/1.1 400");
        }
    }
    peak.grew_less_than(80);
    server.healthy();
}
