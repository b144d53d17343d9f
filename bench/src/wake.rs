//! Table (e): a sleeping persistent sandbox, from a call to its first output, against a create.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::{Result, bail, ensure};
use hyper::Method;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs of one variant in a row before the next variant follows.
const BURST: usize = 3;
/// The rest before each run of every variant.
const REST: Duration = Duration::from_millis(20);
/// How long a sandbox may refuse to sleep after its last use.
const DOZE: Duration = Duration::from_secs(10);

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    // Without a warm pool, a create is as cold as a wake-up, which a warm pool cannot speed up.
    let server = BenchServer::start_with(bin, &[("ISOLET_WARM_POOL_SIZE", "0")])?;
    let mut client = HttpClient::connect(&server)?;
    let mut first: Vec<_> = ["cold create", "wake", "wake, with state in its session"]
        .iter()
        .map(|name| (*name, Times::default()))
        .collect();
    client.session("plain", "echo kept >/workspace/file")?;
    client
        .session("full", "cd /tmp; for i in {1..50}; do export V$i=$i; done; f() { echo $V7; }")?;
    for round in 0..rounds {
        for turn in 0..BURST {
            let id = format!("c{round}-{turn}");
            std::thread::sleep(REST);
            first[0].1.push(output(&mut client, &id)?);
            client.delete(&id)?;
            for (at, id) in [(1, "plain"), (2, "full")] {
                asleep(&mut client, id)?;
                std::thread::sleep(REST);
                first[at].1.push(output(&mut client, id)?);
            }
        }
    }
    rows("### to the first byte of output of a session", &first);
    Ok(())
}

fn output(client: &mut HttpClient, id: &str) -> Result<Duration> {
    let begun = Instant::now();
    let count = client.session(id, "echo ready")?;
    let time = begun.elapsed();
    ensure!(count == 6, "{count} bytes of output");
    Ok(time)
}

fn asleep(client: &mut HttpClient, id: &str) -> Result<()> {
    let until = Instant::now() + DOZE;
    let path = format!("/v1/sandboxes/{id}/sleep");
    while let Err(error) = client.call(Method::POST, &path, None) {
        if Instant::now() > until {
            bail!("it does not sleep: {error}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
