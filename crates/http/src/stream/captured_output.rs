//! Captures the output of a command up to a limit, and writes it as JSON.

use crate::{
    foundation::{error::ApiError, json_text::write_json_string, utf8_stream::partial_char_len},
    limits::response_memory::MemoryShare,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use isolet_sandbox::{Lost, LostState, Sandbox};
use isolet_wire::response::{Exit, STDERR, STDOUT};
use serde::Serialize;
use std::borrow::Cow;
use utoipa::ToSchema;

/// The default limit for each stream, in bytes.
pub(crate) const OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// The highest limit that a request may ask for, in bytes.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Captured of each stream even when the memory budget is exhausted, in bytes: more than most
/// commands write.
const GUARANTEED_BYTES: usize = 16 * 1024;

/// One stream: its first bytes, and how many were dropped.
#[derive(Debug, Default)]
pub(crate) struct CapturedStream {
    bytes: Vec<u8>,
    cut: u64,
}

impl CapturedStream {
    fn push(&mut self, bytes: &[u8], max: usize, share: &mut MemoryShare) {
        // After dropped bytes nothing more is captured.
        let room = if self.cut > 0 { 0 } else { max.saturating_sub(self.bytes.len()) };
        let wanted = room.min(bytes.len());
        let assured = GUARANTEED_BYTES.saturating_sub(self.bytes.len()).min(wanted);
        let (kept, cut) = bytes.split_at(assured + share.take_up_to(wanted - assured));
        self.bytes.extend_from_slice(kept);
        self.cut += cut.len() as u64;
        if self.cut > 0 {
            self.close_end();
        }
    }

    /// Drops a character that is not complete.
    fn close_end(&mut self) {
        let open = partial_char_len(&self.bytes);
        self.bytes.truncate(self.bytes.len() - open);
        self.cut += open as u64;
    }

    /// The text, and whether it differs from the captured bytes.
    fn text(&self) -> (Cow<'_, str>, bool) {
        let text = String::from_utf8_lossy(&self.bytes);
        let lossy = matches!(text, Cow::Owned(_));
        (text, lossy)
    }
}

/// Both streams of a command.
#[derive(Debug)]
pub(crate) struct CapturedOutput {
    out: CapturedStream,
    err: CapturedStream,
    max: usize,
    /// The memory of both streams beyond the guaranteed part.
    share: MemoryShare,
}

impl CapturedOutput {
    /// Captures at most `max` bytes of each stream, out of `share`.
    pub(crate) fn new(max: usize, share: MemoryShare) -> Self {
        Self { out: CapturedStream::default(), err: CapturedStream::default(), max, share }
    }

    fn stream(&mut self, stream: u8) -> Option<&mut CapturedStream> {
        match stream {
            STDOUT => Some(&mut self.out),
            STDERR => Some(&mut self.err),
            _ => None,
        }
    }

    pub(crate) fn push(&mut self, stream: u8, bytes: &Bytes) {
        let kept = match stream {
            STDOUT => &mut self.out,
            STDERR => &mut self.err,
            _ => return,
        };
        kept.push(bytes, self.max, &mut self.share);
    }

    /// Reserves memory for other data of the same response, of which `kept` bytes exist already.
    pub(crate) fn reserve_beside(&mut self, kept: usize, bytes: usize) -> bool {
        kept + bytes <= GUARANTEED_BYTES || self.share.take_up_to(bytes) == bytes
    }

    /// Counts bytes that were no longer available.
    pub(crate) fn add_gap(&mut self, stream: u8, count: u64) {
        if let Some(kept) = self.stream(stream).filter(|_| count > 0) {
            kept.cut += count;
            kept.close_end();
        }
    }

    /// The captured text of both streams.
    pub(crate) fn texts(&self) -> (Cow<'_, str>, Cow<'_, str>) {
        (self.out.text().0, self.err.text().0)
    }

    /// Writes the JSON fields that follow those of the exit: text, exact bytes if they differ, and
    /// how much was dropped.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for (name, kept) in [("stdout", &self.out), ("stderr", &self.err)] {
            let (text, lossy) = kept.text();
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            write_json_string(out, &text);
            if lossy {
                out.extend_from_slice(format!(",\"{name}_b64\":\"").as_bytes());
                out.extend_from_slice(STANDARD.encode(&kept.bytes).as_bytes());
                out.push(b'"');
            }
        }
        let cut = if self.out.cut == 0 && self.err.cut == 0 {
            ",\"truncated\":null".to_owned()
        } else {
            let out = self.out.cut;
            let err = self.err.cut;
            format!(",\"truncated\":{{\"stdout_bytes\":{out},\"stderr_bytes\":{err}}}")
        };
        out.extend_from_slice(cut.as_bytes());
    }
}

/// The JSON fields that say how a command ended, without braces.
pub(crate) fn exit_fields(exit: &Exit) -> String {
    let signal = exit.signal.map_or("null".to_owned(), |signal| signal.to_string());
    format!(
        "\"exit_code\":{},\"signal\":{signal},\"timed_out\":{},\"oom\":{},\"cancelled\":{},\"duration_ms\":{}",
        exit.code,
        exit.timed_out,
        exit.oom,
        exit.cancelled,
        ms(exit.micros)
    )
}

