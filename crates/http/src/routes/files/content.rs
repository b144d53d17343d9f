//! Responses with the bytes of a file: conditional requests and ranges.

use crate::foundation::error::ApiError;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use isolet_sandbox::files::FileReader;
use isolet_wire::request::{ByteRange, ExpectedFile, FileVersion};
use isolet_wire::response::FileStat;
use std::io;

/// The most bytes read of a file without a size, as in `/proc`.
const UNSIZED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The conditions of a request: range and known versions.
#[derive(Debug, Default)]
pub(super) struct ReadConditions {
    part: Option<ByteRange>,
    /// `If-Range`: the version that the range refers to.
    only: Option<String>,
    /// `If-None-Match`: the versions that the client has.
    has: Option<String>,
}

impl ReadConditions {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::to_owned);
        let part = text(header::RANGE).and_then(|range| part(&range));
        Self { part, only: text(header::IF_RANGE), has: text(header::IF_NONE_MATCH) }
    }

    /// The part to read.
    pub(super) fn span(&self) -> ByteRange {
        self.part.unwrap_or(ByteRange::From { offset: 0, limit: None })
    }

    /// Whether the range refers to this version of the file.
    pub(super) fn holds(&self, stat: &FileStat) -> bool {
        self.part.is_none() || self.only.as_ref().is_none_or(|only| *only == tag(stat))
    }

    fn known(&self, stat: &FileStat) -> bool {
        let tag = tag(stat);
        let same = |one: &str| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag;
        self.has.as_ref().is_some_and(|all| all.split(',').any(|one| same(one.trim())))
    }

    /// The first byte and the count; `None` when the range is empty.
    fn within(&self, size: u64) -> Option<(u64, u64)> {
        let (first, count) = match self.span() {
            ByteRange::From { offset, limit } => (offset, limit.unwrap_or(u64::MAX)),
            ByteRange::Last(count) => (size.saturating_sub(count), count),
        };
        let count = count.min(size.saturating_sub(first));
        (self.part.is_none() || count > 0).then_some((first, count))
    }
}

/// Parses a single range of bytes. Malformed or multiple ranges are ignored, and the whole file is
/// sent.
fn part(text: &str) -> Option<ByteRange> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let first = first.trim();
    let last = last.trim();
    if first.is_empty() {
        return number(last).map(ByteRange::Last);
    }
    let offset = number(first)?;
    if last.is_empty() {
        return Some(ByteRange::From { offset, limit: None });
    }
    let last = number(last).filter(|last| *last >= offset)?;
    Some(ByteRange::From { offset, limit: Some((last - offset).saturating_add(1)) })
}

/// An entity tag that changes whenever the file is written: inode, size and time.
pub(super) fn tag(stat: &FileStat) -> String {
    format!("\"{:x}-{:x}-{:x}\"", stat.inode, stat.size, stat.modified_ms)
}

/// The file that a write may replace, by `If-Match`: `*`, or the entity tag of a read.
pub(super) fn expected_file(headers: &HeaderMap) -> Result<Option<ExpectedFile>, ApiError> {
    let Some(header) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let expected = header.to_str().ok().map(str::trim).and_then(|text| match text {
        "*" => Some(ExpectedFile::Any),
        tag => version(tag).map(ExpectedFile::Version),
    });
    let hint = "must be `*`, or one ETag that a read or a write of the file returned";
    expected.map(Some).ok_or_else(|| ApiError::bad_field("If-Match", hint))
}

/// The version that an entity tag names.
fn version(tag: &str) -> Option<FileVersion> {
    let mut parts = tag.strip_prefix('"')?.strip_suffix('"')?.split('-');
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    let inode = number()?;
    let size = number()?;
    let modified_ms = number()?.cast_signed();
    parts.next().is_none().then_some(FileVersion { inode, size, modified_ms })
}

