//! How clients learn what happens: reads the server-sent events of a response; `webhooks` has the others.

pub(crate) mod progress;
pub(crate) mod webhooks;

use anyhow::{Context, Result, anyhow};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// The longest event, in bytes. The server never sends a longer one.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The events of a response.
pub(crate) struct SseEvents {
    body: Incoming,
    held: Vec<u8>,
    /// Bytes of the buffer that were searched without finding the end of an event.
    looked: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) struct SseEvent {
    /// Its type, such as `stdout` or `exit`.
    pub(crate) name: String,
    /// Its id, to resume after it.
    pub(crate) id: Option<u64>,
    /// Its data, parsed as JSON.
    pub(crate) data: Value,
}

impl SseEvents {
    /// Reads the events of this response.
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, held: Vec::new(), looked: 0 }
    }

    /// The next event; `None` at the end of the response.
    ///
    /// # Errors
    /// The connection was lost, or the server sent a malformed event.
    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>> {
        loop {
            let fresh = &self.held[self.looked..];
            if let Some(end) = fresh.windows(2).position(|two| two == b"\n\n") {
                let end = self.looked + end;
                let event = parse(&String::from_utf8_lossy(&self.held[..end]))?;
                self.held.drain(..end + 2);
                self.looked = 0;
                if event.is_some() {
                    return Ok(event);
                }
                continue;
            }
            self.looked = self.held.len().saturating_sub(1);
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.context("connection lost")?;
            self.held.extend_from_slice(&frame.into_data().unwrap_or_default());
            if self.held.len() > EVENT_BYTES_MAX {
                return Err(anyhow!("the server sent an event without an end"));
            }
        }
    }
}

/// Parses an event; `None` for a comment.
fn parse(text: &str) -> Result<Option<SseEvent>> {
    let mut name = "";
    let mut id = None;
    let mut data = "";
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("event", value)) => name = value,
            Some(("id", value)) => id = value.parse().ok(),
            Some(("data", value)) => data = value,
            _ => {}
        }
    }
    if name.is_empty() {
        return Ok(None);
    }
    let data = serde_json::from_str(data).context("the server sent a malformed event")?;
    Ok(Some(SseEvent { name: name.to_owned(), id, data }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comments_are_no_events_and_a_place_is_a_number() {
        assert_eq!(parse(": alive").unwrap(), None);
        let event = parse("id: 7\nevent: gap\ndata: {\"from\":1}").unwrap().unwrap();
        assert_eq!(
            (event.name.as_str(), event.id, event.data),
            ("gap", Some(7), json!({"from": 1}))
        );
        assert!(parse("event: gap\ndata: {").is_err());
    }
}