/// What the last sleep of the sandbox ended, as a JSON field with a comma before it. Only the first
/// caller gets it; for all others it is empty.
pub(crate) fn lost_field(sandbox: &Sandbox) -> String {
    sandbox.lost().map_or_else(String::new, |lost| {
        let mut words: Vec<String> =
            lost.iter().map(|lost| format!("\"{}\"", lost.word())).collect();
        words.dedup();
        let states: Vec<&LostState> = lost.iter().filter_map(Lost::state).collect();
        let states = match serde_json::to_string(&states) {
            Ok(states) if states != "[]" => format!(",\"lost_state\":{states}"),
            _ => String::new(),
        };
        format!(",\"lost\":[{}]{states}", words.join(","))
    })
}

/// Converts microseconds to milliseconds.
pub(crate) fn ms(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// Bytes that were written and are not part of the answer.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)]
#[schema(as = TruncatedOutput)]
pub(crate) struct Truncated {
    /// Bytes of standard output.
    stdout_bytes: u64,
    /// Bytes of standard error.
    stderr_bytes: u64,
}

pub(crate) fn output_limit_bytes(max: Option<u64>) -> Result<usize, ApiError> {
    let max = max.map_or(Some(OUTPUT_BYTES), |max| usize::try_from(max).ok());
    max.filter(|max| *max <= OUTPUT_BYTES_MAX)
        .ok_or_else(|| ApiError::bad_field("max_output_bytes", "at most 67108864 (64 MiB)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::response_memory::ResponseMemory;
    use isolet_sandbox::TenantId;
    use serde_json::Value;

    fn output(max: usize, memory: u64) -> CapturedOutput {
        // One tenant gathers at most half of all.
        let memory = ResponseMemory::new(memory.saturating_mul(2));
        CapturedOutput::new(max, memory.share(&TenantId::parse("t").unwrap()))
    }

    fn written(output: &CapturedOutput) -> Value {
        let mut text = b"{\"a\":0".to_vec();
        output.write(&mut text);
        text.push(b'}');
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn answers_keep_their_bytes() {
        let mut output = output(3, 0);
        output.push(1, &Bytes::from_static(b"a\xffb\n"));
        output.push(2, &Bytes::from_static("x\"".as_bytes()));
        let exit =
            Exit { code: 143, signal: Some(15), timed_out: true, micros: 1500, ..Exit::default() };
        let mut text = exit_fields(&exit).into_bytes();
        output.write(&mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#""exit_code":143,"signal":15,"timed_out":true,"oom":false,"cancelled":false,"duration_ms":1.5,"stdout":"a�b","stdout_b64":"Yf9i","stderr":"x\"","truncated":{"stdout_bytes":1,"stderr_bytes":0}"#
        );
        let plain = exit_fields(&Exit { micros: 2000, ..Exit::default() });
        assert_eq!(
            plain,
            r#""exit_code":0,"signal":null,"timed_out":false,"oom":false,"cancelled":false,"duration_ms":2"#
        );
    }

    #[test]
    fn exact_bytes_accompany_a_text_that_differs() {
        let mut output = output(100, 0);
        output.push(1, &Bytes::from_static(b"a\xffb\n"));
        output.push(2, &Bytes::from_static("€".as_bytes()));
        let json = written(&output);
        assert_eq!(json["stdout"], "a\u{FFFD}b\n");
        assert_eq!(json["stdout_b64"], "Yf9iCg==");
        assert_eq!(json["stderr"], "€");
        assert!(json.get("stderr_b64").is_none() && json["truncated"].is_null());
    }

    #[test]
    fn truncated_output_is_counted_and_splits_no_character() {
        let mut output = output(4, 0);
        output.push(1, &Bytes::from_static("aa€€".as_bytes()));
        output.push(1, &Bytes::from_static(b"more"));
        output.add_gap(2, 7);
        let json = written(&output);
        assert_eq!((json["stdout"].as_str(), json.get("stdout_b64")), (Some("aa"), None));
        assert_eq!(json["truncated"]["stdout_bytes"], 10);
        assert_eq!(json["truncated"]["stderr_bytes"], 7);
    }

    /// Promises: F20.
    #[test]
    fn f20_output_beyond_the_memory_of_all_answers_is_cut_and_counted() {
        let bytes = Bytes::from(vec![b'x'; 2 * GUARANTEED_BYTES]);
        let mut output = output(10 * GUARANTEED_BYTES, GUARANTEED_BYTES as u64 + 5);
        (0..3).for_each(|_| output.push(1, &bytes));
        output.push(2, &bytes);
        let json = written(&output);
        assert_eq!(json["stdout"].as_str().unwrap().len(), 2 * GUARANTEED_BYTES + 5);
        assert_eq!(json["stderr"].as_str().unwrap().len(), GUARANTEED_BYTES, "what is assured");
        assert_eq!(json["truncated"]["stdout_bytes"], 4 * GUARANTEED_BYTES - 5);
        assert_eq!(json["truncated"]["stderr_bytes"], GUARANTEED_BYTES);
    }
}