/// The response with a file's bytes, or with a status that replaces them.
pub(super) fn response(reader: FileReader, asked: &ReadConditions, method: &Method) -> Response {
    let stat = reader.stat.clone();
    if asked.known(&stat) {
        return with_tag(StatusCode::NOT_MODIFIED.into_response(), &stat);
    }
    let Some((first, count)) = asked.within(stat.size) else {
        let message = format!("the file has {} bytes", stat.size);
        let hint = "request a range within the file";
        let status = StatusCode::RANGE_NOT_SATISFIABLE;
        let mut response = ApiError::new(status, "bad_range", message, hint).into_response();
        put(&mut response, header::CONTENT_RANGE, format!("bytes */{}", stat.size));
        return response;
    };
    let sized = stat.size > 0;
    let most = if sized { count } else { UNSIZED_BYTES_MAX };
    let body = if *method == Method::HEAD { Body::empty() } else { body(reader, most, sized) };
    let mut response = with_tag(Response::new(body), &stat);
    put(&mut response, header::CONTENT_TYPE, "application/octet-stream".into());
    put(&mut response, header::ACCEPT_RANGES, "bytes".into());
    if sized {
        put(&mut response, header::CONTENT_LENGTH, count.to_string());
    }
    if asked.part.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let last = first + count - 1;
        put(&mut response, header::CONTENT_RANGE, format!("bytes {first}-{last}/{}", stat.size));
    }
    response
}

/// The response with the archive of a directory, whose size is unknown.
pub(super) fn archive(reader: FileReader, zstd: bool, method: &Method) -> Response {
    let head = *method == Method::HEAD;
    let body = if head { Body::empty() } else { body(reader, u64::MAX, false) };
    let mut response = Response::new(body);
    let kind = if zstd { "application/zstd" } else { "application/x-tar" };
    put(&mut response, header::CONTENT_TYPE, kind.into());
    response
}

/// Streams a reader without further headers. An error truncates the body, because the status has
/// already been sent.
pub(crate) fn raw(reader: FileReader) -> Response {
    let mut response = Response::new(body(reader, u64::MAX, false));
    put(&mut response, header::CONTENT_TYPE, "application/octet-stream".into());
    response
}

/// Adds the entity tag of the file.
pub(super) fn tagged(mut response: Response, stat: &FileStat) -> Response {
    put(&mut response, header::ETAG, tag(stat));
    response
}

fn with_tag(response: Response, stat: &FileStat) -> Response {
    let mut response = tagged(response, stat);
    put(&mut response, header::CACHE_CONTROL, "private, no-cache".into());
    response
}

fn put(response: &mut Response, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Streams at most `most` bytes, and exactly as many of a file with a size, even while it grows.
/// When the file shrinks or fails, the body is truncated, because the status has already been sent.
fn body(reader: FileReader, most: u64, sized: bool) -> Body {
    let bytes = stream::try_unfold((reader, most), move |(mut reader, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        match reader.next().await.map_err(io::Error::other)? {
            Some(mut bytes) => {
                bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - bytes.len() as u64;
                Ok::<Option<(Bytes, _)>, io::Error>(Some((bytes, (reader, left))))
            }
            None if sized => Err(io::Error::other("the file became shorter while it was read")),
            None => Ok(None),
        }
    });
    Body::from_stream(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_tag_names_the_version_that_it_was_made_of() {
        let kind = isolet_wire::response::FileKind::File;
        for modified_ms in [0, 1_700_000_000_123, -5] {
            let stat = FileStat { kind, size: 12, mode: 0o644, modified_ms, inode: 77 };
            assert_eq!(version(&tag(&stat)), Some(stat.version()));
        }
        for bad in ["", "\"\"", "1-2-3", "\"1-2\"", "\"1-2-3-4\"", "W/\"1-2-3\"", "\"1-2-x\""] {
            assert_eq!(version(bad), None, "{bad}");
        }
    }

    #[test]
    fn ranges_are_taken_as_the_standard_says() {
        let within = |text: &str, size| {
            ReadConditions { part: part(text), ..ReadConditions::default() }
                .within(size)
                .map(|(a, b)| (a, a + b))
        };
        let cases = [
            ("bytes=0-0", Some((0, 1))),
            ("bytes=2-", Some((2, 10))),
            ("bytes=2-100", Some((2, 10))),
            ("bytes=-3", Some((7, 10))),
            ("bytes=-100", Some((0, 10))),
            ("bytes=0-18446744073709551615", Some((0, 10))),
            ("bytes=99999999999999999999999-", None),
            ("bytes=10-", None),
            ("bytes=-0", None),
            ("bytes=5-4", Some((0, 10))),
            ("bytes=0-1,3-4", Some((0, 10))),
            ("lines=0-1", Some((0, 10))),
            ("bytes=a-b", Some((0, 10))),
        ];
        for (text, expected) in cases {
            assert_eq!(within(text, 10), expected, "{text}");
        }
        assert_eq!(within("bytes=0-", 0), None);
    }
}
