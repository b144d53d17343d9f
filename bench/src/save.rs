//! Table (h): the cost of saving shell state: a command after a pause, and a sleep.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::socket::SocketShell;
use crate::stats::{Times, rows};
use anyhow::Result;
use hyper::Method;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// Shells of one kind, which pause together.
const SHELLS: usize = 6;
/// Commands in a row after the first.
const ROW: usize = 5;
/// A pause after which every shell was saved, and one that ends when shells are saved.
const PAUSE: Duration = Duration::from_millis(1200);
const MOMENT: Duration = Duration::from_millis(1000);
/// Commands that fill a shell, by the state that it has then.
const HELD: [(&str, &str); 3] = [
    ("sleep, a usual shell", "cd /tmp; x=1; export Y=2; f() { echo $x; }"),
    ("sleep, 400 KB in a shell", "x=$(head -c 400000 /dev/zero | tr '\\0' a)"),
    ("sleep, 10 MB in a shell", "x=$(head -c 10000000 /dev/zero | tr '\\0' a)"),
];

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    commands(&server, &mut client, rounds)?;
    sleeps(&mut client, rounds)
}

fn commands(server: &BenchServer, client: &mut HttpClient, rounds: usize) -> Result<()> {
    let mut kinds = Vec::new();
    for persistent in [false, true] {
        let id = if persistent { "saved" } else { "unsaved" };
        let wish = json!({"id": id, "persistent": persistent});
        client.call(Method::POST, "/v1/sandboxes", Some(&wish))?;
        let open = |n: usize| SocketShell::session(server, id, &format!("s{n}"));
        kinds.push((0..SHELLS).map(open).collect::<Result<Vec<_>>>()?);
    }
    let mut result = [
        "`:`, one after the other",
        "`:`, after 1.2 s, shells not saved",
        "`:`, after 1.2 s, shells saved",
        "`:`, after 1.0 s, shells not saved",
        "`:`, at the moment of the save",
    ]
    .map(|name| (name, Times::default()));
    for _ in 0..rounds {
        for (at, pause) in [(1, PAUSE), (3, MOMENT)] {
            for (kind, shells) in kinds.iter_mut().enumerate() {
                // Each shell needs unsaved state.
                shells.iter_mut().try_for_each(|shell| shell.run("x=1").map(drop))?;
                std::thread::sleep(pause);
                for shell in shells.iter_mut() {
                    result[at + kind].1.push(took(shell)?);
                }
                let Some(shell) = shells.first_mut() else { continue };
                for _ in 0..ROW {
                    result[0].1.push(took(shell)?);
                }
            }
        }
    }
    rows("### a command after a pause", &result);
    Ok(())
}

fn took(shell: &mut SocketShell) -> Result<Duration> {
    let begun = Instant::now();
    shell.run(":")?;
    Ok(begun.elapsed())
}

/// The time of a sleep request. No process of the sandbox runs after it.
fn sleeps(client: &mut HttpClient, rounds: usize) -> Result<()> {
    let mut result = vec![("sleep, no shell", Times::default())];
    result.extend(HELD.map(|(name, _)| (name, Times::default())));
    for round in 0..rounds {
        for (at, row) in result.iter_mut().enumerate() {
            let id = format!("h{round}-{at}");
            match at.checked_sub(1) {
                Some(held) => client.session(&id, HELD[held].1)?,
                None => client.exec(&id, "true")?,
            };
            let path = format!("/v1/sandboxes/{id}/sleep");
            let begun = loop {
                let begun = Instant::now();
                // A sandbox may refuse to sleep just after its last use.
                if client.call(Method::POST, &path, None).is_ok() {
                    break begun;
                }
            };
            row.1.push(begun.elapsed());
            client.delete(&id)?;
        }
    }
    rows("### a sandbox put to sleep right after a command", &result);
    Ok(())
}
