//! Request bodies and numbers that no client should send: the server refuses them immediately and
//! names the field.

use isolet_kit::{Reply, Rows, Server, json, one, process};

/// The promise is 10 ms of work. The server under test is not optimized, and each of its threads may
/// have something else to do.
const REFUSED_CPU_MS: u64 = 200;

fn refused(server: &Server, path: &str, body: &[u8]) -> Reply {
    let before = process::cpu_ms(server.pid());
    let reply = server.http().send("POST", path, Some(body));
    let used = process::cpu_ms(server.pid()) - before;
    assert!(used <= REFUSED_CPU_MS, "a refusal took {used} ms of the processor");
    assert!(matches!(reply.status, 400 | 413), "{} {}", reply.status, reply.text());
    let reported = reply.json();
    assert!(reported["message"].is_string() && reported["hint"].is_string(), "{reported}");
    reply
}

#[test]
fn i7_invalid_and_contradictory_json_is_refused() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let deep = |open: &str| format!("{{\"metadata\":{}", open.repeat(100_000)).into_bytes();
    let mut utf16 = vec![0xff, 0xfe];
    utf16.extend("{}".encode_utf16().flat_map(u16::to_le_bytes));
    let bodies: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nested arrays", deep("["), ""),
        ("nested objects", deep("{\"a\":"), ""),
        (
            "a number of 1 MB",
            format!("{{\"ttl_s\":{}}}", "9".repeat(1_000_000)).into_bytes(),
            "ttl_s",
        ),
        ("a field twice", b"{\"ttl_s\":1,\"ttl_s\":2}".to_vec(), "ttl_s"),
        ("a name of the environment twice", b"{\"env\":{\"A\":\"1\",\"A\":\"2\"}}".to_vec(), "env"),
        ("NaN", b"{\"ttl_s\":NaN}".to_vec(), "ttl_s"),
        ("a lone surrogate", b"{\"id\":\"\\ud800\"}".to_vec(), "id"),
        ("an unknown field", b"{\"nope\":1}".to_vec(), "nope"),
        ("null", b"null".to_vec(), ""),
        ("an array", b"[]".to_vec(), ""),
        ("more behind it", b"{} {}".to_vec(), ""),
        ("UTF-16", utf16, ""),
        ("a byte order mark", b"\xef\xbb\xbf{}".to_vec(), ""),
        ("invalid UTF-8", b"{\"id\":\"\xff\"}".to_vec(), ""),
        ("half an object", b"{\"id\":".to_vec(), ""),
        ("null for a number", b"{\"pids\":null}".to_vec(), "pids"),
        ("an array for an object", b"{\"env\":[]}".to_vec(), "env"),
    ];
    for (name, body, field) in bodies {
        rows.row(name, || {
            let reply = refused(&server, "/v1/sandboxes", &body);
            assert!(reply.text().contains(field), "{}", reply.text());
        });
    }
    rows.row("10 MiB", || {
        let http = server.http();
        let body = format!("{{\"metadata\":\"{}\"}}", "x".repeat(10 << 20));
        match http.try_send("POST", "/v1/sandboxes", Some(body.as_bytes())) {
            Ok(reply) => assert_eq!(reply.status, 413),
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::TimedOut),
        }
    });
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        rows.row(&format!("content type {kind:?}"), || {
            let reply =
                server.http().with("content-type", kind).send("POST", "/v1/sandboxes", Some(b"{}"));
            assert!(matches!(reply.status, 400 | 415), "{}", reply.text());
        });
    }
    drop(rows);
    assert_eq!(server.ids(&server.http()), [sandbox.id.as_str()], "nothing was created");
    server.healthy();
}

#[test]
fn i2_nul_is_refused_and_unusual_characters_round_trip() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let nul = [
        json!({"command": "echo a\0b"}),
        json!({"argv": ["echo", "a\0b"]}),
        json!({"argv": []}),
        json!({"argv": [""]}),
        json!({"command": ":", "cwd": "/tmp\0"}),
        json!({"command": ":", "env": {"A\0": "1"}}),
        json!({"command": ":", "env": {"A": "1\0"}}),
        json!({"command": ":", "argv": [":"]}),
        json!({}),
    ];
    for body in nul {
        rows.row(&body.to_string(), || {
            let path = sandbox.path("/exec");
            refused(&server, &path, body.to_string().as_bytes());
        });
    }
    rows.row("unusual characters round-trip", || {
        let odd = "\u{202e}\u{7f}\u{1b}[31m\r\n\t\"\\\u{2028}'";
        let answer =
            sandbox.post("/exec", &json!({"argv": ["printf", "%s", odd]})).expect(200).json();
        assert_eq!(answer["stdout"], odd);
        let made = server
            .http()
            .post("/v1/sandboxes", &json!({"metadata": {odd: odd}}))
            .expect(201)
            .json();
        assert_eq!(made["metadata"], json!({odd: odd}));
    });
    rows.row("a newline in a header value starts no second header", || {
        let reply = server.http().with("idempotency-key", "a\r\nx-evil: 1").try_send(
            "POST",
            "/v1/sandboxes",
            Some(b"{}"),
        );
        if let Ok(reply) = reply {
            assert!(reply.header("x-evil").is_none());
        }
    });
    drop(rows);
    server.healthy();
}

#[test]
fn i15_numbers_out_of_bounds_are_refused() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    for timeout in [
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "1e308",
        "0.5",
        "\"1\"",
        "null",
        "[]",
    ] {
        for path in ["/exec", "/sessions/s/exec"] {
            rows.row(&format!("{path} timeout {timeout}"), || {
                let body = format!("{{\"command\":\":\",\"timeout_ms\":{timeout}}}");
                let reply = refused(&server, &sandbox.path(path), body.as_bytes());
                assert!(reply.text().contains("timeout_ms"), "{}", reply.text());
            });
        }
    }
    rows.row("timeout 0 means none", || {
        let answer = sandbox
            .post("/exec", &json!({"command": "sleep 0.1", "timeout_ms": 0}))
            .expect(200)
            .json();
        assert_eq!((&answer["exit_code"], &answer["timed_out"]), (&json!(0), &json!(false)));
    });
    for limit in ["0", "-1", "1001", "x", "1e3", ""] {
        rows.row(&format!("limit {limit:?}"), || {
            let reply = server.http().get(&format!("/v1/sandboxes?limit={limit}"));
            assert_eq!(reply.status, 400, "{}", reply.text());
        });
    }
    drop(rows);
    server.healthy();
}
