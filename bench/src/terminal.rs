//! Table (i): terminals: the time from a key to its echo, the cost of output and of many clients, and the
//! time until a new client sees the screen.

use crate::http::HttpClient;
use crate::memory::{resident, settle};
use crate::pty::Pty;
use crate::server::BenchServer;
use crate::stats::{Times, rows, show};
use crate::tty_socket::{Attached, Ttyd};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// Keys of one variant in a row before the next variant follows.
const BURST: usize = 40;
/// Runs at the start of a row that are not counted.
const WARM: usize = 8;
/// Size of the large output, in bytes.
const LARGE: usize = 100_000_000;
/// The length of the tail of the output in which the end is searched, in bytes.
const TAIL: usize = 96;
/// Number of timed attaches.
const ATTACHES: usize = 60;

/// A client of a terminal.
pub(crate) trait BenchTerminal {
    /// Sends bytes as if a person typed them.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Waits for the next output.
    fn read(&mut self) -> Result<&[u8]>;
}

type TerminalVariant = (&'static str, Box<dyn BenchTerminal>);

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    // Without a warm pool, the only agent is the measured one.
    let server = BenchServer::start_with(bin, &[("ISOLET_WARM_POOL_SIZE", "0")])?;
    let mut client = HttpClient::connect(&server)?;
    client.create("bench")?;
    let file = format!("/tmp/isolet-bench-{}", std::process::id());
    let text = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde";
    let write = format!("yes {text} | head -c {LARGE} >{file}");
    client.exec("bench", &write)?;
    crate::raw::sh(&write)?;
    // This part must be first: it would otherwise reuse memory that the others freed.
    memory(&server)?;
    one_client(&server, &file, rounds)?;
    many_clients(&server, &file, (rounds / 4).max(3))?;
    screens(&server)?;
    Ok(std::fs::remove_file(&file)?)
}

fn one_client(server: &BenchServer, file: &str, rounds: usize) -> Result<()> {
    let mut variants: Vec<TerminalVariant> = vec![
        ("raw PTY", Box::new(Pty::open()?)),
        ("Isolet", Box::new(Attached::open(server, "bench", "&shell=bash&arg=--norc")?)),
    ];
    let ttyd = Path::new("target/clients/ttyd/ttyd");
    match ttyd.is_file() {
        true => variants.push(("ttyd", Box::new(Ttyd::open(ttyd)?))),
        false => println!("(no ttyd: `make ttyd` builds it)"),
    }
    for (_, variant) in &mut variants {
        variant.write(b"PS1='$ '; HISTFILE=\r")?;
        run(variant.as_mut(), "stty -echoctl")?;
    }
    rows("### a key until its echo, bash (readline)", &echoes(&mut variants, rounds)?);
    for (_, variant) in &mut variants {
        // From here on the terminal echoes keys itself.
        let mark = Mark::new();
        variant.write(format!("echo end''-{}; cat >/dev/null\r", mark.0).as_bytes())?;
        mark.awaited(variant.as_mut())?;
    }
    rows("### a key until its echo, `cat` (the kernel's)", &echoes(&mut variants, rounds)?);
    for (_, variant) in &mut variants {
        variant.write(b"\x03")?;
        // Bash drops input that is typed before its prompt.
        let mut last = Vec::new();
        while !last.ends_with(b"$ ") {
            last.extend_from_slice(variant.read()?);
        }
    }
    let rounds = (rounds / 4).max(3);
    rows(
        "### 100 MB of text (`cat` of a file)",
        &volumes(&mut variants, &format!("cat {file}"), rounds)?,
    );
    rows("### `seq 1 5000000`", &volumes(&mut variants, "seq 1 5000000", rounds)?);
    Ok(())
}

