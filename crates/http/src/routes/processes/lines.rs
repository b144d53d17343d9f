//! Finds a line in the output of a process.

use crate::foundation::error::ApiError;
use crate::foundation::json::not_null;
use isolet_wire::response::{STDERR, STDOUT};
use regex::bytes::{Match, Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The longest pattern or text, in bytes.
const PATTERN_BYTES_MAX: usize = 1024;

/// The largest compiled pattern, in bytes. The time of matching grows with it and with the length
/// of the line, and a tenant controls both.
const PROGRAM_BYTES_MAX: usize = 128 * 1024;

/// How much of each line is matched, in bytes.
const LINE_BYTES_MAX: usize = 4096;

/// A line that contains `text`, or matches `regex`. Only the first 4096 bytes of each line are
/// compared.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = LineCondition)]
pub(crate) struct LineWish {
    /// Text to search for, at most 1024 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    text: Option<String>,
    /// A regular expression in the syntax of the Rust crate `regex`, at most 1024 bytes. The answer
    /// has what its groups matched.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    regex: Option<String>,
    /// `stdout` or `stderr`. Defaults to both.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stream: Option<String>,
    /// The position of the log to start from. Defaults to its beginning.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    pub(super) since: Option<u64>,
}

fn compile(wish: &LineWish) -> Result<(Regex, Option<u8>), ApiError> {
    let (name, pattern) = match (&wish.text, &wish.regex) {
        (Some(text), None) => ("log.text", regex::escape(text)),
        (None, Some(pattern)) => ("log.regex", pattern.clone()),
        _ => return Err(ApiError::bad_field("log", "pass either text or regex")),
    };
    let given = wish.text.as_ref().or(wish.regex.as_ref()).map_or(0, String::len);
    if given == 0 || given > PATTERN_BYTES_MAX {
        return Err(ApiError::bad_field(name, "1 to 1024 bytes"));
    }
    let mut builder = RegexBuilder::new(&pattern);
    let built = builder.size_limit(PROGRAM_BYTES_MAX).dfa_size_limit(8 * PROGRAM_BYTES_MAX).build();
    let regex = built.map_err(|error| ApiError::bad_field(name, &error.to_string()))?;
    let stream = match wish.stream.as_deref() {
        None => None,
        Some("stdout") => Some(STDOUT),
        Some("stderr") => Some(STDERR),
        Some(_) => return Err(ApiError::bad_field("log.stream", "must be stdout or stderr")),
    };
    Ok((regex, stream))
}

/// A line that matches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MatchedLine {
    pub(super) line: String,
    /// What each group of the regular expression matched, with the whole match as the first one.
    /// `None` if the wait is for a text.
    pub(super) groups: Option<Vec<Option<String>>>,
    /// What the groups with a name matched; empty if none has one.
    pub(super) named_groups: BTreeMap<String, Option<String>>,
}

impl MatchedLine {
    /// Matches a line once more, for its groups.
    fn of(wanted: &Wanted, line: &[u8]) -> Self {
        let mut found = Self { line: text(line), groups: None, named_groups: BTreeMap::new() };
        let captures = wanted.regex.captures(line).filter(|_| wanted.with_groups);
        let Some(captures) = captures else { return found };
        let owned = |part: Match<'_>| String::from_utf8_lossy(part.as_bytes()).into_owned();
        found.groups = Some(captures.iter().map(|part| part.map(owned)).collect());
        let names = wanted.regex.capture_names().flatten();
        found.named_groups =
            names.map(|name| (name.to_owned(), captures.name(name).map(owned))).collect();
        found
    }
}

/// What is looked for.
struct Wanted {
    regex: Regex,
    /// Whether a client gave the regular expression.
    with_groups: bool,
}

/// The current line of each stream.
pub(super) struct Lines {
    wanted: Wanted,
    stream: Option<u8>,
    pub(super) open: [Vec<u8>; 2],
    /// Whether the lines contain data that was not matched yet.
    pub(super) fresh: bool,
}

impl Lines {
    /// Looks for the lines that a request asks for.
    pub(super) fn matching(wish: &LineWish) -> Result<Self, ApiError> {
        let (regex, stream) = compile(wish)?;
        let wanted = Wanted { regex, with_groups: wish.regex.is_some() };
        Ok(Self { wanted, stream, open: [Vec::new(), Vec::new()], fresh: false })
    }

