//! Where the proxy injects credentials: not into headers that servers echo, and never into a body.

use crate::credentials::{VALUE, credential, heads, request_over_tls, set_credentials, world};
use crate::servers::{always, capture, resolver};
use crate::world::{GOOD, World};
use isolet_wire::credential::Credential;
use std::io::{Read, Write};
use std::net::Shutdown;

/// A host may echo the protocol of an upgrade, the headers of a preflight and the `Origin` of any
/// request. The value of a credential once reached the sandbox in such an answer.
/// Promises: R11.
#[test]
fn a_placeholder_is_replaced_in_no_header_that_servers_repeat() {
    let (world, _, good, _, _roots) = world();
    let all = vec![credential("api.example", None, Some("ISOLET_KEY"))];
    let trust = set_credentials(&world, all, true).expect("an authority");
    for header in [
        "Upgrade: ISOLET_KEY\r\nConnection: Upgrade",
        "Origin: https://ISOLET_KEY",
        "Sec-WebSocket-Protocol: v1, ISOLET_KEY",
        "Sec-WebSocket-Key: ISOLET_KEY",
        "Sec-WebSocket-Extensions: ISOLET_KEY",
        "Access-Control-Request-Headers: ISOLET_KEY",
        "Access-Control-Request-Method: ISOLET_KEY",
        "Range: ISOLET_KEY=0-1",
        "If-None-Match: \"ISOLET_KEY\"",
        "Referer: https://api.example/ISOLET_KEY",
        "X-Request-Id: ISOLET_KEY",
        "X-Forwarded-Host: ISOLET_KEY",
        "Accept-Language: ISOLET_KEY",
        "Content-Type: text/ISOLET_KEY",
        "Trailer: ISOLET_KEY",
        "TE: ISOLET_KEY",
        "Expect: ISOLET_KEY",
        "Connection: ISOLET_KEY",
    ] {
        let request =
            format!("GET / HTTP/1.1\r\nHost: api.example\r\nX-Key: ISOLET_KEY\r\n{header}\r\n\r\n");
        request_over_tls(&world, &trust, GOOD, "api.example", &request);
        let head =
            std::mem::take(&mut *good.lock().expect("no thread panicked with the lock")).concat();
        assert_eq!(head.matches(VALUE).count(), 1, "{header}: {head}");
        assert!(head.contains(&format!("X-Key: {VALUE}")), "{header}: {head}");
    }
    // A credential that names the header is injected there.
    let named = credential("api.example", Some("Sec-WebSocket-Protocol"), Some("ISOLET_KEY"));
    let trust = set_credentials(&world, vec![named], true).expect("the same authority");
    let request =
        "GET / HTTP/1.1\r\nHost: api.example\r\nSec-WebSocket-Protocol: k.ISOLET_KEY\r\n\r\n";
    request_over_tls(&world, &trust, GOOD, "api.example", request);
    assert!(heads(&good).contains(&format!("k.{VALUE}")), "{}", heads(&good));
}

