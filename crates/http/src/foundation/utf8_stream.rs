//! Decodes output to UTF-8 without splitting characters, and keeps count of every byte.
//!
//! Output arrives in chunks that end anywhere. A character that a chunk cuts is held until its rest
//! arrives; invalid UTF-8 becomes U+FFFD, exactly as if all bytes had arrived at once.

use std::borrow::Cow;

/// The most partial characters: one per stream and command, of which one runs at a time. An agent
/// that lies about ids only replaces the oldest one.
const PARTIAL_CHARS_MAX: usize = 16;
const REPLACEMENT: &str = "\u{FFFD}";

/// The first bytes of a character whose rest has not arrived.
#[derive(Debug)]
struct PartialChar {
    stream: u8,
    id: String,
    offset: u64,
    bytes: Vec<u8>,
}

/// A chunk of text and the position of its first byte in its stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TextChunk<'a> {
    /// The stream: 1 for standard output, 2 for standard error.
    pub(crate) stream: u8,
    /// The id of the command.
    pub(crate) id: Cow<'a, str>,
    /// The position of the first raw byte that the text stands for.
    pub(crate) offset: u64,
    /// The decoded text, never empty.
    pub(crate) text: Cow<'a, str>,
}

/// The decoders of one client: one per stream and command.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    partial: Vec<PartialChar>,
}

impl Utf8Decoder {
    /// Decodes a chunk of output; `None` when all of it belongs to a partial character.
    pub(crate) fn decode_chunk<'a>(
        &mut self,
        stream: u8,
        id: &'a str,
        offset: u64,
        bytes: &'a [u8],
    ) -> Option<TextChunk<'a>> {
        let end = offset.saturating_add(bytes.len() as u64);
        let at = self.partial.iter().position(|h| h.stream == stream && h.id == id);
        let (start, bytes) = match at.map(|at| self.partial.swap_remove(at)) {
            None => (offset, Cow::Borrowed(bytes)),
            Some(mut held) => {
                held.bytes.extend_from_slice(bytes);
                (held.offset, Cow::Owned(held.bytes))
            }
        };
        let (text, tail) = decode(bytes);
        if !tail.is_empty() {
            if self.partial.len() == PARTIAL_CHARS_MAX {
                self.partial.remove(0);
            }
            let offset = end.saturating_sub(tail.len() as u64);
            self.partial.push(PartialChar { stream, id: id.to_owned(), offset, bytes: tail });
        }
        (!text.is_empty()).then_some(TextChunk {
            stream,
            id: Cow::Borrowed(id),
            offset: start,
            text,
        })
    }

    /// Whether a character waits for its rest.
    pub(crate) fn has_partial_char(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Ends a command: its partial characters become U+FFFD.
    pub(crate) fn end(&mut self, id: &str) -> Vec<TextChunk<'static>> {
        self.replace_partial(|held| held.id == id)
    }

    /// Bytes of a stream are missing from here on: its partial characters become U+FFFD.
    pub(crate) fn gap(&mut self, stream: u8) -> Vec<TextChunk<'static>> {
        self.replace_partial(|held| held.stream == stream)
    }

    /// Ends the streams of all commands: their partial characters become U+FFFD.
    pub(crate) fn close(&mut self) -> Vec<TextChunk<'static>> {
        self.replace_partial(|_| true)
    }

    fn replace_partial(&mut self, which: impl Fn(&PartialChar) -> bool) -> Vec<TextChunk<'static>> {
        if self.partial.is_empty() {
            return Vec::new();
        }
        let (gone, kept) = std::mem::take(&mut self.partial).into_iter().partition(which);
        self.partial = kept;
        let gone: Vec<PartialChar> = gone;
        gone.into_iter()
            .map(|held| TextChunk {
                stream: held.stream,
                id: Cow::Owned(held.id),
                offset: held.offset,
                text: Cow::Borrowed(REPLACEMENT),
            })
            .collect()
    }
}

