//! A web server inside a sandbox, called from its own network and through the server's
//! `/ports/`, and through nginx as a proxy in that network if this machine has nginx. Any proxy
//! has to wake two more processes per request, and copies each byte in and out once more.

use crate::http::HttpClient;
use crate::nginx::Nginx;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::{Result, bail, ensure};
use hyper::Method;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Ports of the small web server and of one in Node, inside.
const PORT: u16 = 8000;
const NODE_PORT: u16 = 8001;
/// The port of nginx.
const NGINX_PORT: u16 = 8002;
/// A typical web server.
const NODE: &str = "require('http').createServer((request, response) => {
    response.end('x'.repeat(Number(request.url.slice(1))));
}).listen(Number(process.argv[2]), '127.0.0.1');";
/// Requests of one variant in a row before the next variant follows.
const BURST: usize = 300;
/// Runs at the start of a row that are not counted.
const WARM: usize = 50;
const SMALL: usize = 1024;
const LARGE: usize = 100_000_000;
/// The longest wait until the server listens.
const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// One path to a web server, and its times.
struct ServerPath {
    name: &'static str,
    client: HttpClient,
    /// The path before the requested size.
    path: String,
    small: Times,
    large: Times,
}

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    client.create("bench")?;
    let own = std::fs::read(std::env::current_exe()?)?;
    client.put("/v1/sandboxes/bench/files/guest", own)?;
    client.put("/v1/sandboxes/bench/files/guest.js", NODE.into())?;
    let command = format!("chmod +x guest && exec ./guest --serve {PORT}");
    guest(&mut client, "guest", &command, PORT)?;
    guest(&mut client, "node", &format!("exec node guest.js {NODE_PORT}"), NODE_PORT)?;
    let network = format!("/proc/{}/ns/net", pid()?);
    let nginx = Nginx::start(&network, NGINX_PORT, PORT)?;
    let route = |name, client, path: &str| ServerPath {
        name,
        client,
        path: path.to_owned(),
        small: Times::default(),
        large: Times::default(),
    };
    let through = |port: u16| format!("/v1/sandboxes/bench/ports/{port}/");
    let within = |port: u16| HttpClient::over(within(&network, port)?, &server);
    let mut plain = vec![route("direct, inside", within(PORT)?, "/")];
    if nginx.is_some() {
        plain.push(route("nginx, inside", within(NGINX_PORT)?, "/"));
    }
    plain.push(route("isolet, /ports/", HttpClient::connect(&server)?, &through(PORT)));
    let mut node = vec![
        route("direct, inside", within(NODE_PORT)?, "/"),
        route("isolet, /ports/", HttpClient::connect(&server)?, &through(NODE_PORT)),
    ];
    for _ in 0..rounds {
        for route in plain.iter_mut().chain(&mut node) {
            route.small()?;
        }
        for route in &mut plain {
            route.large.push(fetched(&mut route.client, &format!("{}{LARGE}", route.path), LARGE)?);
        }
    }
    let small = |routes: &[ServerPath]| -> Vec<_> {
        routes.iter().map(|route| (route.name, route.small.clone())).collect()
    };
    rows("### a request of 1 KB over a kept connection (aim: 1.3)", &small(&plain));
    rows("### the same of a server in Node", &small(&node));
    println!("\n### 100 MB (aim: 0.7 of direct)\n| route | MB/s | of direct |\n|---|---|---|");
    let rate = |route: &ServerPath| LARGE as f64 / route.large.median();
    for route in &plain {
        println!("| {} | {:.0} | {:.2} |", route.name, rate(route), rate(route) / rate(&plain[0]));
    }
    Ok(())
}

impl ServerPath {
    fn small(&mut self) -> Result<()> {
        let path = format!("{}{SMALL}", self.path);
        for turn in 0..BURST {
            let time = fetched(&mut self.client, &path, SMALL)?;
            if turn >= WARM {
                self.small.push(time);
            }
        }
        Ok(())
    }
}

fn fetched(client: &mut HttpClient, path: &str, count: usize) -> Result<Duration> {
    let begun = Instant::now();
    let got = client.fetch(path)?;
    let time = begun.elapsed();
    ensure!(got == count, "{got} bytes of {path}");
    Ok(time)
}

/// Starts a web server inside, and waits until it listens.
fn guest(client: &mut HttpClient, id: &str, command: &str, port: u16) -> Result<()> {
    let processes = "/v1/sandboxes/bench/processes";
    let body = json!({ "id": id, "command": command });
    client.call(Method::POST, processes, Some(&body))?;
    let wait = json!({ "port": { "port": port }, "timeout_ms": LISTEN_WAIT.as_millis() as u64 });
    let waited = client.call(Method::POST, &format!("{processes}/{id}/wait"), Some(&wait))?;
    ensure!(waited["outcome"] == "met", "{waited}");
    Ok(())
}

/// Connects to a web server from within the sandbox's network: a thread enters the namespace, and only
/// the socket remains.
fn within(network: &str, port: u16) -> Result<TcpStream> {
    let network = File::open(network)?;
    let thread = std::thread::spawn(move || -> Result<TcpStream> {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(TcpStream::connect(("127.0.0.1", port))?)
    });
    thread.join().expect("no panic")
}

/// The pid of a process as seen from the host.
fn pid() -> Result<u32> {
    let wanted = format!("./guest\0--serve\0{PORT}\0");
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if line == wanted {
            return Ok(pid);
        }
    }
    bail!("the web server inside is not found")
}
