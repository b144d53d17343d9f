//! What a JSON text costs once it is parsed into a tree of values, found without parsing it.
//!
//! A text of two bytes such as `{}` can become hundreds of bytes of memory. Code that
//! builds a tree from the text of a stranger first compares this estimate with a limit.

/// The first member of an object: a node of a B-tree for eleven members, a key and a value.
const OBJECT_BYTES: usize = 832;
/// A further member or element: its part of a node or vector, a key and a text.
const VALUE_BYTES: usize = 192;

/// An estimate of the memory for the tree of a JSON text, in bytes: at least what the tree of
/// `serde_json` takes besides long strings, of which the text has all bytes.
///
/// The text need not be valid.
#[must_use]
pub fn tree_bytes(text: &[u8]) -> usize {
    let mut bytes = VALUE_BYTES;
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => skip_string(&mut rest),
            b'{' => bytes += OBJECT_BYTES,
            b'[' | b',' => bytes += VALUE_BYTES,
            _ => {}
        }
    }
    bytes
}

fn skip_string(rest: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => return,
            b'\\' => _ = rest.next(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_stands_outside_of_strings() {
        let scalar = tree_bytes(b"1");
        for same in [&br#""{[,{[,""#[..], br#""a\"{""#, br#""\\""#, b"true", b""] {
            assert_eq!(tree_bytes(same), scalar, "{}", String::from_utf8_lossy(same));
        }
        assert_eq!(tree_bytes(b"[1,2]"), scalar + 2 * VALUE_BYTES);
        assert_eq!(tree_bytes(br#"{"a":{},"b,":0}"#), scalar + 2 * OBJECT_BYTES + VALUE_BYTES);
    }

    #[test]
    fn a_text_that_ends_in_a_string_is_read_to_its_end() {
        assert_eq!(tree_bytes(br#"["a\"#), 2 * VALUE_BYTES);
    }
}
