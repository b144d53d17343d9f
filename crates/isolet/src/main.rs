//! The program `isolet`: the server and the client commands.
#![forbid(unsafe_code)]

mod admin;
mod audit;
mod backup;
mod client;
mod cluster;
mod config;
mod doctor;
mod generate;
mod keys;
mod log_level;
mod logging;
mod node;
mod restore;
mod serve;
mod store;
mod teardown;
mod telemetry;
mod tls;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::env::CompleteEnv;
use std::path::PathBuf;
use std::process::ExitCode;

/// Sandboxes with persistent shells, for AI agents
#[derive(Parser)]
#[command(
    version,
    after_help = "\
A first session:
  isolet doctor                             check this machine (as root)
  isolet serve                              start the server (as root, on Linux)
  isolet attach demo                        open a terminal in the sandbox `demo`, which is created
  isolet shell demo                         open a shell for commands
  isolet exec demo 'echo $HOME; ls'         run a command line, exit with its exit code
  isolet exec demo ls -la                   run a program with its arguments
  isolet exec demo --session dev 'cd /tmp'  a session keeps directory and variables between commands
  isolet cp project demo:                   copy a directory to /workspace
  isolet start demo --id web 'npm start'    start a program in the background
  isolet logs demo web --follow             follow its output
  isolet ls                                 list sandboxes
  isolet stats                              show what they use
  isolet rm demo                            delete the sandbox

The commands use the server at ISOLET_URL [default: http://127.0.0.1:7300] and the key in
ISOLET_API_KEY, or the file `key` in the data directory (ISOLET_DATA_DIR [default: /var/lib/isolet]).
With https:// in ISOLET_URL, the certificate of the server must come from an authority of this system,
or from one in the file that ISOLET_CA names."
)]
struct Cli {
    /// Accept server certificates only from the authorities in this PEM file [default: those of the system]
    #[arg(long, env = "ISOLET_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the server in the foreground.
    Serve(Box<serve::Args>),
    /// Check whether this machine and these settings can run sandboxes.
    Doctor(doctor::Args),
    /// Create, list, revoke and rotate keys (on the server's machine).
    Keys(keys::Args),
    /// Show and verify audit logs (on the server's machine).
    Audit(audit::Args),
    /// Show or change what the running server logs (on the server's machine).
    LogLevel(log_level::Args),
    /// Write a backup of all sandboxes and records, or verify one (on the server's machine).
    Backup(backup::Args),
    /// Freeze sandboxes for a backup while no server runs.
    #[command(hide = true)]
    BackupFreezer(backup::freezer::Args),
    /// Restore a backup into an empty data directory.
    Restore(restore::Args),
    /// Create a sandbox with an image, limits and network rules.
    Create(client::lifecycle::create::Args),
    /// Show or change where a sandbox may connect to.
    Network(client::network::Args),
    /// Run a command in a sandbox and exit with its exit code.
    Exec(client::exec::Args),
    /// Attach to the terminal of a session.
    Attach(client::attach::Args),
    /// List the terminals of a sandbox.
    Terminals(client::attach::terminals::Args),
    /// Forward local ports to ports of a sandbox.
    Forward(client::forward::Args),
    /// Open a shell in a sandbox.
    Shell(client::shell::Args),
    /// List all sandboxes of the tenant.
    Ls(client::list::ListArgs),
    /// Delete sandboxes with everything in them.
    Rm(client::lifecycle::remove::Args),
    /// Show what sandboxes use: processor, memory, processes, disk and network.
    Stats(client::stats::Args),
    /// Copy files and directories between this machine and a sandbox.
    Cp(client::cp::Args),
    /// List or delete the sessions of a sandbox.
    Sessions(client::sessions::Args),
    /// Put sandboxes to sleep: end their processes, keep files and shell state.
    Sleep(client::lifecycle::pause::SleepArgs),
    /// Wake sleeping sandboxes.
    Wake(client::lifecycle::wake::Args),
    /// Pause sandboxes: freeze their processes, which keep their memory.
    Pause(client::lifecycle::pause::PauseArgs),
    /// Resume paused sandboxes.
    Resume(client::lifecycle::pause::ResumeArgs),
    /// Move a sandbox to another node of a fleet.
    Move(client::lifecycle::moving::Args),
    /// Recover failed sandboxes, with their files.
    Recover(client::lifecycle::recover::Args),
    /// Take, list, restore and delete snapshots of sandboxes, and copy them to other servers.
    Snapshot(client::lifecycle::snapshot::Args),
    /// Create, check and prune the store of snapshots (on a server's machine).
    Store(store::Args),
    /// Create the certificates by which nodes of a fleet trust each other (on the operator's machine).
    Cluster(cluster::Args),
    /// List, cordon and remove the nodes of a fleet.
    Node(node::Args),
    /// Create copies of a sandbox.
    Fork(client::lifecycle::snapshot::ForkArgs),
    /// Start a program in the background.
    Start(client::processes::start::Args),
    /// List the processes of a sandbox.
    Ps(client::processes::list::Args),
    /// End processes with their descendants, or send a signal.
    Kill(client::processes::kill::Args),
    /// Show the output of a process or of a session's shell.
    Logs(client::logs::Args),
    /// List, add, test and remove webhooks: URLs that the server tells about sandboxes.
    Webhooks(client::events::webhooks::Args),
    /// Pull, list, import and remove images.
    Image(client::image::Args),
    /// Show limits, usage and sessions of a sandbox.
    Info(client::list::InfoArgs),
    /// Run an MCP server on standard input and output, for an agent.
    Mcp(client::mcp::Args),
    /// End all sandboxes while no server runs; their files stay (on the server's machine).
    Teardown(teardown::Args),
    /// Print the completion script for a shell.
    Completions(client::args::complete::Args),
    /// Write man pages and shell completions, for packages.
    #[command(hide = true)]
    Generate(generate::Args),
}

