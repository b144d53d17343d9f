//! Reads the server-sent events of a node.

use axum::body::Body;
use bytes::BytesMut;
use http_body_util::BodyExt;

/// The longest event: a text of 400 bytes, ids, and a host name.
const FRAME_BYTES_MAX: usize = 64 * 1024;

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EventFrame {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    /// The data, a single line.
    pub(super) data: String,
}

/// The events of one response.
pub(super) struct EventFrames {
    body: Body,
    buffer: BytesMut,
}

impl EventFrames {
    pub(super) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new() }
    }

    /// The next event; `None` at the end of the stream, or when it is malformed. Comments are skipped.
    pub(super) async fn next(&mut self) -> Option<EventFrame> {
        loop {
            while let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let block = self.buffer.split_to(end + 2);
                if let Some(frame) = parse(std::str::from_utf8(&block).ok()?) {
                    return Some(frame);
                }
            }
            if self.buffer.len() > FRAME_BYTES_MAX {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

/// `None` for a block without an event.
fn parse(block: &str) -> Option<EventFrame> {
    let mut frame = EventFrame::default();
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => frame.id = id.parse().ok(),
            Some(("event", name)) => name.clone_into(&mut frame.name),
            Some(("data", data)) => data.clone_into(&mut frame.data),
            _ => {}
        }
    }
    (!frame.data.is_empty()).then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::convert::Infallible;

    #[tokio::test]
    async fn events_are_read_however_they_are_cut() {
        let text =
            ": following\n\nid: 7\nevent: created\ndata: {\"id\":7}\n\nevent: gap\ndata: {}\n\n";
        for size in [1, 2, 7, text.len()] {
            let parts: Vec<_> = text
                .as_bytes()
                .chunks(size)
                .map(|part| Ok::<_, Infallible>(part.to_vec()))
                .collect();
            let mut frames = EventFrames::new(Body::from_stream(stream::iter(parts)));
            let first = frames.next().await.unwrap();
            assert_eq!((first.id, first.name.as_str()), (Some(7), "created"));
            assert_eq!(first.data, "{\"id\":7}");
            assert_eq!(frames.next().await.unwrap().name, "gap");
            assert_eq!(frames.next().await, None);
        }
    }
}
