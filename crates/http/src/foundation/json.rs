//! Strict JSON bodies: unknown or malformed fields are refused by name, never ignored.

mod numbers;
mod tagged;
mod unique;

pub(crate) use numbers::{not_null_port, not_null_status, null_as_zero, port};
pub(crate) use tagged::parse_variant;
pub(crate) use unique::{Object, UniqueMap, unique_json};

use crate::foundation::error::ApiError;
use crate::limits::body_memory::BodyMemory;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::BytesMut;
use http_body_util::BodyExt;
use isolet_wire::json_tree::tree_bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// The longest JSON body: a command of 1 MiB, escaped, and its environment.
pub(crate) const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The longest JSON body of a call that takes no program, text or environment: names, options, and
/// metadata of 16 KiB of which JSON escapes each byte with six.
pub(crate) const SMALL_BODY_BYTES_MAX: usize = 128 * 1024;
/// The most memory for the values of a JSON text, in bytes, as [`tree_bytes`] counts it: 21,000
/// texts or 5,000 objects.
pub(crate) const TREE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How often the bytes and the values of a body are in memory while its request is read: as they
/// were sent, and in the fields of the request.
const COPIES: usize = 2;
/// How long a client may take to send a JSON body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of a wrong value an error shows.
const GOT_BYTES_MAX: usize = 60;

/// A short JSON body, for calls that expect nothing large.
pub(crate) type SmallJson<T> = StrictJson<T, SMALL_BODY_BYTES_MAX>;

/// A JSON body of one type with at most `MAX` bytes, and its bytes. A missing body counts as an empty
/// object.
pub(crate) struct StrictJson<T, const MAX: usize = BODY_BYTES_MAX> {
    pub(crate) value: T,
    /// The body as it was sent, for idempotency keys.
    pub(crate) raw: Bytes,
}

impl<T: DeserializeOwned, S: Sync, const MAX: usize> FromRequest<S> for StrictJson<T, MAX> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        reject_content_encoding(&parts.headers)?;
        let raw = read_body_within(body, parts.extensions.get(), MAX).await?;
        if raw.is_empty() {
            return Ok(Self { value: parse(b"{}")?, raw });
        }
        require_json_type(&parts.headers)?;
        Ok(Self { value: parse(&raw)?, raw })
    }
}

/// Refuses compressed bodies. The server decompresses none, so no body is larger than it was sent.
pub(crate) fn reject_content_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut all = headers.get_all(header::CONTENT_ENCODING).iter();
    if all.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "encoded_body",
        "the server does not accept bodies with a Content-Encoding",
        "send it without Content-Encoding; archives may be compressed with zstd",
    ))
}

/// Reads a JSON body within the limits of size, time and memory.
///
/// `memory` is the request's share in the budget of all bodies. It pays for the bytes as they arrive,
/// and for the values before they are parsed.
///
/// # Errors
/// 400, 408, 413, and 429 when the tenant's part of the budget is used up.
pub(crate) async fn read_body(body: Body, memory: Option<&BodyMemory>) -> Result<Bytes, ApiError> {
    read_body_within(body, memory, BODY_BYTES_MAX).await
}

/// As [`read_body`], with at most `max` bytes.
///
/// # Errors
/// See [`read_body`].
pub(crate) async fn read_body_within(
    body: Body,
    memory: Option<&BodyMemory>,
    max: usize,
) -> Result<Bytes, ApiError> {
    let take = |bytes: usize| memory.map_or(Ok(()), |memory| memory.take(bytes * COPIES));
    let collected = tokio::time::timeout(BODY_TIMEOUT, collect(body, max, take)).await;
    let raw = collected.map_err(|_| {
        ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "deadline_exceeded",
            "the body did not arrive within 30 seconds",
            "send the request again",
        )
    })??;
    take(check_tree(&raw)?)?;
    Ok(raw)
}

async fn collect(
    mut body: Body,
    max: usize,
    take: impl Fn(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| ApiError::bad_request("the body ended early or is malformed"))?;
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > max {
            return Err(too_large(max));
        }
        take(data.len())?;
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// 413: the body is longer than `max` bytes.
pub(crate) fn too_large(max: usize) -> ApiError {
    let limit = match max % (1024 * 1024) {
        0 => format!("{} MiB", max / (1024 * 1024)),
        _ => format!("{} KiB", max / 1024),
    };
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!("the body is longer than {limit}"),
        "write the text to a file in the sandbox first, and run the file",
    )
}

/// The memory that the values of a JSON text need, in bytes.
///
/// # Errors
/// 400 for more than [`TREE_BYTES_MAX`].
pub(crate) fn check_tree(text: &[u8]) -> Result<usize, ApiError> {
    let bytes = tree_bytes(text);
    if bytes <= TREE_BYTES_MAX {
        return Ok(bytes);
    }
    Err(ApiError::bad_request(
        "the JSON has too many values: at most about 5000 objects or 21000 texts and numbers",
    ))
}

