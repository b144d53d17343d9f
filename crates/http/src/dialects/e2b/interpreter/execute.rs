//! Runs code in a context, and streams what comes of it.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::{Lenient, null_as_default};
use crate::dialects::e2b::interpreter::TextError;
use crate::dialects::e2b::interpreter::language::ContextLanguage;
use crate::dialects::e2b::interpreter::lines;
use crate::foundation::error::ApiError;
use crate::foundation::input::{self, PathIds};
use crate::stream::context_run;
use axum::extract::State;
use axum::response::Response;
use isolet_sandbox::contexts::{Code, ContextSpec};
use isolet_sandbox::service::Access;
use isolet_sandbox::{CommandText, ContextId, EnvironmentChange};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Execution {
    code: Option<String>,
    context_id: Option<String>,
    language: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    env_vars: BTreeMap<String, String>,
}

/// Runs code. A client that disconnects interrupts it.
pub(crate) async fn execute(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<Execution>,
) -> Result<Response, TextError> {
    let begun = begin(&app, &caller, &ids, value).await;
    begun.map_err(|failure| failure.or_gone(&ids.sandbox))
}

async fn begin(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    value: Execution,
) -> Result<Response, TextError> {
    let (id, default) = place(value.context_id.as_deref(), value.language.as_deref())?;
    let code = value.code.ok_or_else(|| ApiError::bad_field("code", "is required"))?;
    if code.len() > CommandText::BYTES_MAX {
        let reason = "must be at most 1 MiB; write longer code to a file first";
        return Err(ApiError::bad_field("code", reason).into());
    }
    let env = value.env_vars.into_iter().map(|(name, value)| (name, Some(value))).collect();
    let env = EnvironmentChange::parse(env)?;
    let code = Code { code, stdin: None, env, timeout_ms: Some(0) };
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let memory = app.body_memory.share(&caller.tenant);
    let run = context_run::begin(&sandbox, &id, code, true, default, memory).await?;
    Ok(lines::respond(run, app.cancellations.subscribe(caller)))
}

/// The context that a request names, with its settings if it is created when it is missing.
fn place(
    context: Option<&str>,
    language: Option<&str>,
) -> Result<(ContextId, Option<ContextSpec>), ApiError> {
    match (context.filter(|id| !id.is_empty()), language.filter(|name| !name.is_empty())) {
        (Some(_), Some(_)) => {
            Err(ApiError::bad_request("Only one of context_id or language can be provided"))
        }
        (Some(context), None) => Ok((ContextId::parse(context).map_err(input::bad_id)?, None)),
        (None, language) => {
            let language = ContextLanguage::parse(language.unwrap_or_default())?;
            let id = language.default_context()?;
            let spec = language.spec(Some(id.clone()), None)?;
            Ok((id, Some(spec)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_in_the_context_that_is_named_or_in_that_of_its_language() {
        let of = |context, language| place(context, language).unwrap();
        assert_eq!(of(None, None).0.as_str(), "e2b-python");
        assert_eq!(of(None, Some("js")).0.as_str(), "e2b-javascript");
        assert!(of(None, Some("js")).1.is_some());
        let (id, default) = of(Some("mine"), None);
        assert_eq!((id.as_str(), default.is_none()), ("mine", true));
        for (context, language) in [(Some("a"), Some("b")), (Some("a/b"), None), (None, Some("*"))]
        {
            assert!(place(context, language).is_err());
        }
    }
}