fn echoes(variants: &mut [TerminalVariant], rounds: usize) -> Result<Vec<(&'static str, Times)>> {
    let mut all: Vec<_> = variants.iter().map(|(name, _)| (*name, Times::default())).collect();
    for _ in 0..rounds {
        for ((_, variant), (_, times)) in variants.iter_mut().zip(&mut all) {
            for turn in 0..BURST {
                let begun = Instant::now();
                variant.write(b"x")?;
                while !variant.read()?.contains(&b'x') {}
                if turn >= WARM {
                    times.push(begun.elapsed());
                }
                // Erased again, so that the line stays short.
                variant.write(b"\x7f")?;
                while !variant.read()?.contains(&b'\x08') {}
            }
        }
    }
    Ok(all)
}

fn volumes(
    variants: &mut [TerminalVariant],
    line: &str,
    rounds: usize,
) -> Result<Vec<(&'static str, Times)>> {
    let mut all: Vec<_> = variants.iter().map(|(name, _)| (*name, Times::default())).collect();
    let mut gone = false;
    for _ in 0..rounds {
        for ((name, variant), (_, times)) in variants.iter_mut().zip(&mut all) {
            let theirs = *name == "ttyd";
            if theirs && gone {
                continue;
            }
            let begun = Instant::now();
            match run(variant.as_mut(), line) {
                Ok(()) => times.push(begun.elapsed()),
                Err(error) if theirs => {
                    println!("(ttyd closed its connection within `{line}`: {error})");
                    gone = true;
                }
                Err(error) => return Err(error),
            }
        }
    }
    all.retain(|(_, times)| times.count() > 0);
    Ok(all)
}

/// Runs a command line and waits for its end.
fn run(variant: &mut dyn BenchTerminal, line: &str) -> Result<()> {
    let mark = Mark::new();
    variant.write(mark.behind(line).as_bytes())?;
    mark.awaited(variant)
}

/// A word that a command prints at its end and that its text does not contain.
struct Mark(String);

impl Mark {
    fn new() -> Self {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1000);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self(count.to_string())
    }

    fn behind(&self, line: &str) -> String {
        format!("{line}; echo end''-{}\r", self.0)
    }

    fn awaited(&self, variant: &mut dyn BenchTerminal) -> Result<()> {
        let mark = format!("end-{}\r\n", self.0).into_bytes();
        let mut tail = Vec::new();
        loop {
            let came = variant.read()?;
            tail.extend_from_slice(&came[came.len().saturating_sub(TAIL)..]);
            tail.drain(..tail.len().saturating_sub(TAIL));
            if tail.windows(mark.len()).any(|part| part == mark) {
                return Ok(());
            }
        }
    }
}

fn many_clients(server: &BenchServer, file: &str, rounds: usize) -> Result<()> {
    let agent = agent(server).context("the sandbox has no agent")?;
    println!("\n### 100 MB of text to many clients");
    println!("| clients | p50 | ratio to 1 | missed by readers | server KiB | agent KiB |");
    println!("|---|---|---|---|---|---|");
    let mut one = f64::NAN;
    let stands = [(1, 0), (1, 1), (4, 0), (4, 4)];
    let mut all = vec![(Times::default(), 0, 0.0_f64, 0.0_f64); stands.len()];
    for _ in 0..rounds {
        for ((reading, stalled), (times, missed, at_server, at_agent)) in
            stands.iter().zip(&mut all)
        {
            let query = "&session=many";
            let mut readers = Vec::new();
            for _ in 0..*reading {
                readers.push(Attached::open(server, "bench", query)?);
            }
            let standing: Result<Vec<_>> =
                (0..*stalled).map(|_| Attached::begin(server, "bench", query)).collect();
            let standing = standing?;
            let mark = Mark::new();
            let begun = Instant::now();
            readers[0].write(mark.behind(&format!("cat {file}")).as_bytes())?;
            *missed += std::thread::scope(|scope| -> Result<u64> {
                let each = |reader: &mut Attached| {
                    mark.awaited(reader)?;
                    anyhow::Ok(reader.missed)
                };
                let all: Vec<_> =
                    readers.iter_mut().map(|reader| scope.spawn(move || each(reader))).collect();
                all.into_iter()
                    .map(|one| one.join().map_err(|_| anyhow::anyhow!("a reader"))?)
                    .sum()
            })?;
            times.push(begun.elapsed());
            *at_server = at_server.max(resident(server.pid()));
            *at_agent = at_agent.max(resident(agent));
            drop(standing);
        }
    }
    for ((reading, stalled), (times, missed, at_server, at_agent)) in stands.iter().zip(&all) {
        let median = times.median();
        if *stalled == 0 && *reading == 1 {
            one = median;
        }
        println!(
            "| {reading} + {stalled} stalled | {} | {:.2} | {missed} | {at_server:.0} | {at_agent:.0} |",
            show(median),
            median / one,
        );
    }
    Ok(())
}

