//! Egress against the parts that it is built from: creates with and without egress, and bytes,
//! connections and DNS lookups against a plain veth pair with the same masquerading.

use crate::far::{self, Far, NAME, RESOLVER, within};
use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use crate::warm_pool;
use anyhow::{Context, Result, bail};
use hyper::Method;
use serde_json::{Value, json};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connections, and lookups, of one path in a row before the next path follows.
const CONNECTIONS: usize = 60;
/// The egress proxy's limit on DNS queries of one sandbox per second.
const LOOKUPS: usize = 20;
/// Bytes that are transferred in each direction, and the most transfers.
const BYTES: u64 = 1_000_000_000;
const CARRIED_MAX: usize = 8;
/// The DNS server inside the sandbox.
const GATEWAY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 231, 0, 1), 53);

/// One path out of the sandbox, and its times.
struct NetworkPath {
    name: &'static str,
    network: OwnedFd,
    resolver: SocketAddrV4,
    down: Times,
    up: Times,
    connected: Times,
    looked_up: Times,
}

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    // A new thread leaves the machine's network, with all that it starts.
    let work = || -> Result<()> {
        let far = Far::new()?;
        let config = std::env::temp_dir().join(format!("isolet-bench-{}.toml", std::process::id()));
        std::fs::write(&config, format!("[network]\nresolvers = [\"{RESOLVER}\"]\n"))?;
        let path = config.to_str().context("a path of text")?;
        let server = BenchServer::start_with(bin, &[("ISOLET_CONFIG", path)])?;
        let done = creates(&server, rounds).and_then(|()| paths(&server, &far, rounds));
        drop(server);
        let _ = std::fs::remove_file(config);
        done
    };
    std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

/// The body of a create request.
fn networks() -> [(&'static str, Value); 4] {
    [
        ("none", json!("none")),
        ("open", json!("open")),
        ("rules by address", json!({"allow": ["198.51.100.0/24:443", "203.0.113.20"]})),
        ("rules by name", json!({"allow": [NAME, format!("*.{NAME}")]})),
    ]
}

fn creates(server: &BenchServer, rounds: usize) -> Result<()> {
    let mut client = HttpClient::connect(server)?;
    let variants = networks().map(|(name, network)| (name, json!({ "network": network })));
    warm_pool::table(&mut client, "a create, from the warm pool (aim: 1.15)", &variants, rounds)
}

fn paths(server: &BenchServer, far: &Far, rounds: usize) -> Result<()> {
    let mut client = HttpClient::connect(server)?;
    let path = |name, network, resolver| NetworkPath {
        name,
        network,
        resolver,
        down: Times::default(),
        up: Times::default(),
        connected: Times::default(),
        looked_up: Times::default(),
    };
    let mut paths = vec![path("plain pair", far.plain.try_clone()?, RESOLVER)];
    for (name, rules) in [
        ("open", json!("open")),
        ("rules by address", json!({"allow": ["198.51.100.0/24"]})),
        ("rules by name, TLS", json!({"allow": [NAME, format!("*.{NAME}")]})),
    ] {
        let id = name.split(' ').next_back().unwrap_or(name).to_ascii_lowercase();
        let resolver = if name.contains("name") { GATEWAY } else { RESOLVER };
        paths.push(path(name, inside(&mut client, &id, &rules)?, resolver));
    }
    for round in 0..rounds {
        for path in &mut paths {
            path.lookups(round)?;
            path.connections()?;
            if round < CARRIED_MAX {
                let bytes = within(&path.network, || {
                    Ok((far::carried(BYTES, true)?, far::carried(BYTES, false)?))
                });
                let (down, up) = bytes?;
                path.down.push(down);
                path.up.push(up);
            }
        }
    }
    let rate = |times: &Times| BYTES as f64 / times.median();
    println!("\n### 1 GB (aims: 0.9 of a plain pair, 0.6 through the check of TLS)");
    println!("| path | MB/s in | of plain | MB/s out | of plain |\n|---|---|---|---|---|");
    let plain = (rate(&paths[0].down), rate(&paths[0].up));
    for path in &paths {
        let down = rate(&path.down);
        let up = rate(&path.up);
        let of_down = down / plain.0;
        let of_up = up / plain.1;
        println!("| {} | {down:.0} | {of_down:.2} | {up:.0} | {of_up:.2} |", path.name);
    }
    let all = |times: fn(&NetworkPath) -> &Times| -> Vec<_> {
        paths.iter().map(|path| (path.name, times(path).clone())).collect()
    };
    rows("### a connection, to the host's first byte", &all(|path| &path.connected));
    let asked = [("the resolver itself", &paths[0]), ("the edge", &paths[3])];
    rows("### a lookup", &asked.map(|(name, path)| (name, path.looked_up.clone())));
    Ok(())
}

impl NetworkPath {
    fn lookups(&mut self, round: usize) -> Result<()> {
        let resolver = self.resolver;
        let times = within(&self.network, || {
            let socket = far::asks(resolver)?;
            // The name that the connections below use.
            far::lookup(&socket, NAME)?;
            (0..LOOKUPS)
                .map(|n| {
                    std::thread::sleep(Duration::from_millis(2));
                    far::lookup(&socket, &format!("n{round}-{n}.{NAME}"))
                })
                .collect::<Result<Vec<_>>>()
        });
        times?.into_iter().for_each(|time| self.looked_up.push(time));
        Ok(())
    }

    fn connections(&mut self) -> Result<()> {
        let times = within(&self.network, || {
            (0..CONNECTIONS).map(|_| Ok(far::connect()?.1)).collect::<Result<Vec<_>>>()
        });
        times?.into_iter().for_each(|time| self.connected.push(time));
        Ok(())
    }
}

/// Creates a sandbox with these rules. Returns its network namespace.
fn inside(client: &mut HttpClient, id: &str, network: &Value) -> Result<OwnedFd> {
    client.call(Method::POST, "/v1/sandboxes", Some(&json!({ "id": id, "network": network })))?;
    let mark = format!("97531.{}{}", std::process::id(), id.len());
    let body = json!({ "id": "mark", "command": format!("exec sleep {mark}") });
    client.call(Method::POST, &format!("/v1/sandboxes/{id}/processes"), Some(&body))?;
    let wanted = format!("sleep\0{mark}\0");
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            if line == wanted {
                return Ok(File::open(entry.path().join("ns/net"))?.into());
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("the process that marks a sandbox's network is not found")
}
