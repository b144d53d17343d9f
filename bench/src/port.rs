//! A web server inside a sandbox, asked from within its own network and through the
//! server's `/ports/`.

use crate::http::Client;
use crate::server::Server;
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

/// Where it listens inside.
const PORT: u16 = 8000;
/// Requests in a row of one variant before the next has its turn.
const BURST: usize = 300;
/// Of these, dropped at the start.
const WARM: usize = 50;
const SMALL: usize = 1024;
const LARGE: usize = 100_000_000;
/// Until it listens.
const LISTEN_WAIT: Duration = Duration::from_secs(10);

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = Server::start(bin)?;
    let mut client = Client::connect(&server)?;
    client.create("bench")?;
    guest(&mut client)?;
    let mut direct = Client::over(within()?, &server)?;
    let ways = ["direct, inside", "isolet, /ports/"];
    let mut small: Vec<_> = ways.map(|name| (name, Times::default())).into();
    let mut large = small.clone();
    let through = |count: usize| format!("/v1/sandboxes/bench/ports/{PORT}/{count}");
    for _ in 0..rounds {
        for turn in 0..BURST {
            let time = fetched(&mut direct, &format!("/{SMALL}"), SMALL)?;
            if turn >= WARM {
                small[0].1.push(time);
            }
        }
        for turn in 0..BURST {
            let time = fetched(&mut client, &through(SMALL), SMALL)?;
            if turn >= WARM {
                small[1].1.push(time);
            }
        }
        large[0].1.push(fetched(&mut direct, &format!("/{LARGE}"), LARGE)?);
        large[1].1.push(fetched(&mut client, &through(LARGE), LARGE)?);
    }
    rows("### a request of 1 KB over a kept connection (aim: 1.3)", &small);
    println!("\n### 100 MB (aim: 0.7 of direct)\n| way | MB/s | of direct |\n|---|---|---|");
    let rate = |times: &Times| LARGE as f64 / times.median();
    for (name, times) in &large {
        println!("| {name} | {:.0} | {:.2} |", rate(times), rate(times) / rate(&large[0].1));
    }
    Ok(())
}

fn fetched(client: &mut Client, path: &str, count: usize) -> Result<Duration> {
    let begun = Instant::now();
    let got = client.fetch(path)?;
    let time = begun.elapsed();
    ensure!(got == count, "{got} bytes of {path}");
    Ok(time)
}

/// Starts this program as the web server inside, and waits until it listens.
fn guest(client: &mut Client) -> Result<()> {
    let own = std::fs::read(std::env::current_exe()?)?;
    client.put("/v1/sandboxes/bench/files/guest", own)?;
    let processes = "/v1/sandboxes/bench/processes";
    let command = format!("chmod +x guest && exec ./guest --serve {PORT}");
    let body = json!({ "id": "guest", "command": command });
    client.call(Method::POST, processes, Some(&body))?;
    let wait = json!({ "port": { "port": PORT }, "timeout_ms": LISTEN_WAIT.as_millis() as u64 });
    let waited = client.call(Method::POST, &format!("{processes}/guest/wait"), Some(&wait))?;
    ensure!(waited["outcome"] == "met", "{waited}");
    Ok(())
}

/// A connection to it that is made within the sandbox's network: a thread goes there and leaves
/// nothing but the socket.
fn within() -> Result<TcpStream> {
    let network = File::open(format!("/proc/{}/ns/net", pid()?))?;
    let thread = std::thread::spawn(move || -> Result<TcpStream> {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(TcpStream::connect(("127.0.0.1", PORT))?)
    });
    thread.join().expect("no panic")
}

/// Its pid outside.
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
