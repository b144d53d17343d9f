//! Table (a): the cost of a command and its output over each protocol.

use crate::http::HttpClient;
use crate::raw::{Raw, sh};
use crate::server::BenchServer;
use crate::socket::SocketShell;
use crate::stats::{Times, rows};
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Instant;

/// Commands of one variant in a row before the next variant follows.
const BURST: usize = 30;
/// Runs at the start of a row that are not counted, because caches are cold.
const WARM: usize = 4;
/// Size of the large output, in bytes.
const LARGE: usize = 100_000_000;

type CommandVariant<'a> = (&'a str, Box<dyn FnMut(&str) -> Result<usize> + 'a>);

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut setup = HttpClient::connect(&server)?;
    setup.create("bench")?;
    let mut raw = Raw::open()?;
    let mut json = SocketShell::open(&server, "bench", false)?;
    let mut binary = SocketShell::open(&server, "bench", true)?;
    let mut session = HttpClient::connect(&server)?;
    let mut exec = HttpClient::connect(&server)?;
    let line = "FOO=bar";
    raw.run(line)?;
    json.run(line)?;
    binary.run(line)?;
    session.session("bench", line)?;
    let mut variants: Vec<CommandVariant<'_>> = vec![
        ("raw pipes", Box::new(|text| raw.run(text))),
        ("WebSocket, JSON", Box::new(|text| json.run(text))),
        ("WebSocket, binary", Box::new(|text| binary.run(text))),
        ("HTTP session", Box::new(|text| session.session("bench", text))),
        ("HTTP exec", Box::new(|text| exec.exec("bench", text))),
        ("sh -c", Box::new(sh)),
    ];
    // One writer, and bytes that JSON does not escape, so that the path is measured and not the source.
    let file = format!("/tmp/isolet-bench-{}", std::process::id());
    for (name, run) in &mut variants {
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
        rows(&format!("### {title}"), &latency(&mut variants, text, rounds)?);
    }
    rows(
        "### 100 MB of output (`cat` of a file)",
        &volume(&mut variants, &format!("cat {file}"), rounds)?,
    );
    std::fs::remove_file(&file)?;
    Ok(())
}

fn latency<'a>(
    variants: &mut [CommandVariant<'a>],
    text: &str,
    rounds: usize,
) -> Result<Vec<(&'a str, Times)>> {
    let mut result: Vec<_> = variants.iter().map(|(name, _)| (*name, Times::default())).collect();
    for _ in 0..rounds {
        for ((name, run), (_, times)) in variants.iter_mut().zip(&mut result) {
            // Each command is a process, so fewer runs suffice.
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

fn volume<'a>(
    variants: &mut [CommandVariant<'a>],
    text: &str,
    rounds: usize,
) -> Result<Vec<(&'a str, Times)>> {
    let mut result: Vec<_> = variants.iter().map(|(name, _)| (*name, Times::default())).collect();
    for _ in 0..rounds {
        for ((name, run), (_, times)) in variants.iter_mut().zip(&mut result) {
            if name.starts_with("HTTP") {
                // One JSON response holds at most 64 MiB, so it is left out.
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
