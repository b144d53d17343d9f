//! The body of a request to build an image.

use crate::foundation::error::ApiError;
use crate::foundation::json::not_null;
use isolet_build::{
    Accounts, Action, Base, CopyStep, FilesName, Place, Recipe, RunProgram, RunStep, StartCommand,
    Step,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// An image to build.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBuild {
    /// The names of the image, 1 to 32: `tools:1`. An image of the caller that has one of them loses
    /// it.
    names: Vec<String>,
    /// The image that the first step finds. It is pulled if the server lacks it.
    #[serde(default = "host")]
    #[schema(default = "host")]
    from: String,
    /// The steps, in order, at most 500.
    #[serde(default)]
    steps: Vec<BuildStep>,
    /// Run all steps, also those whose results are cached.
    #[serde(default)]
    no_cache: bool,
    /// Labels to add to those of the image `from`.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// The command that clients of the E2B API find running in sandboxes from the image.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    start: Option<String>,
    /// A command that succeeds when the start command is ready.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ready: Option<String>,
}

fn host() -> String {
    "host".to_owned()
}

/// A step of a build. `env`, `arg`, `workdir`, `user` and the `dest` of `copy` may use variables:
/// `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME:+other}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum BuildStep {
    /// Copies uploaded files.
    Copy {
        /// The name of the upload.
        files: String,
        /// Which of them: a path in the archive, or a pattern with `*`, `**`, `?` and `[…]`. Of a
        /// directory its content is copied.
        source: String,
        /// Where to: a directory if it ends with a slash, exists as one, or if several files match;
        /// otherwise the name of the copy.
        dest: String,
        /// The owner as `user` or `user:group`. Defaults to root.
        #[serde(default)]
        owner: Option<String>,
        /// The permissions of all copies. Defaults to those in the archive.
        #[serde(default)]
        mode: Option<u32>,
    },
    /// Runs a program. Exactly one of `command` and `argv` is needed.
    Run {
        /// A command line for `bash -c`.
        #[serde(default)]
        command: Option<String>,
        /// The program and its arguments, without a shell.
        #[serde(default)]
        argv: Option<Vec<String>>,
        /// The user, for this step only.
        #[serde(default)]
        user: Option<String>,
    },
    /// Sets variables for later steps and for the image.
    Env {
        /// The variables.
        variables: Vec<BuildVariable>,
    },
    /// Sets a variable for later steps only.
    Arg {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Sets the working directory of later steps and of the image, and creates it.
    Workdir {
        /// The path.
        path: String,
    },
    /// Sets the user of later steps and of the image.
    User {
        /// The user as `user` or `user:group`, by name or number.
        user: String,
    },
}

/// A variable that a step sets.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuildVariable {
    /// Its name.
    name: String,
    /// Its value.
    value: String,
}

impl BuildStep {
    fn into_step(self) -> Result<Step, &'static str> {
        let action = match self {
            Self::Copy { files, source, dest, owner, mode } => {
                let files = FilesName::parse(&files).ok_or("files: 64 digits of 0-9a-f")?;
                Action::Copy(CopyStep { files, source, dest, owner, mode })
            }
            Self::Run { command, argv, user } => {
                let program = match (command, argv) {
                    (Some(text), None) => RunProgram::Command(text),
                    (None, Some(words)) => RunProgram::Argv(words),
                    _ => return Err("needs either command or argv"),
                };
                Action::Run(RunStep { program, user })
            }
            Self::Env { variables } => {
                Action::Env(variables.into_iter().map(|one| (one.name, one.value)).collect())
            }
            Self::Arg { name, value } => Action::Arg(name, value),
            Self::Workdir { path } => Action::Workdir(path),
            Self::User { user } => Action::User(user),
        };
        Ok(Step { action, force: false })
    }
}

impl NewBuild {
    /// The names and the recipe.
    ///
    /// # Errors
    /// 400 for a step that is malformed.
    pub(super) fn into_recipe(self) -> Result<(Vec<String>, Recipe), ApiError> {
        let steps = self.steps.into_iter().enumerate().map(|(index, step)| {
            let bad = |reason: &str| ApiError::bad_field(&format!("steps[{index}]"), reason);
            step.into_step().map_err(bad)
        });
        let start = match (self.start, self.ready) {
            (None, None) => None,
            (command, ready) => Some(StartCommand { command: command.unwrap_or_default(), ready }),
        };
        let recipe = Recipe {
            base: Base::Image(self.from),
            steps: steps.collect::<Result<_, _>>()?,
            no_cache: self.no_cache,
            labels: self.labels,
            cwd_label: None,
            start,
            accounts: Accounts::OfImage,
            begin: Place::default(),
        };
        Ok((self.names, recipe))
    }
}