pub(crate) fn require_json_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::bad_field("Content-Type", "must be application/json"))
}

/// Rewrites an error of the JSON parser in plain words.
fn reword(said: &str) -> String {
    let said = said.split(" at line ").next().unwrap_or(said);
    let wrong = said.strip_prefix("invalid type: ").or(said.strip_prefix("invalid value: "));
    let Some((found, expected)) = wrong.and_then(|wrong| wrong.split_once(", expected ")) else {
        return said.to_owned();
    };
    // The parser puts numbers between words and backquotes.
    let got = ["integer `", "floating point `"].iter().find_map(|kind| found.strip_prefix(kind));
    let got = got.and_then(|number| number.strip_suffix('`')).unwrap_or(found);
    let got = match got {
        "map" => "an object",
        "sequence" => "an array",
        other => &other[..other.floor_char_boundary(GOT_BYTES_MAX)],
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i32" | "i64" => "a whole number",
        "a map" => "an object",
        "a sequence" => "an array",
        // The name of a type means nothing to a client.
        named if named.starts_with("struct ") => "an object",
        other => other,
    };
    format!("must be {expected}, not {got}")
}

/// Parses one JSON object of type `T`. The error names the field.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    check_tree(text)?;
    // A derived `Deserialize` would also accept an array of the fields.
    if text.iter().find(|b| !b.is_ascii_whitespace()) != Some(&b'{') {
        return Err(ApiError::bad_request("body: must be one JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." | "?" => ApiError::bad_request(error.inner().to_string()),
            path => {
                ApiError::bad_request(format!("{path}: {}", reword(&error.inner().to_string())))
            }
        }
    })?;
    reader.end().map_err(|_| ApiError::bad_request("body: data follows the JSON object"))?;
    Ok(value)
}

