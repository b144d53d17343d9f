//! From the steps of a request to a recipe.
//!
//! `user` and `root` are both root of the sandbox, with different home directories, as everywhere in
//! this dialect.

use super::{BUILD_LABEL, USER_LABEL, WORKDIR_LABEL};
use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::null_as_default;
use crate::dialects::e2b::sandboxes::create::is_default_template;
use crate::dialects::e2b::templates::catalog::image_name;
use crate::foundation::error::ApiError;
use axum::http::StatusCode;
use isolet_build::{
    Accounts, Action, Base, CopyStep, FilesName, Place, Recipe, RunProgram, RunStep, StartCommand,
    Step,
};
use isolet_sandbox::SnapshotId;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The users of a template with their home directories.
const USERS: [(&str, &str); 2] = [("root", "/root"), ("user", "/home/user")];
/// The user and the directory of a template that sets neither.
const USER: &str = "user";
const WORKDIR: &str = "/home/user";
/// The default image of sandboxes: the programs of the server's machine.
const HOST: &str = "host";
/// Images of E2B that stand for it.
const BASE_IMAGES: [&str; 2] = ["e2bdev/base", "e2bdev/code-interpreter"];

/// The steps of a build. Unknown members are ignored, because newer clients send more.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StartBody {
    #[serde(deserialize_with = "null_as_default")]
    from_image: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    from_template: Option<String>,
    from_image_registry: Option<Value>,
    #[serde(deserialize_with = "null_as_default")]
    force: bool,
    #[serde(deserialize_with = "null_as_default")]
    steps: Vec<StepBody>,
    #[serde(deserialize_with = "null_as_default")]
    start_cmd: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    ready_cmd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StepBody {
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "null_as_default")]
    args: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    files_hash: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    force: bool,
}

impl StepBody {
    fn arg(&self, index: usize) -> Option<&str> {
        self.args.get(index).map(String::as_str).filter(|arg| !arg.is_empty())
    }

    fn needed(&self, index: usize, what: &str) -> Result<String, String> {
        let arg = self.arg(index).map(str::to_owned);
        arg.ok_or_else(|| format!("{} needs {what}", self.kind))
    }

    fn action(&self) -> Result<Action, String> {
        match self.kind.as_str() {
            "COPY" | "ADD" => {
                let hash = self.files_hash.as_deref().unwrap_or_default();
                let files = FilesName::parse(hash).ok_or("filesHash: 64 digits of 0-9a-f")?;
                let mode = self.arg(3).map(|text| {
                    let bits = u32::from_str_radix(text, 8).ok();
                    bits.ok_or_else(|| format!("the permissions {text:?} are no octal number"))
                });
                let source = self.needed(0, "a source")?;
                let dest = self.needed(1, "a destination")?;
                let owner = self.arg(2).map(known_user).transpose()?;
                Ok(Action::Copy(CopyStep { files, source, dest, owner, mode: mode.transpose()? }))
            }
            "RUN" => {
                let command = self.needed(0, "a command")?;
                let user = self.arg(1).map(known_user).transpose();
                let shown: String = command.chars().take(200).collect();
                let user = user.map_err(|reason| {
                    format!("failed to run command '{shown}': command failed: {reason}")
                })?;
                Ok(Action::Run(RunStep { program: RunProgram::Command(command), user }))
            }
            "ENV" => {
                let pairs = self.args.chunks(2).map(|pair| match pair {
                    [name, value] => Ok((name.clone(), value.clone())),
                    _ => Err("ENV needs a value for each name".to_owned()),
                });
                Ok(Action::Env(pairs.collect::<Result<_, _>>()?))
            }
            "WORKDIR" => Ok(Action::Workdir(self.needed(0, "a path")?)),
            "USER" => Ok(Action::User(known_user(&self.needed(0, "a user")?)?)),
            other => {
                let other: String = other.chars().take(64).collect();
                Err(format!("unknown type of step {other:?}: COPY, RUN, ENV, WORKDIR or USER"))
            }
        }
    }
}

/// A user of this dialect.
fn known_user(name: &str) -> Result<String, String> {
    let user = name.split(':').next().unwrap_or_default();
    if USERS.iter().any(|(known, _)| *known == user) {
        return Ok(user.to_owned());
    }
    let user: String = user.chars().take(64).collect();
    Err(format!("unauthenticated: invalid username: '{user}'"))
}

/// The base of a template.
struct FoundBase {
    base: Base,
    user: String,
    /// `None`: the home directory of the user.
    workdir: Option<String>,
}

