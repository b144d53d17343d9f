//! The help of the program: its commands in groups, by what they are for.

use clap::builder::StyledStr;
use clap::{Command, CommandFactory};
use std::fmt::Write as _;

/// The commands in the order of the help. A test checks that no command is missing.
const GROUPS: [(&str, &str); 6] = [
    ("Sandboxes", "create ls info stats rm sleep wake pause resume fork snapshot recover"),
    (
        "Work in a sandbox",
        "exec shell attach terminals sessions start ps logs kill cp network forward",
    ),
    ("Images, events and agents", "image webhooks mcp"),
    (
        "The server, on its machine",
        "serve doctor keys audit log-level backup restore store teardown",
    ),
    ("Fleets of servers", "node cluster move"),
    ("Others", "completions"),
];
const HELP: (&str, &str) = ("help", "Print this message or the help of the given command");

/// The command line of `C`, whose help lists the commands in groups.
pub(crate) fn grouped<C: CommandFactory>() -> Command {
    let command = C::command();
    let template = template(&command);
    command.help_template(template)
}

fn template(command: &Command) -> StyledStr {
    let styles = command.get_styles();
    let header = styles.get_header();
    let literal = styles.get_literal();
    let mut commands = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(commands, "\n{header}{title}:{header:#}");
        let found = names.split(' ').filter_map(|name| command.find_subcommand(name));
        let mut lines: Vec<(String, String)> = found
            .map(|one| {
                let about = one.get_about().map(ToString::to_string).unwrap_or_default();
                (one.get_name().to_owned(), about.trim_end_matches('.').to_owned())
            })
            .collect();
        if names == "completions" {
            lines.push((HELP.0.to_owned(), HELP.1.to_owned()));
        }
        for (name, about) in lines {
            let _ = writeln!(commands, "  {literal}{name:<11}{literal:#}  {about}");
        }
    }
    let text = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{commands}\n\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    StyledStr::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group() {
        let all: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.split(' ')).collect();
        let listed: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(listed.len(), all.len(), "one is listed twice");
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        assert_eq!(listed, shown.map(Command::get_name).collect());
    }

    #[test]
    fn the_help_has_the_commands_and_the_options() {
        let help = grouped::<Cli>().render_help().to_string();
        for part in [
            "Usage: isolet [OPTIONS] <COMMAND>",
            "\nSandboxes:\n  create       Create",
            "--ca <FILE>",
        ] {
            assert!(help.contains(part), "{part}: {help}");
        }
        let commands = help.split("\nOptions:\n").next().unwrap();
        for line in commands.lines() {
            assert!(line.chars().count() <= 110, "a line is too long: {line}");
        }
    }
}
