//! Figures and logs of a sandbox.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::error::E2bError;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::query::{Query, bad_parameter};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use isolet_clock::{now_ms, rfc3339};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;

/// The most entries of a log, and how many there are by default.
const LOGS_MAX: usize = 1000;
/// How much later than the end of an interval its last figures may be, in seconds.
const SLACK_S: i64 = 5;
const BYTES_OF_MIB: u64 = 1024 * 1024;

/// The figures of one moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    timestamp: String,
    timestamp_unix: i64,
    cpu_count: u64,
    /// The mean since the sandbox was created, in percent of one core.
    cpu_used_pct: f64,
    /// In bytes, as all that follow.
    mem_used: u64,
    mem_total: u64,
    mem_cache: u64,
    disk_used: u64,
    disk_total: u64,
}

/// Returns the figures of now, if the interval contains it.
pub(crate) async fn metrics(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Vec<Metric>>, E2bError> {
    let query = Query::of(&uri, &["start", "end"])?;
    let now = now_ms();
    let start = seconds(&query, "start")?.unwrap_or(0);
    let end = seconds(&query, "end")?.unwrap_or(i64::MAX);
    let sandbox = app.look(&caller, &ids).await?;
    if start > now / 1000 + SLACK_S || end.saturating_add(SLACK_S) < now / 1000 {
        return Ok(Json(Vec::new()));
    }
    let usage = sandbox.usage().await?;
    let limits = sandbox.info().limits;
    let awake_us = usage.awake_ms.max(1) as f64 * 1000.0;
    Ok(Json(vec![Metric {
        timestamp: rfc3339(now),
        timestamp_unix: now / 1000,
        cpu_count: limits.cpu_millis.div_ceil(1000),
        cpu_used_pct: usage.cpu_us as f64 / awake_us * 100.0,
        mem_used: usage.memory_bytes,
        mem_total: limits.memory_mib.saturating_mul(BYTES_OF_MIB),
        mem_cache: 0,
        disk_used: usage.disk_bytes.unwrap_or(0),
        disk_total: limits.disk_mib.saturating_mul(BYTES_OF_MIB),
    }]))
}

fn seconds(query: &Query<'_>, name: &str) -> Result<Option<i64>, ApiError> {
    let number = |text: &str| text.parse().map_err(|_| bad_parameter(name, "seconds since 1970"));
    query.text(name)?.map(number).transpose()
}

/// The log of a sandbox: its entries of the audit log.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Logs {
    logs: Vec<LogLine>,
    log_entries: Vec<LogLine>,
}

#[derive(Debug, Clone, Serialize)]
struct LogLine {
    timestamp: String,
    line: String,
    message: String,
    level: &'static str,
    fields: Value,
}

/// The members of an entry of the audit log.
#[derive(Debug, Deserialize)]
struct Entry {
    ts: Value,
    event: String,
    #[serde(default)]
    data: Value,
}

/// Returns the last entries of the sandbox's audit log.
pub(crate) async fn logs(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Logs>, E2bError> {
    const PARAMETERS: [&str; 6] = ["start", "cursor", "limit", "direction", "level", "search"];
    let query = Query::of(&uri, &PARAMETERS)?;
    let limit = match query.text("limit")? {
        None => LOGS_MAX,
        Some(text) => text.parse::<usize>().map_err(|_| bad_parameter("limit", "0 to 1000"))?,
    };
    let limit = limit.min(LOGS_MAX);
    app.service.get(&caller.tenant, &ids.sandbox).await?;
    let audit = app.service.audit().read(caller.tenant.as_str(), Some(ids.sandbox.as_str())).await;
    let mut export = audit.map_err(|error| unread(&error))?;
    let mut last = VecDeque::new();
    let mut rest = Vec::new();
    while let Some(piece) = export.next().await.map_err(|error| unread(&error))? {
        rest.extend_from_slice(&piece);
        let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
        for line in rest[..end].split(|byte| *byte == b'\n') {
            last.extend(serde_json::from_slice::<Entry>(line).ok());
            if last.len() > limit {
                last.pop_front();
            }
        }
        rest.drain(..=end);
    }
    let lines: Vec<LogLine> = last.into_iter().map(line).collect();
    Ok(Json(Logs { logs: lines.clone(), log_entries: lines }))
}

fn line(entry: Entry) -> LogLine {
    let timestamp = match &entry.ts {
        Value::String(text) => text.clone(),
        other => rfc3339(other.as_i64().unwrap_or_default()),
    };
    let line = format!("{} {}", entry.event, entry.data);
    LogLine { timestamp, line, message: entry.event, level: "info", fields: texts(entry.data) }
}

/// The data of an entry, whose values E2B writes as text.
fn texts(data: Value) -> Value {
    let Value::Object(all) = data else { return Value::Object(serde_json::Map::new()) };
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    all.into_iter().map(|(name, value)| (name, Value::from(text(value)))).collect()
}

fn unread(error: &isolet_sandbox::audit::AuditError) -> ApiError {
    tracing::error!(%error, "the audit log cannot be read");
    let message = "the audit log cannot be read";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "audit", message, "see the server's log")
}
