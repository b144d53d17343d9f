//! The envelopes of streams: read from a request's body, and written to a response.

use crate::dialects::e2b::connect::{Code, MESSAGE_BYTES_MAX, RpcError};
use crate::foundation::json::check_tree;
use crate::limits::body_memory::BodyMemory;
use axum::body::Body;
use axum::http::header;
use axum::http::request::Parts;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// The flag of the last envelope of a response.
pub(in crate::dialects::e2b) const END_STREAM: u8 = 0b10;
/// The flag of a compressed message.
const COMPRESSED: u8 = 0b01;
/// Flags and length.
const HEAD_BYTES: usize = 5;
/// How long a client may take to send the rest of a message.
const STILL: Duration = Duration::from_secs(30);

/// Reads the messages of a request.
pub(in crate::dialects::e2b) struct EnvelopeReader {
    body: Body,
    buffer: BytesMut,
    /// The memory for the longest message so far, and how long that is.
    memory: Option<BodyMemory>,
    paid_bytes: usize,
}

impl EnvelopeReader {
    /// # Errors
    /// For another media type than that of streams of JSON, or a compressed body.
    pub(in crate::dialects::e2b) fn new(parts: &Parts, body: Body) -> Result<Self, RpcError> {
        let headers = &parts.headers;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/connect+json") {
            return Err(RpcError::unsupported(
                "the server reads application/connect+json in streams, not protobuf",
            ));
        }
        if headers.contains_key(header::CONTENT_ENCODING) {
            return Err(RpcError::unsupported("a stream has no Content-Encoding"));
        }
        let memory = parts.extensions.get().cloned();
        Ok(Self { body, buffer: BytesMut::new(), memory, paid_bytes: 0 })
    }

    /// The only message of a request.
    ///
    /// # Errors
    /// When it is malformed, too long, or not the only one.
    pub(in crate::dialects::e2b) async fn only<T: DeserializeOwned>(
        mut self,
    ) -> Result<T, RpcError> {
        let message = self.next().await?;
        let message = message.ok_or_else(|| RpcError::invalid("the request has no message"))?;
        if self.next::<serde::de::IgnoredAny>().await?.is_some() {
            return Err(RpcError::invalid("the request has more than one message"));
        }
        Ok(message)
    }

    /// The next message; `None` at the end of the request. A client may take any time before a
    /// message, but not within one.
    ///
    /// # Errors
    /// When the message is malformed or too long, or the request ends within it.
    pub(in crate::dialects::e2b) async fn next<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RpcError> {
        loop {
            if let Some(message) = self.take()? {
                return parse(&message).map(Some);
            }
            let begun = !self.buffer.is_empty();
            let frame = match begun {
                false => self.body.frame().await,
                true => timeout(STILL, self.body.frame()).await.map_err(|_| {
                    RpcError::new(Code::DeadlineExceeded, "no data arrived for 30 s")
                })?,
            };
            match frame {
                None if begun => return Err(RpcError::invalid("the request ends in a message")),
                None => return Ok(None),
                Some(Err(_)) => return Err(RpcError::invalid("the request ended early")),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.pay(self.buffer.len() + bytes.len())?;
                        self.buffer.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }

    /// Takes the memory for a message of this length and what is parsed from it.
    fn pay(&mut self, bytes: usize) -> Result<(), RpcError> {
        let more = bytes.saturating_sub(self.paid_bytes);
        if let Some(memory) = self.memory.as_ref().filter(|_| more > 0) {
            memory.take(2 * more)?;
            self.paid_bytes = bytes;
        }
        Ok(())
    }

    /// A message that has arrived completely.
    fn take(&mut self) -> Result<Option<Bytes>, RpcError> {
        let Some((&[flags, ref length @ ..], _)) = self.buffer.split_first_chunk::<HEAD_BYTES>()
        else {
            return Ok(None);
        };
        match flags {
            0 => {}
            COMPRESSED => {
                let message = "the server reads no compressed messages";
                return Err(RpcError::new(Code::Unimplemented, message));
            }
            _ => return Err(RpcError::invalid(format!("an envelope with flags {flags:#04x}"))),
        }
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > MESSAGE_BYTES_MAX {
            let message = format!("a message of {length} bytes; at most {MESSAGE_BYTES_MAX}");
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        if self.buffer.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// Parses a message, which is one JSON object.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, RpcError> {
    // A derived `Deserialize` would also accept an array of the fields.
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(RpcError::invalid("malformed message: must be one JSON object"));
    }
    check_tree(text).map_err(|failure| RpcError::invalid(failure.message))?;
    serde_json::from_slice(text).map_err(|error| {
        let text: String = error.to_string().chars().take(200).collect();
        RpcError::invalid(format!("malformed message: {text}"))
    })
}

/// Envelopes that are not sent yet.
#[derive(Debug, Default)]
pub(in crate::dialects::e2b) struct Envelopes(Vec<u8>);

impl Envelopes {
    pub(in crate::dialects::e2b) fn message(&mut self, message: &impl Serialize) {
        self.put(0, message);
    }

    /// The last envelope.
    pub(in crate::dialects::e2b) fn end(&mut self, failure: Option<&RpcError>) {
        #[derive(Serialize)]
        struct End<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'a RpcError>,
        }
        self.put(END_STREAM, &End { error: failure });
    }

    fn put(&mut self, flags: u8, message: &impl Serialize) {
        let start = self.0.len();
        self.0.extend_from_slice(&[flags, 0, 0, 0, 0]);
        // Writing to a vector cannot fail, and nothing here has keys that are not text.
        let _ = serde_json::to_writer(&mut self.0, message);
        let length = u32::try_from(self.0.len() - start - HEAD_BYTES).unwrap_or(u32::MAX);
        self.0[start + 1..start + HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    }

    pub(in crate::dialects::e2b) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::dialects::e2b) fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::memory_budget::MemoryBudget;
    use isolet_sandbox::TenantId;
    use serde_json::{Value, json};

    async fn read(bytes: &[u8]) -> Result<Value, RpcError> {
        let body = Body::from(bytes.to_vec());
        EnvelopeReader::new(&parts("application/connect+json"), body).unwrap().only().await
    }

    fn parts(kind: &str) -> Parts {
        let request = axum::http::Request::builder().header(header::CONTENT_TYPE, kind);
        request.body(()).unwrap().into_parts().0
    }

    /// Promises: T26.
    #[tokio::test]
    async fn t21_a_message_pays_for_its_bytes_and_has_few_values() {
        let tenant = TenantId::parse("t").unwrap();
        let budget = MemoryBudget::new(4 * 1000);
        let mut head = parts("application/connect+json");
        head.extensions.insert(BodyMemory::new(budget.share(&tenant)));
        let mut text = vec![b' '; 600];
        text[0] = b'{';
        text[599] = b'}';
        let both = [envelope(0, 600, &text), envelope(0, 600, &text)].concat();
        let frames = both.chunks(100).map(|frame| Ok::<_, std::io::Error>(frame.to_vec()));
        let frames = futures_util::stream::iter(frames.collect::<Vec<_>>());
        let mut reader = EnvelopeReader::new(&head, Body::from_stream(frames)).unwrap();
        for _ in 0..2 {
            assert_eq!(reader.next::<Value>().await.unwrap(), Some(json!({})));
        }
        let held = budget.held_by(&tenant);
        assert!((1200..1500).contains(&held), "{held}: the second message needs no more");
        let long = Body::from(envelope(0, 2000, &[b' '; 2000]));
        let refused = EnvelopeReader::new(&head, long).unwrap().next::<Value>().await;
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
        let many = format!(r#"{{"a":[{}0]}}"#, "{},".repeat(100_000));
        let refused = parse::<Value>(many.as_bytes()).unwrap_err();
        assert!(refused.message().contains("too many values"), "{}", refused.message());
    }

    fn envelope(flags: u8, length: u32, message: &[u8]) -> Vec<u8> {
        [&[flags][..], &length.to_be_bytes(), message].concat()
    }

    #[tokio::test]
    async fn an_envelope_is_read_as_it_was_written() {
        let mut written = Envelopes::default();
        written.message(&json!({"a": "ü"}));
        assert_eq!(read(&written.take()).await.unwrap(), json!({"a": "ü"}));
        written.end(None);
        assert_eq!(&written.take()[..], b"\x02\0\0\0\x02{}");
        written.end(Some(&RpcError::invalid("x")));
        let end = written.take();
        assert_eq!(&end[5..], br#"{"error":{"code":"invalid_argument","message":"x"}}"#);
    }

    #[tokio::test]
    async fn forged_envelopes_are_refused() {
        let cases = [
            (Vec::new(), Code::InvalidArgument),
            (vec![0, 0], Code::InvalidArgument),
            (envelope(0, 3, b"{}"), Code::InvalidArgument),
            (envelope(0, 2, b"{]"), Code::InvalidArgument),
            (envelope(0, 2, b"{}x"), Code::InvalidArgument),
            (envelope(0x80, 2, b"{}"), Code::InvalidArgument),
            (envelope(END_STREAM, 2, b"{}"), Code::InvalidArgument),
            (envelope(COMPRESSED, 2, b"{}"), Code::Unimplemented),
            (envelope(0, u32::MAX, b""), Code::ResourceExhausted),
            (envelope(0, 3_000_000, b"{}"), Code::ResourceExhausted),
            ([envelope(0, 2, b"{}"), envelope(0, 2, b"{}")].concat(), Code::InvalidArgument),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(&bytes).await.unwrap_err().code(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn only_streams_of_json_are_read() {
        let of = |kind: &str| EnvelopeReader::new(&parts(kind), Body::empty());
        assert!(of("application/connect+json; charset=utf-8").is_ok());
        for bad in ["application/json", "application/connect+proto", "application/grpc", ""] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
