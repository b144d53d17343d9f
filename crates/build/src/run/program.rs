//! Steps that run a program.

use super::accounts::Account;
use super::output::Output;
use super::{BuildRun, Position, explain};
use crate::build_log::BuildLog;
use crate::recipe::{RunProgram, RunStep};
use isolet_sandbox::{
    AgentEvent, Argv, CommandText, EnvironmentChange, Error, Program, ProgramSpec, Sandbox,
    WorkingDirectory,
};
use isolet_wire::frame::DataFrame;
use isolet_wire::response::{AgentResponse, CommandExit};
use std::collections::BTreeMap;

/// What is wrong with a data frame without a head.
const TORN: &str = "the agent of the sandbox sent output that cannot be read";

impl BuildRun<'_> {
    /// Runs a program, and fails with the last lines of its output.
    pub(super) async fn program(
        &self,
        sandbox: &Sandbox,
        position: &Position,
        index: usize,
        run: &RunStep,
    ) -> Result<(), String> {
        let user = run.user.as_deref().or(position.user.as_deref());
        let account = match user {
            Some(user) => self.account(sandbox, user).await?,
            None => Account::root(),
        };
        if account.uid != account.gid {
            return Err(format!(
                "the user {:?} has the id {} and its group {}; programs of a build run only as users whose ids are equal",
                account.name, account.uid, account.gid
            ));
        }
        let spec = ProgramSpec {
            program: match &run.program {
                RunProgram::Command(text) => {
                    let text = CommandText::parse(text.clone());
                    Program::Command(text.map_err(|error| error.to_string())?)
                }
                RunProgram::Argv(words) => {
                    let words = Argv::parse(words.clone());
                    Program::Argv(words.map_err(|error| error.to_string())?)
                }
            },
            cwd: WorkingDirectory::parse(position.cwd.clone()).ok(),
            env: environment(position, &account)?,
            session: None,
            stdin: false,
            timeout_ms: 0,
        };
        let mut output = Output::new(self.log, index);
        let done = follow(sandbox, spec, account.uid, &mut output).await;
        let tail = output.finish();
        let exit = done.map_err(|error| explain(&error))?;
        verdict(&run.program, &exit, &tail)
    }
}

/// Runs a program as root whose output is only of interest if it fails.
pub(super) async fn quiet(sandbox: &Sandbox, words: Vec<String>) -> Result<(), String> {
    let program = RunProgram::Argv(words.clone());
    let words = Argv::parse(words).map_err(|error| error.to_string())?;
    let spec = ProgramSpec {
        program: Program::Argv(words),
        cwd: WorkingDirectory::parse("/".to_owned()).ok(),
        ..ProgramSpec::default()
    };
    let log = BuildLog::default();
    let mut output = Output::new(&log, 0);
    let done = follow(sandbox, spec, 0, &mut output).await;
    let tail = output.finish();
    verdict(&program, &done.map_err(|error| explain(&error))?, &tail)
}

/// Follows a program to its end. It is killed when this is dropped.
async fn follow(
    sandbox: &Sandbox,
    spec: ProgramSpec,
    uid: u32,
    output: &mut Output<'_>,
) -> Result<CommandExit, Error> {
    let mut connection = sandbox.exec_as(spec, uid).await?;
    loop {
        match connection.next().await? {
            AgentEvent::Data(body) => {
                let frame = DataFrame::parse(body).map_err(|_| Error::Fault(TORN.to_owned()))?;
                output.write(frame.stream, &frame.bytes);
            }
            AgentEvent::Response(AgentResponse::Exit(exit)) => {
                connection.park();
                return Ok(exit);
            }
            AgentEvent::Response(AgentResponse::Refused { reason, message, .. }) => {
                return Err(Error::Refused { reason, message });
            }
            AgentEvent::Response(_) => {}
        }
    }
}

fn environment(position: &Position, account: &Account) -> Result<EnvironmentChange, String> {
    let mut all: BTreeMap<String, Option<String>> = BTreeMap::new();
    let own =
        [("HOME", &account.home), ("USER", &account.name), ("LOGNAME", &account.name)].into_iter();
    all.extend(own.map(|(name, value)| (name.to_owned(), Some(value.clone()))));
    let args = position.args.iter().filter(|(name, _)| !position.base_env.contains_key(*name));
    let set = args.chain(&position.env);
    all.extend(set.map(|(name, value)| (name.clone(), Some(value.clone()))));
    EnvironmentChange::parse(all).map_err(|error| error.to_string())
}

/// Whether a program succeeded.
fn verdict(program: &RunProgram, exit: &CommandExit, tail: &str) -> Result<(), String> {
    if exit.code == 0 && exit.signal.is_none() {
        return Ok(());
    }
    let text = match program {
        RunProgram::Command(text) => text.clone(),
        RunProgram::Argv(words) => words.join(" "),
    };
    let text: String = text.chars().take(200).collect();
    let mut reason = format!("failed to run command '{text}': ");
    if exit.oom {
        reason.push_str("the sandbox had too little memory");
    } else if let Some(signal) = exit.signal {
        reason.push_str(&format!("signal {signal} ended it"));
    } else {
        reason.push_str(&format!("exit status {}", exit.code));
    }
    if !tail.is_empty() {
        reason.push_str(&format!("\n{tail}"));
    }
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_ran_how_it_ended_and_what_it_wrote() {
        let program = RunProgram::Command("make".to_owned());
        let exit = |code, signal, oom| CommandExit { code, signal, oom, ..CommandExit::default() };
        assert!(verdict(&program, &exit(0, None, false), "").is_ok());
        let said = verdict(&program, &exit(2, None, false), "no rule").unwrap_err();
        assert_eq!(said, "failed to run command 'make': exit status 2\nno rule");
        let said = verdict(&program, &exit(137, Some(9), true), "").unwrap_err();
        assert!(said.ends_with("too little memory"), "{said}");
        let said = verdict(&program, &exit(143, Some(15), false), "").unwrap_err();
        assert!(said.ends_with("signal 15 ended it"), "{said}");
    }
}
