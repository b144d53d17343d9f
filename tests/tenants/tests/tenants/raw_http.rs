//! HTTP requests that two servers could parse differently, or that never end: the server refuses
//! them or closes the connection.

use isolet_kit::{Rows, SOON, Server, one};
use std::io::{Read, Write};
use std::time::Duration;

/// How long a further answer, which must not come, is waited for on a connection that stays open.
const QUIET: Duration = Duration::from_millis(400);

/// Status codes of all answers on one connection, which has at least `least` of them.
fn statuses(server: &Server, request: &[u8], least: usize) -> Vec<String> {
    answers(server, &[request], least, false).0
}

/// Sends a request in parts; returns the status codes and whether the server closed the connection.
/// Waits for at least `least` answers, and with `closes` until the connection is closed.
fn answers(server: &Server, parts: &[&[u8]], least: usize, closes: bool) -> (Vec<String>, bool) {
    let mut stream = server.http().connect();
    for part in parts {
        let _ = stream.write_all(part);
        // A pause between two packets, so that the server reads each separately.
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut answer = Vec::new();
    let mut part = [0; 16 * 1024];
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        // The last one may still be incomplete.
        let codes = text.split("HTTP/1.1 ").skip(1).filter(|rest| rest.len() >= 3);
        let codes: Vec<String> = codes.map(|rest| rest.chars().take(3).collect()).collect();
        let more = closes || codes.len() < least;
        let _ = stream.set_read_timeout(Some(if more { SOON } else { QUIET }));
        match stream.read(&mut part) {
            Ok(0) => return (codes, true),
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(_) => return (codes, false),
        }
    }
}

