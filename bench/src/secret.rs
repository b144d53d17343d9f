//! Table (p): what response times reveal about secrets: a nearly right key against a wrong one, and
//! another tenant's id against an unused one. A ratio of 1 reveals nothing.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::{Context, Result, ensure};
use hyper::{Method, StatusCode};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Requests of one variant in a row before the next variant follows. All rounds together stay below
/// the server's limit on 401 and 404 answers, 10,000 in 10 s.
const BURST: usize = 60;
/// An id that no sandbox has.
const NOBODY: &str = "never-was";

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut owner = HttpClient::connect(&server)?;
    owner.create("theirs")?;
    let other = tenant_key(bin, &server, "other")?;
    let near = format!("{}!", &server.key[..server.key.len() - 1]);
    let wrong = "!".repeat(server.key.len());

    let path = "/v1/sandboxes".to_owned();
    let keys = [("a wrong key", wrong, path.clone()), ("a nearly right key", near, path)];
    let turns = rounds.min(40);
    rows("### GET /v1/sandboxes, 401", &times(&server, turns, StatusCode::UNAUTHORIZED, keys)?);
    let ids = [("an id that never was", NOBODY), ("another tenant's id", "theirs")];
    let ids = ids.map(|(name, id)| (name, other.clone(), format!("/v1/sandboxes/{id}")));
    rows("### GET /v1/sandboxes/ID, 404", &times(&server, turns, StatusCode::NOT_FOUND, ids)?);
    Ok(())
}

/// Creates a key of another tenant.
pub(crate) fn tenant_key(bin: &Path, server: &BenchServer, tenant: &str) -> Result<String> {
    let mut add = Command::new(bin.join("isolet"));
    add.args(["keys", "add", "--tenant", tenant]).env("ISOLET_DATA_DIR", server.data());
    let said = String::from_utf8(add.output()?.stdout)?;
    let key = said.split_whitespace().find(|word| word.starts_with("isolet_"));
    Ok(key.with_context(|| format!("no key in {said:?}"))?.to_owned())
}

/// Measures the variants in turns. A variant is a name, a key and a path.
fn times(
    server: &BenchServer,
    rounds: usize,
    wanted: StatusCode,
    variants: [(&'static str, String, String); 2],
) -> Result<Vec<(&'static str, Times)>> {
    let mut all: Vec<_> = variants.iter().map(|(name, ..)| (*name, Times::default())).collect();
    let mut clients = Vec::new();
    for (_, key, _) in &variants {
        clients.push(HttpClient::connect_with(server, key)?);
    }
    for _ in 0..rounds {
        for (at, (_, _, path)) in variants.iter().enumerate() {
            for _ in 0..BURST {
                let begun = Instant::now();
                let status = clients[at].status(Method::GET, path)?;
                all[at].1.push(begun.elapsed());
                ensure!(status == wanted, "{path}: {status}");
            }
        }
    }
    Ok(all)
}
