//! Table (a): what a command and its output cost through every way in.

use crate::http::Client;
use crate::raw::{Raw, sh};
use crate::server::Server;
use crate::socket::Shell;
use crate::stats::{Times, rows};
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Instant;

/// Commands in a row of one variant before the next has its turn.
const BURST: usize = 30;
/// Of these, dropped at the start: caches and pages come back.
const WARM: usize = 4;
/// Bytes of the large output.
const LARGE: usize = 100_000_000;

type Way<'a> = (&'a str, Box<dyn FnMut(&str) -> Result<usize> + 'a>);

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = Server::start(bin)?;
    let mut setup = Client::connect(&server)?;
    setup.create("bench")?;
    let mut raw = Raw::open()?;
    let mut json = Shell::open(&server, "bench", false)?;
    let mut binary = Shell::open(&server, "bench", true)?;
    let mut session = Client::connect(&server)?;
    let mut exec = Client::connect(&server)?;
    let line = "FOO=bar";
    raw.run(line)?;
    json.run(line)?;
    binary.run(line)?;
    session.session("bench", line)?;
    let mut ways: Vec<Way<'_>> = vec![
        ("raw pipes", Box::new(|text| raw.run(text))),
        ("WebSocket, JSON", Box::new(|text| json.run(text))),
        ("WebSocket, binary", Box::new(|text| binary.run(text))),
        ("HTTP session", Box::new(|text| session.session("bench", text))),
        ("HTTP exec", Box::new(|text| exec.exec("bench", text))),
        ("sh -c", Box::new(sh)),
    ];
    // One writer, and bytes that JSON need not escape: the way is measured, not what feeds it.
    let file = format!("/tmp/isolet-bench-{}", std::process::id());
    for (name, run) in &mut ways {
        if matches!(*name, "raw pipes" | "HTTP session") {
            run(&format!("yes 0123456789abcdef | head -c {LARGE} >{file}"))?;
        }
    }
    let long = format!(": {}", "x".repeat(4094));
    for (title, text) in [
        ("`:`", ":"),
        ("`echo $FOO`", "echo $FOO"),
        ("`/bin/true`", "/bin/true"),
        ("4 KB of text", &long),
    ] {
        rows(&format!("### {title}"), &latency(&mut ways, text, rounds)?);
    }
    rows(
        "### 100 MB of output (`cat` of a file)",
        &volume(&mut ways, &format!("cat {file}"), rounds)?,
    );
    std::fs::remove_file(&file)?;
    Ok(())
}

fn latency<'a>(ways: &mut [Way<'a>], text: &str, rounds: usize) -> Result<Vec<(&'a str, Times)>> {
    let mut result: Vec<_> = ways.iter().map(|(name, _)| (*name, Times::default())).collect();
    for _ in 0..rounds {
        for ((name, run), (_, times)) in ways.iter_mut().zip(&mut result) {
            // A process per command: fewer of them say as much.
            let burst = if *name == "sh -c" || *name == "HTTP exec" { 8 } else { BURST };
            for turn in 0..burst {
                let begun = Instant::now();
                run(text)?;
                if turn >= WARM {
                    times.push(begun.elapsed());
                }
            }
        }
    }
    Ok(result)
}

fn volume<'a>(ways: &mut [Way<'a>], text: &str, rounds: usize) -> Result<Vec<(&'a str, Times)>> {
    let mut result: Vec<_> = ways.iter().map(|(name, _)| (*name, Times::default())).collect();
    for _ in 0..rounds {
        for ((name, run), (_, times)) in ways.iter_mut().zip(&mut result) {
            if name.starts_with("HTTP") {
                // One JSON answer holds at most 64 MiB: not a way for this.
                continue;
            }
            let begun = Instant::now();
            let count = run(text)?;
            ensure!(count == LARGE, "{name}: {count} bytes of {LARGE}");
            times.push(begun.elapsed());
        }
    }
    Ok(result)
}
