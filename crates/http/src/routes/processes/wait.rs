//! Waits for a process: for its end, for a line of its log, or for a port. Every wait has a
//! timeout.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::json::{SmallJson, not_null};
use crate::routes::processes::lines::{LineWish, Lines, MatchedLine};
use crate::routes::processes::log::{LogEvent, LogReader};
use crate::routes::processes::port::{self, PortWish};
use crate::routes::processes::view::ProcessView;
use axum::Json;
use axum::extract::State;
use isolet_sandbox::ProcessInfo;
use isolet_sandbox::service::Access;
use isolet_wire::response::STDOUT;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};
use utoipa::ToSchema;

/// The longest and the default wait, in ms.
const WAIT_MS_MAX: u64 = 600_000;
const WAIT_MS: u64 = 30_000;
/// How often an incomplete line is matched.
const UNFINISHED: Duration = Duration::from_millis(50);
/// How long reading the rest of an ended process's log may take: at most 1 MiB, which the agent
/// holds.
const REST: Duration = Duration::from_secs(10);

/// What to wait for. Exactly one of `exit`, `log` and `port` is needed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = WaitRequest)]
pub(crate) struct Wait {
    /// Wait for the end of the process.
    exit: bool,
    /// With `exit`: the exit codes that meet the wait. With another one, the outcome is `ended`.
    /// Defaults to all.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    exit_codes: Option<ExitCodes>,
    /// Wait for a line of its output.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    log: Option<LineWish>,
    /// Wait for a port that accepts connections, whichever process listens.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    port: Option<PortWish>,
    /// The longest wait in milliseconds, 1 to 600000. Defaults to 30000.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
}

/// A range of exit codes. A process that a signal ended has 128 plus the number of the signal.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExitCodes {
    /// The lowest exit code. Defaults to 0.
    from: u8,
    /// The highest exit code. Defaults to 255.
    to: u8,
}

impl Default for ExitCodes {
    fn default() -> Self {
        Self { from: 0, to: u8::MAX }
    }
}

impl ExitCodes {
    fn contain(self, code: i32) -> bool {
        (i32::from(self.from)..=i32::from(self.to)).contains(&code)
    }
}

/// How a wait ended. `line`, `stream` and `position` are present only if a line was found.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WaitResult)]
pub(crate) struct Waited {
    /// `met`; `timeout`; `ended` if the process ended first, or with another exit code.
    outcome: &'static str,
    /// The process as it is now.
    process: ProcessView,
    #[serde(flatten)]
    found: Option<FoundLine>,
}

/// A line of output.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundLine {
    /// The line, as far as it was written.
    line: String,
    /// What each group of `regex` matched: the whole match, then the groups in order. `null` stands
    /// for a group that took no part. Absent for `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    groups: Option<Vec<Option<String>>>,
    /// What the groups with a name matched, by name. Absent if none has a name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    named_groups: BTreeMap<String, Option<String>>,
    /// The stream of the line: `stdout` or `stderr`.
    stream: &'static str,
    /// The position after the line. Use it as `since` of the next wait.
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

/// Wait for a process
///
/// Waits for the end of the process, for a line of its output, or for a port. Exactly one of
/// `exit`, `log` and `port` is needed. A line counts as soon as it matches, also before it is
/// complete.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/processes/{process}/wait", operation_id = "processes_wait", tag = "processes",
    params(
        ("id" = String, Path),
        ("process" = String, Path)
    ),
    request_body(content = Wait, example = json!({"port": {"port": 8080}, "timeout_ms": 30000})),
    responses(
        (status = 200, description = "How the wait ended.", body = Waited)
    )
)]
pub(crate) async fn wait(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: SmallJson<Wait>,
) -> Result<Json<Waited>, ApiError> {
    let wish = body.value;
    let ms = wish.timeout_ms.unwrap_or(WAIT_MS);
    if !(1..=WAIT_MS_MAX).contains(&ms) {
        return Err(ApiError::bad_field("timeout_ms", "1 to 600000 (ten minutes)"));
    }
    let mut lines = match (wish.exit, &wish.log, &wish.port) {
        (true, None, None) => None,
        (false, Some(log), None) => Some(Lines::matching(log)?),
        (false, None, Some(port)) => {
            port.check()?;
            None
        }
        _ => return Err(ApiError::bad_field("exit", "pass exactly one of exit, log and port")),
    };
    if let Some(codes) = wish.exit_codes {
        if !wish.exit {
            return Err(ApiError::bad_field("exit_codes", "needs exit: true"));
        }
        if codes.from > codes.to {
            return Err(ApiError::bad_field("exit_codes", "from must not be above to"));
        }
    }
    let codes = wish.exit_codes.unwrap_or_default();
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
        let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Awake).await?;
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
        waited = waiting => waited.map(|waited| Json(waited.with_exit_in(codes))),
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
    /// A wait for the end is met only by an exit code of the range.
    fn with_exit_in(self, codes: ExitCodes) -> Self {
        let other = self.process.exit_code().is_some_and(|code| !codes.contain(code));
        match self.outcome == "met" && self.found.is_none() && other {
            true => Self { outcome: "ended", ..self },
            false => self,
        }
    }

    fn plain(outcome: &'static str, info: ProcessInfo) -> Self {
        Self { outcome, process: info.into(), found: None }
    }
}

/// Reads a log until the process ends.
async fn exit(reading: &mut LogReader, end: Instant) -> Result<WaitResult, ApiError> {
    loop {
        let Ok(event) = timeout_at(end, reading.next()).await else { return Ok(TOO_LONG) };
        if let LogEvent::End(info) = event? {
            return Ok(WaitResult { outcome: "met", found: None, end: Some(*info) });
        }
    }
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
            LogEvent::Data(data, position) => {
                let stream = data.stream;
                if let Some((line, left)) = lines.take(stream, &data.bytes) {
                    return Ok(met(stream, line, position - left as u64, None));
                }
                // Gives other tasks a turn, however much there is to read.
                tokio::task::yield_now().await;
            }
            LogEvent::Gap(..) => lines.open = [Vec::new(), Vec::new()],
            LogEvent::End(info) => {
                return Ok(match lines.unfinished() {
                    Some((stream, line)) => met(stream, line, reading.position, Some(*info)),
                    None => WaitResult { outcome: "ended", found: None, end: Some(*info) },
                });
            }
        }
    }
}

fn met(stream: u8, matched: MatchedLine, position: u64, end: Option<ProcessInfo>) -> WaitResult {
    let MatchedLine { line, groups, named_groups } = matched;
    let stream = if stream == STDOUT { "stdout" } else { "stderr" };
    WaitResult {
        outcome: "met",
        found: Some(FoundLine { line, groups, named_groups, stream, position }),
        end,
    }
}
