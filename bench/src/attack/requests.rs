//! The attacks, and the honest requests of their sizes.

use crate::http::HttpClient;
use crate::server::{BenchServer, Endpoint};
use anyhow::{Context, Result};
use hyper::Method;
use isolet_kit::attacks::{
    ENDLESS_HEAD, Form, MANY_DISPLAYED, forged_display, many_values, mcp_message, sandbox_body,
};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const SANDBOX: &str = "attacker";
/// Snapshots with 15 KiB of metadata each.
const SNAPSHOTS: usize = 60;
const MIB: usize = 1 << 20;
/// How long clients that read nothing stay.
const STALLED: Duration = Duration::from_secs(3);
/// Makes two directories of 5000 files, with short and with long paths.
const DIRECTORIES: &str = "import os
def fill(name, parts, letters):
    os.makedirs(name, exist_ok=True)
    os.chdir(name)
    for n in range(parts):
        os.mkdir('d' * 250)
        os.chdir('d' * 250)
    for n in range(5000):
        open(f'{n:05}'.ljust(letters, 'f'), 'w').close()
fill('/workspace/short', 0, 5)
fill('/workspace/long', 14, 250)
";

/// A tenant with a sandbox and snapshots.
pub(super) struct Attacker {
    endpoint: Endpoint,
    token: String,
}

/// A request on a connection of its own.
struct Request<'a> {
    method: &'static str,
    path: String,
    headers: String,
    body: &'a [u8],
}

impl Attacker {
    pub(super) fn prepare(server: &BenchServer, key: String) -> Result<Self> {
        let endpoint = Endpoint { key, ..server.endpoint() };
        let mut client = HttpClient::to(&endpoint)?;
        client.create(SANDBOX)?;
        client.put(&format!("/v1/sandboxes/{SANDBOX}/files/fill.py"), DIRECTORIES.into())?;
        client.exec(SANDBOX, "python3 fill.py")?;
        let context = json!({"id": "c", "language": "python", "kernel": "none"});
        client.call(Method::POST, &format!("/v1/sandboxes/{SANDBOX}/contexts"), Some(&context))?;
        for n in 0..SNAPSHOTS {
            let body = json!({"name": format!("s{n}"), "metadata": {"a": "a".repeat(15 * 1024)}});
            client.call(
                Method::POST,
                &format!("/v1/sandboxes/{SANDBOX}/snapshots"),
                Some(&body),
            )?;
        }
        let connect = Request {
            method: "POST",
            path: format!("/sandboxes/{SANDBOX}/connect"),
            headers: format!("x-api-key: {}\r\ncontent-type: application/json\r\n", endpoint.key),
            body: br#"{"timeout":3000}"#,
        };
        let mut attacker = Self { endpoint, token: String::new() };
        let answer = attacker.answer(&connect)?;
        let at = answer.find("\"envdAccessToken\":\"").context("an access token")?;
        let token = answer[at..].split('"').nth(3).context("a token")?;
        attacker.token = token.to_owned();
        Ok(attacker)
    }

