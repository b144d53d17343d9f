//! One build: from its base to the image.

mod accounts;
mod base;
pub(crate) mod cache;
mod copy;
mod output;
mod program;

use crate::build_log::{BuildLog, LogLevel};
use crate::chain::ChainDigest;
use crate::expand::expand;
use crate::files::PinnedFiles;
use crate::recipe::{ACCOUNT_BYTES_MAX, Accounts, Action, PATH_BYTES_MAX, Recipe, Step};
use crate::records::FailedPart;
use base::FoundBase;
use isolet_sandbox::image::ImageChanges;
use isolet_sandbox::service::Access;
use isolet_sandbox::{
    CommitSpec, Environment, Error, Sandbox, SandboxId, SandboxSpec, Service, SnapshotId, TenantId,
    absolute_path,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The search path of programs where neither the image nor a step sets another.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Maximum size of all variables that steps set, in bytes.
const ENV_BYTES_MAX: usize = Environment::BYTES_MAX;

/// Why a build failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) part: FailedPart,
    pub(crate) reason: String,
}

impl Failure {
    /// The build as a whole failed.
    pub(crate) fn build(reason: String) -> Self {
        Self { part: FailedPart::Build, reason }
    }
}

/// What a build needs.
pub(crate) struct BuildRun<'a> {
    pub(crate) service: &'a Service,
    pub(crate) files: &'a PinnedFiles,
    pub(crate) tenant: &'a TenantId,
    pub(crate) log: &'a BuildLog,
    pub(crate) recipe: &'a Recipe,
    /// The id of the sandbox in which steps run.
    pub(crate) sandbox: &'a SandboxId,
    /// The names of the image.
    pub(crate) names: &'a [String],
    /// How long the sandbox lives if nothing deletes it.
    pub(crate) ttl: Duration,
    /// The id of the build.
    pub(crate) build: &'a str,
}

/// What later steps find besides files.
#[derive(Debug, Clone)]
struct Position {
    /// The variables that steps have set.
    env: BTreeMap<String, String>,
    /// The variables of steps that are not part of the image.
    args: BTreeMap<String, String>,
    /// Those of the base.
    base_env: BTreeMap<String, String>,
    /// Absolute.
    cwd: String,
    /// The user as a step named it; `None`: root.
    user: Option<String>,
}

impl Position {
    /// Replaces the variables of a text.
    fn expand(&self, text: &str, bytes_max: usize) -> Result<String, String> {
        let find = |name: &str| {
            let found = self.env.get(name).or_else(|| self.base_env.get(name));
            let found = found.or_else(|| self.args.get(name)).map(String::as_str);
            found.or_else(|| (name == "PATH").then_some(PATH))
        };
        expand(text, bytes_max, &find)
    }

    /// A path from the working directory, absolute and without `.` and `..`.
    fn absolute(&self, path: &str) -> Result<String, String> {
        let path = absolute_path(&self.cwd, path);
        if path.len() > PATH_BYTES_MAX {
            return Err(format!("a path has at most {PATH_BYTES_MAX} bytes"));
        }
        Ok(path)
    }

    /// Applies a step that changes no files.
    fn apply(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Env(all) => {
                // Variables of the same step have the values from before it.
                let mut left = ENV_BYTES_MAX;
                let mut expanded = Vec::with_capacity(all.len());
                for (name, value) in all {
                    let value = self.expand(value, left)?;
                    left -= value.len();
                    expanded.push((name.clone(), value));
                }
                self.env.extend(expanded);
            }
            Action::Arg(name, value) => {
                let value = self.expand(value, ENV_BYTES_MAX)?;
                self.args.insert(name.clone(), value);
            }
            Action::Workdir(path) => {
                self.cwd = self.absolute(&self.expand(path, PATH_BYTES_MAX)?)?;
            }
            Action::User(user) => self.user = Some(self.expand(user, ACCOUNT_BYTES_MAX)?),
            Action::Copy(_) | Action::Run(_) => {}
        }
        let bytes: usize =
            self.env.iter().chain(&self.args).map(|(k, v)| k.len() + v.len() + 2).sum();
        if bytes > ENV_BYTES_MAX {
            return Err(format!("variables have at most {ENV_BYTES_MAX} bytes together"));
        }
        Ok(())
    }
}

/// The result of all steps, which [`BuildRun::make_image`] makes an image of.
pub(crate) struct Prepared {
    base: FoundBase,
    position: Position,
    snapshot: SnapshotId,
}

