//! Table (g): the cost of events for a command, without and with readers.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::{Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Commands of one variant in a row before the next variant follows.
const BURST: usize = 60;
/// Runs at the start of a row that are not counted.
const WARM: usize = 10;
/// The least number of bytes that a reader gets from one burst: more than the head of a response.
const HEARD_BYTES_MIN: usize = 4096;

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    client.session("bench", ":")?;
    let variants = [("no reader", 0), ("one reader", 1), ("ten readers", 10)];
    let mut shell: Vec<_> = variants.map(|(name, _)| (name, Times::default())).into();
    let mut program = shell.clone();
    for _ in 0..rounds {
        for (at, (_, count)) in variants.iter().enumerate() {
            let readers =
                (0..*count).map(|_| EventReader::open(&server)).collect::<Result<Vec<_>>>()?;
            for turn in 0..BURST {
                let begun = Instant::now();
                client.session("bench", ":")?;
                if turn >= WARM {
                    shell[at].1.push(begun.elapsed());
                }
            }
            for turn in 0..BURST / 4 {
                let begun = Instant::now();
                client.exec("bench", ":")?;
                if turn >= WARM / 4 {
                    program[at].1.push(begun.elapsed());
                }
            }
            for reader in readers {
                ensure!(reader.close()? > HEARD_BYTES_MIN, "a reader heard too little");
            }
        }
    }
    rows("### `:` in a session, which is two events", &shell);
    rows("### `:` as a program, which is two events", &program);
    Ok(())
}

/// Reads events in a thread.
struct EventReader {
    stream: TcpStream,
    thread: JoinHandle<std::io::Result<usize>>,
}

impl EventReader {
    fn open(server: &BenchServer) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port))?;
        let head = format!(
            "GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\n\r\n",
            server.port, server.key
        );
        stream.write_all(head.as_bytes())?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut from = stream.try_clone()?;
        // The head of the response: the reader is subscribed from here on.
        let mut bytes = [0; 16 * 1024];
        from.read_exact(&mut bytes[..12])?;
        ensure!(bytes.starts_with(b"HTTP/1.1 200"), "no events");
        let thread = std::thread::spawn(move || {
            let mut count = 0;
            loop {
                match from.read(&mut bytes) {
                    Ok(0) => return Ok(count),
                    Ok(some) => count += some,
                    // The socket was closed with unread bytes.
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(count),
                    Err(error) => return Err(error),
                }
            }
        });
        Ok(Self { stream, thread })
    }

    /// The number of bytes that were read.
    fn close(self) -> Result<usize> {
        self.stream.shutdown(Shutdown::Both)?;
        Ok(self.thread.join().expect("no panic")?)
    }
}
