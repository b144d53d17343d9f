//! Lists and describes sandboxes.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::routes::{NEXT_TOKEN, started_token};
use crate::dialects::e2b::sandboxes::view::{SandboxView, state_word, template};
use crate::forwarding::lists;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::query::{Query, bad_parameter, decode_query_value};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use isolet_clock::{parse_rfc3339, rfc3339};
use isolet_sandbox::SandboxInfo;
use isolet_sandbox::service::PAGE_MAX;
use serde_json::Value;
use std::collections::HashSet;

const PARAMETERS: [&str; 7] =
    ["metadata", "state", "order", "startedAfter", "template", "nextToken", "limit"];
/// The size of a page.
const LIMIT: usize = 100;
/// The length of a time as RFC 3339, in bytes.
const TIME_BYTES: usize = 24;

/// What a list is filtered and sorted by.
#[derive(Debug, Default)]
struct Filter {
    /// Names and values.
    metadata: Vec<(String, String)>,
    /// Empty for all.
    states: Vec<String>,
    template: Option<String>,
    /// The first moment of creation, in milliseconds since 1970.
    started_after_ms: Option<i64>,
    is_ascending: bool,
    /// The token of the last sandbox of the page before, by which the list is sorted.
    after: Option<String>,
    limit: usize,
}

impl Filter {
    fn of(uri: &Uri) -> Result<Self, ApiError> {
        let query = Query::with_lists(uri, &PARAMETERS, &["state"])?;
        let started_after_ms = query
            .text("startedAfter")?
            .map(|text| {
                parse_rfc3339(text).ok_or_else(|| {
                    bad_parameter("startedAfter", "a time such as 2024-02-29T23:59:59Z")
                })
            })
            .transpose()?;
        let limit = match query.text("limit")? {
            None => LIMIT,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=PAGE_MAX).contains(limit))
                .ok_or_else(|| bad_parameter("limit", "1 to 1000"))?,
        };
        let states = query.list("state")?;
        let states: Vec<String> =
            states.iter().flat_map(|all| all.split(',')).map(str::to_owned).collect();
        if states.iter().any(|state| !matches!(state.as_str(), "running" | "paused")) {
            return Err(bad_parameter("state", "running, paused, or both"));
        }
        let is_ascending = match query.text("order")? {
            None | Some("desc") => false,
            Some("asc") => true,
            Some(_) => return Err(bad_parameter("order", "asc or desc")),
        };
        Ok(Self {
            metadata: metadata(query.text("metadata")?.unwrap_or_default())?,
            states,
            template: query.text("template")?.map(str::to_owned),
            started_after_ms,
            is_ascending,
            after: query
                .text("nextToken")?
                .filter(|text| !text.is_empty())
                .map(position)
                .transpose()?,
            limit,
        })
    }

    fn admits(&self, info: &SandboxInfo) -> bool {
        let Some(state) = state_word(info) else { return false };
        let text = |name: &str| info.metadata.get(name).and_then(Value::as_str);
        (self.states.is_empty() || self.states.iter().any(|wanted| wanted == state))
            && self.template.as_ref().is_none_or(|wanted| template(info) == *wanted)
            && self.started_after_ms.is_none_or(|first| info.created_at_ms >= first)
            && self.metadata.iter().all(|(name, value)| text(name) == Some(value))
    }
}

/// Parses `a=b&c=d`, whose parts the SDKs encode twice more.
fn metadata(text: &str) -> Result<Vec<(String, String)>, ApiError> {
    let once = |text: &str| decode_query_value(text).and_then(|text| String::from_utf8(text).ok());
    // Other clients encode them once.
    let part = |text: &str| once(text).map(|text| once(&text).unwrap_or(text));
    let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((part(name)?, part(value)?))
    });
    let all: Option<Vec<_>> = pairs.collect();
    all.ok_or_else(|| bad_parameter("metadata", "pairs of the form a=b, separated by &"))
}

/// Parses the token of a page.
fn position(token: &str) -> Result<String, ApiError> {
    let is_own = token.split_once('_').is_some_and(|(time, _)| time.len() == TIME_BYTES);
    let own = is_own.then(|| token.to_owned());
    own.ok_or_else(|| bad_parameter("nextToken", "is not one of this server"))
}

