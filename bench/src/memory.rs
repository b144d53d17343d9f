//! Table (c): the memory of an idle sandbox with one shell, and the time of a create beside many sandboxes.
//!
//! "Available memory" changes with all other work on the machine. Instead, the table sums the parts that
//! a sandbox uses: slab, kernel stacks, page tables, per-processor memory and
//! anonymous memory.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const PARTS: [&str; 5] = ["Slab", "KernelStack", "PageTables", "Percpu", "AnonPages"];
/// The numbers of sandboxes, in increasing order.
const STANDS: [usize; 2] = [100, 1000];
/// Timed creates at each number.
const TIMED: usize = 60;

pub(crate) fn table(bin: &Path) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    client.session("warm", ":")?;
    let mut creates = vec![("empty", timed(&mut client, "e")?)];
    settle();
    let before = parts()?;
    let server_before = resident(server.pid());
    println!(
        "\n### KiB a sandbox with one idle shell\n| alive | {} | sum | server |",
        PARTS.join(" | ")
    );
    println!("|{}", "---|".repeat(PARTS.len() + 3));
    let mut alive = 0;
    for stand in STANDS {
        while alive < stand {
            client.session(&format!("m{alive}"), ":")?;
            alive += 1;
        }
        settle();
        let now = parts()?;
        let each: Vec<f64> =
            now.iter().zip(&before).map(|(now, before)| (now - before) / alive as f64).collect();
        let cells: Vec<String> = each.iter().map(|value| format!("{value:.0}")).collect();
        let of_server = (resident(server.pid()) - server_before) / alive as f64;
        let sum: f64 = each.iter().sum();
        println!("| {alive} | {} | {sum:.0} | {of_server:.0} |", cells.join(" | "));
        creates.push((
            if stand == 100 { "100 alive" } else { "1000 alive" },
            timed(&mut client, "t")?,
        ));
    }
    rows("### create to first byte of output (exec)", &creates);
    Ok(())
}

fn timed(client: &mut HttpClient, prefix: &str) -> Result<Times> {
    let mut times = Times::default();
    for turn in 0..TIMED {
        let id = format!("{prefix}{turn}");
        let begun = Instant::now();
        client.exec(&id, "echo ready")?;
        times.push(begun.elapsed());
        client.delete(&id)?;
    }
    Ok(times)
}

/// Waits until freed memory is returned and ended processes are gone.
pub(crate) fn settle() {
    std::thread::sleep(Duration::from_secs(5));
}

pub(crate) fn parts() -> Result<Vec<f64>> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let value = |name: &&str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}:")));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0.0)
    };
    Ok(PARTS.iter().map(value).collect())
}

pub(crate) fn resident(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0.0)
}
