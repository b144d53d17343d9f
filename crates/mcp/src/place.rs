//! Addresses of the API, made of what a client said.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything that means something in an address, but the slash.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// One part of a path, or a value of a query.
pub(crate) fn part(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The address of a sandbox.
pub(crate) fn sandbox(id: &str) -> String {
    format!("/v1/sandboxes/{}", part(id))
}

/// The address of a file. An absolute path keeps its slash; `.` and `..` are the API's to refuse.
pub(crate) fn file(sandbox_id: &str, path: &str) -> String {
    let (slash, rest) = match path.strip_prefix('/') {
        Some(rest) => ("%2F", rest),
        None => ("", path),
    };
    let rest = utf8_percent_encode(rest, PATH);
    format!("{}/files/{slash}{rest}", sandbox(sandbox_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_client_says_leaves_its_place_in_an_address() {
        assert_eq!(sandbox("../../x?a#b"), "/v1/sandboxes/%2E%2E%2F%2E%2E%2Fx%3Fa%23b");
        assert_eq!(file("a", "/etc/a b?c"), "/v1/sandboxes/a/files/%2Fetc/a%20b%3Fc");
        assert_eq!(file("a", "src/100%.rs"), "/v1/sandboxes/a/files/src/100%25.rs");
    }
}
