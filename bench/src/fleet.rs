//! Table (r): a fleet of three nodes in network namespaces of this machine: requests that the owner
//! receives, requests that another node forwards, and a server without `[cluster]`. [`failover`] loses
//! machines, [`departures`] moves sandboxes and drains a node. With `ISOLET_BEFORE_PROGRAMS`, a directory
//! with the programs of an earlier build, the table begins with a comparison of both builds without
//! `[cluster]`, in turns.

mod departures;
mod failover;

use crate::compare::{self, Compare};
use crate::file::Wire;
use crate::http::HttpClient;
use crate::server::Endpoint;
use crate::socket::SocketShell;
use crate::stats::{Times, rows};
use anyhow::{Context, Result, ensure};
use hyper::Method;
use isolet_fleet_tests::{FleetOptions, KEY, LocalFleet, LocalNode};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Commands of one variant in a row before the next variant follows.
const BURST: usize = 30;
/// Runs at the start of a row that are not counted.
const WARM: usize = 4;
/// Sandboxes of one variant in a row.
const CREATES: usize = 3;
/// Size of the large file, in bytes.
const LARGE: u64 = 1_000_000_000;
/// Rounds with the large file.
const LARGE_ROUNDS: usize = 5;
/// The variants of requests for a sandbox that exists.
const VARIANTS: [&str; 3] = ["to the owner", "to another node", "without [cluster]"];

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let bin = std::path::absolute(bin)?;
    if let Some(before) = std::env::var_os("ISOLET_BEFORE_PROGRAMS") {
        println!("### without [cluster]: {} against {}", before.display(), bin.display());
        compare::run(&Compare::of(before.into(), bin.clone(), rounds.max(2)))?;
    }
    failover::table(&bin)?;
    departures::table(&bin)?;
    requests(&bin, rounds)
}

fn requests(bin: &Path, rounds: usize) -> Result<()> {
    let fleet = LocalFleet::with(&FleetOptions {
        has_plain: true,
        programs: Some(bin.to_owned()),
        ..FleetOptions::default()
    });
    let plain = fleet.plain.as_ref().context("the server without [cluster]")?;
    let endpoints = [fleet.node("a"), fleet.node("b"), plain].map(endpoint);
    for at in [0, 2] {
        let mut client = HttpClient::to(&endpoints[at])?;
        let wish = json!({"id": "bench", "cpu_millis": 64_000, "memory_mib": 2048});
        client.call(Method::POST, "/v1/sandboxes", Some(&wish))?;
    }
    ensure!(fleet.owner("bench").as_deref() == Some("a"), "placement chose another node");
    commands(&endpoints, rounds)?;
    creates(&fleet, plain, rounds)?;
    large(&endpoints)
}

fn endpoint(node: &LocalNode) -> Endpoint {
    let port = isolet_fleet_tests::addresses::API_PORT;
    Endpoint { address: (node.address, port).into(), key: KEY.to_owned() }
}

fn new_rows(names: &[&'static str]) -> Vec<(&'static str, Times)> {
    names.iter().map(|name| (*name, Times::default())).collect()
}

fn commands(endpoints: &[Endpoint; 3], rounds: usize) -> Result<()> {
    let mut shells = Vec::new();
    let mut clients = Vec::new();
    for endpoint in endpoints {
        shells.push(SocketShell::to(endpoint, "bench", "")?);
        clients.push(HttpClient::to(endpoint)?);
    }
    let mut socket = new_rows(&VARIANTS);
    let mut session = new_rows(&VARIANTS);
    for _ in 0..rounds {
        for at in 0..VARIANTS.len() {
            for turn in 0..BURST {
                let begun = Instant::now();
                shells[at].run(":")?;
                if turn >= WARM {
                    socket[at].1.push(begun.elapsed());
                }
            }
            for turn in 0..BURST {
                let begun = Instant::now();
                clients[at].session("bench", ":")?;
                if turn >= WARM {
                    session[at].1.push(begun.elapsed());
                }
            }
        }
    }
    rows("### `:` over WebSocket", &socket);
    rows("### `:` over HTTP", &session);
    Ok(())
}

/// Creates sandboxes, whose deletion is not counted.
fn creates(fleet: &LocalFleet, plain: &LocalNode, rounds: usize) -> Result<()> {
    let names = ["without [cluster]", "on the node that was asked", "on another node"];
    // Node c takes no sandboxes, so those that it is asked for are created elsewhere.
    operate(fleet, "cordon")?;
    let endpoints = [plain, fleet.node("a"), fleet.node("c")].map(endpoint);
    let mut clients = Vec::new();
    for endpoint in &endpoints {
        clients.push(HttpClient::to(endpoint)?);
    }
    let mut times = new_rows(&names);
    for round in 0..rounds {
        for (at, client) in clients.iter_mut().enumerate() {
            for turn in 0..CREATES {
                let id = format!("new-{at}-{round}-{turn}");
                let begun = Instant::now();
                let wish = json!({"id": id, "memory_mib": 64});
                client.call(Method::POST, "/v1/sandboxes", Some(&wish))?;
                times[at].1.push(begun.elapsed());
                client.delete(&id)?;
            }
        }
    }
    operate(fleet, "uncordon")?;
    rows("### a create", &times);
    Ok(())
}

/// Runs a command about node c.
fn operate(fleet: &LocalFleet, word: &str) -> Result<()> {
    let output = fleet.node("a").server.command(&["node", word, "c"]);
    ensure!(output.status.success(), "isolet node {word}: {output:?}");
    Ok(())
}

fn large(endpoints: &[Endpoint; 3]) -> Result<()> {
    let mut up = new_rows(&VARIANTS);
    let mut down = new_rows(&VARIANTS);
    for _ in 0..LARGE_ROUNDS {
        for (at, endpoint) in endpoints.iter().enumerate() {
            // New connections, because a server closes one that was idle while the others were measured.
            let session = |text: &str| HttpClient::to(endpoint)?.session("bench", text);
            // Data that the previous run has not flushed would slow this run.
            session("rm -f copy; sync")?;
            let mut wire = Wire::to(endpoint)?;
            let begun = Instant::now();
            wire.put("copy", LARGE)?;
            up[at].1.push(begun.elapsed());
            session("sync")?;
            let mut wire = Wire::to(endpoint)?;
            let begun = Instant::now();
            ensure!(wire.get("copy")? == LARGE, "another file");
            down[at].1.push(begun.elapsed());
        }
    }
    rows("### 1 GB up", &up);
    rows("### 1 GB down", &down);
    for (name, times) in [("up", &up), ("down", &down)] {
        let share = times[0].1.median() / times[1].1.median();
        println!("forwarded {name}: {share:.2} of the speed to the owner");
    }
    Ok(())
}
