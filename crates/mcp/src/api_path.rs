//! Builds paths of the API out of untrusted arguments.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters with a meaning in a URL, except the slash.
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

/// Characters that no URL may contain, and those that would end the path and query.
const TARGET: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'\\');

/// Encodes a path segment or a query value. Ids are not encoded: the path to a port is not decoded
/// again.
pub(crate) fn part(text: &str) -> String {
    let within = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if begins && text.bytes().all(within) {
        return text.to_owned();
    }
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The path of a sandbox.
pub(crate) fn sandbox(id: &str) -> String {
    format!("/v1/sandboxes/{}", part(id))
}

/// The path of a file. An absolute path keeps its slash; the API rejects `.` and `..`.
pub(crate) fn file(sandbox_id: &str, path: &str) -> String {
    let (slash, rest) = match path.strip_prefix('/') {
        Some(rest) => ("%2F", rest),
        None => ("", path),
    };
    let rest = utf8_percent_encode(rest, PATH);
    format!("{}/files/{slash}{rest}", sandbox(sandbox_id))
}

/// The path of a process, followed by `rest`.
pub(crate) fn process(sandbox_id: &str, process: &str, rest: &str) -> String {
    format!("{}/processes/{}{rest}", sandbox(sandbox_id), part(process))
}

/// The path of a code context, followed by `rest`.
pub(crate) fn context(sandbox_id: &str, context: &str, rest: &str) -> String {
    format!("{}/contexts/{}{rest}", sandbox(sandbox_id), part(context))
}

/// The path of a request to a program on a port; `path` may have a query.
pub(crate) fn port(sandbox_id: &str, port: u16, path: &str) -> String {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = utf8_percent_encode(path, TARGET);
    format!("{}/ports/{port}/{path}", sandbox(sandbox_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: M3.
    #[test]
    fn no_argument_leaves_its_segment_of_a_path() {
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
