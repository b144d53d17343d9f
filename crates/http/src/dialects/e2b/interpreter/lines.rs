//! A run as lines of JSON: output, displayed values, the error that ended it, its number and its end.

use crate::auth::cancellation::Cancellation;
use crate::foundation::json_text;
use crate::foundation::utf8_stream::{TextChunk, Utf8Decoder};
use crate::stream::context_run::{ContextRun, death_exception};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use isolet_clock::{now_ms, rfc3339};
use isolet_sandbox::contexts::{ContextRunEvent, Fault, SAID_BYTES_MAX, Shown};
use isolet_wire::context::ContextRunEnd;
use isolet_wire::frame::DataFrame;
use isolet_wire::response::STDOUT;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How often a silent run sends a line, so that both sides notice a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A chunk of the body is sent once it is larger than this, even if more lines are available.
const CHUNK_BYTES: usize = 128 * 1024;
/// How much one displayed value may have, and its text: the limits of the interpreters, in MiB.
const SHOWN_MIB_MAX: usize = 8;
const TEXT_MIB_MAX: usize = 1;
/// How many media types of one displayed value are named as left out, and the longest name, in
/// characters.
const CUT_MAX: usize = 16;
const MEDIA_CHARS_MAX: usize = 100;
/// Media types of displayed values, and E2B's names for them. Others are in `extra`.
const FORMATS: [(&str, &str); 11] = [
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("application/vnd.isolet.table+json", "data"),
    ("application/vnd.isolet.chart+json", "chart"),
];
const TEXT: &str = "text/plain";

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Stdout {
        text: &'a str,
        timestamp: String,
    },
    Stderr {
        text: &'a str,
        timestamp: String,
    },
    Result(BTreeMap<String, Box<RawValue>>),
    Error {
        name: &'a str,
        value: &'a str,
        traceback: String,
    },
    /// How many runs the context has had.
    NumberOfExecutions {
        execution_count: u64,
    },
    EndOfExecution,
    /// Clients ignore it.
    Keepalive,
}

/// Lines that are not sent yet.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn push(&mut self, line: &Line<'_>) {
        // JSON escapes line breaks, so that it is one line.
        json_text::append(&mut self.0, line);
        self.0.push(b'\n');
    }

    fn output(&mut self, chunk: &TextChunk<'_>) {
        let text = &*chunk.text;
        let timestamp = rfc3339(now_ms());
        self.push(&match chunk.stream {
            STDOUT => Line::Stdout { text, timestamp },
            _ => Line::Stderr { text, timestamp },
        });
    }

    /// Says on standard error what the client does not receive.
    fn notice(&mut self, text: &str) {
        self.push(&Line::Stderr { text, timestamp: rfc3339(now_ms()) });
    }

    /// Names the representations of a displayed value that were too large.
    fn cut(&mut self, cut: &BTreeMap<String, u64>) {
        for (media, bytes) in cut.iter().take(CUT_MAX) {
            let name: String = media.chars().take(MEDIA_CHARS_MAX).collect();
            let text = match media.as_str() {
                TEXT => {
                    format!("{name} was cut: {bytes} characters, more than {TEXT_MIB_MAX} MiB\n")
                }
                _ => format!(
                    "{name} was left out: {bytes} bytes, more than one result may have ({SHOWN_MIB_MAX} MiB)\n"
                ),
            };
            self.notice(&text);
        }
    }

    fn error(&mut self, fault: &Fault) {
        let traceback = fault.traceback.join("\n");
        self.push(&Line::Error { name: &fault.name, value: &fault.message, traceback });
    }
}

/// A displayed value in E2B's formats.
fn result(shown: Shown) -> BTreeMap<String, Box<RawValue>> {
    let Shown { kind, mut data, .. } = shown;
    let mut line = BTreeMap::new();
    let main = if kind == "result" { RawValue::TRUE } else { RawValue::FALSE };
    line.insert("is_main_result".to_owned(), main.to_owned());
    if let Some(value) = data.remove(TEXT) {
        let text = serde_json::from_str::<String>(value.get()).ok();
        let text = text.and_then(|text| to_raw_value(unquoted(&text)).ok());
        line.insert("text".to_owned(), text.unwrap_or(value));
    }
    for (media, name) in FORMATS {
        if let Some(value) = data.remove(media) {
            line.insert(name.to_owned(), value);
        }
    }
    // Texts as keys and JSON as values always serialise.
    if let Ok(extra) = to_raw_value(&data) {
        line.insert("extra".to_owned(), extra);
    }
    line
}

/// The text of a string without the quotes that languages show it in.
fn unquoted(text: &str) -> &str {
    let within = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    within('\'').or_else(|| within('"')).unwrap_or(text)
}

struct RunLines {
    run: ContextRun,
    decoder: Utf8Decoder,
    cancellation: Cancellation,
    keep_alive_at: Instant,
    ended: bool,
}

