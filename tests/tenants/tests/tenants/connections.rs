//! T19: one key opens as many connections as it can. The server refuses the excess immediately with
//! a reason, and no other client notices.

use isolet_kit::{
    Http, LONG, Options, Rows, SOON, Sandbox, Server, free_port, json, wait_until,
    with_growing_limit,
};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// More than any limit of a server with [`DESCRIPTORS`].
const TRIES: usize = 1_300;
const DESCRIPTORS: usize = 1_200;
/// More than the kernel buffers between a server and a client that does not read.
const LARGE_MIB: usize = 64;

/// The head of an answer and the connection that stays open after it.
struct Opened {
    status: u16,
    head: String,
    stream: TcpStream,
}

impl Opened {
    /// Sends a request with these headers and reads the head of the answer. Status 100 means that
    /// the server waits for the body.
    fn send(http: &Http, line: &str, headers: &str, body: &str) -> Self {
        let mut stream = http.connect();
        let key = http.key.as_deref().unwrap_or_default();
        let request = format!(
            "{line} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\n{headers}\r\n{body}",
            http.port
        );
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut head = Vec::new();
        let mut byte = [0; 1];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("an answer instead of silence");
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        Self { status: head[9..12].parse().expect("a status"), head, stream }
    }

    fn get(http: &Http, path: &str, headers: &str) -> Self {
        Self::send(http, &format!("GET {path}"), headers, "")
    }

    fn post(http: &Http, path: &str, body: &str) -> Self {
        let headers = format!(
            "accept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        Self::send(http, &format!("POST {path}"), &headers, body)
    }

    fn socket(http: &Http, path: &str) -> Self {
        let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        Self::get(http, path, upgrade)
    }

    /// Opens an upload that never ends: the body is announced but never sent.
    fn upload(http: &Http, line: &str) -> Self {
        Self::send(http, line, "content-length: 10\r\nexpect: 100-continue\r\n", "")
    }

    /// Whether the connection is open. Panics when a refusal has another cause than too many
    /// connections. A process limits its followers separately, and a sandbox its watches.
    #[track_caller]
    fn is_open(&mut self) -> bool {
        if matches!(self.status, 100 | 101 | 200) {
            return true;
        }
        let length = self.head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
        self.stream.read_exact(&mut body).expect("a body");
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(self.status, 429, "{body}");
        if body.contains("\"too_many\"") {
            assert!(body.contains("at most"), "{body}");
            return false;
        }
        assert!(self.head.contains("\r\nretry-after: 1\r\n"), "{}", self.head);
        assert!(body.contains("too_many_connections"), "{body}");
        assert!(body.contains("may hold no more") || body.contains("nearly all in use"), "{body}");
        false
    }
}

/// Opens connections until one is refused.
#[track_caller]
fn fill(open: &dyn Fn() -> Opened) -> Vec<Opened> {
    let mut all = Vec::new();
    while all.len() < TRIES {
        let mut opened = open();
        if !opened.is_open() {
            return all;
        }
        all.push(opened);
    }
    panic!("{} connections without a refusal", all.len());
}

/// Checks that the daily work of a tenant succeeds.
#[track_caller]
fn served(sandbox: &Sandbox) {
    sandbox.run("echo shell").is("shell\n", 0);
    assert_eq!(sandbox.says("echo exec"), "exec\n");
    let file = sandbox.path("/files/own.txt");
    let put = sandbox.http.send("PUT", &file, Some(b"mine"));
    assert!(matches!(put.status, 200 | 201 | 204), "{}", put.text());
    assert_eq!(sandbox.http.get(&file).expect(200).text(), "mine");
    assert_eq!(Opened::get(&sandbox.http, "/v1/events", "").status, 200);
    sandbox.http.get("/v1/sandboxes").expect(200);
}

/// A server with few descriptors, and a tenant that tries to use all of them.
struct Siege {
    server: Server,
    greedy: Http,
    reads: Http,
    mark: Sandbox,
    process: String,
}

/// Answers with a head and nothing more.
const STALLS: &str = "import asyncio
async def serve(reader, writer):
    await reader.readuntil(b'\\r\\n\\r\\n')
    writer.write(b'HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n')
    await asyncio.sleep(10000)
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', 8000, backlog=1000)
    await server.serve_forever()
asyncio.run(main())
";

impl Siege {
    fn begin() -> Self {
        // The agent has no more descriptors than the server, and each shell needs some of them.
        let config = "[connections]\nsockets = 40\nexecs = 40";
        let mut server = Options::new().descriptors(DESCRIPTORS).config(config).start();
        let greedy = server.add_key(&["--tenant", "greedy"]);
        let reads = server.add_key(&["--tenant", "greedy", "--read-only"]);
        let http = |key: &str| Http::new(server.port(), Some(key));
        let greedy = http(&greedy);
        let reads = http(&reads);
        let info = greedy.post("/v1/sandboxes", &json!({"pids": 4096})).expect(201).json();
        let id = info["id"].as_str().expect("an id").to_owned();
        let mark = Sandbox { id, http: greedy.clone() };
        mark.exec(&format!("truncate -s {LARGE_MIB}M large"));
        let started = mark.post("/processes", &json!({"command": "exec sleep 10000"})).expect(201);
        let process = started.json()["id"].as_str().expect("an id").to_owned();
        mark.http.send("PUT", &mark.path("/files/stalls.py"), Some(STALLS.as_bytes()));
        mark.post("/processes", &json!({"command": "exec python3 stalls.py"})).expect(201);
        wait_until("it listens", SOON, || {
            let ports = mark.http.get(&mark.path("/ports")).json();
            ports.as_array().is_some_and(|ports| !ports.is_empty()).then_some(())
        });
        Self { server, greedy, reads, mark, process }
    }

