//! Requests whose text is small and whose cost was large: tests bound what they cost, and
//! `make bench attack` prints it. Also measures how much memory a process takes for them.

use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;

/// As many displayed values as fit into about 31 MiB, for [`forged_display`].
pub const MANY_DISPLAYED: &str = "b'[' + b'[],' * (10 << 20) + b'0]'";
/// The beginning of a form whose only part has a file name that never ends.
pub const ENDLESS_HEAD: &str = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"";

/// Writes what the driver of the interpreter would write, on its descriptor.
const FORGE: &str = r#"
import os
said = b'{"kind":"display","data":{"a/b":' + value + b'},"metadata":{}}'
left = memoryview(len(said).to_bytes(4, 'big') + b'\x02' + said)
while left:
    try:
        left = left[os.write(3, left):]
    except BlockingIOError:
        pass
"#;
const PIECE_BYTES: usize = 1 << 20;

/// A JSON list of as many values as fit into `bytes`.
#[must_use]
pub fn many_values(bytes: usize) -> String {
    let one = r#"{"a":0},"#;
    format!("[{}0]", one.repeat(bytes / one.len()))
}

/// A message to `/mcp` that contains a JSON value.
#[must_use]
pub fn mcp_message(value: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"x":{value}}}}}"#)
}

/// A request to create a sandbox whose metadata contain a JSON value.
#[must_use]
pub fn sandbox_body(value: &str) -> String {
    format!(r#"{{"metadata":{{"a":{value}}}}}"#)
}

/// Code that displays bytes, given as an expression of Python, as if the driver of its interpreter did.
#[must_use]
pub fn forged_display(value: &str) -> String {
    format!("value = {value}{FORGE}")
}

/// A form with an upload to a sandbox, in the dialect of SWE-ReX.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// The sandbox.
    pub sandbox: &'a str,
    /// The key of its tenant.
    pub key: &'a str,
    /// What comes before the MiBs of letters.
    pub start: &'a str,
    /// How many MiB of letters follow, at most.
    pub mib: usize,
    /// What comes after them.
    pub end: &'a str,
    /// The length that the head states, in bytes.
    pub length: u64,
}

impl Form<'_> {
    /// Sends the form, as far as the server takes it.
    ///
    /// # Errors
    /// An error of the connection while the head is sent.
    pub fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        let head = format!(
            "POST /v1/swerex/{}/upload HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\n\
             content-type: multipart/form-data; boundary=x\r\ncontent-length: {}\r\n\r\n{}",
            self.sandbox,
            stream.peer_addr()?,
            self.key,
            self.length,
            self.start
        );
        stream.write_all(head.as_bytes())?;
        let piece = vec![b'a'; PIECE_BYTES];
        let sent = (0..self.mib).try_for_each(|_| stream.write_all(&piece));
        let _ = sent.and_then(|()| stream.write_all(self.end.as_bytes()));
        Ok(())
    }
}

/// The peak of a process's memory from a moment on.
#[derive(Debug)]
pub struct MemoryPeak {
    pid: u32,
    before_kib: u64,
}

impl MemoryPeak {
    /// Begins to measure. Needs root.
    ///
    /// # Errors
    /// An error of `/proc`.
    pub fn from_now(pid: u32) -> io::Result<Self> {
        // Sets the peak to what the process holds now.
        fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
        Ok(Self { pid, before_kib: status_kib(pid, "VmRSS:")? })
    }

    /// By how much the peak is above what the process held at first, in MiB.
    ///
    /// # Errors
    /// An error of `/proc`.
    pub fn grown_mib(&self) -> io::Result<u64> {
        Ok(status_kib(self.pid, "VmHWM:")?.saturating_sub(self.before_kib) / 1024)
    }
}

fn status_kib(pid: u32, name: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix(" kB"));
    let number = found.and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no {name}")))
}
