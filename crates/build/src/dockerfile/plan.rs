//! From the instructions of a Dockerfile to steps.

use super::DockerfileError;
use super::lines::Instruction;
use super::words::{shell_quoted, split};
use crate::archive::copy::Pattern;
use crate::expand::expand;
use crate::recipe::{Action, RunProgram, RunStep};
use std::collections::BTreeMap;

/// Maximum size of one word of an instruction after its variables are replaced, in bytes.
const EXPANDED_BYTES_MAX: usize = 1024 * 1024;

/// What a Dockerfile says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The image of `FROM`.
    pub base: String,
    /// The steps, each with the line of its instruction.
    pub steps: Vec<(usize, PlannedStep)>,
    /// The labels of `LABEL`.
    pub labels: BTreeMap<String, String>,
    /// The command line of `ENTRYPOINT` and `CMD`.
    pub start: Option<String>,
    /// What is left out.
    pub warnings: Vec<Warning>,
}

/// A step of a Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedStep {
    /// Copies files of the context.
    Copy {
        /// A path or pattern, relative to the context.
        source: String,
        /// Where to.
        dest: String,
        /// The owner as `user` or `user:group`.
        owner: Option<String>,
        /// The permissions.
        mode: Option<u32>,
    },
    /// Anything else.
    Other(Action),
}

/// An instruction that is left out, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The line of the instruction, from 1.
    pub line: usize,
    /// What is left out, for people.
    pub text: String,
}

/// The state while a Dockerfile is read.
struct Planner<'a> {
    plan: Plan,
    given: &'a BTreeMap<String, String>,
    /// The values of `ARG` and `ENV`, as far as the base does not matter.
    known: BTreeMap<String, String>,
    /// The values of `ARG` before `FROM`.
    globals: BTreeMap<String, String>,
    has_base: bool,
    entrypoint: Option<CommandForm>,
    cmd: Option<CommandForm>,
}

/// The two forms of a command.
enum CommandForm {
    Shell(String),
    Exec(Vec<String>),
}

type Planned = Result<(), String>;

pub(super) fn plan(
    all: Vec<Instruction>,
    given: &BTreeMap<String, String>,
) -> Result<Plan, DockerfileError> {
    let mut planner = Planner {
        plan: Plan::default(),
        given,
        known: BTreeMap::new(),
        globals: BTreeMap::new(),
        has_base: false,
        entrypoint: None,
        cmd: None,
    };
    let last = all.last().map_or(1, |one| one.line);
    for one in &all {
        let named =
            |reason: String| DockerfileError::new(one.line, format!("{}: {reason}", one.name));
        planner.instruction(one).map_err(named)?;
    }
    if !planner.has_base {
        return Err(DockerfileError::new(last, "there is no FROM"));
    }
    planner.plan.start = planner.start();
    Ok(planner.plan)
}

