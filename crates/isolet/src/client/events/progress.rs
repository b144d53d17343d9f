//! Work of the server that reports its progress: pulls of images, copies to and from the object store.

use super::SseEvents;
use crate::client::ApiClient;
use crate::client::list::text;
use crate::client::output::write;
use anyhow::{Result, anyhow};
use hyper::Method;
use serde_json::Value;
use std::io::IsTerminal;

/// Width of the progress bar, in columns.
const BAR: usize = 30;

/// What a command follows.
pub(crate) struct Followed<'a> {
    pub(crate) path: &'a str,
    pub(crate) body: Option<&'a Value>,
    /// What is done, for messages, such as `pull`.
    pub(crate) what: &'a str,
    /// What stands behind the bar.
    pub(crate) numbers: fn(&Value) -> String,
}

/// Starts the work, or joins it if it runs, and waits for its end. Draws a bar on a terminal, unless
/// the output is `json`. Returns the answer.
///
/// # Errors
/// The server's error, or a lost connection, after which the server continues.
pub(crate) async fn follow(server: &ApiClient, of: Followed<'_>, json: bool) -> Result<Value> {
    let answer = server.send(Method::POST, of.path, "text/event-stream", of.body).await?;
    let mut events = SseEvents::new(answer.into_body());
    let bar = !json && std::io::stderr().is_terminal();
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "progress" if bar => draw(&event.data, of.numbers)?,
            "done" => {
                clear(bar)?;
                return Ok(event.data);
            }
            "error" => {
                clear(bar)?;
                let message = text(&event.data["message"]);
                let hint = text(&event.data["hint"]);
                return Err(anyhow!("{message}; {hint}"));
            }
            _ => {}
        }
    }
    Err(anyhow!(
        "connection lost; the server continues the {}: run the same command again to follow it",
        of.what
    ))
}

/// Draws the progress bar over its previous line.
fn draw(now: &Value, numbers: fn(&Value) -> String) -> Result<()> {
    let done = now["done"].as_u64().unwrap_or(0);
    let total = now["total"].as_u64().unwrap_or(0);
    let part = |of: usize| (done.saturating_mul(of as u64) / total.max(1)) as usize;
    let full = part(BAR).min(BAR);
    let line = format!(
        "\r\x1b[K{:<12} [{}{}] {:>3} %  {}",
        text(&now["phase"]),
        "#".repeat(full),
        " ".repeat(BAR - full),
        part(100).min(100),
        numbers(now),
    );
    write(false, line.as_bytes())
}

fn clear(bar: bool) -> Result<()> {
    if bar { write(false, b"\r\x1b[K") } else { Ok(()) }
}
