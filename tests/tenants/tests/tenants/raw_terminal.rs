//! Frames that no terminal client should send: typed close codes, bounded memory, and no effect on
//! other clients.

use crate::raw_socket::{MASKED, TEXT, frame};
use isolet_kit::{Message, Rows, SOON, Terminal, json, one, process};
use std::io::Write;
use std::time::Duration;

/// The memory that one socket may use: a message, input that waits for a program, and output.
const SOCKET_KIB: u64 = 4 * 1024;
const BINARY: u8 = 0x82;

#[test]
fn i11_bad_frames_close_their_own_terminal_socket() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let mut stays = sandbox.terminal("");
    let mut unmasked = vec![TEXT, 2];
    unmasked.extend(b"{}");
    let long = |length: u64| {
        [vec![BINARY, MASKED | 127], length.to_be_bytes().to_vec(), vec![0; 4]].concat()
    };
    let fragments = |count: usize, part: &[u8]| {
        let mut all = frame(0x02, part);
        (0..count).for_each(|_| all.extend(frame(0x00, part)));
        all
    };
    let bad: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("an unmasked frame", unmasked, &[1002]),
        ("reserved bits", frame(0xf2, b"x"), &[1002]),
        ("a compressed frame", frame(0xc2, b"x"), &[1002]),
        ("an unknown opcode", frame(0x83, b"x"), &[1002]),
        ("a fragmented ping", frame(0x09, b"x"), &[1002]),
        ("a ping of 126 bytes", frame(0x89, &[b'x'; 126]), &[1002]),
        ("text that is no UTF-8", frame(TEXT, b"\xff\xfe"), &[1007]),
        ("a continuation first", frame(0x80, b"x"), &[1002]),
        ("a goodbye", frame(0x88, &1000_u16.to_be_bytes()), &[1000]),
        ("a close with a bad code", frame(0x88, &[0, 5]), &[1002]),
        ("a close of one byte", frame(0x88, &[3]), &[1002]),
        ("a length of 2^64-1", long(u64::MAX), &[1002, 1009]),
        ("a message of 64 MiB", long(64 << 20), &[1009]),
        ("a message of 1 MiB", long(1 << 20), &[1009]),
        ("a byte more than may be typed at once", frame(BINARY, &[b'x'; 64 * 1024 + 1]), &[1009]),
        ("the same in fragments", fragments(8, &[b'x'; 10_000]), &[1009]),
        ("not WebSocket at all", b"GET / HTTP/1.1\r\n\r\n".to_vec(), &[1002]),
    ];
    for (name, bytes, codes) in bad {
        rows.row(name, || {
            let mut terminal = sandbox.terminal("");
            let _ = terminal.stream().write_all(&bytes);
            let code = terminal.end();
            assert!(codes.contains(&code), "closed with {code}");
        });
    }
    rows.row("input after a goodbye", || {
        let mut terminal = sandbox.terminal("");
        let goodbye = [frame(0x88, &1000_u16.to_be_bytes()), frame(BINARY, b"echo 'l'ate\r")];
        let _ = terminal.stream().write_all(&goodbye.concat());
        terminal.end();
    });
    rows.row("impossible window sizes", || {
        let mut terminal = sandbox.terminal("");
        for (cols, rows) in [(0, 0), (-1, -1), (i64::MIN, 1), (0, 65_535)] {
            terminal.resize(cols, rows);
            terminal.frame("error");
        }
        terminal.say(&json!({"type": "resize", "cols": 1e300, "rows": 1}));
        terminal.frame("error");
        terminal
            .send(Message::text(format!("{{\"type\":\"{}\"}}", "x".repeat(60_000))))
            .expect("sent");
        let refused = terminal.frame("error").to_string();
        assert!(refused.len() < 1000, "no long text is echoed back");
        terminal.line("echo 'o'n", "on\r\n");
    });
    rows.row("the client that stayed", || {
        stays.line("echo 'u'nhurt", "unhurt\r\n");
        assert!(!stays.shown().contains("late"));
    });
    drop(rows);
    server.healthy();
}

/// Writes until the server accepts no more, or `most` times; returns whether the server stopped
/// accepting.
fn flood(terminal: &mut Terminal, bytes: &[u8], most: usize) -> bool {
    let _ = terminal.stream().set_write_timeout(Some(Duration::from_millis(700)));
    (0..most).any(|_| terminal.stream().write_all(bytes).is_err())
}

#[test]
fn i11_floods_from_a_terminal_client_are_bounded() {
    let (server, sandbox) = one();
    let before = process::memory_kib(server.pid());
    let mut rows = Rows::new();
    let small = |now: u64| assert!(now < before + SOCKET_KIB, "{before} to {now} KiB");
    rows.row("a million empty fragments", || {
        let mut terminal = sandbox.terminal("");
        let mut bytes = frame(0x02, b"");
        (0..10_000).for_each(|_| bytes.extend(frame(0x00, b"")));
        flood(&mut terminal, &bytes, 100);
        small(process::memory_kib(server.pid()));
    });
    for (name, one) in [
        ("pings without reading the pongs", frame(0x89, &[b'x'; 125])),
        ("questions without reading the answers", frame(TEXT, br#"{"type":"ping"}"#)),
        ("bad frames without reading the refusals", frame(TEXT, b"{}")),
    ] {
        rows.row(name, || {
            let mut terminal = sandbox.terminal("");
            let many = one.repeat(200_000 / one.len());
            assert!(flood(&mut terminal, &many, 600), "it accepts a whole flood");
            small(process::memory_kib(server.pid()));
        });
    }
    rows.row("typing to a program that does not read", || {
        let mut other = sandbox.terminal("session=full");
        other.line("stty raw -echo; sleep 1000", "");
        let mut terminal = sandbox.terminal("session=full");
        let many = frame(BINARY, &[b'x'; 60_000]);
        assert!(flood(&mut terminal, &many, 2000), "it accepts a whole flood");
        small(process::memory_kib(server.pid()));
        // Another attached client is still served.
        let mut looks = sandbox.terminal("session=full&mode=view");
        looks.say(&json!({"type": "ping"}));
        looks.frame("pong");
        sandbox.http.delete(&sandbox.path("/terminals/full")).expect(204);
        assert_eq!(looks.end(), 1000);
    });
    rows.row("sizes, as many as fit", || {
        let mut terminal = sandbox.terminal("");
        for n in 0..5_000 {
            terminal.resize(20 + n % 100, 20);
        }
        terminal.resize(77, 22);
        let _ = terminal.step(SOON);
        terminal.line("stty size; echo 'o'n", "22 77\r\non\r\n");
    });
    drop(rows);
    small(process::memory_kib(server.pid()));
    server.healthy();
}
