//! A way out beside what it is built from: creates with one beside creates without, and bytes,
//! connections and lookups beside a plain pair with the same masquerade.

use crate::ahead;
use crate::far::{self, Far, NAME, RESOLVER, within};
use crate::http::Client;
use crate::server::Server;
use crate::stats::{Times, rows};
use anyhow::{Context, Result, bail};
use hyper::Method;
use serde_json::{Value, json};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connections, and lookups, in a row of one way before the next has its turn.
const CONNECTIONS: usize = 60;
/// Of a second that a link may ask: the edge refuses more.
const LOOKUPS: usize = 20;
/// What is carried in each direction, and how often at most.
const BYTES: u64 = 1_000_000_000;
const CARRIED_MAX: usize = 8;
/// Who answers for names inside.
const GATEWAY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 231, 0, 1), 53);

/// One way out, and what it took.
struct Way {
    name: &'static str,
    network: OwnedFd,
    resolver: SocketAddrV4,
    down: Times,
    up: Times,
    connected: Times,
    looked_up: Times,
}

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    // A thread of its own leaves the machine's network, with all that it starts.
    let work = || -> Result<()> {
        let far = Far::new()?;
        let config = std::env::temp_dir().join(format!("isolet-bench-{}.toml", std::process::id()));
        std::fs::write(&config, format!("[network]\nresolvers = [\"{RESOLVER}\"]\n"))?;
        let path = config.to_str().context("a path of text")?;
        let server = Server::start_with(bin, &[("ISOLET_CONFIG", path)])?;
        let done = creates(&server, rounds).and_then(|()| ways(&server, &far, rounds));
        drop(server);
        let _ = std::fs::remove_file(config);
        done
    };
    std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

/// What a create asks for.
fn networks() -> [(&'static str, Value); 4] {
    [
        ("none", json!("none")),
        ("open", json!("open")),
        ("rules by address", json!({"allow": ["198.51.100.0/24:443", "203.0.113.20"]})),
        ("rules by name", json!({"allow": [NAME, format!("*.{NAME}")]})),
    ]
}

fn creates(server: &Server, rounds: usize) -> Result<()> {
    let mut client = Client::connect(server)?;
    let variants = networks().map(|(name, network)| (name, json!({ "network": network })));
    ahead::table(&mut client, "a create, made ahead (aim: 1.15)", &variants, rounds)
}

fn ways(server: &Server, far: &Far, rounds: usize) -> Result<()> {
    let mut client = Client::connect(server)?;
    let way = |name, network, resolver| Way {
        name,
        network,
        resolver,
        down: Times::default(),
        up: Times::default(),
        connected: Times::default(),
        looked_up: Times::default(),
    };
    let mut ways = vec![way("plain pair", far.plain.try_clone()?, RESOLVER)];
    for (name, rules) in [
        ("open", json!("open")),
        ("rules by address", json!({"allow": ["198.51.100.0/24"]})),
        ("rules by name, TLS", json!({"allow": [NAME, format!("*.{NAME}")]})),
    ] {
        let id = name.split(' ').next_back().unwrap_or(name).to_ascii_lowercase();
        let resolver = if name.contains("name") { GATEWAY } else { RESOLVER };
        ways.push(way(name, inside(&mut client, &id, &rules)?, resolver));
    }
    for round in 0..rounds {
        for way in &mut ways {
            way.lookups(round)?;
            way.connections()?;
            if round < CARRIED_MAX {
                let bytes = within(&way.network, || {
                    Ok((far::carried(BYTES, true)?, far::carried(BYTES, false)?))
                });
                let (down, up) = bytes?;
                way.down.push(down);
                way.up.push(up);
            }
        }
    }
    let rate = |times: &Times| BYTES as f64 / times.median();
    println!("\n### 1 GB (aims: 0.9 of a plain pair, 0.6 through the check of TLS)");
    println!("| way | MB/s in | of plain | MB/s out | of plain |\n|---|---|---|---|---|");
    let plain = (rate(&ways[0].down), rate(&ways[0].up));
    for way in &ways {
        let down = rate(&way.down);
        let up = rate(&way.up);
        let of_down = down / plain.0;
        let of_up = up / plain.1;
        println!("| {} | {down:.0} | {of_down:.2} | {up:.0} | {of_up:.2} |", way.name);
    }
    let all = |times: fn(&Way) -> &Times| -> Vec<_> {
        ways.iter().map(|way| (way.name, times(way).clone())).collect()
    };
    rows("### a connection, to the host's first byte", &all(|way| &way.connected));
    let asked = [("the resolver itself", &ways[0]), ("the edge", &ways[3])];
    rows("### a lookup", &asked.map(|(name, way)| (name, way.looked_up.clone())));
    Ok(())
}

impl Way {
    fn lookups(&mut self, round: usize) -> Result<()> {
        let resolver = self.resolver;
        let times = within(&self.network, || {
            let socket = far::asks(resolver)?;
            // What is connected to below by its name.
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

/// A sandbox with these rules: its network namespace.
fn inside(client: &mut Client, id: &str, network: &Value) -> Result<OwnedFd> {
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