impl Planner<'_> {
    fn instruction(&mut self, one: &Instruction) -> Planned {
        if !self.has_base && !matches!(one.name.as_str(), "FROM" | "ARG") {
            return Err("must come after FROM".to_owned());
        }
        let rest = one.rest.as_str();
        if rest.is_empty() {
            return Err("needs an argument".to_owned());
        }
        match one.name.as_str() {
            "FROM" => self.from(rest),
            "ARG" => self.arg(one.line, rest),
            "RUN" => self.run(one),
            "COPY" => self.copy(one, false),
            "ADD" => self.copy(one, true),
            "ENV" => self.env(one.line, rest),
            "LABEL" => self.label(rest),
            "WORKDIR" => self.push(one.line, Action::Workdir(single(rest)?)),
            "USER" => self.push(one.line, Action::User(single(rest)?)),
            "CMD" => {
                self.cmd = Some(command(rest)?);
                Ok(())
            }
            "ENTRYPOINT" => {
                self.entrypoint = Some(command(rest)?);
                Ok(())
            }
            "EXPOSE" => {
                self.warn(one.line, "EXPOSE is ignored: every port of a sandbox can be reached");
                Ok(())
            }
            _ => Err("this instruction is not supported".to_owned()),
        }
    }

    fn push(&mut self, line: usize, action: Action) -> Planned {
        self.plan.steps.push((line, PlannedStep::Other(action)));
        Ok(())
    }

    fn warn(&mut self, line: usize, text: &str) {
        self.plan.warnings.push(Warning { line, text: text.to_owned() });
    }

    /// Replaces the variables that the Dockerfile itself gives.
    fn known(&self, text: &str) -> Result<String, String> {
        expand(text, EXPANDED_BYTES_MAX, &|name| self.known.get(name).map(String::as_str))
    }

    fn from(&mut self, rest: &str) -> Planned {
        if self.has_base {
            return Err("builds with several stages are not supported".to_owned());
        }
        let words = split(rest)?;
        let words = words.iter().map(|word| self.known(word));
        let words: Vec<String> = words.collect::<Result<_, _>>()?;
        let base = match &words[..] {
            [flag, ..] if flag.starts_with("--") => {
                return Err(format!("the flag {flag} is not supported"));
            }
            [base] => base,
            [base, word, _] if word.eq_ignore_ascii_case("as") => base,
            _ => return Err("expected IMAGE or IMAGE AS NAME".to_owned()),
        };
        match base.as_str() {
            "" => return Err("the name of the image is empty".to_owned()),
            "scratch" => return Err("an image from nothing has no shell to run steps".to_owned()),
            base => self.plan.base = base.to_owned(),
        }
        self.has_base = true;
        // Arguments before FROM are for FROM, and defaults of later ones without a value.
        self.globals = std::mem::take(&mut self.known);
        Ok(())
    }

    fn arg(&mut self, line: usize, rest: &str) -> Planned {
        for word in split(rest)? {
            let (name, default) = match word.split_once('=') {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (word.as_str(), None),
            };
            if name.is_empty() {
                return Err("expected NAME or NAME=VALUE".to_owned());
            }
            // A given value is plain text.
            let given = self.given.get(name).map(|value| escaped(value));
            let global = || self.globals.get(name).map(|value| escaped(value));
            let Some(value) = given.or(default).or_else(global) else { continue };
            let known = self.known(&value)?;
            self.known.insert(name.to_owned(), known);
            if self.has_base {
                self.push(line, Action::Arg(name.to_owned(), value))?;
            }
        }
        Ok(())
    }

    fn env(&mut self, line: usize, rest: &str) -> Planned {
        let all = pairs(rest)?;
        let known = all.iter().map(|(name, value)| Ok((name.clone(), self.known(value)?)));
        let known: Vec<(String, String)> = known.collect::<Result<_, String>>()?;
        self.known.extend(known);
        self.push(line, Action::Env(all))
    }

    fn label(&mut self, rest: &str) -> Planned {
        for (name, value) in pairs(rest)? {
            let value = self.known(&value)?;
            self.plan.labels.insert(self.known(&name)?, value);
        }
        Ok(())
    }

    fn run(&mut self, one: &Instruction) -> Planned {
        let rest = one.rest.as_str();
        if rest.starts_with("--") {
            let flag = rest.split([' ', '=']).next().unwrap_or_default();
            return Err(format!("the flag {flag} is not supported"));
        }
        let program = match (&one.document, command(rest)?) {
            (None, CommandForm::Exec(words)) => RunProgram::Argv(words),
            (None, CommandForm::Shell(text)) => RunProgram::Command(text),
            (Some(document), _) => {
                let is_script = rest.starts_with("<<") && !rest.contains(char::is_whitespace);
                RunProgram::Command(match is_script {
                    true => document.text.clone(),
                    false => format!("{rest}\n{}{}\n", document.text, document.delimiter),
                })
            }
        };
        self.push(one.line, Action::Run(RunStep { program, user: None }))
    }

    fn copy(&mut self, one: &Instruction, adds: bool) -> Planned {
        let mut owner = None;
        let mut mode = None;
        let mut rest = one.rest.as_str();
        while rest.starts_with("--") {
            let (flag, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            rest = after.trim_start();
            match flag.split_once('=').unwrap_or((flag, "")) {
                ("--chown", value) => {
                    owner = Some(self.known(value)?).filter(|own| !own.is_empty())
                }
                ("--chmod", value) => {
                    let bits = u32::from_str_radix(value, 8).ok().filter(|bits| *bits <= 0o7777);
                    let bits = bits.ok_or_else(|| format!("{flag} must be an octal number"))?;
                    mode = Some(bits);
                }
                ("--link", _) => self.warn(one.line, "--link is ignored: it changes no result"),
                ("--from", _) => {
                    return Err("--from is not supported: there is one stage only".to_owned());
                }
                (name, _) => return Err(format!("the flag {name} is not supported")),
            }
        }
        if rest.starts_with("<<") {
            return Err("here-documents are supported for RUN only".to_owned());
        }
        let mut words = match command(rest)? {
            CommandForm::Exec(words) => words,
            CommandForm::Shell(text) => split(&text)?,
        };
        let dest = words.pop().filter(|_| !words.is_empty());
        let dest = dest.ok_or("expected SOURCE… DESTINATION")?;
        if words.len() > 1 && !dest.ends_with('/') {
            return Err("with several sources the destination must end with /".to_owned());
        }
        for source in words {
            let source = self.known(&source)?;
            if adds {
                check_added(&source)?;
            }
            Pattern::parse(&source)?;
            let step = PlannedStep::Copy { source, dest: dest.clone(), owner: owner.clone(), mode };
            self.plan.steps.push((one.line, step));
        }
        Ok(())
    }

    /// The command line of `ENTRYPOINT` with `CMD` as its arguments.
    fn start(&mut self) -> Option<String> {
        let line = |form: CommandForm| match form {
            CommandForm::Shell(text) => text,
            CommandForm::Exec(words) => {
                let words: Vec<String> = words.iter().map(|word| shell_quoted(word)).collect();
                words.join(" ")
            }
        };
        match (self.entrypoint.take(), self.cmd.take()) {
            (Some(entry @ CommandForm::Exec(_)), Some(cmd @ CommandForm::Exec(_))) => {
                Some(format!("{} {}", line(entry), line(cmd)))
            }
            (Some(entry), _) => Some(line(entry)),
            (None, cmd) => cmd.map(line),
        }
    }
}

