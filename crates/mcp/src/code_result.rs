//! Converts the answer to a run of code: output, displayed values, images, and the exception. As with
//! a command that fails, an exception is not an error of the tool.

use crate::tool_result::{self, line_end, success};
use bytes::Bytes;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Image types that models can view, in the order of preference.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];
/// Text types of a value, in the order of preference.
const TEXTS: [&str; 6] =
    ["text/markdown", "text/plain", "text/latex", "application/json", "text/html", "image/svg+xml"];
/// Number of images in a result; more are only counted.
const IMAGES_MAX: usize = 16;
/// Limit on the base64 of all images of a result, in bytes.
const IMAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Limit on the text of one value, in bytes.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// The answer to a run as values, without the displayed ones that the result does not show.
///
/// # Errors
/// A failure for what is not JSON.
pub(crate) fn parse(body: &Bytes) -> Result<Value, CallToolResult> {
    let read = || -> serde_json::Result<Value> {
        // A displayed value may be any JSON of the tenant: it stays text.
        let mut fields: BTreeMap<String, &RawValue> = serde_json::from_slice(body)?;
        let mut answer = Map::new();
        if let Some(results) = fields.remove("results") {
            let results: Vec<Displayed<'_>> = serde_json::from_str(results.get())?;
            answer.insert("results".to_owned(), results.iter().map(Displayed::shown).collect());
        }
        for (name, value) in fields {
            answer.insert(name, serde_json::from_str(value.get())?);
        }
        Ok(Value::Object(answer))
    };
    read().map_err(|_| tool_result::failure("the server's response is not JSON"))
}

/// A displayed value, by media type.
#[derive(Deserialize)]
struct Displayed<'a> {
    #[serde(borrow)]
    data: BTreeMap<String, &'a RawValue>,
}

impl Displayed<'_> {
    /// The representation that a result shows, as [`image`] and [`value`] expect it.
    fn shown(&self) -> Value {
        let text = |value: &RawValue| {
            serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
        };
        let mut data = Map::new();
        for kind in IMAGES.into_iter().chain(TEXTS) {
            if let Some(value) = self.data.get(kind) {
                data.insert(kind.to_owned(), text(value).into());
                break;
            }
        }
        serde_json::json!({ "data": data })
    }
}

/// The result of a run: one text with output, values and exception, then the images.
pub(crate) fn run(mut answer: Value) -> CallToolResult {
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut shown = text("stdout").to_owned();
    if !text("stderr").is_empty() {
        let _ = write!(shown, "{}[stderr]\n{}", line_end(&shown), text("stderr"));
    }
    let mut images = Vec::new();
    let mut image_bytes = 0;
    let mut images_left_out = 0;
    let results = answer.get("results").and_then(Value::as_array);
    for result in results.into_iter().flatten() {
        let Some(values) = result.get("data") else { continue };
        if let Some((kind, image)) = image(values) {
            if images.len() < IMAGES_MAX && image_bytes + image.len() <= IMAGE_BYTES_MAX {
                image_bytes += image.len();
                images.push(ContentBlock::image(image, kind));
            } else {
                images_left_out += 1;
            }
        } else if let Some(value) = value(values) {
            let _ = write!(shown, "{}{value}", line_end(&shown));
        }
    }
    let mut notes = notes(&answer);
    if images_left_out > 0 {
        notes.push(format!(
            "{images_left_out} images are not shown; save them to files and read those"
        ));
    }
    if let Some(exception) = exception(&answer) {
        let _ = write!(shown, "{}{exception}", line_end(&shown));
    }
    if !notes.is_empty() {
        let _ = write!(shown, "{}[{}]", line_end(&shown), notes.join("; "));
    }
    // Text and images have these already, and a model cannot read binary output.
    if let Some(fields) = answer.as_object_mut() {
        for name in ["results", "stdout_b64", "stderr_b64"] {
            fields.remove(name);
        }
    }
    let mut result = success(shown);
    result.content.extend(images);
    result.structured_content = Some(answer);
    result
}

/// The image of a value, in base64.
fn image(values: &Value) -> Option<(&'static str, String)> {
    IMAGES.into_iter().find_map(|kind| {
        let coded = values.get(kind)?.as_str()?;
        // Kernels break lines of base64.
        Some((kind, coded.split_ascii_whitespace().collect()))
    })
}

/// The text of a value.
fn value(values: &Value) -> Option<String> {
    let (_, value) = TEXTS.into_iter().find_map(|kind| Some((kind, values.get(kind)?)))?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let to = text.floor_char_boundary(VALUE_BYTES_MAX);
    let rest = text.len() - to;
    if rest == 0 {
        return Some(text);
    }
    Some(format!("{}… [{rest} bytes of this value are not shown]", &text[..to]))
}