    /// Every method to hold a connection open.
    fn holdings(&self) -> Vec<Holding<'_>> {
        const EVENTS: &str = "accept: text/event-stream\r\n";
        let greedy = &self.greedy;
        let reads = &self.reads;
        let at = |rest: &str| self.mark.path(rest);
        let logs = at(&format!("/processes/{}/logs", self.process));
        let exec = r#"{"command":"sleep 10000"}"#;
        vec![
            holding("event streams", || Opened::get(greedy, "/v1/events", "")),
            holding("events, by a key that only reads", || Opened::get(reads, "/v1/events", "")),
            holding("followed logs", move || Opened::get(reads, &logs, EVENTS)),
            holding("watched directories", move || Opened::get(reads, &at("/files?watch=1"), "")),
            holding("shells", move || Opened::socket(greedy, &at("/shell"))),
            holding("terminals", move || Opened::socket(greedy, &at("/terminal?session=t"))),
            holding("views", move || Opened::socket(reads, &at("/terminal?session=t&mode=view"))),
            holding("TCP", move || Opened::socket(greedy, &at("/tcp/8000"))),
            holding("commands", move || Opened::post(greedy, &at("/exec"), exec)),
            holding("uploads", move || Opened::upload(greedy, &format!("PUT {}", at("/files/up")))),
            holding("downloads", move || Opened::get(reads, &at("/files/large"), "")),
            holding("ports", move || Opened::get(greedy, &at("/ports/8000/"), "")),
        ]
    }
}

/// One method to hold a connection open.
struct Holding<'a> {
    name: &'static str,
    open: Box<dyn Fn() -> Opened + 'a>,
}

fn holding<'a>(name: &'static str, open: impl Fn() -> Opened + 'a) -> Holding<'a> {
    Holding { name, open: Box::new(open) }
}

/// Promises: T20.
#[test]
fn heavy_t19_one_key_gets_only_its_share_of_the_connections() {
    let siege = Siege::begin();
    let neighbour = siege.server.sandbox();
    let mut rows = Rows::new();
    for Holding { name, open } in siege.holdings() {
        rows.row(name, || {
            // The server releases the connections of the row before a moment after their end.
            let first = wait_until("the first is accepted", SOON, || {
                let mut opened = open();
                opened.is_open().then_some(opened)
            });
            let mut all = fill(&open);
            all.push(first);
            served(&neighbour);
            let count = all.len();
            drop(all);
            let mut again = Vec::new();
            wait_until("closed connections are released", SOON, || {
                let mut opened = open();
                if opened.is_open() {
                    again.push(opened);
                }
                (again.len() == count).then_some(())
            });
        });
    }
    rows.row("all methods at once", || {
        let mut all: Vec<Opened> = Vec::new();
        wait_until("the rows before have ended", SOON, || {
            let mut opened = Opened::get(&siege.greedy, "/v1/events", "");
            opened.is_open().then(|| all.push(opened))
        });
        for Holding { open, .. } in siege.holdings() {
            all.extend(fill(&open));
        }
        served(&neighbour);
        siege.server.sandbox().delete();
        // A tenant at its limit can still read its lists and delete things.
        siege.greedy.get("/v1/sandboxes").expect(200);
        siege.mark.delete();
        drop(all);
    });
    rows.row("no key at all", || {
        let mut silent: Vec<TcpStream> = Vec::new();
        for n in 0..TRIES {
            let mut stream = siege.greedy.connect();
            if n % 2 == 0 {
                let _ = stream.write_all(b"GET /v1/sandboxes HTTP/1.1\r\nhost: loc");
            }
            silent.push(stream);
            if n % 400 == 399 {
                served(&neighbour);
            }
        }
    });
    drop(rows);
    served(&neighbour);
    siege.server.healthy();
}

