//! What to build: a base, and steps.

use crate::error::Error;
use crate::files::FilesName;
use isolet_sandbox::image::LABELS_BYTES_MAX;
use isolet_sandbox::{CommandText, SnapshotId, WorkingDirectory};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The label of an image with the command that a sandbox from it starts.
pub const START_LABEL: &str = "io.isolet.start";
/// The label of an image with the command that succeeds when the start command is ready.
pub const READY_LABEL: &str = "io.isolet.ready";

/// Maximum number of steps.
const STEPS_MAX: usize = 500;
/// Maximum size of all variables of one step, in bytes.
const ENV_BYTES_MAX: usize = 128 * 1024;
/// The longest text of a step in a log, in characters.
const TEXT_LETTERS_MAX: usize = 200;
/// The longest name of an account, in bytes.
pub(crate) const ACCOUNT_BYTES_MAX: usize = 128;
/// The longest path, in bytes, as in the kernel.
pub(crate) const PATH_BYTES_MAX: usize = 4095;

/// What to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// What the first step finds.
    pub base: Base,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Run all steps, also those whose result is in the cache.
    pub no_cache: bool,
    /// Labels to add to those of the base.
    pub labels: BTreeMap<String, String>,
    /// The label that has the working directory after the last step as its value; `None`: no label has.
    pub cwd_label: Option<String>,
    /// The command that sandboxes from the image start.
    pub start: Option<StartCommand>,
    /// What the names of users mean.
    pub accounts: Accounts,
    /// Where the first step begins.
    pub begin: Place,
}

/// What the first step of a build finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// An image by its name; one that the server lacks is pulled. `host` stands for the programs of
    /// the server's machine.
    Image(String),
    /// A snapshot of the tenant.
    Snapshot(SnapshotId),
}

/// Where a step begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The user; `None`: that of the base.
    pub user: Option<String>,
    /// The working directory, without variables; `None`: that of the base.
    pub cwd: Option<String>,
}

/// What the names of users mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accounts {
    /// They are those of `/etc/passwd` in the image.
    OfImage,
    /// Each name stands for root, and has this home directory. There are no others.
    Root(BTreeMap<String, String>),
}

/// A command that sandboxes from an image start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartCommand {
    /// The command line for `bash -c`; empty if only readiness is checked.
    pub command: String,
    /// A command line that succeeds when the command is ready.
    pub ready: Option<String>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// Run it and all later ones, also if their results are in the cache.
    pub force: bool,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Copies uploaded files.
    Copy(CopyStep),
    /// Runs a program.
    Run(RunStep),
    /// Sets variables for later steps and for the image. Values may use variables: `$NAME`,
    /// `${NAME}`, `${NAME:-default}`, `${NAME:+other}`; `\$` stands for `$`. They have the values from before
    /// the step.
    Env(Vec<(String, String)>),
    /// Sets a variable for later steps, but not for the image. One of [`Action::Env`] or of the base
    /// with the same name hides it.
    Arg(String, String),
    /// Sets the working directory of later steps and of the image, and creates it. May use variables.
    Workdir(String),
    /// Sets the user of later steps and of the image. May use variables.
    User(String),
}

/// Copies uploaded files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopyStep {
    /// The name of the upload.
    pub files: FilesName,
    /// Which of them: a path in the archive, or a pattern with `*`, `**`, `?` and `[…]`. Of a directory
    /// its content is copied.
    pub source: String,
    /// Where to: a directory if it ends with a slash, exists as one, or if several files match; otherwise
    /// the name of the copy. Relative to the working directory. May use variables.
    pub dest: String,
    /// The owner as `user` or `user:group`; `None`: root.
    pub owner: Option<String>,
    /// The permissions of all copies; `None`: those in the archive.
    pub mode: Option<u32>,
}

/// Runs a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunStep {
    /// The program.
    pub program: RunProgram,
    /// The user, for this step only.
    pub user: Option<String>,
}

/// A program of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum RunProgram {
    /// A command line for `bash -c`.
    Command(String),
    /// A program and its arguments.
    Argv(Vec<String>),
}

impl Action {
    /// Whether it changes files.
    pub(crate) fn changes_files(&self) -> bool {
        self.is_cached() || matches!(self, Self::Workdir(_))
    }

