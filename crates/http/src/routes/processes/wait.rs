//! Waits for a process: for its end, for a line of its log, or for a port. Every wait has a
//! timeout.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        error::ApiError,
        input::PathIds,
        json::{StrictJson, not_null},
    },
    routes::processes::{
        log::{Event, LogReader},
        port::{self, PortWish},
        view::ProcessView,
    },
};
use axum::{Json, extract::State};
use isolet_sandbox::{ProcessInfo, service::Reach};
use isolet_wire::tell::{STDERR, STDOUT};
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};
use utoipa::ToSchema;

/// The longest and the default wait, in ms.
const WAIT_MS_MAX: u64 = 600_000;
const WAIT_MS: u64 = 30_000;
/// The longest pattern or text, in bytes.
const PATTERN_BYTES_MAX: usize = 1024;
/// The largest compiled pattern, in bytes. The time of matching grows with it and with the length
/// of the line, and a tenant controls both.
const PROGRAM_BYTES_MAX: usize = 128 * 1024;
/// How much of each line is matched, in bytes.
const LINE_BYTES_MAX: usize = 4096;
/// How often an incomplete line is matched.
const UNFINISHED: Duration = Duration::from_millis(50);
/// How long reading the rest of an ended process's log may take: at most 1 MiB, which the agent
/// holds.
const REST: Duration = Duration::from_secs(10);

/// What to wait for: `exit`, `log` or `port`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wait {
    /// Its end.
    exit: bool,
    /// A line of its log.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    log: Option<LineWish>,
    /// A port that takes connections; whoever in the sandbox listens there.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    port: Option<PortWish>,
    /// How long, in ms: 1 to 600000 (ten minutes), 30000 unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
}

/// Which line: one that holds `text`, or matches `regex`. Of each line the first 4096 bytes count.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LineWish {
    /// At most 1024 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    text: Option<String>,
    /// At most 1024 bytes, in the syntax of the Rust crate `regex`: without look-around and
    /// back-references, and so in linear time.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    regex: Option<String>,
    /// `stdout` or `stderr`; both unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stream: Option<String>,
    /// From this position of the log on; from its beginning unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    since: Option<u64>,
}

/// How a wait ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Waited {
    /// `met`; `timeout`; `ended`: the process ended without it.
    outcome: &'static str,
    /// The process as it is.
    process: ProcessView,
    #[serde(flatten)]
    found: Option<FoundLine>,
}

/// The line that was waited for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundLine {
    /// It, as far as it was there.
    line: String,
    /// `stdout` or `stderr`: where it stands.
    stream: &'static str,
    /// A position behind it, for the next wait.
    position: u64,
}

/// The outcome of a wait.
struct WaitResult {
    outcome: &'static str,
    found: Option<FoundLine>,
    /// The process, if it has ended.
    end: Option<ProcessInfo>,
}

const TOO_LONG: WaitResult = WaitResult { outcome: "timeout", found: None, end: None };

fn wanted(wish: &LineWish) -> Result<(Regex, Option<u8>), ApiError> {
    let (name, pattern) = match (&wish.text, &wish.regex) {
        (Some(text), None) => ("log.text", regex::escape(text)),
        (None, Some(pattern)) => ("log.regex", pattern.clone()),
        _ => return Err(ApiError::bad_field("log", "give text or regex, one of them")),
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
        Some(_) => return Err(ApiError::bad_field("log.stream", "stdout or stderr")),
    };
    Ok((regex, stream))
}

/// Waits for a process: for its end, for a line of its log, or for a port.
///
/// A line counts as soon as it is there, also before it is complete.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/wait", tag = "processes",
    params(("id" = String, Path), ("process" = String, Path)), request_body = Wait,
    responses((status = 200, body = Waited), (status = "4XX", body = ApiError)))]
