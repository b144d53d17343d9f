//! WebSocket frames that no client should send: typed close codes, bounded memory, and no effect on
//! other clients.

use isolet_kit::{Frame, Message, Rows, SOON, Sandbox, Shell, one, process};
use std::io::Write;

/// The memory that one socket may use: an incoming message, its joined parts, and outgoing output.
const SOCKET_KIB: u64 = 12 * 1024;
pub(crate) const TEXT: u8 = 0x81;
pub(crate) const MASKED: u8 = 0x80;

/// Encodes one frame with a mask of zeroes from its first byte and payload.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut all = vec![first];
    match payload.len() {
        length @ 0..=125 => all.push(MASKED | u8::try_from(length).expect("small")),
        length @ 126..=65_535 => {
            all.push(MASKED | 126);
            all.extend(u16::try_from(length).expect("small").to_be_bytes());
        }
        length => {
            all.push(MASKED | 127);
            all.extend((length as u64).to_be_bytes());
        }
    }
    all.extend([0; 4]);
    all.extend(payload);
    all
}

/// The close code that answers these bytes.
fn code(sandbox: &Sandbox, bytes: &[u8]) -> u16 {
    let mut shell = sandbox.shell();
    let _ = shell.stream().write_all(bytes);
    closes(&mut shell)
}

fn closes(shell: &mut Shell) -> u16 {
    loop {
        match shell.next(SOON) {
            Some(Frame::Close(code)) => return code,
            Some(_) => {}
            None => panic!("it is not closed"),
        }
    }
}

#[test]
fn i11_bad_frames_close_their_own_socket() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let mut unmasked = vec![TEXT, 2];
    unmasked.extend(b"{}");
    let huge = [vec![TEXT, MASKED | 127], u64::MAX.to_be_bytes().to_vec(), vec![0; 4]].concat();
    let large =
        [vec![TEXT, MASKED | 127], (64_u64 << 20).to_be_bytes().to_vec(), vec![0; 4]].concat();
    let bad: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("an unmasked frame", unmasked, &[1002]),
        ("reserved bits", frame(0xf1, b"{}"), &[1002]),
        ("an unknown opcode", frame(0x83, b"{}"), &[1002]),
        ("a fragmented ping", frame(0x09, b"x"), &[1002]),
        ("a ping of 126 bytes", frame(0x89, &[b'x'; 126]), &[1002]),
        ("text that is no UTF-8", frame(TEXT, b"\xff\xfe"), &[1007]),
        ("a continuation first", frame(0x80, b"x"), &[1002]),
        ("a goodbye", frame(0x88, &1000_u16.to_be_bytes()), &[1000]),
        ("a goodbye with a code of its own", frame(0x88, b"\x0f\xa0why"), &[4000]),
        ("a goodbye without a code", frame(0x88, b""), &[1005]),
        ("a close with a bad code", frame(0x88, &[0, 5]), &[1002]),
        ("a close with a reserved code", frame(0x88, &1005_u16.to_be_bytes()), &[1002]),
        ("a close with a code of no range", frame(0x88, &999_u16.to_be_bytes()), &[1002]),
        ("a close whose reason is no UTF-8", frame(0x88, b"\x03\xe8\xff\xfe"), &[1002, 1007]),
        ("a close of one byte", frame(0x88, &[3]), &[1002]),
        ("a length of 2^64-1", huge, &[1002, 1009]),
        ("a message of 64 MiB", large, &[1009]),
        ("not WebSocket at all", b"GET / HTTP/1.1\r\n\r\n".to_vec(), &[1002]),
    ];
    for (name, bytes, codes) in bad {
        rows.row(name, || {
            let code = code(&sandbox, &bytes);
            assert!(codes.contains(&code), "closed with {code}");
        });
    }
    drop(rows);
    server.healthy();
}

#[test]
fn i11_floods_are_bounded() {
    let (server, sandbox) = one();
    let before = process::memory_kib(server.pid());
    let mut rows = Rows::new();
    rows.row("a million empty fragments", || {
        let mut shell = sandbox.shell();
        let mut bytes = frame(0x01, b"");
        for _ in 0..10_000 {
            bytes.extend(frame(0x00, b""));
        }
        for _ in 0..100 {
            if shell.stream().write_all(&bytes).is_err() {
                return;
            }
        }
    });
    rows.row("a message above 2 MiB in fragments", || {
        let mut shell = sandbox.shell();
        let part = vec![b'x'; 100_000];
        let mut sent = shell.stream().write_all(&frame(0x01, &part));
        for _ in 0..700 {
            if sent.is_err() {
                break;
            }
            sent = shell.stream().write_all(&frame(0x00, &part));
        }
        assert_eq!(closes(&mut shell), 1009);
    });
    for (name, one) in [
        ("pings without reading the pongs", frame(0x89, &[b'x'; 125])),
        ("bad frames without reading the refusals", frame(TEXT, b"{}")),
        ("binary frames without reading the refusals", frame(0x82, b"")),
        (
            "signals without reading the refusals",
            frame(TEXT, br#"{"type":"shell_signal","id":"x","signal":"INT"}"#),
        ),
        (
            "commands without reading their ends",
            frame(TEXT, br#"{"type":"shell_run","id":"x","command":":"}"#),
        ),
    ] {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            let many = one.repeat(200_000 / one.len());
            let _ = shell.stream().set_write_timeout(Some(std::time::Duration::from_millis(700)));
            let stopped = (0..600).any(|_| shell.stream().write_all(&many).is_err());
            assert!(stopped, "it accepts a whole flood");
            let now = process::memory_kib(server.pid());
            assert!(now < before + SOCKET_KIB, "{before} to {now} KiB with the socket open");
        });
    }
    rows.row("one after the other on one socket", || {
        let mut shell = sandbox.shell();
        shell.send_message(Message::Ping(b"hello".to_vec().into())).expect("it is sent");
        shell.run("echo on").is("on\n", 0);
    });
    drop(rows);
    let after = process::memory_kib(server.pid());
    assert!(after < before + SOCKET_KIB, "{before} to {after} KiB");
    server.healthy();
}