    /// Sends a request. The server may refuse it before it has read all.
    fn send(&self, request: &Request<'_>) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.endpoint.address)?;
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{}content-length: {}\r\n\r\n",
            request.method,
            request.path,
            self.endpoint.address,
            self.endpoint.key,
            request.headers,
            request.body.len()
        );
        stream.write_all(head.as_bytes())?;
        let _ = stream.write_all(request.body);
        Ok(stream)
    }

    /// Sends a request, and reads its answer as far as there is one.
    fn answer(&self, request: &Request<'_>) -> Result<String> {
        let headers = format!("{}connection: close\r\n", request.headers);
        let mut stream = self.send(&Request { headers, path: request.path.clone(), ..*request })?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Sends a request many times at once. With `stall`, nobody reads the answers.
    fn many(&self, count: usize, request: &Request<'_>, stall: bool) -> Result<()> {
        if stall {
            let sent: Result<Vec<_>> = (0..count).map(|_| self.send(request)).collect();
            std::thread::sleep(STALLED);
            drop(sent?);
            return Ok(());
        }
        std::thread::scope(|scope| {
            let running: Vec<_> =
                (0..count).map(|_| scope.spawn(|| self.answer(request).map(drop))).collect();
            running.into_iter().try_for_each(|one| one.join().unwrap_or(Ok(())))
        })
    }

    fn json<'a>(path: &str, body: &'a [u8]) -> Request<'a> {
        let headers =
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
        Request { method: "POST", path: path.to_owned(), headers: headers.to_owned(), body }
    }

    fn get(path: String) -> Request<'static> {
        Request { method: "GET", path, headers: String::new(), body: b"" }
    }

    pub(super) fn message(&self, honest: bool) -> Result<()> {
        let value = value(honest, 15 * MIB);
        let text = mcp_message(&value);
        self.answer(&Self::json("/mcp", text.as_bytes())).map(drop)
    }

    pub(super) fn display(&self, honest: bool) -> Result<()> {
        let value = match honest {
            true => "b'\"' + b'a' * (31 << 20) + b'\"'",
            false => MANY_DISPLAYED,
        };
        let code = json!({"code": forged_display(value)}).to_string();
        let path = format!("/v1/sandboxes/{SANDBOX}/contexts/c/run");
        self.answer(&Self::json(&path, code.as_bytes())).map(drop)
    }

    pub(super) fn bodies(&self, honest: bool) -> Result<()> {
        let value = value(honest, 2 * MIB - 100);
        let text = sandbox_body(&value);
        self.many(8, &Self::json("/v1/sandboxes", text.as_bytes()), false)
    }

    pub(super) fn directories(&self, honest: bool) -> Result<()> {
        let path = if honest { "short" } else { "long" };
        let body = json!({"path": format!("/workspace/{path}"), "depth": 20}).to_string();
        let path = format!("/v1/e2b/{SANDBOX}/filesystem.Filesystem/ListDir");
        let headers =
            format!("content-type: application/json\r\nx-access-token: {}\r\n", self.token);
        let request = Request { method: "POST", path, headers, body: body.as_bytes() };
        self.many(16, &request, true)
    }

    pub(super) fn snapshot_lists(&self, honest: bool) -> Result<()> {
        self.many(96, &Self::get("/v1/snapshots".to_owned()), !honest)
    }

    /// A file of 192 MiB, or as much before the content of a field as the server takes.
    pub(super) fn form(&self, honest: bool) -> Result<()> {
        let start = match honest {
            true => "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n",
            false => ENDLESS_HEAD,
        };
        let end = if honest { "\r\n--x--\r\n" } else { "" };
        let mib = 192;
        let length = (start.len() + mib * MIB + end.len()) as u64;
        let key = self.endpoint.key.as_str();
        let mut stream = TcpStream::connect(self.endpoint.address)?;
        Form { sandbox: SANDBOX, key, start, mib, end, length }.send(&mut stream)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let _ = stream.read(&mut [0; 64]);
        Ok(())
    }

    /// Lists that match nothing: one, or sixteen whose clients leave at once.
    pub(super) fn recursive_lists(&self, honest: bool) -> Result<()> {
        let path = "/v1/snapshots/s0/files?path=/&recursive=true&hidden=true&glob=nothing-matches";
        let request = Self::get(path.to_owned());
        if honest {
            return self.many(1, &request, false);
        }
        let sent: Result<Vec<_>> = (0..16).map(|_| self.send(&request)).collect();
        std::thread::sleep(Duration::from_millis(200));
        drop(sent?);
        Ok(())
    }

    pub(super) fn comparisons(&self, honest: bool) -> Result<()> {
        let request = Self::get("/v1/snapshots/s0/diff/s1".to_owned());
        self.many(if honest { 1 } else { 16 }, &request, false)
    }

    pub(super) fn signed_urls(&self, honest: bool) -> Result<()> {
        let mut stream = TcpStream::connect(self.endpoint.address)?;
        let wrong = "/files?path=a&username=user&signature=v1_wrong";
        let path = if honest { "/health" } else { wrong };
        let address = format!("e2b-sandbox-id: {SANDBOX}\r\ne2b-sandbox-port: 49983\r\n");
        let address = if honest { "" } else { &address };
        let host = self.endpoint.address;
        let text = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{address}\r\n");
        for _ in 0..2000 {
            stream.write_all(text.as_bytes())?;
            let mut read = [0; 4096];
            let mut answer = Vec::new();
            while !answer.ends_with(b"}") {
                let count = stream.read(&mut read)?;
                if count == 0 {
                    return Ok(());
                }
                answer.extend_from_slice(&read[..count]);
            }
        }
        Ok(())
    }
}

/// A JSON value of `bytes`: one text, or as many values as fit.
fn value(honest: bool, bytes: usize) -> String {
    match honest {
        true => format!("\"{}\"", "a".repeat(bytes - 2)),
        false => many_values(bytes - 8),
    }
}