pub(crate) async fn wait(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<Wait>,
) -> Result<Json<Waited>, ApiError> {
    let wish = body.value;
    let ms = wish.timeout_ms.unwrap_or(WAIT_MS);
    if !(1..=WAIT_MS_MAX).contains(&ms) {
        return Err(ApiError::bad_field("timeout_ms", "1 to 600000 (ten minutes)"));
    }
    let mut lines = match (wish.exit, &wish.log, &wish.port) {
        (true, None, None) => None,
        (false, Some(log), None) => {
            let (regex, stream) = wanted(log)?;
            Some(Lines::new(regex, stream))
        }
        (false, None, Some(port)) => {
            port.check()?;
            None
        }
        _ => return Err(ApiError::bad_field("exit", "give exit, log or port, one of them")),
    };
    let sandbox = app.look(&caller, &ids).await?;
    let id = ids.process()?;
    let mut cancellation = app.cancellations.subscribe(&caller);
    let since = wish.log.as_ref().map(|log| log.since.unwrap_or(0));
    let end = Instant::now() + Duration::from_millis(ms);
    // A process that is lost is returned as it is.
    let info = sandbox.process(id).await?;
    if info.lost {
        return Ok(Json(Waited::plain("ended", info)));
    }
    if let Some(wish) = &wish.port {
        let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Reach::Awake).await?;
        let waited = tokio::select! {
            biased;
            reason = cancellation.cancelled() => return Err(reason.into()),
            waited = port::wait(&sandbox, id, wish, end) => waited?,
        };
        return Ok(Json(Waited::plain(waited.0, waited.1)));
    }
    let mut reading = LogReader::open(&sandbox, id, since, true).await?;
    let waiting = async {
        let met = follow_log(&mut reading, lines.as_mut(), end).await?;
        if let Some(info) = met.end {
            return Ok(Waited { found: met.found, ..Waited::plain(met.outcome, info) });
        }
        let info = sandbox.process(id).await?;
        if met.found.is_none() && info.process.end.is_some() {
            // It ended when the time ran out. Output from before that counts: the response must not
            // say `ended` and ignore a matching last line.
            let met = follow_log(&mut reading, lines.as_mut(), Instant::now() + REST).await?;
            let info = met.end.unwrap_or(info);
            return Ok(Waited { found: met.found, ..Waited::plain(met.outcome, info) });
        }
        Ok(Waited { found: met.found, ..Waited::plain(met.outcome, info) })
    };
    tokio::select! {
        biased;
        reason = cancellation.cancelled() => Err(reason.into()),
        waited = waiting => waited.map(Json),
    }
}

/// Reads a log until a line matches, or without lines until the process ends.
async fn follow_log(
    reading: &mut LogReader,
    lines: Option<&mut Lines>,
    end: Instant,
) -> Result<WaitResult, ApiError> {
    match lines {
        None => exit(reading, end).await,
        Some(lines) => line(reading, lines, end).await,
    }
}

impl Waited {
    fn plain(outcome: &'static str, info: ProcessInfo) -> Self {
        Self { outcome, process: info.into(), found: None }
    }
}

/// Reads a log until the process ends.
async fn exit(reading: &mut LogReader, end: Instant) -> Result<WaitResult, ApiError> {
    loop {
        let Ok(event) = timeout_at(end, reading.next()).await else { return Ok(TOO_LONG) };
        if let Event::End(info) = event? {
            return Ok(WaitResult { outcome: "met", found: None, end: Some(*info) });
        }
    }
}

/// The current line of each stream.
struct Lines {
    regex: Regex,
    stream: Option<u8>,
    open: [Vec<u8>; 2],
    /// Whether the lines contain data that was not matched yet.
    fresh: bool,
}

impl Lines {
    fn new(regex: Regex, stream: Option<u8>) -> Self {
        Self { regex, stream, open: [Vec::new(), Vec::new()], fresh: false }
    }

    /// Adds output of a stream. Returns the first complete line that matches, and the number of
    /// bytes after it.
    fn take(&mut self, stream: u8, bytes: &[u8]) -> Option<(String, usize)> {
        if self.stream.is_some_and(|wanted| wanted != stream) {
            return None;
        }
        let open = &mut self.open[usize::from(stream != STDOUT)];
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            add(open, &rest[..end]);
            rest = &rest[end + 1..];
            if self.regex.is_match(open) {
                return Some((text(open), rest.len()));
            }
            open.clear();
        }
        add(open, rest);
        self.fresh |= !rest.is_empty();
        None
    }

    /// The incomplete line that matches.
    fn unfinished(&mut self) -> Option<(u8, String)> {
        self.fresh = false;
        let mut both = [STDOUT, STDERR].into_iter().zip(&self.open);
        let found = both.find(|(_, open)| !open.is_empty() && self.regex.is_match(open));
        found.map(|(stream, open)| (stream, text(open)))
    }
}

