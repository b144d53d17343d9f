//! Serialises answers that contain long texts, without an intermediate copy of the text.
//!
//! `serde_json` examines a string byte by byte. Output of commands is long and mostly needs no
//! escapes, so that the fields of type [`OutputText`] are written by an escaper of our own, which
//! examines several bytes at a time. Both write the same JSON.

mod escape;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use escape::write_escaped;
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use std::borrow::Cow;
use std::cell::RefCell;
use std::io;

/// A text that may be long, such as the output of a command.
///
/// It is passed to the serialiser as bytes, which only the functions of this module write as a JSON
/// string; any other serialiser writes an array of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputText<'a>(pub(crate) Cow<'a, str>);

impl<'a> From<&'a str> for OutputText<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for OutputText<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl Serialize for OutputText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_bytes())
    }
}

/// Writes byte strings, which only come from [`OutputText`], as JSON strings.
///
/// It shares the answer with the serialiser's writer, because the escaper is fastest when it
/// appends to a `Vec` directly.
struct OutputFormatter<'a> {
    out: &'a RefCell<Vec<u8>>,
}

impl Formatter for OutputFormatter<'_> {
    fn write_byte_array<W: ?Sized + io::Write>(
        &mut self,
        _: &mut W,
        text: &[u8],
    ) -> io::Result<()> {
        let mut out = self.out.borrow_mut();
        out.push(b'"');
        write_escaped(&mut out, text);
        out.push(b'"');
        Ok(())
    }
}

/// A writer that appends to the shared answer.
struct SharedWriter<'a> {
    out: &'a RefCell<Vec<u8>>,
}

impl io::Write for SharedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.borrow_mut().extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends a value as JSON. A value that cannot be serialised becomes `null`; no answer contains
/// one.
pub(crate) fn append(out: &mut Vec<u8>, value: &impl Serialize) {
    let start = out.len();
    let shared = RefCell::new(std::mem::take(out));
    let writer = SharedWriter { out: &shared };
    let formatter = OutputFormatter { out: &shared };
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(writer, formatter));
    *out = shared.into_inner();
    if let Err(error) = written {
        tracing::error!(%error, "an answer cannot be serialised");
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Serialises a value. `capacity`: the expected length, in bytes.
pub(crate) fn to_string(value: &impl Serialize, capacity: usize) -> String {
    let mut out = Vec::with_capacity(capacity);
    append(&mut out, value);
    // JSON is UTF-8, and texts were valid before their escapes.
    String::from_utf8(out).unwrap_or_default()
}

/// A JSON response. `text_bytes`: the length of all texts in the value.
pub(crate) fn response(value: &impl Serialize, text_bytes: usize) -> Response {
    /// The expected length of everything but texts.
    const FIELDS_BYTES: usize = 1024;
    let mut out = Vec::with_capacity(FIELDS_BYTES + text_bytes + text_bytes / 8);
    append(&mut out, value);
    let mut response = out.into_response();
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    /// Texts with many escapes, of lengths around a word and a block.
    fn text() -> impl Strategy<Value = String> {
        let some = prop_oneof![any::<String>(), "[a-z\n\"\\\\\u{1}]{0,40}".prop_map(|text| text),];
        proptest::collection::vec(some, 0..8).prop_map(|parts| parts.concat())
    }

    #[derive(Serialize)]
    struct LongAnswer<'a> {
        code: i32,
        output: OutputText<'a>,
        after: &'a str,
    }

    #[derive(Serialize)]
    struct PlainAnswer<'a> {
        code: i32,
        output: &'a str,
        after: &'a str,
    }

    proptest! {
        #[test]
        fn texts_are_what_serde_json_writes(text in text()) {
            let answer = LongAnswer { code: 1, output: text.as_str().into(), after: "b\"" };
            let plain = PlainAnswer { code: 1, output: &text, after: "b\"" };
            prop_assert_eq!(to_string(&answer, 0), serde_json::to_string(&plain).unwrap());
        }
    }

    /// Run it with `cargo test --release -p isolet-http --lib -- --ignored --nocapture measures`.
    #[test]
    #[ignore = "a measurement"]
    fn measures_the_serialisation_of_100_mb() {
        let line = format!("{}\"quoted\"\t/usr/share/doc\n", "some words of output ".repeat(3));
        let text = line.repeat(100_000_000 / line.len());
        let best = |run: &mut dyn FnMut() -> usize| {
            let mut best = Duration::MAX;
            for _ in 0..9 {
                let began = Instant::now();
                assert!(run() > text.len());
                best = best.min(began.elapsed());
            }
            best
        };
        let escaper = best(&mut || {
            let mut out = Vec::with_capacity(text.len() + text.len() / 8);
            write_escaped(&mut out, text.as_bytes());
            out.len()
        });
        let answer = best(&mut || {
            let answer = LongAnswer { code: 1, output: text.as_str().into(), after: "" };
            to_string(&answer, text.len() + text.len() / 8).len()
        });
        let plain = best(&mut || {
            let plain = PlainAnswer { code: 1, output: &text, after: "" };
            serde_json::to_string(&plain).unwrap().len()
        });
        println!("escaper {escaper:?}, answer {answer:?}, serde_json {plain:?}");
    }
}