/// Refuses what `ADD` does and `COPY` does not.
fn check_added(source: &str) -> Planned {
    if source.contains("://") || source.starts_with("git@") {
        return Err(format!("{source} is not a local file; download it with RUN"));
    }
    let ends = [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst"];
    if ends.iter().any(|end| source.ends_with(end)) {
        return Err(format!(
            "{source} would be unpacked, which is not supported; use COPY and RUN tar"
        ));
    }
    Ok(())
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('$', "\\$")
}

/// The only word of an instruction, which may contain spaces.
fn single(rest: &str) -> Result<String, String> {
    Ok(split(rest)?.join(" "))
}

/// `NAME=VALUE …`, or `NAME VALUE` with a value up to the end of the line.
fn pairs(rest: &str) -> Result<Vec<(String, String)>, String> {
    let words = split(rest)?;
    let first = words.first().ok_or("expected NAME=VALUE")?;
    if !first.contains('=') {
        let value = rest.trim_start().split_once(char::is_whitespace);
        let (name, value) = value.ok_or("expected NAME=VALUE")?;
        return Ok(vec![(name.to_owned(), single(value.trim())?)]);
    }
    words
        .iter()
        .map(|word| match word.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(format!("{word:?} is not NAME=VALUE")),
        })
        .collect()
}

