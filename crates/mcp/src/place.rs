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

/// What may stand in no address at all, and what would end it.
const TARGET: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'\\');

/// One part of a path, or a value of a query. What is like an id stays as it is: the way to a port is
/// read as it was sent.
pub(crate) fn part(text: &str) -> String {
    let within = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if begins && text.bytes().all(within) {
        return text.to_owned();
    }
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

/// The address of a process, or of something of it.
pub(crate) fn process(sandbox_id: &str, process: &str, rest: &str) -> String {
    format!("{}/processes/{}{rest}", sandbox(sandbox_id), part(process))
}

/// The address of what a program on a port is asked for: path and query, which are its own to read.
pub(crate) fn port(sandbox_id: &str, port: u16, path: &str) -> String {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = utf8_percent_encode(path, TARGET);
    format!("{}/ports/{port}/{path}", sandbox(sandbox_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_client_says_leaves_its_place_in_an_address() {
        assert_eq!(sandbox("../../x?a#b"), "/v1/sandboxes/%2E%2E%2F%2E%2E%2Fx%3Fa%23b");
        assert_eq!(sandbox("..a"), "/v1/sandboxes/%2E%2Ea");
        assert_eq!(
            process("my-box.1", "p/q", "/logs"),
            "/v1/sandboxes/my-box.1/processes/p%2Fq/logs"
        );
        assert_eq!(
            port("a", 80, "/x/%2e?q=ä b#c"),
            "/v1/sandboxes/a/ports/80/x/%2e?q=%C3%A4%20b%23c"
        );
        assert_eq!(port("a", 80, ""), "/v1/sandboxes/a/ports/80/");
        assert_eq!(file("a", "/etc/a b?c"), "/v1/sandboxes/a/files/%2Fetc/a%20b%3Fc");
        assert_eq!(file("a", "src/100%.rs"), "/v1/sandboxes/a/files/src/100%25.rs");
    }
}
