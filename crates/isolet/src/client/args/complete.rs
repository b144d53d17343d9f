//! Completion by the shell: ids come from the server. `isolet completions` prints the script for a shell,
//! and the script runs this program with [`VARIABLE`] set.

use crate::client::ApiClient;
use crate::client::output::write;
use anyhow::{Context, Result};
use clap::builder::StyledStr;
use clap::{Parser, ValueEnum};
use clap_complete::engine::ValueCompleter;
use clap_complete::env::Shells;
use clap_complete::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter};
use hyper::Method;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

/// The variable that asks this program for completions.
pub(crate) const VARIABLE: &str = "ISOLET_COMPLETE";

/// How long the server may take. A shell waits for the answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(1);

/// Arguments of `isolet completions`.
#[derive(Parser)]
#[command(after_help = "\
The script completes commands, options, and the ids of sandboxes, sessions and processes, which it asks
the server for. The packages install it; otherwise add the line for your shell to its startup file:

  source <(isolet completions bash)                                       in ~/.bashrc
  source <(isolet completions zsh)                                        in ~/.zshrc, after compinit
  isolet completions fish >~/.config/fish/completions/isolet.fish         once")]
pub(crate) struct Args {
    /// Shell to complete in
    shell: Shell,
}

/// A shell that has completions.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash
    Bash,
    /// The Z shell
    Zsh,
    /// fish
    Fish,
    /// Elvish
    Elvish,
}

/// Prints the script for a shell.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let shell = args.shell.to_possible_value().context("every shell has a name")?;
    write(true, &script(shell.get_name())?)?;
    Ok(ExitCode::SUCCESS)
}

/// The script for a shell. It finds this program by its name.
pub(crate) fn script(shell: &str) -> Result<Vec<u8>> {
    let shells = Shells::builtins();
    let shell = shells.completer(shell).with_context(|| format!("unknown shell {shell}"))?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "isolet", "isolet", "isolet", &mut script)?;
    Ok(script)
}

/// Completes the id of a sandbox.
pub(crate) fn sandboxes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates("/v1/sandboxes?limit=1000", "id", "state"))
}

/// Completes the id of a session of the sandbox that the command line names.
pub(crate) fn sessions() -> ArgValueCandidates {
    ArgValueCandidates::new(|| of_sandbox("sessions", "cwd"))
}

/// Completes the id of a process of the sandbox that the command line names.
pub(crate) fn processes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| of_sandbox("processes", "status"))
}

/// Completes a path for `cp`: of this machine, or of a sandbox.
pub(crate) fn copied() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = PathCompleter::any().complete(current);
        let typed = current.to_string_lossy();
        if !typed.contains(['/', ':']) {
            let all = candidates("/v1/sandboxes?limit=1000", "id", "state").into_iter();
            let ids = all.map(|one| suffixed(&one));
            found.extend(ids.filter(|one| one.get_value().to_string_lossy().starts_with(&*typed)));
        }
        found
    })
}

/// The id of a sandbox, with the colon before its path.
fn suffixed(id: &CompletionCandidate) -> CompletionCandidate {
    let mut text = OsString::from(id.get_value());
    text.push(":");
    CompletionCandidate::new(text).help(id.get_help().cloned())
}

/// Completes the id of a snapshot.
pub(crate) fn snapshots() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates("/v1/snapshots", "id", "name"))
}

fn of_sandbox(list: &str, about: &str) -> Vec<CompletionCandidate> {
    let all = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = all.skip_while(|word| word != "--").skip(1).collect();
    match sandbox_in(&words) {
        Some(id) => candidates(&format!("/v1/sandboxes/{id}/{list}"), "id", about),
        None => Vec::new(),
    }
}

/// The first word behind the program and the command that is the id of a sandbox and no option.
fn sandbox_in(words: &[String]) -> Option<&str> {
    let word = words.iter().skip(2).find(|word| !word.starts_with('-'))?;
    crate::client::id(word).ok().map(|_| word.as_str())
}

/// The entries of a list. Without a server or a key there are none: an error would appear amid what a person
/// types.
fn candidates(path: &str, name: &str, about: &str) -> Vec<CompletionCandidate> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let list = runtime.block_on(async {
        let server = ApiClient::find().ok()?;
        let answer = tokio::time::timeout(SERVER_TIMEOUT, server.json(Method::GET, path));
        Some(answer.await.ok()?.ok()?.0)
    });
    let list = list.unwrap_or_default();
    let entries = match &list {
        Value::Object(fields) => fields.values().find_map(Value::as_array),
        other => other.as_array(),
    };
    let described = |entry: &Value| {
        let help = entry[about]
            .as_str()
            .map(|help| StyledStr::from(crate::client::output::sanitize(help)));
        // A server's text never reaches the shell unchecked: ids and names have no other characters.
        let id = crate::client::id(entry[name].as_str()?).ok()?;
        Some(CompletionCandidate::new(id).help(help))
    };
    entries.into_iter().flatten().filter_map(described).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_is_the_first_word_behind_the_command() {
        let found = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            sandbox_in(&words).map(str::to_owned)
        };
        assert_eq!(found("isolet logs demo "), Some("demo".to_owned()));
        assert_eq!(found("isolet logs --follow demo w"), Some("demo".to_owned()));
        assert_eq!(found("isolet logs"), None);
        assert_eq!(found("isolet logs a/b"), None);
    }

    #[test]
    fn scripts_run_this_program_by_its_name() {
        for shell in ["bash", "zsh", "fish", "elvish"] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(script.contains("isolet") && script.contains(VARIABLE), "{shell}: {script}");
        }
        assert!(script("tcsh").is_err());
    }
}
