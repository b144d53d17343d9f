//! A background process: the time from its start until the response with its pid, and until its end is
//! known.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts of one variant in a row before the next variant follows.
const BURST: usize = 20;
/// Runs at the start of a row that are not counted.
const WARM: usize = 4;
/// A program that ends at once.
const PROGRAM: &str = "/bin/true";

/// Times until the pid and until the end are known.
type Both = (Duration, Duration);

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    client.create("bench")?;
    let names = ["fork and exec", "bubblewrap", "isolet, process", "isolet, program of one call"];
    let mut reported: Vec<_> = names.iter().map(|name| (*name, Times::default())).collect();
    let mut known = reported.clone();
    for _ in 0..rounds {
        for (at, _) in names.iter().enumerate() {
            for turn in 0..BURST {
                let (pid, end) = match at {
                    0 => spawn(&mut Command::new(PROGRAM))?,
                    1 => spawn(&mut bubblewrap())?,
                    2 => process(&mut client)?,
                    _ => program(&mut client)?,
                };
                if turn >= WARM {
                    reported[at].1.push(pid);
                    known[at].1.push(end);
                }
            }
        }
    }
    // Bubblewrap does not report a pid, and neither does a call that ends with its program.
    reported.truncate(3);
    reported.remove(1);
    rows("### until its pid is reported", &reported);
    rows("### until its end is known", &known);
    Ok(())
}

/// Bubblewrap with the namespaces that its flags offer, on the host's root.
fn bubblewrap() -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]);
    command.arg(PROGRAM);
    command
}

fn spawn(command: &mut Command) -> Result<Both> {
    let begun = Instant::now();
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Returns when the program was executed.
    let mut child = command.spawn().context("spawn")?;
    let reported = begun.elapsed();
    ensure!(child.wait()?.success());
    Ok((reported, begun.elapsed()))
}

fn process(client: &mut HttpClient) -> Result<Both> {
    let path = "/v1/sandboxes/bench/processes";
    let begun = Instant::now();
    let made = client.call(Method::POST, path, Some(&json!({ "argv": [PROGRAM] })))?;
    let reported = begun.elapsed();
    let id = made["id"].as_str().context("an id")?;
    let wait = format!("{path}/{id}/wait");
    let waited = client.call(Method::POST, &wait, Some(&json!({ "exit": true })))?;
    let known = begun.elapsed();
    ensure!(waited["process"]["exit_code"] == 0, "{waited}");
    client.call(Method::DELETE, &format!("{path}/{id}"), None)?;
    Ok((reported, known))
}

fn program(client: &mut HttpClient) -> Result<Both> {
    let begun = Instant::now();
    let body = json!({ "argv": [PROGRAM] });
    let done = client.call(Method::POST, "/v1/sandboxes/bench/exec", Some(&body))?;
    ensure!(done["exit_code"] == 0, "{done}");
    Ok((begun.elapsed(), begun.elapsed()))
}