/// The traceback of an exception, or its name and message.
fn exception(answer: &Value) -> Option<String> {
    let fault = answer.get("exception").filter(|fault| fault.is_object())?;
    let text = |name: &str| fault.get(name).and_then(Value::as_str).unwrap_or_default();
    let lines = fault.get("traceback").and_then(Value::as_array).into_iter().flatten();
    let lines: Vec<_> = lines.filter_map(Value::as_str).map(str::trim_end).collect();
    let what = format!("{}: {}", text("name"), text("message"));
    let told = lines.last().is_some_and(|last| last.contains(text("name")));
    let all = lines.into_iter().map(String::from).chain((!told).then_some(what));
    Some(all.collect::<Vec<_>>().join("\n"))
}

fn notes(answer: &Value) -> Vec<String> {
    let flag = |name: &str| answer.get(name).and_then(Value::as_bool) == Some(true);
    let mut notes = Vec::new();
    if let Some(cut) = answer.get("truncated").filter(|cut| cut.is_object()) {
        notes.push(format!("output was cut; omitted bytes: {cut}"));
    }
    for (name, note) in [
        ("timed_out", "the timeout ended the run"),
        ("interrupted", "the run was interrupted"),
        ("oom", "the kernel killed a process because the sandbox ran out of memory"),
        (
            "fresh",
            "this was a new interpreter: the previous one had ended, and its variables are lost",
        ),
    ] {
        if flag(name) {
            notes.push(note.to_owned());
        }
    }
    let lost = answer.get("results_lost").and_then(Value::as_u64).unwrap_or_default();
    if lost > 0 {
        notes.push(format!("{lost} results were too large or too many"));
    }
    if let Some(lost) = answer.get("lost").filter(|lost| lost.is_array()) {
        notes.push(format!("the sandbox slept and lost {lost}"));
    }
    notes.extend(tool_result::denials(answer));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(result: &CallToolResult) -> Vec<String> {
        let all = result.content.iter().filter_map(|block| block.as_text());
        all.map(|text| text.text.clone()).collect()
    }

    #[test]
    fn values_and_images_follow_the_output() {
        let result = run(json!({
            "stdout": "out\n", "stderr": "err",
            "results": [
                {"kind": "display", "data": {"image/png": "aGVs\nbG8=", "text/plain": "<Figure>"}},
                {"kind": "result", "data": {"text/plain": "42", "text/html": "<b>42</b>"}},
            ],
            "exception": null, "results_lost": 2,
        }));
        assert_eq!(
            texts(&result),
            ["out\n[stderr]\nerr\n42\n[2 results were too large or too many]"]
        );
        let image = result.content[1].as_image().expect("an image");
        assert_eq!((image.data.as_str(), image.mime_type.as_str()), ("aGVsbG8=", "image/png"));
        assert_eq!(result.is_error, Some(false));
    }

    #[test]
    fn a_displayed_value_is_read_as_text() {
        let many = format!("[{}0]", "{\"a\":0},".repeat(100_000));
        let display = format!(
            r#"{{"kind":"display","data":{{"application/json":{many},"x/y":{many}}},"metadata":{{}}}}"#
        );
        let last = r#"{"kind":"result","data":{"text/html":"<b>","text/plain":"4"}}"#;
        let body = format!(r#"{{"stdout":"o","results":[{display},{last}],"exception":null}}"#);
        let answer = parse(&Bytes::from(body)).expect("JSON");
        assert_eq!(
            answer["results"],
            json!([{"data": {"application/json": many}}, {"data": {"text/plain": "4"}}])
        );
        let result = run(answer);
        assert!(texts(&result)[0].starts_with("o\n[{\"a\":0},{"), "{:?}", texts(&result)[0].len());
        assert!(parse(&Bytes::from_static(b"{")).is_err());
    }

    #[test]
    fn an_exception_is_shown_with_its_traceback() {
        let fault =
            |lines: Value| json!({"name": "ValueError", "message": "no", "traceback": lines});
        let result =
            run(json!({"stdout": "a", "exception": fault(json!(["Traceback", "ValueError: no"]))}));
        assert_eq!(texts(&result), ["a\nTraceback\nValueError: no"]);
        let result = run(json!({"exception": fault(json!([]))}));
        assert_eq!(texts(&result), ["ValueError: no"]);
    }

    #[test]
    fn images_and_values_have_limits() {
        let image = json!({"data": {"image/png": "YQ=="}});
        let result = run(json!({"results": vec![image; IMAGES_MAX + 3]}));
        assert_eq!(result.content.len(), 1 + IMAGES_MAX);
        assert!(texts(&result)[0].contains("3 images are not shown"), "{:?}", texts(&result));
        let long = "ä".repeat(VALUE_BYTES_MAX);
        let result = run(json!({"results": [{"data": {"text/plain": long}}]}));
        assert!(texts(&result)[0].len() < VALUE_BYTES_MAX + 100);
    }
}