/// All sandboxes of the caller. A tenant's limit bounds them.
struct All {
    sandboxes: Vec<SandboxInfo>,
    /// Whether those are missing that only the object store has.
    is_incomplete: bool,
}

impl All {
    async fn of(app: &App, caller: &Caller) -> Result<Self, ApiError> {
        let mut all = Self { sandboxes: Vec::new(), is_incomplete: false };
        let mut after = None;
        loop {
            let page = app.service.list(&caller.tenant, after.as_ref(), PAGE_MAX).await?;
            all.sandboxes.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let own: HashSet<_> = all.sandboxes.iter().map(|info| info.id.clone()).collect();
        let mut after = None;
        loop {
            let part = lists::stored::part(app, caller, after.as_ref(), PAGE_MAX).await;
            all.is_incomplete |= part.is_incomplete;
            after = part.sandboxes.last().map(|last| last.info.id.clone());
            let stored = part.sandboxes.into_iter().map(|away| away.info);
            // One that has just been restored here is not listed twice.
            all.sandboxes.extend(stored.filter(|info| !own.contains(&info.id)));
            if !part.more || after.is_none() {
                return Ok(all);
            }
        }
    }
}

/// Lists sandboxes in pages, the latest first.
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, E2bError> {
    let filter = Filter::of(&uri)?;
    let All { sandboxes: mut found, is_incomplete } = All::of(&app, &caller).await?;
    found.retain(|info| filter.admits(info));
    let key = |info: &SandboxInfo| started_token(&rfc3339(info.created_at_ms), info.id.as_str());
    found.sort_by_cached_key(key);
    if !filter.is_ascending {
        found.reverse();
    }
    if let Some(after) = &filter.after {
        found.retain(|info| match filter.is_ascending {
            true => key(info) > *after,
            false => key(info) < *after,
        });
    }
    let next = found.get(filter.limit - 1).filter(|_| found.len() > filter.limit);
    let next = next.map(key);
    found.truncate(filter.limit);
    let views: Vec<_> = found.into_iter().map(|info| SandboxView::new(&app, info)).collect();
    let mut response = Json(views).into_response();
    if let Some(Ok(token)) = next.map(HeaderValue::try_from) {
        response.headers_mut().insert(NEXT_TOKEN, token);
    }
    if is_incomplete {
        response.headers_mut().insert(lists::MISSING, lists::STORED);
    }
    Ok(response)
}

/// Lists running sandboxes, for older clients.
pub(crate) async fn running(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<Vec<SandboxView>>, E2bError> {
    let query = Query::of(&uri, &["metadata"])?;
    let metadata = metadata(query.text("metadata")?.unwrap_or_default())?;
    let states = vec!["running".to_owned()];
    let filter = Filter { metadata, states, ..Filter::default() };
    let found =
        All::of(&app, &caller).await?.sandboxes.into_iter().filter(|info| filter.admits(info));
    Ok(Json(found.map(|info| SandboxView::new(&app, info)).collect()))
}

/// Describes a sandbox.
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SandboxView>, E2bError> {
    let info = app.service.get(&caller.tenant, &ids.sandbox).await?;
    Ok(Json(SandboxView::new(&app, info)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_parsed_strictly() {
        let of = |query: &str| Filter::of(&format!("/v2/sandboxes?{query}").parse().unwrap());
        let filter = of("metadata=a%3Db%252526%26c%3Dd%2525&state=running,paused&limit=7").unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(filter.metadata, [pair("a", "b&"), pair("c", "d%")]);
        assert_eq!((filter.states.len(), filter.limit), (2, 7));
        let token = started_token(&rfc3339(12), "abc");
        assert_eq!(of(&format!("nextToken={token}")).unwrap().after, Some(token));
        let first = |query: &str| of(query).unwrap().started_after_ms;
        assert_eq!(first("startedAfter=1970-01-01T01:00:00.007%2B01:00"), Some(7));
        assert_eq!(first(""), None);
        let bad = [
            "limit=0",
            "limit=x",
            "state=dead",
            "metadata=a",
            "nextToken=x",
            "other=1",
            "startedAfter=1",
            "order=up",
        ];
        for bad in bad {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