/// For optional fields that may be absent, but not `null`.
pub(crate) fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    reader: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(reader).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::memory_budget::MemoryBudget;
    use isolet_sandbox::TenantId;
    use serde_json::Value;
    use std::sync::Arc;
    use std::time::Instant;

    #[derive(Debug, Default, Deserialize)]
    struct Inner {}

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct TestBody {
        #[serde(default, rename = "inner")]
        _inner: Inner,
        #[serde(default, deserialize_with = "not_null")]
        ttl_s: Option<u64>,
        #[serde(default)]
        env: UniqueMap<String>,
        #[serde(default)]
        metadata: Object,
        #[serde(default, deserialize_with = "not_null")]
        id: Option<String>,
        #[serde(default, deserialize_with = "port")]
        port: u16,
        #[serde(default)]
        count: u32,
    }

    fn refused(text: impl AsRef<[u8]>) -> String {
        let failure = parse::<TestBody>(text.as_ref()).expect_err("must be refused");
        // A debug build gets more time, and so does a busy machine.
        let limit = Duration::from_millis(if cfg!(debug_assertions) { 300 } else { 10 });
        let quick = |_| {
            let began = Instant::now();
            drop(parse::<TestBody>(text.as_ref()));
            began.elapsed() < limit
        };
        assert!((0..10).any(quick), "it takes more than {limit:?}");
        assert_eq!(failure.status(), StatusCode::BAD_REQUEST);
        failure.message
    }

    #[test]
    fn an_error_names_the_field() {
        for (text, name) in [
            (r#"{"ttl_s":-1}"#, "ttl_s"),
            (r#"{"ttl_s":1e308}"#, "ttl_s"),
            (r#"{"ttl_s":1.5}"#, "ttl_s"),
            (r#"{"ttl_s":"9"}"#, "ttl_s"),
            (r#"{"ttl_s":null}"#, "ttl_s"),
            (r#"{"ttl_s":NaN}"#, "ttl_s"),
            (r#"{"ttl_s":1,"ttl_s":2}"#, "ttl_s"),
            (r#"{"ttl_s":99999999999999999999}"#, "ttl_s"),
            (r#"{"nope":1}"#, "nope"),
            (r#"{"env":["A"]}"#, "env"),
            (r#"{"env":{"A":1}}"#, "env.A"),
            (r#"{"env":{"A":"1","A":"2"}}"#, "env"),
            (r#"{"metadata":{"a":{"b":1,"b":2}}}"#, "metadata"),
            (r#"{"metadata":[]}"#, "metadata"),
            (r#"{"id":"\ud800"}"#, "id"),
        ] {
            let message = refused(text);
            assert!(message.contains(name), "{text}: {message}");
        }
    }

    #[test]
    fn an_error_does_not_use_the_parsers_words() {
        let message = refused(r#"{"ttl_s":"9"}"#);
        assert_eq!(message, "ttl_s: must be a whole number, 0 or more, not string \"9\"");
        assert_eq!(refused(r#"{"metadata":[]}"#), "metadata: must be an object, not an array");
        assert_eq!(refused(r#"{"ttl_s":-1}"#), "ttl_s: must be a whole number, 0 or more, not -1");
        for (number, said) in [("70000", "70000"), ("0", "0"), ("-1", "-1"), ("1.5", "1.5")] {
            let message = format!("port: must be a whole number from 1 to 65535, not {said}");
            assert_eq!(refused(format!("{{\"port\":{number}}}")), message);
        }
        let wide = refused(r#"{"count":4294967296}"#);
        assert_eq!(wide, "count: must be a whole number from 0 to 4294967295, not 4294967296");
        assert_eq!(refused(r#"{"inner":"a"}"#), "inner: must be an object, not string \"a\"");
        let long = refused(format!(r#"{{"inner":"{}"}}"#, "\u{e9}".repeat(3000)));
        assert!(long.len() < 120, "{long}");
    }

    #[test]
    fn only_an_object_is_accepted() {
        for text in ["[]", "null", "1", "\"a\"", "", "[1,{},{},\"a\"]", "{", "{} {}", "{}x", "{,}"]
        {
            refused(text);
        }
        refused(b"\xef\xbb\xbf{}");
        refused(b"\xff\xfe{\0}\0");
        refused(b"{\"id\":\"\xff\"}");
    }

    #[test]
    fn depth_and_size_cost_nothing() {
        for open in ["[", "{\"a\":"] {
            let deep = open.repeat(100_000);
            refused(format!("{{\"nope\":{deep}"));
            refused(format!("{{\"metadata\":{{\"a\":{deep}"));
            refused(format!("{{\"ttl_s\":{deep}"));
            refused(&deep);
        }
        refused(format!("{{\"ttl_s\":{}}}", "9".repeat(BODY_BYTES_MAX)));
    }

    /// A body of 2 MiB became a tree of 55 to 76 MiB.
    ///
    /// Promises: T26.
    #[test]
    fn t21_a_text_with_too_many_values_is_refused_before_it_is_parsed() {
        for value in [r#"{"a":0}"#, "{}", "[]", "0", r#"["a"]"#] {
            let many = format!("{value},").repeat(BODY_BYTES_MAX / (value.len() + 1) - 20);
            let message = refused(format!(r#"{{"metadata":{{"a":[{many}0]}}}}"#));
            assert!(message.contains("too many values"), "{value}: {message}");
        }
        let words: Vec<&str> = vec!["word"; 20_000];
        let text = serde_json::json!({"metadata": {"a": words}}).to_string();
        assert!(parse::<TestBody>(text.as_bytes()).is_ok(), "a long list of texts is no attack");
    }

    fn budget(bytes: u64) -> (Arc<MemoryBudget>, TenantId, BodyMemory) {
        let tenant = TenantId::parse("t").unwrap();
        let budget = MemoryBudget::new(bytes);
        let memory = BodyMemory::new(budget.share(&tenant));
        (budget, tenant, memory)
    }

    /// Promises: T26.
    #[tokio::test]
    async fn t21_a_body_pays_for_its_bytes_as_they_arrive_and_for_its_values() {
        let text = r#"{"metadata":{"a":[1,2,3]}}"#;
        let (all, tenant, memory) = budget(1 << 20);
        let raw = read_body(Body::from(text), Some(&memory)).await.unwrap();
        let bytes = COPIES * (text.len() + tree_bytes(&raw));
        assert_eq!(all.held_by(&tenant), bytes as u64);
        drop(memory);
        assert_eq!(all.held_by(&tenant), 0);
        // The second piece no longer fits: nothing after it is read.
        let (all, tenant, memory) = budget(4 * 1000);
        let pieces = (0..3).map(|n| {
            assert!(n < 2, "a piece was read without memory for it");
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 600]))
        });
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let failure = read_body(body, Some(&memory)).await.unwrap_err();
        assert_eq!(failure.code, "too_much_memory");
        assert_eq!(all.held_by(&tenant), 1200);
    }

    #[tokio::test]
    async fn a_short_body_has_a_short_limit() {
        let long = Body::from(vec![b' '; SMALL_BODY_BYTES_MAX + 1]);
        let failure = read_body_within(long, None, SMALL_BODY_BYTES_MAX).await.unwrap_err();
        assert_eq!(failure.message, "the body is longer than 128 KiB");
        assert_eq!(too_large(BODY_BYTES_MAX).message, "the body is longer than 2 MiB");
    }

    #[test]
    fn a_valid_body_is_parsed() {
        let text = br#" {"ttl_s":1,"env":{"A":"b"},"id":"c","port":2,"count":3,
            "metadata":{"a":[1,{"b":null}],"c":-1.5}} "#;
        let body: TestBody = parse(text).unwrap();
        assert_eq!(body.ttl_s, Some(1));
        assert_eq!(body.env.0.get("A").map(String::as_str), Some("b"));
        assert_eq!(body.id.as_deref(), Some("c"));
        assert_eq!(body.port, 2);
        assert_eq!(body.count, 3);
        assert_eq!(
            Value::Object(body.metadata.0),
            serde_json::json!({"a":[1,{"b":null}],"c":-1.5})
        );
    }
}
