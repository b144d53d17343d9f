//! A real S3 server (moto), and a proxy in front of it that injects faults.

use crate::{SOON, free_port, wait_until};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The bucket of every [`S3Server`].
pub const BUCKET: &str = "bucket";
/// Maximum length of the head of a message, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A running S3 server with a bucket. It is killed when dropped, and its objects are lost.
pub struct S3Server {
    child: Child,
    address: SocketAddr,
}

impl S3Server {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// When moto is not installed (`make clients`), or does not start.
    #[must_use]
    pub fn start() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let child = Command::new(program())
            .args(["-H", "127.0.0.1", "-p", &address.port().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let server = Self { child, address };
        let path = format!("/{BUCKET}");
        wait_until("the bucket exists", SOON, || server.request("PUT", &path).map(drop));
        server
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request without a body, signed as moto accepts it. `None` unless it succeeds.
    #[must_use]
    pub fn request(&self, method: &str, path: &str) -> Option<String> {
        request(self.address, method, path)
    }

    /// The keys of all objects, without those after the first 1,000.
    ///
    /// # Panics
    /// When the server does not answer.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        keys(&self.request("GET", &format!("/{BUCKET}?list-type=2")).expect("a list"))
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of the S3 server.
///
/// # Panics
/// When moto is not installed (`make clients`).
#[must_use]
pub fn program() -> PathBuf {
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients/moto/bin/moto_server");
    assert!(program.is_file(), "{} is missing: run `make clients`", program.display());
    program
}

/// The keys in a list of objects.
#[must_use]
pub fn keys(list: &str) -> Vec<String> {
    let parts = list.split("<Key>").skip(1);
    parts.filter_map(|part| Some(part.split_once("</Key>")?.0.to_owned())).collect()
}

/// Sends a request without a body to an S3 server, signed as moto accepts it. `None` unless it
/// succeeds.
#[must_use]
pub fn request(server: SocketAddr, method: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(server).ok()?;
    let credential = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, \
                      SignedHeaders=host, Signature=0";
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {server}\r\nauthorization: {credential}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.lines().next()?.contains(" 200 ").then_some(text)
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is passed on.
    None,
    /// It is answered with status 500.
    Status500,
    /// The body of the answer ends in its middle.
    Truncated,
    /// The answer arrives after this time.
    Delayed(Duration),
    /// A byte of the answer's body is another one.
    WrongByte,
    /// The body of the answer has 100 MiB more.
    Endless,
    /// The answer says that there is no such object. Nothing is passed on.
    NotFound,
    /// The answer is a list without names. Nothing is passed on.
    EmptyList,
    /// The answer is a page for people with status 200, as of a proxy. Nothing is passed on.
    Page,
}

impl Fault {
    /// The answer, if nothing is passed on.
    fn answer(self) -> Option<String> {
        let (status, kind, body) = match self {
            Self::Status500 => ("500 Internal Server Error", "text/plain", "FAULTY"),
            Self::NotFound => (
                "404 Not Found",
                "application/xml",
                "<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>",
            ),
            Self::EmptyList => (
                "200 OK",
                "application/xml",
                "<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>",
            ),
            Self::Page => {
                ("200 OK", "text/html", "<html><body>Please try again later.</body></html>")
            }
            _ => return None,
        };
        Some(format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
             etag: \"0\"\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        ))
    }
}

/// A wrong answer of a store about something that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// It has no manifest of the snapshot.
    NoManifest,
    /// It sends a page instead of the manifest.
    PageForManifest,
    /// It lists a state without the indexes.
    NoIndexes,
    /// It has no pack with the files.
    NoPack,
}

impl Lie {
    /// All of them, in the order in which a restore meets them.
    pub const ALL: [Self; 4] =
        [Self::NoManifest, Self::PageForManifest, Self::NoIndexes, Self::NoPack];

    /// The fault for a request that this lie can answer.
    #[must_use]
    pub fn about(self, method: &str, path: &str) -> Option<Fault> {
        let lists = path.contains("list-type=2");
        let (concerns, fault) = match self {
            Self::NoManifest => (!lists && path.contains("/snapshots/"), Fault::NotFound),
            Self::PageForManifest => (!lists && path.contains("/snapshots/"), Fault::Page),
            Self::NoIndexes => (lists && path.contains("index"), Fault::EmptyList),
            Self::NoPack => (!lists && path.contains("/packs/"), Fault::NotFound),
        };
        (concerns && method == "GET").then_some(fault)
    }
}

/// Decides about a request by its method and path, and its number.
type Plan = Box<dyn Fn(&str, &str, u64) -> Fault + Send>;

struct Shared {
    to: SocketAddr,
    plan: Mutex<Plan>,
    requests: AtomicU64,
    /// Bytes of request bodies.
    sent: AtomicU64,
    injected: AtomicU64,
    ends: AtomicBool,
}

impl std::fmt::Debug for FaultyProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A proxy that injects faults. It stops accepting connections when dropped.
pub struct FaultyProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl FaultyProxy {
    /// Starts a proxy in front of a server, without faults.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn start(server: &S3Server) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        Self::between(listener, server.address())
    }

    /// Starts a proxy that accepts at a listener and connects to a server, in the network namespace of this
    /// thread, without faults.
    ///
    /// # Panics
    /// When the listener has no address.
    #[must_use]
    pub fn between(listener: TcpListener, to: SocketAddr) -> Self {
        let address = listener.local_addr().expect("a port");
        let shared = Arc::new(Shared {
            to,
            plan: Mutex::new(Box::new(|_, _, _| Fault::None)),
            requests: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            injected: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.ends.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&own);
                thread::spawn(move || serve(&shared, stream));
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Decides about further requests, whose numbers begin at 0.
    pub fn plan(&self, plan: impl Fn(&str, &str, u64) -> Fault + Send + 'static) {
        *self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(plan);
        self.shared.requests.store(0, Ordering::Relaxed);
    }

    /// Bytes of the bodies of all requests so far.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// The number of faults so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.shared.injected.load(Ordering::Relaxed)
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Passes one request on. The connection ends after it.
fn serve(shared: &Shared, mut client: TcpStream) -> Option<()> {
    let request = read_message(&mut client)?;
    shared.sent.fetch_add(request.body.len() as u64, Ordering::Relaxed);
    let first = request.head.lines().next()?.to_owned();
    let mut words = first.split(' ');
    let method = words.next()?;
    let path = words.next()?;
    let fault = {
        let plan = shared.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan(method, path, shared.requests.fetch_add(1, Ordering::Relaxed))
    };
    if fault != Fault::None {
        shared.injected.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(answer) = fault.answer() {
        return client.write_all(answer.as_bytes()).ok();
    }
    let mut server = TcpStream::connect(shared.to).ok()?;
    let lines =
        request.head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    write!(server, "{}\r\nconnection: close\r\n\r\n", head.join("\r\n")).ok()?;
    server.write_all(&request.body).ok()?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).ok()?;
    let body = find_end(&answer)?;
    match fault {
        Fault::Truncated => answer.truncate(body + (answer.len() - body) / 2),
        Fault::WrongByte => {
            let middle = body + (answer.len() - body) / 2;
            *answer.get_mut(middle)? ^= 1;
        }
        Fault::Endless => {
            // Without a length, the body goes on until the connection ends.
            let head = String::from_utf8_lossy(&answer[..body]).into_owned();
            let lines = head
                .lines()
                .filter(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
            let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
            let mut endless = format!("{}\r\n\r\n", lines.join("\r\n")).into_bytes();
            endless.extend_from_slice(&answer[body..]);
            client.write_all(&endless).ok()?;
            for _ in 0..100 {
                client.write_all(&vec![b'x'; 1 << 20]).ok()?;
            }
            return Some(());
        }
        Fault::Delayed(time) => thread::sleep(time),
        // The others were answered above.
        _ => {}
    }
    client.write_all(&answer).ok()
}

struct HttpMessage {
    head: String,
    body: Vec<u8>,
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).take(HEAD_BYTES_MAX).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads a request with its body.
fn read_message(from: &mut TcpStream) -> Option<HttpMessage> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    let end = loop {
        if let Some(end) = find_end(&bytes) {
            break end;
        }
        match from.read(&mut piece).ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&piece[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.unwrap_or(0);
    let mut body = bytes.split_off(end);
    while body.len() < length {
        match from.read(&mut piece).ok()? {
            0 => return None,
            count => body.extend_from_slice(&piece[..count]),
        }
    }
    Some(HttpMessage { head, body })
}