fn screens(server: &BenchServer) -> Result<()> {
    let wide = "&cols=200&rows=50";
    let mut empty = Attached::open(server, "bench", &format!("&session=empty{wide}"))?;
    run(&mut empty, "true")?;
    // A typical coloured screen.
    run(
        &mut empty,
        "for i in {1..400}; do echo \"    if (count_$i > 0 && name[$i] == 'x') { return \\\"text $i\\\"; } \
         /* the case of $i, which is rare, and long enough to fill a wide line of a screen */\"; done >/tmp/a.c; clear",
    )?;
    let vim = "&shell=vim&arg=-u&arg=NONE&arg=-c&arg=syntax%20on&arg=-c&arg=set%20nu&arg=/tmp/a.c";
    let _vim = Attached::open(server, "bench", &format!("&session=vim{wide}{vim}"))?;
    let mut full = Attached::open(server, "bench", &format!("&session=full{wide}"))?;
    run(&mut full, "for i in {1..1200}; do printf '%0190d\\n' $i; done")?;
    std::thread::sleep(Duration::from_millis(500));
    let mut all = vec![
        ("an empty screen", "empty", Times::default(), 0),
        ("vim", "vim", Times::default(), 0),
        ("1,000 full lines of scrollback", "full", Times::default(), 0),
    ];
    for _ in 0..ATTACHES {
        for (_, session, times, bytes) in &mut all {
            let begun = Instant::now();
            let attached = Attached::open(server, "bench", &format!("&session={session}{wide}"))?;
            times.push(begun.elapsed());
            *bytes = attached.drawn;
        }
    }
    println!("\n### attach until `ready`, 200x50");
    println!("| screen | p50 | p99 | bytes |\n|---|---|---|---|");
    for (name, _, times, bytes) in &all {
        println!("| {name} | {} | {} | {bytes} |", show(times.median()), show(times.at(0.99)));
    }
    Ok(())
}

/// The memory of an idle terminal, without its bash.
fn memory(server: &BenchServer) -> Result<()> {
    const COUNT: usize = 24;
    let agent = agent(server).context("the sandbox has no agent")?;
    // The first terminal also costs what the program needs once.
    let mut all = vec![Attached::open(server, "bench", "&session=first")?];
    settle();
    let before = (resident(server.pid()), resident(agent));
    for turn in 0..COUNT {
        all.push(Attached::open(server, "bench", &format!("&session=idle{turn}"))?);
    }
    settle();
    let each = |now: f64, before: f64| (now - before) / COUNT as f64;
    println!("\n### KiB an idle terminal with one client (80x24)\n| server | agent |\n|---|---|");
    let at_server = resident(server.pid());
    let at_agent = resident(agent);
    println!("| {:.0} | {:.0} |", each(at_server, before.0), each(at_agent, before.1));
    Ok(())
}

/// The only agent that descends from this server.
fn agent(server: &BenchServer) -> Option<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = std::fs::read_dir("/proc").ok()?.flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut agents = pids.filter(|pid| name(*pid).trim_end() == "isolet-agent");
    agents.find(|pid| {
        let mut above = Some(*pid);
        for _ in 0..4 {
            above = above.and_then(parent);
            if above == Some(server.pid()) {
                return true;
            }
        }
        false
    })
}