/// A command in one of its forms.
fn command(rest: &str) -> Result<CommandForm, String> {
    if !rest.starts_with('[') {
        return Ok(CommandForm::Shell(rest.to_owned()));
    }
    match serde_json::from_str::<Vec<String>>(rest) {
        Ok(words) if words.is_empty() => Err("the list is empty".to_owned()),
        Ok(words) => Ok(CommandForm::Exec(words)),
        // As everywhere, a list that is no JSON is a text for a shell, such as `[ -f a ] || exit 1`.
        Err(_) => Ok(CommandForm::Shell(rest.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;
    use proptest::prelude::*;

    fn planned(text: &str) -> Plan {
        read(text, &BTreeMap::from([("GIVEN".to_owned(), "a$b".to_owned())])).unwrap()
    }

    fn refused(text: &str) -> String {
        read(text, &BTreeMap::new()).unwrap_err().to_string()
    }

    fn run(text: &str) -> PlannedStep {
        let program = RunProgram::Command(text.to_owned());
        PlannedStep::Other(Action::Run(RunStep { program, user: None }))
    }

    #[test]
    fn a_dockerfile_becomes_steps() {
        let plan = planned(
            "ARG TAG=1\nFROM base:${TAG} AS main\nWORKDIR /app\nCOPY --chown=node:node --chmod=640 a b /app/\nRUN make\n\
             ENV A=1 B='$x'\nENV C two words\nLABEL k=v\nUSER node\nENTRYPOINT [\"serve\", \"it's\"]\nCMD [\"-p\", \"80\"]\nEXPOSE 80\n",
        );
        assert_eq!(plan.base, "base:1");
        let copy = |source: &str| PlannedStep::Copy {
            source: source.to_owned(),
            dest: "/app/".to_owned(),
            owner: Some("node:node".to_owned()),
            mode: Some(0o640),
        };
        let env = |all: &[(&str, &str)]| {
            let all = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            PlannedStep::Other(Action::Env(all.collect()))
        };
        let expected = vec![
            (3, PlannedStep::Other(Action::Workdir("/app".to_owned()))),
            (4, copy("a")),
            (4, copy("b")),
            (5, run("make")),
            (6, env(&[("A", "1"), ("B", "\\$x")])),
            (7, env(&[("C", "two words")])),
            (9, PlannedStep::Other(Action::User("node".to_owned()))),
        ];
        assert_eq!(plan.steps, expected);
        assert_eq!(plan.labels["k"], "v");
        assert_eq!(plan.start.as_deref(), Some("serve 'it'\\''s' -p 80"));
        assert_eq!(plan.warnings[0].line, 12);
    }

    #[test]
    fn arguments_have_defaults_and_given_values() {
        let plan = planned("FROM a\nARG GIVEN=x\nARG V=$GIVEN-1\nARG NONE\nCOPY $V /d\n");
        let arg = |name: &str, value: &str| {
            PlannedStep::Other(Action::Arg(name.to_owned(), value.to_owned()))
        };
        assert_eq!(plan.steps[0].1, arg("GIVEN", "a\\$b"));
        assert_eq!(plan.steps[1].1, arg("V", "$GIVEN-1"));
        assert!(matches!(&plan.steps[2].1, PlannedStep::Copy { source, .. } if source == "a$b-1"));
    }

    #[test]
    fn an_argument_before_from_is_the_default_of_one_after_it() {
        let plan = planned("ARG V=a$b\nARG GIVEN=no\nFROM x:$V\nARG V\nARG GIVEN\nCOPY $V /d\n");
        let arg = |name: &str, value: &str| {
            PlannedStep::Other(Action::Arg(name.to_owned(), value.to_owned()))
        };
        assert_eq!(plan.base, "x:a");
        assert_eq!(plan.steps[0].1, arg("V", "a"));
        assert_eq!(plan.steps[1].1, arg("GIVEN", "a\\$b"));
        assert!(matches!(&plan.steps[2].1, PlannedStep::Copy { source, .. } if source == "a"));
        // It is not known after FROM without an ARG of its own.
        let plan = planned("ARG V=1\nFROM x\nCOPY a$V /d\n");
        assert!(matches!(&plan.steps[0].1, PlannedStep::Copy { source, .. } if source == "a"));
    }

    #[test]
    fn run_has_three_forms() {
        let plan = planned(
            "FROM a\nRUN [\"x\", \"y z\"]\nRUN [ -f x ] || true\nRUN <<E\na\nb\nE\nRUN cat <<E >f\na\nE\n",
        );
        let words = vec!["x".to_owned(), "y z".to_owned()];
        let exec = RunStep { program: RunProgram::Argv(words), user: None };
        assert_eq!(plan.steps[0].1, PlannedStep::Other(Action::Run(exec)));
        assert_eq!(plan.steps[1].1, run("[ -f x ] || true"));
        assert_eq!(plan.steps[2].1, run("a\nb\n"));
        assert_eq!(plan.steps[3].1, run("cat <<E >f\na\nE\n"));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_line_and_name() {
        for (text, expected) in [
            ("", "line 1: there is no FROM"),
            ("RUN a\nFROM b", "line 1: RUN: must come after FROM"),
            ("FROM a\nFROM b", "line 2: FROM: builds with several stages"),
            ("FROM scratch", "line 1: FROM: an image from nothing"),
            ("FROM --platform=x a", "line 1: FROM: the flag --platform=x"),
            ("FROM a\nVOLUME /x", "line 2: VOLUME: this instruction is not supported"),
            ("FROM a\nHEALTHCHECK NONE", "line 2: HEALTHCHECK: this instruction"),
            ("FROM a\n\nRUN --mount=type=cache x", "line 3: RUN: the flag --mount"),
            ("FROM a\nCOPY --from=b c d", "line 2: COPY: --from is not supported"),
            ("FROM a\nCOPY a", "line 2: COPY: expected SOURCE"),
            ("FROM a\nCOPY a b c", "line 2: COPY: with several sources"),
            ("FROM a\nCOPY ../a b", "line 2: COPY: source: \"../a\" lies outside"),
            ("FROM a\nCOPY <<E b", "line 2: COPY: here-documents"),
            ("FROM a\nADD https://x/y /z", "line 2: ADD: https://x/y is not a local file"),
            ("FROM a\nADD a.tar.gz /z", "line 2: ADD: a.tar.gz would be unpacked"),
            ("FROM a\nCOPY --chmod=x a b", "line 2: COPY: --chmod=x must be an octal number"),
            ("FROM a\nENV A", "line 2: ENV: expected NAME=VALUE"),
            ("FROM a\nRUN", "line 2: RUN: needs an argument"),
            ("FROM a\nSHELL [\"x\"]", "line 2: SHELL: this instruction"),
        ] {
            let said = refused(text);
            assert!(said.starts_with(expected), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(FROM|RUN|COPY|ENV|ARG|ADD|LABEL|CMD)? ?[ -~\\n]{0,60}") {
            let _ = read(&format!("FROM a\n{text}"), &BTreeMap::new());
            let _ = read(&text, &BTreeMap::new());
        }
    }
}