fn add(open: &mut Vec<u8>, bytes: &[u8]) {
    let room = LINE_BYTES_MAX.saturating_sub(open.len());
    open.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

/// Reads a log until a line matches.
async fn line(
    reading: &mut LogReader,
    lines: &mut Lines,
    end: Instant,
) -> Result<WaitResult, ApiError> {
    let mut look_at = Instant::now() + UNFINISHED;
    loop {
        let event = tokio::select! {
            event = timeout_at(end, reading.next()) => event,
            () = sleep_until(look_at), if lines.fresh => {
                look_at = Instant::now() + UNFINISHED;
                if let Some((stream, line)) = lines.unfinished() {
                    return Ok(met(stream, line, reading.position, None));
                }
                continue;
            }
        };
        let Ok(event) = event else { return Ok(TOO_LONG) };
        match event? {
            Event::Data(data, position) => {
                let stream = data.stream;
                if let Some((line, left)) = lines.take(stream, &data.bytes) {
                    return Ok(met(stream, line, position - left as u64, None));
                }
                // Gives other tasks a turn, however much there is to read.
                tokio::task::yield_now().await;
            }
            Event::Gap(..) => lines.open = [Vec::new(), Vec::new()],
            Event::End(info) => {
                return Ok(match lines.unfinished() {
                    Some((stream, line)) => met(stream, line, reading.position, Some(*info)),
                    None => WaitResult { outcome: "ended", found: None, end: Some(*info) },
                });
            }
        }
    }
}

fn met(stream: u8, line: String, position: u64, end: Option<ProcessInfo>) -> WaitResult {
    let stream = if stream == STDOUT { "stdout" } else { "stderr" };
    WaitResult { outcome: "met", found: Some(FoundLine { line, stream, position }), end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(wish: LineWish) -> Lines {
        let (regex, stream) = wanted(&wish).unwrap();
        Lines::new(regex, stream)
    }

    fn text(text: &str) -> LineWish {
        LineWish { text: Some(text.into()), ..LineWish::default() }
    }

    #[test]
    fn a_line_is_found_wherever_it_is_cut() {
        let said = b"one\nready on (a+b)\r\nmore";
        for cut in 0..said.len() {
            let mut lines = lines(text("(a+b)"));
            let hit = lines.take(STDOUT, &said[..cut]);
            let hit = hit.or_else(|| lines.take(STDOUT, &said[cut..]));
            assert_eq!(hit.map(|(line, _)| line).as_deref(), Some("ready on (a+b)"), "{cut}");
        }
        let mut lines = lines(text("ready"));
        assert_eq!(lines.take(STDERR, b"x\nready\nmore"), Some(("ready".into(), 4)));
    }

    #[test]
    fn a_line_that_is_not_complete_counts_as_well() {
        let mut lines = lines(text("ready"));
        assert_eq!(lines.take(STDOUT, b"is rea"), None);
        assert!(lines.fresh && lines.unfinished().is_none());
        assert_eq!(lines.take(STDOUT, b"dy> "), None);
        assert_eq!(lines.unfinished(), Some((STDOUT, "is ready> ".into())));
        let only = LineWish { stream: Some("stderr".into()), ..text("ready") };
        assert_eq!(self::lines(only).take(STDOUT, b"ready\n"), None);
    }

    #[test]
    fn a_hostile_pattern_or_line_costs_little() {
        let pattern =
            |pattern: &str| LineWish { regex: Some(pattern.into()), ..LineWish::default() };
        for bad in ["(", "a{1000}{1000}", "\\w{1000}", "(?=a)", &"x".repeat(1025), ""] {
            assert!(wanted(&pattern(bad)).is_err(), "{bad}");
        }
        let mut lines = lines(pattern("(x+x+)+y|(a|a)*b|[a-q][^u-z]{13}x"));
        let began = std::time::Instant::now();
        for _ in 0..100 {
            lines.take(STDOUT, &vec![b'x'; 1 << 20]);
            assert!(lines.unfinished().is_none());
        }
        assert!(lines.open[0].len() <= LINE_BYTES_MAX);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