    /// Adds output of a stream. Returns the first complete line that matches, and the number of
    /// bytes after it.
    pub(super) fn take(&mut self, stream: u8, bytes: &[u8]) -> Option<(MatchedLine, usize)> {
        if self.stream.is_some_and(|wanted| wanted != stream) {
            return None;
        }
        let open = &mut self.open[usize::from(stream != STDOUT)];
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            add(open, &rest[..end]);
            rest = &rest[end + 1..];
            if self.wanted.regex.is_match(open) {
                return Some((MatchedLine::of(&self.wanted, open), rest.len()));
            }
            open.clear();
        }
        add(open, rest);
        self.fresh |= !rest.is_empty();
        None
    }

    /// The incomplete line that matches.
    pub(super) fn unfinished(&mut self) -> Option<(u8, MatchedLine)> {
        self.fresh = false;
        let mut both = [STDOUT, STDERR].into_iter().zip(&self.open);
        let found = both.find(|(_, open)| !open.is_empty() && self.wanted.regex.is_match(open));
        found.map(|(stream, open)| (stream, MatchedLine::of(&self.wanted, open)))
    }
}

fn add(open: &mut Vec<u8>, bytes: &[u8]) {
    let room = LINE_BYTES_MAX.saturating_sub(open.len());
    open.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(wish: LineWish) -> Lines {
        Lines::matching(&wish).unwrap()
    }

    fn text(text: &str) -> LineWish {
        LineWish { text: Some(text.into()), ..LineWish::default() }
    }

    fn plain(line: &str) -> MatchedLine {
        MatchedLine { line: line.into(), groups: None, named_groups: BTreeMap::new() }
    }

    #[test]
    fn groups_of_a_regular_expression_are_returned() {
        let pattern = r"(?P<host>\S+):(\d+)(x)?".to_owned();
        let mut lines = lines(LineWish { regex: Some(pattern), ..LineWish::default() });
        let (found, _) = lines.take(STDOUT, b"on ::1:80\n").unwrap();
        let groups = [Some("::1:80"), Some("::1"), Some("80"), None];
        assert_eq!(found.groups.unwrap(), groups.map(|group| group.map(str::to_owned)));
        assert_eq!(found.named_groups, [("host".to_owned(), Some("::1".to_owned()))].into());
    }

    #[test]
    fn a_line_is_found_wherever_a_chunk_ends() {
        let said = b"one\nready on (a+b)\r\nmore";
        for cut in 0..said.len() {
            let mut lines = lines(text("(a+b)"));
            let hit = lines.take(STDOUT, &said[..cut]);
            let hit = hit.or_else(|| lines.take(STDOUT, &said[cut..]));
            assert_eq!(
                hit.map(|(found, _)| found.line).as_deref(),
                Some("ready on (a+b)"),
                "{cut}"
            );
        }
        let mut lines = lines(text("ready"));
        assert_eq!(lines.take(STDERR, b"x\nready\nmore"), Some((plain("ready"), 4)));
    }

    /// Promises: J8.
    #[test]
    fn a_line_that_is_not_complete_counts_as_well() {
        let mut lines = lines(text("ready"));
        assert_eq!(lines.take(STDOUT, b"is rea"), None);
        assert!(lines.fresh && lines.unfinished().is_none());
        assert_eq!(lines.take(STDOUT, b"dy> "), None);
        assert_eq!(lines.unfinished(), Some((STDOUT, plain("is ready> "))));
        let only = LineWish { stream: Some("stderr".into()), ..text("ready") };
        assert_eq!(self::lines(only).take(STDOUT, b"ready\n"), None);
    }

    /// Promises: J8.
    #[test]
    fn a_hostile_pattern_or_line_costs_little() {
        let pattern =
            |pattern: &str| LineWish { regex: Some(pattern.into()), ..LineWish::default() };
        for bad in ["(", "a{1000}{1000}", "\\w{1000}", "(?=a)", &"x".repeat(1025), ""] {
            assert!(compile(&pattern(bad)).is_err(), "{bad}");
        }
        let mut lines = lines(pattern("(x+x+)+y|(a|a)*b|[a-q][^u-z]{13}x"));
        // A program that searches again and again would never end.
        for _ in 0..100 {
            lines.take(STDOUT, &vec![b'x'; 1 << 20]);
            assert!(lines.unfinished().is_none());
        }
        assert!(lines.open[0].len() <= LINE_BYTES_MAX);
    }
}