#[test]
fn i10_ambiguous_requests_are_refused() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let auth = format!(
        "host: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        server.port(),
        server.key()
    );
    let hidden = format!(
        "POST {} HTTP/1.1\r\n{auth}content-length: 37\r\n\r\n{{\"command\":\"touch /workspace/smuggled\"}}",
        sandbox.path("/exec")
    );
    let post = |headers: &str, body: &str| {
        format!("POST /v1/sandboxes/{} HTTP/1.1\r\n{auth}{headers}\r\n{body}", sandbox.id)
            .into_bytes()
    };
    let chunked = |body: &str| {
        let path = sandbox.path("/exec");
        format!("POST {path} HTTP/1.1\r\n{auth}transfer-encoding: chunked\r\n\r\n{body}")
            .into_bytes()
    };
    let twice = [
        ("Content-Length twice", post("content-length: 0\r\ncontent-length: 5\r\n", &hidden)),
        ("Content-Length as a list", post("content-length: 0, 5\r\n", &hidden)),
        (
            "length and chunked",
            post(
                "content-length: 5\r\ntransfer-encoding: chunked\r\n",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "chunked and length",
            post(
                "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "chunked, identity",
            post("transfer-encoding: chunked, identity\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "identity, chunked twice",
            post(
                "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "the same Content-Length twice",
            post("content-length: 0\r\ncontent-length: 0\r\n", &hidden),
        ),
        (
            "chunked twice",
            post(
                "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "gzip, chunked",
            post("transfer-encoding: gzip, chunked\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "a request line that ends in a bare newline",
            format!("GET /v1/sandboxes HTTP/1.1\n{auth}\r\n").into_bytes(),
        ),
        ("a header that ends in a bare newline", post("x-a: b\ncontent-length: 0\r\n", &hidden)),
        ("a head that ends in a bare newline", post("content-length: 0\r\n\n", &hidden)),
        ("a bare carriage return", post("x-a: b\rcontent-length: 0\r\n", &hidden)),
        (
            "an upgrade with a body",
            post("connection: upgrade\r\nupgrade: websocket\r\ncontent-length: 5\r\n", &hidden),
        ),
        ("a space before the colon", post("content-length : 5\r\n", &hidden)),
        ("a folded header", post("x-a: 1\r\n content-length: 5\r\n", &hidden)),
        ("a negative chunk", chunked(&format!("-1\r\n\r\n{hidden}"))),
        ("a chunk size that ends in a bare newline", chunked(&format!("0\n\r\n{hidden}"))),
        ("a chunk of 2^64", chunked(&format!("10000000000000000\r\n\r\n{hidden}"))),
        ("a plus in the length", post("content-length: +5\r\n", &hidden)),
        ("a method with a newline", format!("GET\r\nX / HTTP/1.1\r\n{auth}\r\n").into_bytes()),
        (
            "a control character",
            format!("GET /v1/sandboxes\x01 HTTP/1.1\r\n{auth}\r\n").into_bytes(),
        ),
        ("no host", b"GET /health HTTP/1.1\r\n\r\n".to_vec()),
        (
            "two hosts",
            format!("GET /v1/sandboxes HTTP/1.1\r\nhost: evil.example\r\n{auth}\r\n").into_bytes(),
        ),
        (
            "an absolute target elsewhere",
            format!("GET http://evil.example/v1/sandboxes HTTP/1.1\r\n{auth}\r\n").into_bytes(),
        ),
        ("CONNECT", format!("CONNECT evil.example:80 HTTP/1.1\r\n{auth}\r\n").into_bytes()),
        ("not HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
    ];
    for (name, request) in twice {
        rows.row(name, || {
            // These requests are complete, but address another server.
            let plain = ["no host", "two hosts", "an absolute target elsewhere", "CONNECT"];
            let plain = plain.contains(&name);
            let (all, closed) = answers(&server, &[&request], 1, !plain);
            let wanted: &[&str] = match name {
                "an absolute target elsewhere" | "CONNECT" => &["400", "421"],
                _ => &["400"],
            };
            assert!(all.len() == 1 && wanted.contains(&all[0].as_str()), "{all:?}");
            assert!(closed || plain, "it is left open");
            assert_eq!(sandbox.says("ls /workspace"), "", "the hidden request ran");
        });
    }
    rows.row("a doubled slash is another path", || {
        let all = statuses(
            &server,
            format!("GET //v1/sandboxes HTTP/1.1\r\n{auth}connection: close\r\n\r\n").as_bytes(),
            1,
        );
        assert_eq!(all, ["404"]);
    });
    rows.row("pipelined requests are answered in order", || {
        let one = |path: &str| format!("GET {path} HTTP/1.1\r\n{auth}\r\n");
        let all = statuses(
            &server,
            format!("{}{}{}", one("/health"), one("/nope"), one("/health")).as_bytes(),
            3,
        );
        assert_eq!(all, ["200", "404", "200"]);
    });
    rows.row("a bad request behind good ones", || {
        let good = format!("GET /health HTTP/1.1\r\n{auth}\r\n");
        let bad = format!("GET /health HTTP/1.1\r\n{auth}x: y\n\r\n{good}");
        let (all, closed) = answers(&server, &[format!("{good}{good}{bad}").as_bytes()], 3, true);
        assert_eq!((all, closed), (vec!["200".into(), "200".into(), "400".into()], true));
    });
    rows.row("a bad request behind a body, byte by byte", || {
        let body = "{\"metadata\":{}}\n\n\n";
        let good = format!(
            "PATCH /v1/sandboxes/{} HTTP/1.1\r\n{auth}content-length: {}\r\n\r\n{body}",
            sandbox.id,
            body.len()
        );
        let bytes = format!("{good}{good}GET /health HTTP/1.1\r\nhost: a\n\r\n{hidden}");
        let parts: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
        let (all, closed) = answers(&server, &parts, 3, true);
        assert_eq!((all, closed), (vec!["200".into(), "200".into(), "400".into()], true));
        assert_eq!(sandbox.says("ls /workspace"), "", "the hidden request ran");
    });
    rows.row("a chunked request is a connection's last", || {
        let body = "b\r\n{\"command\":\r\n3\r\n\":\"\r\n1\r\n}\r\n0\r\n\r\n";
        let one = format!(
            "POST {} HTTP/1.1\r\n{auth}transfer-encoding: chunked\r\n\r\n{body}",
            sandbox.path("/exec")
        );
        let (all, closed) = answers(&server, &[format!("{one}{hidden}").as_bytes()], 1, true);
        assert_eq!((all, closed), (vec!["200".into()], true));
        assert_eq!(sandbox.says("ls /workspace"), "", "the request after it ran");
    });
    rows.row("a refused upgrade is a connection's last", || {
        let head = format!("{auth}connection: upgrade\r\nupgrade: websocket\r\n\r\n");
        let bytes = format!("GET /v1/sandboxes HTTP/1.1\r\n{head}{hidden}");
        let (all, closed) = answers(&server, &[bytes.as_bytes()], 1, true);
        assert_eq!((all, closed), (vec!["200".into()], true));
        assert_eq!(sandbox.says("ls /workspace"), "", "the request after it ran");
    });
    rows.row("an upgrade to an unsupported protocol changes nothing", || {
        let head =
            format!("GET /health HTTP/1.1\r\n{auth}connection: upgrade\r\nupgrade: h2c\r\n\r\n");
        assert_eq!(statuses(&server, format!("{head}{head}").as_bytes(), 2), ["200", "200"]);
    });
    drop(rows);
    server.healthy();
}

#[test]
fn i10_oversized_requests_are_refused() {
    let (server, _sandbox) = one();
    let mut rows = Rows::new();
    let auth =
        format!("host: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\n", server.port(), server.key());
    let much = [
        (
            "a header of 1 MiB",
            format!("GET /v1/sandboxes HTTP/1.1\r\n{auth}x: {}\r\n\r\n", "y".repeat(1 << 20)),
        ),
        (
            "10,000 headers",
            format!("GET /v1/sandboxes HTTP/1.1\r\n{auth}{}\r\n", "x: y\r\n".repeat(10_000)),
        ),
        ("a target of 1 MiB", format!("GET /{} HTTP/1.1\r\n{auth}\r\n", "y".repeat(1 << 20))),
    ];
    for (name, request) in much {
        rows.row(name, || {
            let all = statuses(&server, request.as_bytes(), 1);
            assert_eq!(all, ["431"]);
        });
    }
    rows.row("a flood of chunk extensions", || {
        let chunk = format!("1;{}\r\nx\r\n", "e".repeat(4000));
        let request = format!("POST /v1/sandboxes HTTP/1.1\r\n{auth}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(2000));
        let all = statuses(&server, request.as_bytes(), 0);
        assert!(all.is_empty() || all[0].starts_with('4'), "{all:?}");
    });
    rows.row("an upgrade on a POST with a body", || {
        let request = format!("POST /v1/sandboxes HTTP/1.1\r\n{auth}content-type: application/json\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 2\r\n\r\n{{}}");
        let all = statuses(&server, request.as_bytes(), 1);
        assert!(all.iter().all(|status| status != "101"), "{all:?}");
    });
    drop(rows);
    server.healthy();
}