/// The response: lines up to the end of the run. The connection breaks when the sandbox ends before
/// the run, as at E2B, by which clients know.
pub(super) fn respond(run: ContextRun, cancellation: Cancellation) -> Response {
    let keep_alive_at = Instant::now() + KEEP_ALIVE;
    let decoder = Utf8Decoder::default();
    let lines = RunLines { run, decoder, cancellation, keep_alive_at, ended: false };
    let chunks = stream::unfold(lines, |mut lines| async move {
        let chunk = lines.next_chunk().await?;
        Some((chunk, lines))
    });
    let mut response = Body::from_stream(chunks).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl RunLines {
    /// The next chunk, which is never empty; `None` after the last.
    async fn next_chunk(&mut self) -> Option<io::Result<Bytes>> {
        let mut out = Lines::default();
        while out.0.is_empty() {
            if self.ended {
                return None;
            }
            let next = tokio::select! {
                biased;
                _ = self.cancellation.cancelled() => {
                    return self.broken("the server stops, or the key was revoked");
                }
                next = timeout_at(self.keep_alive_at, self.run.next()) => next,
            };
            match next {
                Err(_) => out.push(&Line::Keepalive),
                Ok(Err(error)) => return self.broken(&error.to_string()),
                Ok(Ok(event)) => {
                    if let Err(error) = self.write_available(event, &mut out) {
                        return self.broken(&error.to_string());
                    }
                }
            }
        }
        self.keep_alive_at = Instant::now() + KEEP_ALIVE;
        Some(Ok(out.0.into()))
    }

    fn broken(&mut self, reason: &str) -> Option<io::Result<Bytes>> {
        self.ended = true;
        Some(Err(io::Error::other(reason.to_owned())))
    }

    /// Writes an event and those that have already arrived, up to the size of a chunk.
    fn write_available(
        &mut self,
        first: ContextRunEvent,
        out: &mut Lines,
    ) -> Result<(), isolet_sandbox::Error> {
        let mut next = Some(first);
        while let Some(event) = next {
            if self.write(event, out).is_break() {
                self.ended = true;
                return Ok(());
            }
            if out.0.len() > CHUNK_BYTES {
                return Ok(());
            }
            next = self.run.ready()?;
        }
        Ok(())
    }

    fn write(&mut self, event: ContextRunEvent, out: &mut Lines) -> ControlFlow<()> {
        match event {
            ContextRunEvent::Began(_) => {}
            ContextRunEvent::Unread => {
                let mib = SAID_BYTES_MAX / (1024 * 1024);
                out.notice(&format!(
                    "a result was left out: it is malformed, or more than {mib} MiB\n"
                ));
            }
            ContextRunEvent::Output(DataFrame { stream, offset, bytes, .. }) => {
                if let Some(chunk) = self.decoder.decode_chunk(stream, "", offset, &bytes) {
                    out.output(&chunk);
                }
            }
            ContextRunEvent::Shown(mut shown) => {
                let cut = std::mem::take(&mut shown.cut);
                out.push(&Line::Result(result(shown)));
                out.cut(&cut);
            }
            ContextRunEvent::Fault(fault) => out.error(&fault),
            ContextRunEvent::End(end) => {
                self.write_end(&end, out);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn write_end(&mut self, end: &ContextRunEnd, out: &mut Lines) {
        for chunk in &self.decoder.close() {
            out.output(chunk);
        }
        if let Some(fault) = death_exception(end).filter(|_| !self.run.fault) {
            out.error(&fault);
        }
        out.push(&Line::NumberOfExecutions { execution_count: end.number });
        out.push(&Line::EndOfExecution);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn what_is_too_large_is_named_on_standard_error() {
        let mut lines = Lines::default();
        let image = ("image/png".to_owned(), 9_000_000);
        lines.cut(&BTreeMap::from([image, (TEXT.to_owned(), 2_000_000)]));
        let text = String::from_utf8(lines.0).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!((lines.len(), &lines[0]["type"]), (2, &Value::from("stderr")));
        let expected =
            "image/png was left out: 9000000 bytes, more than one result may have (8 MiB)\n";
        assert_eq!(lines[0]["text"], expected);
        assert_eq!(lines[1]["text"], "text/plain was cut: 2000000 characters, more than 1 MiB\n");
    }

    #[test]
    fn values_have_the_names_of_e2b() {
        let data = serde_json::from_str(
            r#"{"text/plain":"'a'","text/html":"<b>","application/vnd.isolet.chart+json":{"type":"bar"},"application/geo+json":{}}"#,
        );
        let shown = Shown {
            kind: "result".to_owned(),
            data: data.unwrap(),
            metadata: serde_json::from_str("{}").unwrap(),
            cut: BTreeMap::new(),
        };
        let mut lines = Lines::default();
        lines.push(&Line::Result(result(shown)));
        lines.push(&Line::EndOfExecution);
        assert_eq!(
            String::from_utf8(lines.0).unwrap(),
            "{\"type\":\"result\",\"chart\":{\"type\":\"bar\"},\"extra\":{\"application/geo+json\":{}},\"html\":\"<b>\",\"is_main_result\":true,\"text\":\"a\"}\n{\"type\":\"end_of_execution\"}\n"
        );
        for (text, expected) in [("'a'", "a"), ("\"a\"", "a"), ("'", "'"), ("'a\"", "'a\"")] {
            assert_eq!(unquoted(text), expected);
        }
    }
}
