//! A small web server that runs inside a sandbox and answers `/N` with N bytes. It costs less than
//! the path that is measured.

use anyhow::Result;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

/// Bytes of one write.
const PART_BYTES: usize = 256 * 1024;

/// Serves on a port of 127.0.0.1 with one thread per connection, until it is killed.
pub(crate) fn serve(port: u16) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || answer(stream));
    }
    Ok(())
}

/// Answers the requests of one connection.
fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let part = vec![b'x'; PART_BYTES];
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default();
        let count: usize = path.trim_start_matches('/').parse().unwrap_or(0);
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {count}\r\n\r\n");
        let first = count.min(PART_BYTES - head.len());
        let mut answer = head.into_bytes();
        answer.extend_from_slice(&part[..first]);
        stream.write_all(&answer)?;
        let mut left = count - first;
        while left > 0 {
            let some = left.min(PART_BYTES);
            stream.write_all(&part[..some])?;
            left -= some;
        }
    }
}