    /// Whether its result is always worth a place in the cache. That of a step that only makes a
    /// directory is when it is the last one.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self, Self::Copy(_) | Self::Run(_))
    }
}

impl fmt::Display for Action {
    /// Writes a line for the log, without the values of variables, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Copy(copy) => format!("COPY {} {}", copy.source, copy.dest),
            Self::Run(RunStep { program: RunProgram::Command(text), .. }) => format!("RUN {text}"),
            Self::Run(RunStep { program: RunProgram::Argv(words), .. }) => {
                format!("RUN {}", words.join(" "))
            }
            Self::Env(all) => {
                let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
                format!("ENV {}", names.join(" "))
            }
            Self::Arg(name, _) => format!("ARG {name}"),
            Self::Workdir(path) => format!("WORKDIR {path}"),
            Self::User(user) => format!("USER {user}"),
        };
        let mut letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        let shown: String = letters.by_ref().take(TEXT_LETTERS_MAX).collect();
        let dots = if letters.next().is_some() { "…" } else { "" };
        write!(f, "{shown}{dots}")
    }
}

impl Recipe {
    /// A recipe that makes an image of a base as it is.
    #[must_use]
    pub fn of(base: Base) -> Self {
        Self {
            base,
            steps: Vec::new(),
            no_cache: false,
            labels: BTreeMap::new(),
            cwd_label: None,
            start: None,
            accounts: Accounts::OfImage,
            begin: Place::default(),
        }
    }

    /// Checks all that can be checked without running it.
    ///
    /// # Errors
    /// [`Error::BadRecipe`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.steps.len() > STEPS_MAX {
            return Err(Error::recipe("steps", format!("at most {STEPS_MAX} steps")));
        }
        if let Some(user) = &self.begin.user {
            self.check_user("begin", user)?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            let field = format!("steps[{index}]");
            self.check_action(&step.action).map_err(|reason| Error::recipe(field, reason))?;
        }
        if let Some(start) = &self.start {
            check_command(&start.command).map_err(|reason| Error::recipe("start", reason))?;
            let ready = start.ready.as_deref().unwrap_or_default();
            check_command(ready).map_err(|reason| Error::recipe("ready", reason))?;
        }
        let labels: usize = self.all_labels().iter().map(|(k, v)| k.len() + v.len()).sum();
        let cwd = self.cwd_label.as_ref().map_or(0, |name| name.len() + PATH_BYTES_MAX);
        if labels + cwd > LABELS_BYTES_MAX {
            let reason = "labels, start and ready command have at most 64 KiB together";
            return Err(Error::recipe("labels", reason));
        }
        Ok(())
    }

    /// The labels, with those that hold the start command.
    pub(crate) fn all_labels(&self) -> BTreeMap<String, String> {
        let mut all = self.labels.clone();
        if let Some(start) = &self.start {
            if !start.command.is_empty() {
                all.insert(START_LABEL.to_owned(), start.command.clone());
            }
            if let Some(ready) = &start.ready {
                all.insert(READY_LABEL.to_owned(), ready.clone());
            }
        }
        all
    }

    fn check_action(&self, action: &Action) -> Result<(), String> {
        match action {
            Action::Copy(copy) => {
                check_path("dest", &copy.dest)?;
                crate::archive::copy::Pattern::parse(&copy.source)?;
                if copy.mode.is_some_and(|mode| mode > 0o7777) {
                    return Err("mode: at most 7777 in octal".to_owned());
                }
                copy.owner.as_deref().map_or(Ok(()), |owner| self.check_account(owner))
            }
            Action::Run(run) => {
                match &run.program {
                    RunProgram::Command(text) => check_command(text)?,
                    RunProgram::Argv(words) => {
                        let checked = isolet_sandbox::Argv::parse(words.clone());
                        checked.map_err(|error| error.to_string())?;
                    }
                }
                run.user.as_deref().map_or(Ok(()), |user| self.check_account(user))
            }
            Action::Env(all) if all.is_empty() => Err("needs a variable".to_owned()),
            Action::Env(all) => check_variables(all.iter().map(|(name, value)| (name, value))),
            Action::Arg(name, value) => check_variables(std::iter::once((name, value))),
            Action::Workdir(path) => check_path("workdir", path),
            Action::User(user) => self.check_account(user),
        }
    }

    fn check_user(&self, field: &str, user: &str) -> Result<(), Error> {
        self.check_account(user).map_err(|reason| Error::recipe(field, reason))
    }

    fn check_account(&self, name: &str) -> Result<(), String> {
        if name.is_empty() || name.len() > ACCOUNT_BYTES_MAX || name.contains(['\0', '\n']) {
            return Err(format!("user: 1 to {ACCOUNT_BYTES_MAX} bytes in one line"));
        }
        match &self.accounts {
            Accounts::OfImage => Ok(()),
            Accounts::Root(all) if all.contains_key(without_group(name)) => Ok(()),
            Accounts::Root(all) => {
                let known: Vec<&str> = all.keys().map(String::as_str).collect();
                Err(format!("there is no user {name:?}, only {}", known.join(" and ")))
            }
        }
    }
}

