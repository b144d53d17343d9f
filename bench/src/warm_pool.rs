//! Creates of several kinds in turn, with a rest before each in which the warm pool refills.

use crate::http::HttpClient;
use crate::stats::{Times, rows};
use anyhow::Result;
use hyper::Method;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Creates of one variant in a row before the next variant follows.
const BURST: usize = 4;
/// The rest before a create, in which the warm pool refills.
const REST: Duration = Duration::from_millis(60);

/// Prints how long creates take, and the time until the first output of a command. A variant is the body of
/// the create request, without an id.
pub(crate) fn table(
    client: &mut HttpClient,
    title: &str,
    variants: &[(&'static str, Value)],
    rounds: usize,
) -> Result<()> {
    let mut made: Vec<_> = variants.iter().map(|(name, _)| (*name, Times::default())).collect();
    let mut first = made.clone();
    for round in 0..=rounds {
        for (at, (_, wish)) in variants.iter().enumerate() {
            for turn in 0..BURST {
                let id = format!("a{round}-{turn}");
                std::thread::sleep(REST);
                let mut body = wish.clone();
                body["id"] = id.as_str().into();
                let begun = Instant::now();
                client.call(Method::POST, "/v1/sandboxes", Some(&body))?;
                let created = begun.elapsed();
                client.exec(&id, "echo ready")?;
                // In the first round the warm pool is still empty.
                if round > 0 {
                    made[at].1.push(created);
                    first[at].1.push(begun.elapsed());
                }
                client.delete(&id)?;
            }
        }
    }
    rows(&format!("### {title}"), &made);
    rows("### the same to the first output of a command", &first);
    Ok(())
}