/// The text of `bytes`, and the bytes at the end that begin a character.
fn decode(bytes: Cow<'_, [u8]>) -> (Cow<'_, str>, Vec<u8>) {
    let error = match std::str::from_utf8(&bytes) {
        Ok(_) => {
            return match bytes {
                Cow::Borrowed(bytes) => (String::from_utf8_lossy(bytes), Vec::new()),
                // Valid UTF-8: the lossy conversion changes nothing.
                Cow::Owned(bytes) => {
                    (String::from_utf8_lossy(&bytes).into_owned().into(), Vec::new())
                }
            };
        }
        Err(error) => error,
    };
    let cut = cut(&bytes, error);
    let (whole, tail) = bytes.split_at(bytes.len() - cut);
    (Cow::Owned(String::from_utf8_lossy(whole).into_owned()), tail.to_vec())
}

/// The number of bytes at the end that begin a character without completing it.
fn cut(bytes: &[u8], mut error: std::str::Utf8Error) -> usize {
    let mut rest = bytes;
    loop {
        let good = error.valid_up_to();
        let Some(bad) = error.error_len() else { return rest.len() - good };
        rest = &rest[good + bad..];
        match std::str::from_utf8(rest) {
            Ok(_) => return 0,
            Err(next) => error = next,
        }
    }
}

/// The number of bytes at the end of truncated output that begin a character.
pub(crate) fn partial_char_len(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    (1..=tail.len())
        .rev()
        .find(|&count| {
            let end = &tail[tail.len() - count..];
            matches!(std::str::from_utf8(end), Err(e) if e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Chunks of arbitrary bytes with many cut and invalid characters.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let some = prop_oneof![
            any::<u8>().prop_map(|b| vec![b]),
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            any::<char>().prop_map(|c| {
                let mut bytes = c.to_string().into_bytes();
                bytes.pop();
                bytes
            }),
            "[a-z\n\"]{0,40}".prop_map(String::into_bytes),
        ];
        proptest::collection::vec(some, 0..24).prop_map(|parts| parts.concat())
    }

    fn decoded(pieces: &[&[u8]]) -> String {
        let mut texts = Utf8Decoder::default();
        let mut said = String::new();
        let mut offset = 0;
        for piece in pieces {
            if let Some(piece) = texts.decode_chunk(1, "r1", offset, piece) {
                said.push_str(&piece.text);
            }
            offset += piece.len() as u64;
        }
        for piece in texts.end("r1") {
            said.push_str(&piece.text);
        }
        assert!(texts.partial.is_empty());
        said
    }

    proptest! {
        #[test]
        fn any_split_of_any_bytes_gives_the_same_text(
            bytes in bytes(), cuts in proptest::collection::vec(any::<u16>(), 0..12)
        ) {
            let mut cuts: Vec<usize> =
                cuts.iter().map(|c| usize::from(*c) % (bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(decoded(&pieces), String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn only_a_partial_character_at_the_end_is_found(text in ".{0,20}", drop in 0usize..4) {
            let whole = text.as_bytes();
            let cut = &whole[..whole.len().saturating_sub(drop)];
            let open = partial_char_len(cut);
            prop_assert!(std::str::from_utf8(&cut[..cut.len() - open]).is_ok());
            prop_assert_eq!(open == 0, std::str::from_utf8(cut).is_ok());
        }
    }

    #[test]
    fn offsets_count_raw_bytes_also_after_a_partial_character() {
        let mut texts = Utf8Decoder::default();
        let euro = "€".as_bytes();
        assert_eq!(texts.decode_chunk(1, "a", 10, &euro[..1]), None);
        // Another stream or command in between does not take it.
        assert_eq!(texts.decode_chunk(2, "a", 0, b"x").unwrap().text, "x");
        assert_eq!(texts.decode_chunk(1, "", 0, b"y").unwrap().text, "y");
        assert_eq!(texts.decode_chunk(1, "a", 11, &euro[1..2]), None);
        let rest = [euro[2], b'z'];
        let piece = texts.decode_chunk(1, "a", 12, &rest).unwrap();
        assert_eq!((piece.offset, &*piece.text), (10, "€z"));
    }

    #[test]
    fn the_number_of_partial_characters_is_bounded() {
        let mut texts = Utf8Decoder::default();
        for id in 0..1000 {
            texts.decode_chunk(1, &id.to_string(), 0, &[0xe2]);
        }
        assert_eq!(texts.partial.len(), PARTIAL_CHARS_MAX);
    }
}
