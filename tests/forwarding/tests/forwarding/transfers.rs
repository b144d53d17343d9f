//! Bodies of any size, with bounded memory and at the speed of the slower side.

use crate::cluster::Cluster;
use isolet_kit::{LONG, Sandbox, wait_until};
use std::io::{Read, Write};
use std::time::Duration;

/// The size of the file.
const BYTES: usize = 200_000_000;
/// How much the memory of all nodes together may grow during a transfer, in KiB. They run in one
/// process, with the test.
const GROWTH_KIB_MAX: u64 = 48 * 1024;

/// The largest resident memory of this process since the last call, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    let peak = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    std::fs::write("/proc/self/clear_refs", "5").expect("it resets the peak");
    peak
}

/// Sends a request with a body of `BYTES` bytes, written in pieces.
fn upload(sandbox: &Sandbox, path: &str) -> String {
    let mut stream = sandbox.http.connect();
    let key = sandbox.http.key.as_deref().expect("a key");
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\n\
         content-length: {BYTES}\r\nconnection: close\r\n\r\n",
        sandbox.http.port
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let piece = [7; 100_000];
    for _ in 0..BYTES / piece.len() {
        stream.write_all(&piece).expect("the node reads on");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Promises: FW2.
#[test]
fn heavy_a_large_file_passes_both_ways_with_little_memory() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let path = sandbox.path("/files/big");
    sandbox.says("true");
    peak_kib();
    let before = peak_kib();
    let answer = upload(&sandbox, &path);
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    let grown = peak_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "the upload took {grown} KiB");
    assert_eq!(
        sandbox.says("stat -c %s big; head -c 3 big | od -An -tx1"),
        "200000000\n 07 07 07\n"
    );
    let mut stream = sandbox.http.try_open("GET", &path, None).expect("an answer");
    let length = ("content-length".to_owned(), BYTES.to_string());
    assert!(stream.headers.contains(&length), "{:?}", stream.headers);
    // A client that stops reading stops the owner: nothing piles up on the way.
    let mut piece = vec![0; 65_536];
    stream.body.read_exact(&mut piece).expect("the beginning");
    std::thread::sleep(Duration::from_millis(500));
    let held = peak_kib().saturating_sub(before);
    assert!(held < GROWTH_KIB_MAX, "the nodes hold {held} KiB for a client that does not read");
    let mut count = piece.len();
    loop {
        let read = stream.body.read(&mut piece).expect("more");
        if read == 0 {
            break;
        }
        assert!(piece[..read].iter().all(|byte| *byte == 7));
        count += read;
    }
    assert_eq!(count, BYTES);
    let grown = peak_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "the download took {grown} KiB");
}

/// Promises: FW2.
#[test]
fn a_shell_client_that_does_not_read_stops_its_command() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let mut shell = sandbox.shell();
    shell.run("true").is("", 0);
    peak_kib();
    let before = peak_kib();
    let id = shell
        .start(isolet_kit::Start::new("seq 1 30000000 | tee >(wc -c >/tmp/count) | cat; echo end"));
    // The command waits for its client once all buffers on the way are full.
    let written = || sandbox.says("cat /proc/$(pgrep -o seq)/io | grep wchar");
    let mut last = String::new();
    wait_until("the command stands still", LONG, || {
        let now = written();
        std::thread::sleep(Duration::from_millis(300));
        let same = now == last && !now.is_empty();
        last = now;
        same.then_some(())
    });
    let held = peak_kib().saturating_sub(before);
    assert!(held < GROWTH_KIB_MAX, "the nodes hold {held} KiB");
    shell.cancel(&id);
    shell.cut();
}