/// The part of `user:group` before the colon.
pub(crate) fn without_group(owner: &str) -> &str {
    owner.split(':').next().unwrap_or_default()
}

fn check_command(text: &str) -> Result<(), String> {
    CommandText::parse(text.to_owned()).map(drop).map_err(|error| error.to_string())
}

fn check_path(what: &str, path: &str) -> Result<(), String> {
    let checked = WorkingDirectory::parse(path.to_owned());
    checked.map(drop).map_err(|_| format!("{what}: a path of 1 to 4095 bytes without NUL"))
}

fn check_variables<'a>(all: impl Iterator<Item = (&'a String, &'a String)>) -> Result<(), String> {
    let mut bytes = 0;
    for (name, value) in all {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let name: String = name.chars().take(64).collect();
            return Err(format!("{name:?} is no name of a variable, or its value has a NUL"));
        }
        bytes += name.len() + value.len() + 2;
    }
    if bytes > ENV_BYTES_MAX { Err("variables have at most 128 KiB".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(action: Action) -> Recipe {
        let step = Step { action, force: false };
        Recipe { steps: vec![step], ..Recipe::of(Base::Image("host".to_owned())) }
    }

    fn reason(recipe: &Recipe) -> String {
        recipe.check().unwrap_err().to_string()
    }

    #[test]
    fn a_bad_step_is_refused_with_its_place_and_reason() {
        let files = FilesName::parse(&"a".repeat(64)).unwrap();
        let copy = |source: &str, dest: &str, mode| {
            let source = source.to_owned();
            let dest = dest.to_owned();
            Action::Copy(CopyStep { files: files.clone(), source, dest, owner: None, mode })
        };
        for (action, word) in [
            (copy("../a", "/b", None), "outside"),
            (copy("a", "", None), "dest"),
            (copy("a", "/b", Some(0o10000)), "mode"),
            (Action::Env(Vec::new()), "needs a variable"),
            (Action::Env(vec![("A=B".into(), String::new())]), "A=B"),
            (Action::Workdir("a\0".into()), "workdir"),
            (Action::User(String::new()), "user"),
        ] {
            let said = reason(&with(action));
            assert!(said.starts_with("steps[0]: ") && said.contains(word), "{said}");
        }
    }

    #[test]
    fn names_that_stand_for_root_are_the_only_ones() {
        let accounts = Accounts::Root(BTreeMap::from([("user".into(), "/home/user".into())]));
        let of =
            |user: &str| Recipe { accounts: accounts.clone(), ..with(Action::User(user.into())) };
        assert!(of("user").check().is_ok() && of("user:user").check().is_ok());
        assert!(reason(&of("mish")).contains("no user \"mish\""));
    }

    #[test]
    fn the_line_of_a_step_shows_no_values() {
        let env = Action::Env(vec![("TOKEN".into(), "secret".into())]);
        assert_eq!(env.to_string(), "ENV TOKEN");
        assert_eq!(Action::Arg("TOKEN".into(), "secret".into()).to_string(), "ARG TOKEN");
        let long = Action::User("x".repeat(500)).to_string();
        assert_eq!(long.chars().count(), TEXT_LETTERS_MAX + 1);
    }
}
