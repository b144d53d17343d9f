//! Sandboxes from a template: their user and directory, and the start command.
//!
//! E2B starts the command once, while the template is built, and saves the memory. Here it starts with
//! each sandbox, and the create answers when the ready command has succeeded.

use super::{USER_LABEL, WORKDIR_LABEL};
use crate::dialects::e2b::connect::RpcError;
use crate::dialects::e2b::user::User;
use crate::foundation::error::ApiError;
use axum::http::{HeaderMap, StatusCode};
use isolet_build::{READY_LABEL, START_LABEL};
use isolet_sandbox::image::Image;
use isolet_sandbox::{
    AgentEvent, CommandText, EnvironmentChange, Metadata, ProcessId, ProcessSpec, Program,
    ProgramSpec, Sandbox, WorkingDirectory,
};
use isolet_wire::response::AgentResponse;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The members of a record that hold the user and the directory of a template.
const USER: &str = "e2b_user";
const WORKDIR: &str = "e2b_workdir";
/// The id of the process of the start command.
const PROCESS: &str = "start";
/// How long the start command may take until the ready command succeeds. The SDKs wait for a minute.
const READY_MAX: Duration = Duration::from_secs(50);
/// The pause between two runs of the ready command.
const READY_PAUSE: Duration = Duration::from_millis(100);

/// Where commands of a sandbox start that say nothing else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    pub(crate) user: User,
    pub(crate) workdir: Option<String>,
}

impl Defaults {
    /// Those of a sandbox, as they were recorded when it was created.
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        let dialect = sandbox.info().dialect;
        let text = |name: &str| dialect.get(name).and_then(Value::as_str);
        let user = text(USER).and_then(|name| User::parse(name).ok());
        Self { user: user.unwrap_or_default(), workdir: text(WORKDIR).map(str::to_owned) }
    }

    /// The same for the user that a request names.
    pub(crate) fn with(self, named: Option<User>) -> Self {
        Self { user: named.unwrap_or(self.user), ..self }
    }

    /// The user on whose behalf a request works.
    ///
    /// # Errors
    /// For an unknown name.
    pub(in crate::dialects::e2b) fn user(
        sandbox: &Sandbox,
        headers: &HeaderMap,
    ) -> Result<User, RpcError> {
        Ok(User::of(headers)?.unwrap_or_else(|| Self::of(sandbox).user))
    }
}

/// What a template adds to the record of a sandbox.
pub(crate) fn record(image: &Image, to: &mut Map<String, Value>) {
    for (label, name) in [(USER_LABEL, USER), (WORKDIR_LABEL, WORKDIR)] {
        if let Some(value) = image.labels.get(label) {
            to.insert(name.to_owned(), Value::from(value.clone()));
        }
    }
}

/// The start command of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    command: Option<String>,
    ready: Option<String>,
}

impl Start {
    /// That of an image; `None` if it has none.
    pub(crate) fn of(image: &Image) -> Option<Self> {
        let label = |name: &str| image.labels.get(name).filter(|text| !text.is_empty()).cloned();
        let start = Self { command: label(START_LABEL), ready: label(READY_LABEL) };
        (start.command.is_some() || start.ready.is_some()).then_some(start)
    }

    /// Starts the command, and waits until it is ready.
    ///
    /// # Errors
    /// 422 if it is not ready in time, and errors of the sandbox.
    pub(crate) async fn run(&self, sandbox: &Sandbox) -> Result<(), ApiError> {
        let defaults = Defaults::of(sandbox);
        if let Some(command) = &self.command {
            let spec = ProcessSpec {
                id: ProcessId::parse(PROCESS).ok(),
                program: Program::Command(CommandText::parse(command.clone())?),
                cwd: directory(&defaults),
                env: environment(&defaults)?,
                session: None,
                stdin: false,
                timeout_ms: 0,
            };
            sandbox.process_start(spec, None).await?;
        }
        let Some(ready) = &self.ready else { return Ok(()) };
        let until = Instant::now() + READY_MAX;
        loop {
            let run = succeeds(sandbox, ready, &defaults);
            match timeout_at(until, run).await {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(not_ready(ready)),
            }
            sleep(READY_PAUSE).await;
        }
    }
}

fn not_ready(ready: &str) -> ApiError {
    let shown: String = ready.chars().take(100).collect();
    let message = format!(
        "the start command of the template was not ready within {} s: {shown}",
        READY_MAX.as_secs()
    );
    let hint = "the sandbox was deleted; build the template with another ready command";
    // The SDKs repeat a create that is answered with 504.
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_image", message, hint)
}

fn directory(defaults: &Defaults) -> Option<WorkingDirectory> {
    let path = defaults.workdir.clone().unwrap_or_else(|| defaults.user.home().to_owned());
    WorkingDirectory::parse(path).ok()
}

fn environment(defaults: &Defaults) -> Result<EnvironmentChange, ApiError> {
    let user = defaults.user;
    let all = [("HOME", user.home()), ("USER", user.name()), ("LOGNAME", user.name())];
    let all = all.map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
    Ok(EnvironmentChange::parse(BTreeMap::from(all))?)
}

/// Runs the ready command once. It is killed when this is dropped.
async fn succeeds(sandbox: &Sandbox, ready: &str, defaults: &Defaults) -> Result<bool, ApiError> {
    let spec = ProgramSpec {
        program: Program::Command(CommandText::parse(ready.to_owned())?),
        cwd: directory(defaults),
        env: environment(defaults)?,
        ..ProgramSpec::default()
    };
    let mut connection = sandbox.exec(spec).await?;
    loop {
        match connection.next().await? {
            AgentEvent::Response(AgentResponse::Exit(exit)) => {
                connection.park();
                return Ok(exit.code == 0 && exit.signal.is_none());
            }
            AgentEvent::Response(AgentResponse::Refused { reason, message, .. }) => {
                return Err(isolet_sandbox::Error::Refused { reason, message }.into());
            }
            _ => {}
        }
    }
}

/// The record of a sandbox with the members of a template.
pub(crate) fn with_template(
    mut members: Map<String, Value>,
    image: Option<&Image>,
) -> Result<Metadata, ApiError> {
    if let Some(image) = image {
        record(image, &mut members);
    }
    Ok(Metadata::parse(members)?)
}
