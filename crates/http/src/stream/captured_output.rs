//! Captures the output of a command up to a limit, as an answer contains it.

use crate::foundation::error::ApiError;
use crate::foundation::json_text::OutputText;
use crate::foundation::utf8_stream::partial_char_len;
use crate::limits::memory_budget::MemoryShare;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use isolet_wire::response::{STDERR, STDOUT};
use serde::Serialize;
use std::borrow::Cow;
use utoipa::ToSchema;

/// The default limit for each stream, in bytes.
pub(crate) const OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// The highest limit that a request may ask for, in bytes.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The bytes of each stream that are captured even when the memory budget is exhausted: more than
/// most commands write.
const GUARANTEED_BYTES: usize = 16 * 1024;

/// One stream: its first bytes, and how many were dropped.
#[derive(Debug, Default)]
pub(crate) struct CapturedStream {
    bytes: Vec<u8>,
    cut: u64,
}

impl CapturedStream {
    fn push(&mut self, bytes: &[u8], max: usize, share: &mut MemoryShare) {
        // Capturing stops once bytes have been dropped.
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

    /// The text, and the exact bytes in base64 if they differ.
    fn text(&self) -> (OutputText<'_>, Option<OutputText<'static>>) {
        let text = String::from_utf8_lossy(&self.bytes);
        let exact = match text {
            Cow::Borrowed(_) => None,
            Cow::Owned(_) => Some(STANDARD.encode(&self.bytes).into()),
        };
        (OutputText(text), exact)
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

    /// Whether bytes were dropped.
    pub(crate) fn is_truncated(&self) -> bool {
        self.out.cut > 0 || self.err.cut > 0
    }

    /// The text of both streams, without exact bytes.
    pub(crate) fn texts(&self) -> [OutputText<'_>; 2] {
        [&self.out, &self.err].map(|stream| OutputText(String::from_utf8_lossy(&stream.bytes)))
    }

    /// The fields of an answer about the output.
    pub(crate) fn fields(&self) -> OutputFields<'_> {
        let (stdout, stdout_b64) = self.out.text();
        let (stderr, stderr_b64) = self.err.text();
        let truncated = self
            .is_truncated()
            .then_some(Truncated { stdout_bytes: self.out.cut, stderr_bytes: self.err.cut });
        let text_bytes = [Some(&stdout), stdout_b64.as_ref(), Some(&stderr), stderr_b64.as_ref()]
            .into_iter()
            .flatten()
            .map(|text| text.0.len())
            .sum();
        OutputFields { stdout, stdout_b64, stderr, stderr_b64, truncated, text_bytes }
    }
}

/// The fields of an answer about captured output. The texts are borrowed from the capture.
#[derive(Debug)]
pub(crate) struct OutputFields<'a> {
    pub(crate) stdout: OutputText<'a>,
    /// The exact bytes, if the text differs from them.
    pub(crate) stdout_b64: Option<OutputText<'a>>,
    pub(crate) stderr: OutputText<'a>,
    /// The exact bytes, if the text differs from them.
    pub(crate) stderr_b64: Option<OutputText<'a>>,
    /// `None` when nothing was dropped.
    pub(crate) truncated: Option<Truncated>,
    /// The length of all texts, which decides how much memory the answer needs.
    pub(crate) text_bytes: usize,
}

/// Bytes that were written and are not part of the answer.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
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
        .ok_or_else(|| ApiError::bad_field("max_output_bytes", "must be at most 67108864 (64 MiB)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::memory_budget::MemoryBudget;
    use isolet_sandbox::TenantId;

    fn output(max: usize, memory: u64) -> CapturedOutput {
        // One tenant gathers at most half of all.
        let memory = MemoryBudget::new(memory.saturating_mul(2));
        CapturedOutput::new(max, memory.share(&TenantId::parse("t").unwrap()))
    }

    #[test]
    fn exact_bytes_accompany_a_text_that_differs() {
        let mut output = output(100, 0);
        output.push(1, &Bytes::from_static(b"a\xffb\n"));
        output.push(2, &Bytes::from_static("€".as_bytes()));
        let fields = output.fields();
        assert_eq!(fields.stdout, "a\u{FFFD}b\n".into());
        assert_eq!(fields.stdout_b64, Some("Yf9iCg==".into()));
        assert_eq!(fields.stderr, "€".into());
        assert_eq!((fields.stderr_b64, fields.truncated), (None, None));
    }

    #[test]
    fn truncated_output_is_counted_and_splits_no_character() {
        let mut output = output(4, 0);
        output.push(1, &Bytes::from_static("aa€€".as_bytes()));
        output.push(1, &Bytes::from_static(b"more"));
        output.add_gap(2, 7);
        let fields = output.fields();
        assert_eq!((fields.stdout, fields.stdout_b64), ("aa".into(), None));
        assert_eq!(fields.truncated, Some(Truncated { stdout_bytes: 10, stderr_bytes: 7 }));
    }

    /// Promises: F20.
    #[test]
    fn f20_output_beyond_the_memory_of_all_answers_is_cut_and_counted() {
        let bytes = Bytes::from(vec![b'x'; 2 * GUARANTEED_BYTES]);
        let mut output = output(10 * GUARANTEED_BYTES, GUARANTEED_BYTES as u64 + 5);
        (0..3).for_each(|_| output.push(1, &bytes));
        output.push(2, &bytes);
        let fields = output.fields();
        assert_eq!(fields.stdout.0.len(), 2 * GUARANTEED_BYTES + 5);
        assert_eq!(fields.stderr.0.len(), GUARANTEED_BYTES, "what is assured");
        let stdout_bytes = 4 * GUARANTEED_BYTES as u64 - 5;
        let stderr_bytes = GUARANTEED_BYTES as u64;
        assert_eq!(fields.truncated, Some(Truncated { stdout_bytes, stderr_bytes }));
    }
}
