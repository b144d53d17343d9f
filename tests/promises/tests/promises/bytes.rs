//! Bytes come out as they went in: within a stream nothing is trimmed, added, split or reordered.

use isolet_kit::{Frame, LONG, Rows, Start, json, one, quickly};

/// Promises: S3.
#[test]
fn bytes_are_exact_in_binary_frames() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let cases: [(&str, &str, &[u8]); 6] = [
        ("NUL and invalid UTF-8", r"printf '\000\001\377\376\300z'", b"\x00\x01\xff\xfe\xc0z"),
        ("no newline at the end", "printf abc", b"abc"),
        ("newlines alone", r"printf '\n\n\n'", b"\n\n\n"),
        ("carriage returns", r"printf 'a\r\nb\r'", b"a\r\nb\r"),
        ("escape sequences", r"printf '\033[31mred\033[0m\a'", b"\x1b[31mred\x1b[0m\x07"),
        ("half a character", r"printf '\303'", b"\xc3"),
    ];
    for (name, text, bytes) in cases {
        rows.row(name, || {
            let outcome = sandbox.open("frames=binary").run(text);
            assert_eq!((outcome.out.as_slice(), outcome.code), (bytes, Some(0)));
        });
    }
    rows.row("every byte, a thousand times", || {
        let text = "python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256))*1000)'";
        let outcome = sandbox.open("frames=binary").run(text);
        let all: Vec<u8> = (0..=255).cycle().take(256_000).collect();
        assert!(outcome.out == all, "{} bytes", outcome.out.len());
    });
}

/// Promises: S3.
#[test]
fn text_frames_never_split_a_character() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("characters cut by the program's writes", || {
        let text = r"printf '\360'; sleep 0.05; printf '\237\246'; sleep 0.05; printf '\200|'";
        sandbox.run(text).is("🦀|", 0);
    });
    rows.row("characters cut by the reads", || {
        let outcome = sandbox.run("yes 日本語🦀 | head -n 50000");
        assert!(outcome.text() == "日本語🦀\n".repeat(50_000), "{} bytes", outcome.out.len());
    });
    rows.row("an invalid byte becomes U+FFFD", || {
        sandbox.run(r"printf 'a\377b'").is("a\u{fffd}b", 0);
    });
    rows.row("a character that never ends becomes U+FFFD", || {
        sandbox.run(r"printf 'a\360\237'").is("a\u{fffd}", 0);
    });
    rows.row("NUL is preserved", || sandbox.run(r"printf 'a\000b'").is("a\0b", 0));
}

/// Promises: S3.
#[test]
fn large_output_arrives_completely() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("a million lines", || {
        let outcome = sandbox.open("frames=binary").run("seq 1000000");
        assert_eq!(outcome.out.len(), 6_888_896);
        assert!(outcome.out.ends_with(b"\n999999\n1000000\n") && outcome.code == Some(0));
    });
    rows.row("one line of 5 MB", || {
        let outcome = sandbox.run("head -c 5000000 /dev/zero | tr '\\0' a");
        assert!(outcome.out.len() == 5_000_000 && outcome.out.iter().all(|b| *b == b'a'));
    });
    rows.row("both streams large", || {
        let outcome = sandbox.run("seq 200000; seq 200000 >&2");
        assert_eq!((outcome.out.len(), outcome.err.len()), (1_288_895, 1_288_895));
        let outcome = sandbox.run("seq 200000 & seq 200000 >&2; wait");
        assert_eq!(outcome.err.len(), 1_288_895);
    });
    rows.row("SIGPIPE ends a writer as usual", || {
        sandbox.run("yes | head -n 1").is("y\n", 0);
        sandbox.run("(yes; echo $? >/tmp/code) | head -n 1; cat /tmp/code").is("y\n141\n", 0);
    });
    rows.row("/dev/stderr and /dev/stdout open", || {
        let outcome = sandbox.run("echo out >/dev/stdout; echo err >/dev/stderr");
        outcome.is("out\n", 0);
        assert_eq!(outcome.errors(), "err\n");
    });
    rows.row("merged streams keep their order", || {
        let text = "for i in 1 2 3; do echo o$i; echo e$i >&2; done";
        let outcome = sandbox.run_with(Start::new(text).with("merge", true));
        outcome.is("o1\ne1\no2\ne2\no3\ne3\n", 0);
        assert!(outcome.err.is_empty());
    });
}

/// Output is visible when it is written, not when the command or a line ends.
#[test]
fn output_streams_as_it_happens() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.shell();
    shell.run("mkfifo /tmp/go").is("", 0);
    let id = shell.start(Start::new("printf early; read x </tmp/go; printf ' late'"));
    let mut outcome = isolet_kit::Outcome::default();
    shell.follow(&id, &mut outcome, |so_far| so_far.out == b"early");
    let mut other = sandbox.shell();
    other.run("echo >/tmp/go").is("", 0);
    shell.follow(&id, &mut outcome, |_| false);
    outcome.is("early late", 0);
}

/// Promises: S3.
#[test]
fn offsets_count_every_byte_of_a_stream() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.open("frames=binary");
    let mut at = None;
    let mut exits = 0;
    for n in 1..=3 {
        shell.start(Start::new(&format!("seq {n}000")));
    }
    while exits < 3 {
        match quickly("the next frame", LONG, || shell.next(LONG)) {
            Some(Frame::Data { stream: 1, offset, bytes, .. }) => {
                assert_eq!(at.unwrap_or(offset), offset);
                at = Some(offset + bytes.len() as u64);
            }
            Some(Frame::Text(value)) if value["type"] == "shell_exit" => exits += 1,
            Some(Frame::Text(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    let whole =
        [1000, 2000, 3000].map(|n| (1..=n).map(|i: u32| i.to_string().len() + 1).sum::<usize>());
    assert_eq!(at, Some(whole.iter().sum::<usize>() as u64));
    shell.send(&json!({ "type": "shell_run", "id": "end", "command": "exit" }));
    shell.ended();
}
