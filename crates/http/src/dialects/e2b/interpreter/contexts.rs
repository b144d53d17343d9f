//! Contexts of the code interpreter.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::Lenient;
use crate::dialects::e2b::interpreter::TextError;
use crate::dialects::e2b::interpreter::language::{ContextLanguage, is_default};
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::stream::context_run::context_error;
use axum::Json;
use axum::extract::State;
use isolet_sandbox::contexts::ContextInfo;
use isolet_sandbox::service::Access;
use isolet_sandbox::{ContextId, Sandbox};
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewContext {
    language: Option<String>,
    cwd: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ContextView {
    id: String,
    language: String,
    cwd: String,
}

impl From<ContextInfo> for ContextView {
    fn from(info: ContextInfo) -> Self {
        let language = ContextLanguage::of(&info).into_name();
        Self { id: info.id.into(), language, cwd: info.cwd }
    }
}

/// Creates a context.
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<NewContext>,
) -> Result<Json<ContextView>, TextError> {
    let opened = open(&app, &caller, &ids, value).await;
    opened.map(Json).map_err(|failure| failure.or_gone(&ids.sandbox))
}

async fn open(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
    value: NewContext,
) -> Result<ContextView, TextError> {
    let language = ContextLanguage::parse(value.language.as_deref().unwrap_or_default())?;
    let cwd = value.cwd.filter(|cwd| !cwd.is_empty());
    let spec = language.spec(None, cwd.as_deref())?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let info = sandbox.context_open(spec, false).await.map_err(context_error)?;
    Ok(info.into())
}

/// Lists the contexts in the order of their creation. E2B's sandboxes start those of Python and
/// JavaScript themselves, so these are started if the image has them.
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Vec<ContextView>>, TextError> {
    let all = list_all(&app, &caller, &ids).await;
    all.map(Json).map_err(|failure| failure.or_gone(&ids.sandbox))
}

async fn list_all(
    app: &App,
    caller: &Caller,
    ids: &PathIds,
) -> Result<Vec<ContextView>, TextError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    for language in [ContextLanguage::python(), ContextLanguage::javascript()] {
        let spec = language.spec(Some(language.default_context()?), None)?;
        if let Err(error) = sandbox.context_open(spec, true).await {
            tracing::debug!(%error, "a default context cannot start");
        }
    }
    let mut all = sandbox.contexts().await?;
    all.sort_by_key(|info| (!is_default(&info.id), info.created_at_ms));
    Ok(all.into_iter().map(ContextView::from).collect())
}

/// Ends a context.
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<()>, TextError> {
    let closed = close(&app, &caller, &ids).await;
    closed.map(Json).map_err(|failure| failure.or_gone(&ids.sandbox))
}

async fn close(app: &App, caller: &Caller, ids: &PathIds) -> Result<(), TextError> {
    let (sandbox, id) = find(app, caller, ids).await?;
    Ok(sandbox.context_close(&id).await.map_err(context_error)?)
}

/// Replaces the interpreter of a context.
pub(crate) async fn restart(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<()>, TextError> {
    let replaced = replace(&app, &caller, &ids).await;
    replaced.map(Json).map_err(|failure| failure.or_gone(&ids.sandbox))
}

async fn replace(app: &App, caller: &Caller, ids: &PathIds) -> Result<(), TextError> {
    let (sandbox, id) = find(app, caller, ids).await?;
    sandbox.context_restart(&id).await.map_err(context_error)?;
    Ok(())
}

async fn find(app: &App, caller: &Caller, ids: &PathIds) -> Result<(Sandbox, ContextId), ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let id = ids.context()?.clone();
    sandbox.context(&id).await.map_err(context_error)?;
    Ok((sandbox, id))
}
