//! Converts responses of the API to tool results: text for the model, and the same as structured data.

use crate::hints;
use bytes::Bytes;
use http::Response;
use isolet_wire::json_tree::tree_bytes;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::Value;
use std::fmt::Write;

/// Limit on the memory for the values of a response, in bytes: those of 10,000 files.
const VALUES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Limit on a response that is an error of the server, in bytes.
const ERROR_BYTES_MAX: usize = 16 * 1024;
/// Number of network denials in the text; the structured data contains all.
const DENIALS_SHOWN_MAX: usize = 8;

/// Result of a tool. MCP reports failures as results, too.
pub(crate) type ToolResult = Result<CallToolResult, CallToolResult>;

pub(crate) fn failure(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

pub(crate) fn success(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// The response if it is a success; otherwise a result with the API's error message and hint.
pub(crate) fn require_success(
    response: Response<Bytes>,
) -> Result<Response<Bytes>, CallToolResult> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let mut body = error_body(response.body());
    hints::name_tools(&mut body);
    let field = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut text = format!("{} ({} {})", field("message"), status.as_u16(), field("error"));
    if !field("hint").is_empty() {
        let _ = write!(text, "\n{}", field("hint"));
    }
    let mut result = failure(text);
    result.structured_content = body.is_object().then_some(body);
    Err(result)
}

/// The JSON of a response that may be an error of the server; null if it is none.
pub(crate) fn error_body(body: &Bytes) -> Value {
    match body.len() <= ERROR_BYTES_MAX {
        true => serde_json::from_slice(body).unwrap_or_default(),
        false => Value::Null,
    }
}

/// Parses the JSON of a response.
pub(crate) fn json(response: &Response<Bytes>) -> Result<Value, CallToolResult> {
    if tree_bytes(response.body()) > VALUES_BYTES_MAX {
        return Err(failure("the server's response has too many values; ask for a smaller part"));
    }
    serde_json::from_slice(response.body())
        .map_err(|_| failure("the server's response is not JSON"))
}

/// A result with data, as JSON text and as structured content, which must be an object.
pub(crate) fn data(value: Value) -> CallToolResult {
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    let mut result = success(text);
    result.structured_content = Some(value);
    result
}

/// The result of a command: its output as a terminal shows it, then a line with the exit code and notes.
pub(crate) fn command(mut answer: Value) -> CallToolResult {
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    let flag = |name: &str| answer.get(name).and_then(Value::as_bool) == Some(true);
    let mut shown = text("stdout").to_owned();
    if !text("stderr").is_empty() {
        let _ = write!(shown, "{}[stderr]\n{}", line_end(&shown), text("stderr"));
    }
    let mut notes = Vec::new();
    if let Some(cut) = answer.get("truncated").filter(|cut| cut.is_object()) {
        notes.push(format!("output was cut; omitted bytes: {cut}"));
    }
    for (name, note) in [
        ("timed_out", "the command was ended by its timeout"),
        ("cancelled", "the command was cancelled"),
        ("oom", "the kernel killed a process because the sandbox ran out of memory"),
        (
            "fresh",
            "this was a new shell: the previous one had exited, and its directory and variables are lost",
        ),
    ] {
        if flag(name) {
            notes.push(note.to_owned());
        }
    }
    if let Some(lost) = answer.get("lost").filter(|lost| lost.is_array()) {
        notes.push(format!("the sandbox slept and lost {lost}"));
    }
    notes.extend(denials(&answer));
    let code = answer.get("exit_code").and_then(Value::as_i64).unwrap_or(-1);
    notes.push(format!("exit {code}"));
    let _ = write!(shown, "{}[{}]", line_end(&shown), notes.join("; "));
    // A model cannot read binary output.
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("stdout_b64");
        fields.remove("stderr_b64");
    }
    let mut result = success(shown);
    result.structured_content = Some(answer);
    result
}

/// Describes the connections that the sandbox's network rules denied.
pub(crate) fn denials(answer: &Value) -> Vec<String> {
    let denied = answer.get("denied").and_then(Value::as_array).map(Vec::as_slice);
    denied.unwrap_or_default().iter().take(DENIALS_SHOWN_MAX).map(describe_denial).collect()
}

/// Describes a connection that the sandbox's network rules denied.
fn describe_denial(one: &Value) -> String {
    let text = |name: &str| one.get(name).and_then(Value::as_str).unwrap_or_default();
    let port = one.get("port").and_then(Value::as_u64);
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    let reason = match text("rule") {
        "default" => "no rule allows it".to_owned(),
        rule => rule.to_owned(),
    };
    format!(
        "the sandbox's network rules denied {}{port} ({}): {reason}",
        text("host"),
        text("protocol")
    )
}

/// The result of reading a log: the output as a terminal shows it, then a line with the state of the
/// process. `left_out` bytes precede it; at most the last `max_bytes` bytes of each stream are shown.
pub(crate) fn log(mut answer: Value, left_out: u64, max_bytes: u64) -> CallToolResult {
    let text = |name: &str| {
        let text = answer.get(name).and_then(Value::as_str).unwrap_or_default();
        let from = text.len().saturating_sub(usize::try_from(max_bytes).unwrap_or(usize::MAX));
        text[text.ceil_char_boundary(from)..].to_owned()
    };
    let mut shown = text("stdout");
    let errors = text("stderr");
    if !errors.is_empty() {
        let _ = write!(shown, "{}[stderr]\n{errors}", line_end(&shown));
    }
    let process = answer.get("process").cloned().unwrap_or_default();
    let state = process.get("status").and_then(Value::as_str).unwrap_or_default();
    let mut note = state.to_owned();
    if let Some(code) = process.get("exit_code").and_then(Value::as_i64) {
        let _ = write!(note, "; exit {code}");
    }
    let missed = answer.get("missed").and_then(Value::as_u64).unwrap_or_default();
    if left_out + missed > 0 {
        let _ = write!(note, "; {} bytes before this are not shown", left_out + missed);
    }
    let position = answer.get("position").and_then(Value::as_u64).unwrap_or_default();
    let _ = write!(shown, "{}[{note}; position {position}]", line_end(&shown));
    // The text result has the output already.
    if let Some(fields) = answer.as_object_mut() {
        for name in ["stdout", "stderr", "stdout_b64", "stderr_b64"] {
            fields.remove(name);
        }
    }
    let mut result = success(shown);
    result.structured_content = Some(answer);
    result
}

/// The media type of an image that models can view, by its first bytes.
pub(crate) fn image_media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// What ends the last line of a text.
pub(crate) fn line_end(text: &str) -> &'static str {
    if text.is_empty() || text.ends_with('\n') { "" } else { "\n" }
}
