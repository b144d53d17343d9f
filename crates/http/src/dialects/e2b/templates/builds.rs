//! Builds of templates.

use super::catalog::{TemplateName, is_build_of};
use super::steps::StartBody;
use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::{Lenient, null_as_default};
use crate::dialects::e2b::error::E2bError;
use crate::foundation::error::ApiError;
use crate::foundation::query::Query;
use crate::routes::builds::view::level_word;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use isolet_build::{BuildInfo, BuildNames, BuildState, FailedPart, LogEntry};
use isolet_clock::rfc3339;
use serde::{Deserialize, Serialize};

/// Maximum number of entries of a log in one answer, as at E2B.
const ENTRIES_MAX: usize = 100;

/// The name of a template. Unknown members are ignored, because newer clients send more.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RequestBody {
    #[serde(deserialize_with = "null_as_default")]
    name: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    alias: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    tags: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct RequestedBuild {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    public: bool,
    aliases: Vec<String>,
    names: Vec<String>,
    tags: Vec<String>,
}

/// Reserves a build.
pub(super) async fn request(
    State(app): State<App>,
    caller: Caller,
    Lenient { value, .. }: Lenient<RequestBody>,
) -> Result<(StatusCode, Json<RequestedBuild>), E2bError> {
    let text = value.name.or(value.alias).unwrap_or_default();
    let name = TemplateName::parse(&text)?;
    let mut all = Vec::new();
    // A name without a tag stands for the default one only if no tags are given.
    if value.tags.is_empty() || text.contains(':') {
        all.push(name.clone());
    }
    for tag in &value.tags {
        let tagged = name.with_tag(tag)?;
        if !all.contains(&tagged) {
            all.push(tagged);
        }
    }
    let names = BuildNames::parse(all.iter().map(TemplateName::text).collect())?;
    let build = app.builder.request(&caller.tenant, names).await?;
    let answer = RequestedBuild {
        template_id: name.name.clone(),
        build_id: build.id,
        public: false,
        aliases: vec![name.name.clone()],
        names: vec![name.name],
        tags: all.into_iter().map(|one| one.tag).collect(),
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// A build, if it is one of the template.
fn find(app: &App, caller: &Caller, template: &str, build: &str) -> Result<BuildInfo, ApiError> {
    let info = app.builder.get(&caller.tenant, build)?;
    let name = TemplateName::parse(template)?.name;
    if !is_build_of(&info, &name) {
        return Err(isolet_build::Error::NoBuild(info.id).into());
    }
    Ok(info)
}

/// Starts a build.
pub(super) async fn start(
    State(app): State<App>,
    caller: Caller,
    Path((template, build)): Path<(String, String)>,
    Lenient { value, .. }: Lenient<StartBody>,
) -> Result<StatusCode, E2bError> {
    find(&app, &caller, &template, &build)?;
    let recipe = value.into_recipe(&app, &caller, &build)?;
    app.builder.start(&caller.tenant, &build, recipe).await?;
    Ok(StatusCode::ACCEPTED)
}

/// The word of E2B for a state.
pub(super) fn status_word(state: &BuildState) -> &'static str {
    match state {
        BuildState::Requested => "waiting",
        // The SDKs know no other word for a build that was started.
        BuildState::Waiting | BuildState::Building => "building",
        BuildState::Ready { .. } => "ready",
        BuildState::Failed { .. } => "error",
    }
}

#[derive(Debug, Serialize)]
pub(super) struct EntryView {
    timestamp: String,
    level: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
}

impl From<LogEntry> for EntryView {
    fn from(entry: LogEntry) -> Self {
        Self {
            timestamp: rfc3339(entry.at_ms),
            level: level_word(entry.level),
            message: entry.message,
            step: entry.step.map(step_word),
        }
    }
}

/// A step as E2B counts them: the first one is 1, because 0 is the base.
fn step_word(index: usize) -> String {
    (index + 1).to_string()
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reason {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    log_entries: Vec<EntryView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusView {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    status: &'static str,
    logs: Vec<String>,
    log_entries: Vec<EntryView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

/// A number in a query, at least 0.
fn number(query: &Query<'_>, name: &'static str, default: usize) -> Result<usize, ApiError> {
    match query.text(name)? {
        None => Ok(default),
        Some(text) => {
            text.parse().map_err(|_| ApiError::bad_field(name, "must be a whole number, 0 or more"))
        }
    }
}

/// The state of a build with the next entries of its log.
pub(super) async fn status(
    State(app): State<App>,
    caller: Caller,
    Path((template, build)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<StatusView>, E2bError> {
    let query = Query::of(&uri, &["logsOffset", "limit", "level"])?;
    let offset = number(&query, "logsOffset", 0)?;
    let limit = number(&query, "limit", ENTRIES_MAX)?.min(ENTRIES_MAX);
    // Before the log, so that no entry of a build that has ended is missing.
    let info = find(&app, &caller, &template, &build)?;
    let entries = app.builder.log(&caller.tenant, &build, offset, limit).await?;
    let logs = entries.iter().map(|entry| entry.message.clone()).collect();
    let reason = match &info.state {
        BuildState::Failed { part, reason } => Some(Reason {
            message: reason.clone(),
            step: match part {
                FailedPart::Base => Some("base".to_owned()),
                FailedPart::Step(index) => Some(step_word(*index)),
                FailedPart::Image => Some("finalize".to_owned()),
                FailedPart::Build => None,
            },
            log_entries: Vec::new(),
        }),
        _ => None,
    };
    Ok(Json(StatusView {
        template_id: template,
        build_id: build,
        status: status_word(&info.state),
        logs,
        log_entries: entries.into_iter().map(EntryView::from).collect(),
        reason,
    }))
}

#[derive(Debug, Serialize)]
pub(super) struct LogsView {
    logs: Vec<EntryView>,
}

/// The log of a build from a time on.
pub(super) async fn logs(
    State(app): State<App>,
    caller: Caller,
    Path((template, build)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<LogsView>, E2bError> {
    let query = Query::of(&uri, &["cursor", "limit", "direction", "level", "source"])?;
    let limit = number(&query, "limit", ENTRIES_MAX)?.min(ENTRIES_MAX);
    let cursor = match query.text("cursor")? {
        None => None,
        Some(text) => {
            let bad = |_| ApiError::bad_field("cursor", "must be milliseconds since 1970");
            Some(text.parse::<i64>().map_err(bad)?)
        }
    };
    let is_backward = query.text("direction")? == Some("backward");
    find(&app, &caller, &template, &build)?;
    let all = app.builder.log(&caller.tenant, &build, 0, usize::MAX).await?;
    let entries: Vec<LogEntry> = match is_backward {
        true => {
            let own = all.into_iter().rev();
            own.filter(|entry| cursor.is_none_or(|at| entry.at_ms <= at)).take(limit).collect()
        }
        false => {
            let own = all.into_iter();
            own.filter(|entry| cursor.is_none_or(|at| entry.at_ms >= at)).take(limit).collect()
        }
    };
    Ok(Json(LogsView { logs: entries.into_iter().map(EntryView::from).collect() }))
}