impl BuildRun<'_> {
    /// Runs the steps. The caller deletes the sandbox.
    pub(crate) async fn prepare(&self) -> Result<Prepared, Failure> {
        let base = self.find_base().await.map_err(base_failed)?;
        let chain = ChainDigest::of(self.recipe, &base.digest, self.files.digests());
        let mut position = self.begin(&base);
        let found = self.find_cached(&chain);
        let done = found.as_ref().map_or(0, |found| found.steps);
        for (index, step) in self.recipe.steps[..done].iter().enumerate() {
            self.log.put(LogLevel::Info, Some(index), self.title("CACHED ", index, step));
            position.apply(&step.action).map_err(|reason| step_failed(index, reason))?;
        }
        let rest = &self.recipe.steps[done..];
        let found = found.map(|found| found.snapshot);
        let snapshot = match found {
            Some(found) if !rest.iter().any(|step| step.action.changes_files()) => {
                for (at, step) in rest.iter().enumerate() {
                    let index = done + at;
                    self.log.put(LogLevel::Info, Some(index), self.title("", index, step));
                    position.apply(&step.action).map_err(|reason| step_failed(index, reason))?;
                }
                found
            }
            found => self.run_steps(&base, &mut position, found, done, &chain).await?,
        };
        Ok(Prepared { base, position, snapshot })
    }

    /// Runs the steps behind the first `done` in the sandbox. Returns the snapshot after the last.
    async fn run_steps(
        &self,
        base: &FoundBase,
        position: &mut Position,
        from: Option<SnapshotId>,
        done: usize,
        chain: &[ChainDigest],
    ) -> Result<SnapshotId, Failure> {
        let rest = &self.recipe.steps[done..];
        let sandbox = self.create(base, from).await.map_err(base_failed)?;
        if done == 0 {
            self.make_begin(&sandbox, position).await.map_err(base_failed)?;
        }
        let last = rest.iter().rposition(|step| step.action.changes_files());
        let mut snapshot = None;
        for (at, step) in rest.iter().enumerate() {
            let index = done + at;
            self.log.put(LogLevel::Info, Some(index), self.title("", index, step));
            let run = self.step(&sandbox, position, index, step);
            run.await.map_err(|reason| step_failed(index, reason))?;
            if step.action.is_cached() || Some(at) == last {
                let keep = self.keep(&chain[index + 1]).await;
                let kept = keep.map_err(|error| step_failed(index, explain(&error)))?;
                snapshot = Some(kept).filter(|_| Some(at) == last);
            }
        }
        match snapshot {
            Some(snapshot) => Ok(snapshot),
            // No step has changed the files of the base.
            None => self.keep(&chain[done]).await.map_err(base_failed),
        }
    }

    fn begin(&self, base: &FoundBase) -> Position {
        let place = &self.recipe.begin;
        let cwd = base.cwd.clone().unwrap_or_else(|| "/".to_owned());
        Position {
            env: BTreeMap::new(),
            args: BTreeMap::new(),
            base_env: base.env.clone(),
            cwd: place.cwd.as_ref().map_or(cwd.clone(), |own| absolute_path(&cwd, own)),
            user: place.user.clone().or_else(|| base.user.clone()),
        }
    }

    /// Creates the directories that a build begins with.
    async fn make_begin(&self, sandbox: &Sandbox, position: &Position) -> Result<(), Error> {
        if let Accounts::Root(homes) = &self.recipe.accounts {
            for home in homes.values() {
                sandbox.file_mkdir(home.as_bytes()).await?;
            }
        }
        sandbox.file_mkdir(position.cwd.as_bytes()).await
    }

    /// The line of a step in the log.
    fn title(&self, before: &str, index: usize, step: &Step) -> String {
        format!("{before}[{}/{}] {}", index + 1, self.recipe.steps.len(), step.action)
    }

    async fn create(&self, base: &FoundBase, from: Option<SnapshotId>) -> Result<Sandbox, Error> {
        let snapshot = from.or_else(|| base.snapshot.clone());
        let spec = SandboxSpec {
            id: Some(self.sandbox.clone()),
            image: base.image.clone().filter(|_| snapshot.is_none()),
            snapshot,
            ttl_s: Some(self.ttl.as_secs()),
            sleep_after_s: Some(0),
            metadata: Some(cache::metadata(self.build)?),
            as_root: true,
            ..SandboxSpec::default()
        };
        self.service.create(self.tenant, spec, None).await?;
        self.service.reach(self.tenant, self.sandbox, Access::MustExist).await
    }

    /// Runs one step.
    async fn step(
        &self,
        sandbox: &Sandbox,
        position: &mut Position,
        index: usize,
        step: &Step,
    ) -> Result<(), String> {
        position.apply(&step.action)?;
        match &step.action {
            Action::Copy(copy) => self.copy(sandbox, position, index, copy).await,
            Action::Run(run) => self.program(sandbox, position, index, run).await,
            Action::Workdir(_) => {
                let made = sandbox.file_mkdir(position.cwd.as_bytes()).await;
                made.map_err(|error| explain(&error))
            }
            Action::User(_) => match &position.user {
                Some(user) => self.account(sandbox, user).await.map(drop),
                None => Ok(()),
            },
            Action::Env(_) | Action::Arg(..) => Ok(()),
        }
    }

    /// Makes the image, and returns its digest. Once this has begun, the image may appear at any time,
    /// also when the caller is dropped.
    pub(crate) async fn make_image(&self, prepared: Prepared) -> Result<String, Failure> {
        let failed = |error: Error| Failure { part: FailedPart::Image, reason: explain(&error) };
        self.commit(prepared).await.map_err(failed)
    }

    async fn commit(&self, prepared: Prepared) -> Result<String, Error> {
        let Prepared { base, position, snapshot } = prepared;
        self.log.put(LogLevel::Info, None, "making the image");
        let mut labels = base.labels;
        labels.extend(self.recipe.all_labels());
        if let Some(name) = &self.recipe.cwd_label {
            labels.insert(name.clone(), position.cwd.clone());
        }
        // Names that stand for root are no accounts of the image.
        let user = match &self.recipe.accounts {
            Accounts::Root(_) => Some("0:0".to_owned()),
            Accounts::OfImage => Some(position.user.unwrap_or_else(|| "0:0".to_owned())),
        };
        let cwd = Some(position.cwd);
        let mut names = self.names.iter().cloned();
        let spec = CommitSpec {
            snapshot,
            name: names.next().unwrap_or_default(),
            workspace: false,
            env: false,
            shells: false,
            changes: ImageChanges { env: position.env, cwd, user, labels },
            more_names: names.collect(),
        };
        let (info, _) = self.service.commit_image(self.tenant, spec, None).await?;
        for name in self.names {
            self.log.put(LogLevel::Info, None, format!("named {name}"));
        }
        Ok(info.image.digest)
    }
}

