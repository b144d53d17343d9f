//! Table (f): files of 1 KB and 1 GB over the files API, beside `cp` inside the same sandbox.

use crate::http::HttpClient;
use crate::server::{BenchServer, Endpoint};
use crate::stats::{Times, rows};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Small files of one variant in a row before the next variant follows.
const BURST: usize = 20;
/// Size of the small file, in bytes.
const SMALL: usize = 1000;
/// Size of the large file, in bytes.
const LARGE: u64 = 1_000_000_000;
/// Rounds with the large file.
const LARGE_ROUNDS: usize = 5;
/// Bytes of one read or write.
const PIECE: usize = 1 << 20;

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    // The limits allow the whole machine, so that the copy and the server are measured and not a limit.
    let wish = json!({"id": "bench", "cpu_millis": 64_000, "memory_mib": 8192});
    client.call(hyper::Method::POST, "/v1/sandboxes", Some(&wish))?;
    small(&server, &mut client, rounds)?;
    large(&server, &mut client)
}

fn small(server: &BenchServer, client: &mut HttpClient, rounds: usize) -> Result<()> {
    client.session("bench", &format!("head -c {SMALL} /dev/zero >small"))?;
    let mut wire = Wire::open(server)?;
    let names = ["cp, in a shell", "write", "read", "cp, a program"];
    let mut times: Vec<_> = names.iter().map(|name| (*name, Times::default())).collect();
    for _ in 0..rounds {
        for (at, (_, times)) in times.iter_mut().enumerate() {
            for _ in 0..BURST {
                let begun = Instant::now();
                match at {
                    0 => drop(client.session("bench", "cp small copy")?),
                    1 => drop(wire.put("small", SMALL as u64)?),
                    2 => ensure!(wire.get("small")? == SMALL as u64, "another file"),
                    _ => drop(client.exec("bench", "exec cp small copy")?),
                }
                times.push(begun.elapsed());
            }
        }
    }
    rows("### a file of 1 KB", &times);
    Ok(())
}

fn large(server: &BenchServer, client: &mut HttpClient) -> Result<()> {
    client.session("bench", &format!("head -c {LARGE} /dev/zero >large"))?;
    let mut wire = Wire::open(server)?;
    let names = ["cp", "cp and sync", "write", "write, fsync=1", "read", "cat >/dev/null"];
    let mut times: Vec<_> = names.iter().map(|name| (*name, Times::default())).collect();
    for _ in 0..LARGE_ROUNDS {
        for (at, (_, times)) in times.iter_mut().enumerate() {
            // Data that the previous run has not flushed would slow this run.
            client.session("bench", "rm -f copy; sync")?;
            let begun = Instant::now();
            match at {
                0 => drop(client.session("bench", "cp large copy")?),
                1 => drop(client.session("bench", "cp large copy; sync copy")?),
                2 => drop(wire.put("copy", LARGE)?),
                3 => drop(wire.put("copy?fsync=1", LARGE)?),
                4 => ensure!(wire.get("large")? == LARGE, "another file"),
                _ => drop(client.session("bench", "cat large >/dev/null")?),
            }
            times.push(begun.elapsed());
        }
    }
    rows("### a file of 1 GB", &times);
    Ok(())
}

/// A keep-alive connection that is read and written directly, so that no client library adds copies.
pub(crate) struct Wire {
    from: BufReader<TcpStream>,
    to: TcpStream,
    head: String,
    piece: Vec<u8>,
}

impl Wire {
    fn open(server: &BenchServer) -> Result<Self> {
        Self::to(&server.endpoint())
    }

    /// Opens a connection for files of the sandbox `bench`.
    pub(crate) fn to(endpoint: &Endpoint) -> Result<Self> {
        let to = TcpStream::connect(endpoint.address)?;
        to.set_nodelay(true)?;
        to.set_read_timeout(Some(Duration::from_secs(120)))?;
        let head = format!(
            "HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n",
            endpoint.address, endpoint.key
        );
        let from = BufReader::with_capacity(PIECE, to.try_clone()?);
        Ok(Self { from, to, head, piece: vec![0; PIECE] })
    }

    pub(crate) fn put(&mut self, path: &str, length: u64) -> Result<u64> {
        let head = format!(
            "PUT /v1/sandboxes/bench/files/{path} {}content-length: {length}\r\n\r\n",
            self.head
        );
        // In one packet if it fits, as clients send it.
        let first = usize::try_from(length)?.min(PIECE - head.len());
        self.to.write_all(&[head.as_bytes(), &self.piece[..first]].concat())?;
        let mut left = length - first as u64;
        while left > 0 {
            let piece = usize::try_from(left.min(PIECE as u64))?;
            self.to.write_all(&self.piece[..piece])?;
            left -= piece as u64;
        }
        self.answer()
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<u64> {
        let head = format!("GET /v1/sandboxes/bench/files/{path} {}\r\n", self.head);
        self.to.write_all(head.as_bytes())?;
        self.answer()
    }

    /// Reads a whole response. Returns the length of its body.
    fn answer(&mut self) -> Result<u64> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.1 20"), "{line}");
        let mut length = None;
        while line != "\r\n" {
            line.clear();
            ensure!(self.from.read_line(&mut line)? > 0, "the answer ends early");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = Some(value.trim().parse::<u64>()?);
            }
        }
        let length = length.context("an answer tells its length")?;
        let mut left = length;
        while left > 0 {
            let piece = usize::try_from(left.min(PIECE as u64))?;
            let count = self.from.read(&mut self.piece[..piece])?;
            ensure!(count > 0, "the body ends early");
            left -= count as u64;
        }
        Ok(length)
    }
}