/// Promises: T20.
#[test]
fn t19_dialects_refuse_in_their_own_error_format() {
    let server = Options::new().config("[connections]\nexecs = 1\nuploads = 1").start();
    let http = server.http();
    let sandbox = server.named(&server.sandbox_with(&json!({"id": "abc"})).id);
    let _held = Opened::post(&http, &sandbox.path("/exec"), r#"{"command":"sleep 10000"}"#);
    let argv = json!({"argv": ["true"]});
    let refused = http.post("/v1/sandbox/abc/exec", &argv).expect(429);
    assert_eq!(refused.json()["code"], "too_many_connections", "{}", refused.text());
    assert!(refused.json()["error"].as_str().is_some_and(|said| said.contains("running commands")));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let refused = http.post("/v1/runs/abc/exec", &json!({"command": "true"})).expect(429);
    assert_eq!(refused.error(), "too_many_connections", "{}", refused.text());
    let _upload = Opened::upload(&http, &format!("PUT {}", sandbox.path("/files/a")));
    let refused = http.send("PUT", "/v1/sandbox/abc/file/workspace/b", Some(b"b")).expect(429);
    assert_eq!(refused.json()["code"], "too_many_connections", "{}", refused.text());
}

/// A client that reads nothing loses its connection after a while; a connection without pending
/// output stays open.
/// Promises: T20.
#[test]
fn t19_a_client_that_reads_nothing_is_disconnected_and_an_idle_stream_is_not() {
    with_growing_limit(1, a_stalled_download_within);
}

/// Stalls a download on a server that waits for `stalled_s`; `None` if that was over before the
/// slot was asked for.
fn a_stalled_download_within(stalled_s: u64) -> Option<()> {
    let config = format!("[connections]\ndownloads = 1\nstalled_s = {stalled_s}");
    let server = Options::new().config(&config).start();
    let http = server.http();
    let sandbox = server.sandbox();
    sandbox.exec(&format!("truncate -s {LARGE_MIB}M large"));
    let mut quiet = http.try_open("GET", "/v1/events", None).expect("an answer");
    let path = sandbox.path("/files/large");
    let begun = Instant::now();
    let mut stalled = Opened::get(&http, &path, "");
    assert!(stalled.is_open());
    if Opened::get(&http, &path, "").is_open() {
        assert!(begun.elapsed() >= Duration::from_secs(stalled_s), "the only slot is taken");
        return None;
    }
    wait_until("its slot is free again", SOON, || {
        Opened::get(&http, &path, "").is_open().then_some(())
    });
    stalled.stream.set_read_timeout(Some(LONG)).expect("a time");
    let mut rest = Vec::new();
    let ended = stalled.stream.read_to_end(&mut rest);
    assert!(rest.len() < LARGE_MIB << 20, "the connection was closed: {ended:?}");
    server.sandbox().delete();
    while quiet.event().expect("the stream goes on").name != "destroyed" {}
    Some(())
}

/// Clients that hold connections to the metrics stop Prometheus only until their time is over.
#[test]
fn the_listener_of_the_metrics_serves_one_request_and_frees_idle_connections() {
    /// The server allows 16, for 20 s each.
    const IDLE: usize = 20;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let server = Options::new().config(&format!("metrics_listen = \"{address}\"\n")).start();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let scrape = |requests: usize| {
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(LONG)).expect("a time");
        stream.write_all(request.repeat(requests).as_bytes()).expect("it is sent");
        let mut answers = String::new();
        // What was not read when the server closed the connection may reset it.
        let _ = stream.read_to_string(&mut answers);
        answers
    };
    let answers = scrape(2);
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
    let idle: Vec<TcpStream> =
        (0..IDLE).map(|_| TcpStream::connect(address).expect("connects")).collect();
    assert!(scrape(1).starts_with("HTTP/1.1 200"), "they were closed");
    drop(idle);
    server.healthy();
}