/// The exit code for wrong usage. `attach`, `exec` and `shell` reserve one code for errors of this program.
fn misused() -> u8 {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.next_if(|word| word == "--ca").is_some() {
        words.next();
    }
    match words.next() {
        Some(word) if ["attach", "exec", "shell"].iter().any(|own| word == *own) => {
            client::EXIT_CLIENT_ERROR
        }
        _ => 2,
    }
}

fn main() -> ExitCode {
    CompleteEnv::with_factory(Cli::command).var(client::args::complete::VARIABLE).complete();
    let parsed = client::args::help::grouped::<Cli>().try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.exit_code() == 0 { 0 } else { misused() });
        }
    };
    if let Some(ca) = cli.ca.filter(|path| !path.as_os_str().is_empty()) {
        client::set_ca_file(ca);
    }
    let done = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Doctor(args) => doctor::run(args),
        Command::Keys(args) => keys::run(args),
        Command::Audit(args) => audit::run(args),
        Command::LogLevel(args) => log_level::run(args),
        Command::Backup(args) => backup::run(args),
        Command::BackupFreezer(args) => backup::freezer::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Create(args) => client::run(1, client::lifecycle::create::run(args)),
        Command::Network(args) => client::run(1, client::network::run(args)),
        Command::Exec(args) => client::run(client::EXIT_CLIENT_ERROR, client::exec::run(args)),
        Command::Attach(args) => client::run(client::EXIT_CLIENT_ERROR, client::attach::run(args)),
        Command::Terminals(args) => client::run(1, client::attach::terminals::run(args)),
        Command::Forward(args) => client::run(1, client::forward::run(args)),
        Command::Shell(args) => client::run(client::EXIT_CLIENT_ERROR, client::shell::run(args)),
        Command::Ls(args) => client::run(1, client::list::list(args)),
        Command::Rm(args) => client::run(1, client::lifecycle::remove::run(args)),
        Command::Stats(args) => client::run(1, client::stats::run(args)),
        Command::Cp(args) => client::run(1, client::cp::run(args)),
        Command::Sessions(args) => client::run(1, client::sessions::run(args)),
        Command::Webhooks(args) => client::run(1, client::events::webhooks::run(args)),
        Command::Sleep(args) => client::run(1, client::lifecycle::pause::sleep(args)),
        Command::Wake(args) => client::run(1, client::lifecycle::wake::run(args)),
        Command::Pause(args) => client::run(1, client::lifecycle::pause::pause(args)),
        Command::Resume(args) => client::run(1, client::lifecycle::pause::resume(args)),
        Command::Move(args) => client::run(1, client::lifecycle::moving::run(args)),
        Command::Recover(args) => client::run(1, client::lifecycle::recover::run(args)),
        Command::Snapshot(args) => client::run(1, client::lifecycle::snapshot::run(args)),
        Command::Store(args) => store::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Node(args) => client::run(1, node::run(args)),
        Command::Fork(args) => client::run(1, client::lifecycle::snapshot::fork(args)),
        Command::Start(args) => client::run(1, client::processes::start::run(args)),
        Command::Ps(args) => client::run(1, client::processes::list::run(args)),
        Command::Kill(args) => client::run(1, client::processes::kill::run(args)),
        Command::Logs(args) => client::run(1, client::logs::run(args)),
        Command::Image(args) => client::run(1, client::image::run(args)),
        Command::Info(args) => client::run(1, client::list::info(args)),
        Command::Mcp(args) => client::run(1, client::mcp::run(args)),
        Command::Teardown(args) => teardown::run(args),
        Command::Completions(args) => client::args::complete::run(&args),
        Command::Generate(args) => generate::run(&args, &Cli::command()),
    };
    done.unwrap_or_else(|error| {
        if error.is::<client::output::OutputClosed>() {
            return ExitCode::from(client::output::EXIT_OUTPUT_CLOSED);
        }
        client::output::print_message(format_args!("{error:#}"));
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The column of the description behind an example, if it has one.
    fn description(line: &str) -> Option<usize> {
        let example = line.strip_prefix("  ")?;
        let gap = example.find("  ")?;
        let rest = example[gap..].len() - example[gap..].trim_start().len();
        (!example.starts_with(' ')).then_some(2 + gap + rest)
    }

    fn check(command: &clap::Command, path: &str) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for block in help.split("\n\n") {
            let columns: Vec<usize> = block.lines().filter_map(description).collect();
            let aligned = columns.windows(2).all(|pair| pair[0] == pair[1]);
            assert!(aligned, "{path}: descriptions of examples do not align:\n{block}");
        }
        for line in help.lines() {
            assert!(line.chars().count() <= 110, "{path}: a line is too long: {line}");
        }
        for inner in command.get_subcommands() {
            check(inner, &format!("{path} {}", inner.get_name()));
        }
    }

    #[test]
    fn descriptions_of_examples_are_aligned() {
        check(&Cli::command(), "isolet");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