impl StartBody {
    /// The recipe.
    ///
    /// # Errors
    /// 400 for a step that is malformed, and for what this server does not have.
    pub(super) fn into_recipe(
        self,
        app: &App,
        caller: &Caller,
        build: &str,
    ) -> Result<Recipe, ApiError> {
        if self.from_image_registry.is_some() {
            let reason =
                "the server uses the credentials of its operator; import the image instead";
            return Err(ApiError::field_not_implemented("fromImageRegistry", reason));
        }
        let FoundBase { base, user, workdir: own_workdir } = self.base(app, caller)?;
        let mut sets_workdir = own_workdir.is_some();
        let workdir = own_workdir.unwrap_or_else(|| WORKDIR.to_owned());
        let mut steps = Vec::with_capacity(self.steps.len());
        let mut last_user = user.clone();
        for (index, step) in self.steps.iter().enumerate() {
            let action = step.action();
            let action = action.map_err(|reason| bad_step(index, &reason))?;
            match &action {
                Action::User(name) => last_user = name.clone(),
                Action::Workdir(_) => sets_workdir = true,
                _ => {}
            }
            steps.push(Step { action, force: step.force });
        }
        let labels = BTreeMap::from([
            (USER_LABEL.to_owned(), last_user),
            (BUILD_LABEL.to_owned(), build.to_owned()),
        ]);
        let start = match (self.start_cmd, self.ready_cmd) {
            (None, None) => None,
            (command, ready) => Some(StartCommand { command: command.unwrap_or_default(), ready }),
        };
        let homes = USERS.map(|(name, home)| (name.to_owned(), home.to_owned()));
        Ok(Recipe {
            base,
            steps,
            no_cache: self.force,
            labels,
            cwd_label: sets_workdir.then(|| WORKDIR_LABEL.to_owned()),
            start,
            accounts: Accounts::Root(BTreeMap::from(homes)),
            begin: Place { user: Some(user), cwd: Some(workdir) },
        })
    }

    fn base(&self, app: &App, caller: &Caller) -> Result<FoundBase, ApiError> {
        let own = |base: Base| FoundBase { base, user: USER.to_owned(), workdir: None };
        let host = || own(Base::Image(HOST.to_owned()));
        match (&self.from_image, &self.from_template) {
            (_, Some(template)) if is_default_template(template) => Ok(host()),
            (_, Some(template)) => {
                let snapshot = SnapshotId::parse(template).ok();
                let snapshot =
                    snapshot.filter(|id| app.service.snapshot(&caller.tenant, id).is_ok());
                // A snapshot begins as the template of its sandbox does.
                let (base, name) = match snapshot {
                    Some(id) => {
                        let info = app.service.snapshot(&caller.tenant, &id)?;
                        (Base::Snapshot(id), info.image_resolved)
                    }
                    None => {
                        let name = image_name(template);
                        (Base::Image(name.clone()), name)
                    }
                };
                let image = app.service.find_image(&caller.tenant, &name);
                let labels = image.map(|image| image.labels.clone()).unwrap_or_default();
                let user = labels.get(USER_LABEL).and_then(|name| known_user(name).ok());
                Ok(FoundBase {
                    base,
                    user: user.unwrap_or_else(|| USER.to_owned()),
                    workdir: labels.get(WORKDIR_LABEL).cloned(),
                })
            }
            (Some(image), None) => {
                let name = image.split(':').next().unwrap_or_default();
                let is_base = BASE_IMAGES.contains(&name);
                Ok(if is_base { host() } else { own(Base::Image(image.clone())) })
            }
            (None, None) => Ok(host()),
        }
    }
}

fn bad_step(index: usize, reason: &str) -> ApiError {
    let message = format!("step {}: {reason}", index + 1);
    ApiError::new(StatusCode::BAD_REQUEST, "bad_field", message, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn action(body: Value) -> Result<Action, String> {
        serde_json::from_value::<StepBody>(body).unwrap().action()
    }

    #[test]
    fn steps_are_those_of_the_sdks() {
        let hash = "a".repeat(64);
        let copy = json!({"type": "COPY", "args": ["a", "b", "", "0755"], "filesHash": hash, "force": true});
        let Ok(Action::Copy(step)) = action(copy) else { panic!("no copy") };
        assert_eq!((step.source.as_str(), step.dest.as_str(), step.mode), ("a", "b", Some(0o755)));
        assert_eq!(step.owner, None);
        let env = json!({"type": "ENV", "args": ["A", "1", "B", ""]});
        let pairs = vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), String::new())];
        assert_eq!(action(env).unwrap(), Action::Env(pairs));
        let workdir = json!({"type": "WORKDIR", "args": ["/app"], "forceUpload": null});
        assert_eq!(action(workdir).unwrap(), Action::Workdir("/app".to_owned()));
    }

    #[test]
    fn what_no_sdk_sends_is_refused_with_a_reason() {
        for (body, word) in [
            (json!({"type": "MOUNT", "args": []}), "unknown type of step \"MOUNT\""),
            (json!({"type": "COPY", "args": ["a", "b"], "filesHash": "../x"}), "filesHash"),
            (
                json!({"type": "COPY", "args": ["a", "b", "", "9"], "filesHash": "a".repeat(64)}),
                "octal",
            ),
            (json!({"type": "RUN", "args": []}), "a command"),
            (
                json!({"type": "RUN", "args": ["whoami", "root123"]}),
                "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'",
            ),
            (json!({"type": "ENV", "args": ["A"]}), "a value"),
            (json!({"type": "USER", "args": ["mish"]}), "mish"),
        ] {
            let said = action(body).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
    }
}