/// Promises: R11.
#[test]
fn a_host_with_a_port_that_is_no_number_is_no_request() {
    let (world, _, good, _, _roots) = world();
    let all = vec![credential("api.example", None, Some("ISOLET_KEY"))];
    let trust = set_credentials(&world, all, true).expect("an authority");
    for host in ["api.example:ISOLET_KEY", "api.example:80ISOLET_KEY", "api.example:65536"] {
        for request in [
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        ] {
            let answer = request_over_tls(&world, &trust, GOOD, "api.example", &request);
            assert!(answer.starts_with("HTTP/1.1 400"), "{request}: {answer}");
        }
    }
    assert_eq!(heads(&good), "");
    assert_eq!(world.denials(), ["tcp 198.51.100.10:443 bad request"]);
    for host in ["api.example:443", "api.example"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = request_over_tls(&world, &trust, GOOD, "api.example", &request);
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
}

/// The proxy once forwarded `trace` in lower case with the credential. Servers that ignore the case
/// of methods, or that know `TRACK`, answer with everything that they received.
/// Promises: R11.
#[test]
fn no_method_that_servers_answer_with_the_request_goes_on_with_a_credential() {
    let (world, _, good, _, _roots) = world();
    let all = vec![credential("api.example", Some("X-Key"), None)];
    let trust = set_credentials(&world, all, true).expect("an authority");
    let get = "GET / HTTP/1.1\r\nHost: api.example\r\n";
    let others = ["TRACE", "trace", "Trace", "tRaCe", "TRACK", "track"];
    let mut requests: Vec<String> =
        others.iter().map(|method| format!("{}\r\n", get.replacen("GET", method, 1))).collect();
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "x-method-override"] {
        requests.push(format!("{get}{name}: Trace\r\n\r\n"));
    }
    for request in &requests {
        let answer = request_over_tls(&world, &trust, GOOD, "api.example", request);
        assert!(answer.starts_with("HTTP/1.1 421"), "{request}: {answer}");
    }
    assert_eq!(heads(&good), "");
    assert_eq!(world.denials(), ["tcp api.example:443 trace"]);
    // Other methods are forwarded.
    let answer = request_over_tls(&world, &trust, GOOD, "api.example", &format!("{get}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    set_credentials(&world, Vec::new(), true);
    assert!(heads(&good).contains(VALUE));
}

/// What a web server without TLS receives when the sandbox sends this request.
fn sent(world: &World, heard: &crate::servers::Captured, request: &[u8]) -> Vec<u8> {
    let mut stream = world.connect(GOOD, 80);
    stream.write_all(request).expect("the peer reads");
    let mut answer = answer_head(&mut stream);
    if answer.starts_with(b"HTTP/1.1 100") {
        answer = answer_head(&mut stream);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    let _ = stream.shutdown(Shutdown::Both);
    std::mem::take(&mut *heard.lock().expect("no thread panicked with the lock"))
}

fn answer_head(stream: &mut std::net::TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    head
}

/// The body without its chunks.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|it| it == b"\r\n").expect("a chunk's size");
        let size = std::str::from_utf8(&body[..end]).expect("text");
        let size = usize::from_str_radix(size, 16).expect("a number");
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
}

/// A gzip file with one stored block, which holds these bytes as they are.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("short");
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(&(!length).to_le_bytes());
    file.extend_from_slice(bytes);
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    file.extend_from_slice(&(!crc).to_le_bytes());
    file.extend_from_slice(&u32::from(length).to_le_bytes());
    file
}

/// Promises: R12.
#[test]
fn a_body_arrives_as_it_was_sent_compressed_or_not_and_its_head_has_the_credential() {
    let world = World::new(&["*.example"], &[]);
    resolver(&world, vec![("api.example", always(GOOD))]);
    let heard = capture(&world, GOOD, 80);
    let all: Vec<Credential> = vec![credential("api.example:80", None, Some("ISOLET_KEY"))];
    assert!(set_credentials(&world, all, false).is_none());
    let text = b"{\"key\": \"ISOLET_KEY\"}".repeat(100);
    for (coding, body) in [("identity", text.clone()), ("gzip", gzip(&text)), ("br", gzip(&text))] {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer ISOLET_KEY\r\nContent-Encoding: {coding}\r\n"
        );
        let length = format!("{head}Content-Length: {}\r\n\r\n", body.len());
        let chunks = body
            .chunks(700)
            .map(|it| [format!("{:x}\r\n", it.len()).as_bytes(), it, b"\r\n"].concat());
        let chunked = [chunks.collect::<Vec<_>>().concat(), b"0\r\n\r\n".to_vec()].concat();
        for (request, is_chunked) in [
            ([length.as_bytes(), &body].concat(), false),
            ([head.as_bytes(), b"Transfer-Encoding: chunked\r\n\r\n", &chunked].concat(), true),
            (
                [
                    head.as_bytes(),
                    b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
                    &chunked,
                ]
                .concat(),
                true,
            ),
        ] {
            let all = sent(&world, &heard, &request);
            let split = all.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
            let head = String::from_utf8_lossy(&all[..split]).into_owned();
            assert!(head.contains(&format!("Bearer {VALUE}\r\n")), "{head}");
            assert!(head.contains(&format!("Content-Encoding: {coding}\r\n")), "{head}");
            let arrived = if is_chunked { unchunked(&all[split..]) } else { all[split..].to_vec() };
            assert!(arrived == body, "{coding}, chunked: {is_chunked}");
        }
    }
}