fn base_failed(error: Error) -> Failure {
    Failure { part: FailedPart::Base, reason: explain(&error) }
}

fn step_failed(index: usize, reason: String) -> Failure {
    Failure { part: FailedPart::Step(index), reason }
}

/// An error as the reason of a failed build.
pub(crate) fn explain(error: &Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position() -> Position {
        let base_env = BTreeMap::from([("HOME_DIR".to_owned(), "/srv".to_owned())]);
        let empty = BTreeMap::new;
        Position { env: empty(), args: empty(), base_env, cwd: "/app".to_owned(), user: None }
    }

    #[test]
    fn steps_that_change_no_files_move_the_position() {
        let mut at = position();
        let set = |name: &str, value: &str| Action::Env(vec![(name.to_owned(), value.to_owned())]);
        at.apply(&set("A", "$HOME_DIR/x")).unwrap();
        let both = vec![("A".to_owned(), "/srv/x".to_owned()), ("B".to_owned(), "$A/y".to_owned())];
        at.apply(&Action::Env(both)).unwrap();
        assert_eq!(at.env["B"], "/srv/x/y");
        at.apply(&Action::Env(vec![("PATH".into(), "/opt/bin:$PATH".into())])).unwrap();
        assert_eq!(at.env["PATH"], format!("/opt/bin:{PATH}"));
        at.apply(&Action::Workdir("sub/../other".into())).unwrap();
        assert_eq!(at.cwd, "/app/other");
        at.apply(&Action::Workdir("$A".into())).unwrap();
        assert_eq!(at.cwd, "/srv/x");
        at.apply(&Action::Workdir("../../../..".into())).unwrap();
        assert_eq!(at.cwd, "/");
        at.apply(&Action::User("${NAME:-node}".into())).unwrap();
        assert_eq!(at.user.as_deref(), Some("node"));
        at.apply(&Action::Arg("A".into(), "hidden".into())).unwrap();
        at.apply(&Action::Arg("V".into(), "1".into())).unwrap();
        assert_eq!(at.expand("$A-$V", 100).unwrap(), "/srv/x-1");
        assert!(!at.env.contains_key("V"));
    }

    #[test]
    fn variables_of_all_steps_together_have_a_limit() {
        let mut at = position();
        let large =
            |name: &str| Action::Env(vec![(name.to_owned(), "x".repeat(ENV_BYTES_MAX / 2))]);
        at.apply(&large("A")).unwrap();
        assert!(at.apply(&large("B")).unwrap_err().contains("at most"));
    }

    /// Each value is within the limit before its variables are replaced, and so are both steps.
    #[test]
    fn what_variables_stand_for_counts_before_it_exists() {
        let mut at = position();
        let set = |name: &str, value: String| Action::Env(vec![(name.to_owned(), value)]);
        at.apply(&set("A", "x".repeat(ENV_BYTES_MAX / 2))).unwrap();
        let many = "$A".repeat(ENV_BYTES_MAX / 3);
        assert!(at.apply(&set("B", many.clone())).unwrap_err().contains("expand to more"));
        assert!(at.apply(&Action::Arg("B".into(), many)).unwrap_err().contains("expand to more"));
        let each: Vec<(String, String)> =
            (0..1000).map(|number| (format!("V{number}"), "$A".to_owned())).collect();
        assert!(at.apply(&Action::Env(each)).unwrap_err().contains("expand to more"));
        assert!(at.apply(&Action::Workdir("$A".into())).unwrap_err().contains("expand to more"));
        assert!(at.apply(&Action::User("$A".into())).unwrap_err().contains("expand to more"));
        at.apply(&Action::Workdir("a".repeat(4000))).unwrap();
        assert!(at.apply(&Action::Workdir("b".repeat(200))).unwrap_err().contains("a path has"));
    }
}
