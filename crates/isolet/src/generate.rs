//! `isolet generate`: writes man pages and shell completions. The packages contain its output.

use crate::client::args::complete;
use anyhow::{Context, Result};
use clap::{Command, Parser, Subcommand};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `isolet generate`.
#[derive(Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Output,
}

#[derive(Subcommand)]
enum Output {
    /// Write a man page for each command.
    Man {
        /// Write into this directory
        dir: PathBuf,
    },
    /// Write completions for bash, zsh and fish.
    Completions {
        /// Write into this directory
        dir: PathBuf,
    },
}

/// Writes the files for `command`, the whole command line of this program.
pub(crate) fn run(args: &Args, command: &Command) -> Result<ExitCode> {
    match &args.what {
        Output::Man { dir } => man_pages(command, dir),
        Output::Completions { dir } => completions(dir),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn man_pages(command: &Command, dir: &Path) -> Result<()> {
    create(dir)?;
    clap_mangen::generate_to(visible(command), dir)
        .with_context(|| format!("cannot write man pages to {}", dir.display()))
}

fn completions(dir: &Path) -> Result<()> {
    create(dir)?;
    for (shell, file) in [("bash", "isolet.bash"), ("zsh", "_isolet"), ("fish", "isolet.fish")] {
        let file = dir.join(file);
        fs::write(&file, complete::script(shell)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn create(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}

/// The command without its hidden subcommands.
fn visible(command: &Command) -> Command {
    let mut visible = Command::new("isolet").version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(examples) = command.get_after_help() {
        visible = visible.after_help(examples.clone());
    }
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    visible.subcommands(shown.cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn man_pages_and_completions_cover_the_visible_commands() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = Command::new("hidden").hide(true);
        let list = Command::new("ls").about("List things");
        let command = Command::new("isolet").subcommands([hidden, list]);
        man_pages(&command, dir.path()).unwrap();
        completions(dir.path()).unwrap();
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.contains("help"))
            .collect();
        names.sort();
        assert_eq!(names, ["_isolet", "isolet-ls.1", "isolet.1", "isolet.bash", "isolet.fish"]);
        let bash = fs::read_to_string(dir.path().join("isolet.bash")).unwrap();
        assert!(bash.contains(complete::VARIABLE), "{bash}");
    }
}
