//! Table (d): the cost of a session with and without a scope, and of a thousand sessions.

use crate::create::{bash, program};
use crate::http::HttpClient;
use crate::memory::{PARTS, parts, resident, settle};
use crate::server::BenchServer;
use crate::stats::{Times, rows, show};
use anyhow::{Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Sessions of one variant in a row before the next variant follows.
const BURST: usize = 6;
/// The rest before each run of every variant.
const REST: Duration = Duration::from_millis(5);
/// The number of sessions in the last part.
const MANY: usize = 1000;
/// The sandbox of all sessions.
const BOX: &str = "/v1/sandboxes/bench";

/// The kinds of sessions: name and body of the request.
fn wishes() -> [(&'static str, Value); 2] {
    let scope = json!({"read": ["shared"], "write": ["own"]});
    [("unscoped", json!({})), ("scoped", json!({ "file_access": scope }))]
}

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    let wish = json!({"id": "bench", "pids": 8192, "memory_mib": 8192, "cpu_millis": 4000});
    client.call(Method::POST, "/v1/sandboxes", Some(&wish))?;
    client.exec("bench", "mkdir /workspace/shared /workspace/own")?;
    made(&mut client, rounds)?;
    many(&server, &mut client)
}

/// Times until the response to a create, and until the first output of the new session.
fn made(client: &mut HttpClient, rounds: usize) -> Result<()> {
    let mut create = Vec::new();
    let mut first = vec![("bash, fork and exec", Times::default())];
    for (name, _) in wishes() {
        create.push((name, Times::default()));
        first.push((name, Times::default()));
    }
    for _ in 0..rounds {
        for _ in 0..BURST {
            std::thread::sleep(REST);
            first[0].1.push(program(&mut bash())?.0);
            for (at, (_, wish)) in wishes().iter().enumerate() {
                std::thread::sleep(REST);
                let begun = Instant::now();
                let id = open(client, wish)?;
                create[at].1.push(begun.elapsed());
                ensure!(run(client, &id, "echo ready")? == 6, "another output");
                first[at + 1].1.push(begun.elapsed());
                client.call(Method::DELETE, &format!("{BOX}/sessions/{id}"), None)?;
            }
        }
    }
    rows("### session create, to its answer", &create);
    rows("### session create to first byte of output", &first);
    let apart = first[2].1.median() - first[1].1.median();
    println!("\na scope adds {} to the first output", show(apart));
    Ok(())
}

fn open(client: &mut HttpClient, wish: &Value) -> Result<String> {
    let made = client.call(Method::POST, &format!("{BOX}/sessions"), Some(wish))?;
    Ok(made["id"].as_str().unwrap_or_default().to_owned())
}

fn run(client: &mut HttpClient, session: &str, text: &str) -> Result<usize> {
    let path = format!("{BOX}/sessions/{session}/exec");
    let answer = client.call(Method::POST, &path, Some(&json!({ "command": text })))?;
    Ok(answer["stdout"].as_str().map_or(0, str::len))
}

/// Measures the memory of many sessions before and after their shells are open, and the time of a list.
fn many(server: &BenchServer, client: &mut HttpClient) -> Result<()> {
    settle();
    let before = parts()?;
    let server_before = resident(server.pid());
    println!(
        "\n### KiB a session, {MANY} in one sandbox\n| state | {} | sum | server |",
        PARTS.join(" | ")
    );
    println!("|{}", "---|".repeat(PARTS.len() + 3));
    let ids = (0..MANY).map(|_| open(client, &json!({}))).collect::<Result<Vec<_>>>()?;
    let tell = |state: &str| -> Result<()> {
        settle();
        let each = parts()?.into_iter().zip(&before).map(|(now, was)| (now - was) / MANY as f64);
        let each: Vec<f64> = each.collect();
        let cells: Vec<String> = each.iter().map(|value| format!("{value:.1}")).collect();
        let of_server = (resident(server.pid()) - server_before) / MANY as f64;
        let sum: f64 = each.iter().sum();
        println!("| {state} | {} | {sum:.1} | {of_server:.1} |", cells.join(" | "));
        Ok(())
    };
    tell("made")?;
    let made = lists(client)?;
    for id in &ids {
        run(client, id, ":")?;
    }
    tell("each with an idle shell")?;
    let lists = [("list of all, made", made), ("list of all, with shells", lists(client)?)];
    rows("### list of sessions", &lists);
    Ok(())
}

fn lists(client: &mut HttpClient) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..100 {
        let begun = Instant::now();
        let list = client.call(Method::GET, &format!("{BOX}/sessions?limit=1000"), None)?;
        times.push(begun.elapsed());
        ensure!(list.as_array().is_some_and(|all| all.len() == MANY), "another list");
    }
    Ok(times)
}
