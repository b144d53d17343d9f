//! `isolet attach`: connects this terminal to the terminal of a session.

mod alternate_screen;
mod attached_terminal;
mod connection;
mod keys;
mod session;
mod signals;
mod socket;
pub(crate) mod terminals;
mod tty;

use super::output::{print_message, sanitize};
use super::server_error::{ServerError, exit_code_of_unstarted};
use super::{ApiClient, EXIT_CLIENT_ERROR, id, to_exit_code};
use crate::client::args::complete;
use anyhow::{Result, bail};
use attached_terminal::AttachedTerminal;
use clap::Parser;
use hyper::Method;
use keys::DetachKeys;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;
use session::{AttachSession, DetachReason};
use socket::TerminalSocket;
use std::fmt::Write;
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::process::ExitCode;
use std::rc::Rc;

/// The longest name under which other clients see this one, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Arguments of `isolet attach`.
#[derive(Parser)]
#[command(after_help = "\
A session has one terminal, and all attached clients see the same screen. It keeps running when
you detach, with all its programs, and also over a restart of the server. A lost connection is
reconnected automatically. Ctrl-\\ Ctrl-d detaches: unlike docker's Ctrl-p Ctrl-q and tmux's
Ctrl-b d, no shell, editor or multiplexer uses these keys. `exit` ends the terminal.

  isolet attach demo
  isolet attach demo --session dev            another session's terminal
  isolet attach demo --view                   watch without typing
  isolet attach demo --command htop           run a program instead of bash
  isolet attach demo --detach-keys ctrl-p,ctrl-q

It ends with the exit code of the terminal's program (128+N: ended by signal N), with 0 when you
leave, with 125 when the server or this program refused, with 126 or 127 when its program cannot
be executed or is not found. `isolet terminals` lists them.")]
pub(crate) struct Args {
    /// Sandbox to use; created if it does not exist
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Attach to the terminal of this session
    #[arg(long, short, value_parser = crate::client::session_id, add = complete::sessions(), default_value = "default")]
    session: String,
    /// Watch only. Always on for a read-only key
    #[arg(long)]
    view: bool,
    /// Record the terminal as an asciicast (see docs/terminal.md)
    #[arg(long)]
    record: bool,
    /// Set the keys that detach: ctrl-x or characters, separated by commas; or none
    #[arg(long, value_name = "KEYS", value_parser = DetachKeys::parse, default_value = "ctrl-\\,ctrl-d")]
    detach_keys: DetachKeys,
    /// Run this program instead of bash if no terminal runs yet. Must be the last option
    #[arg(long, num_args = 1.., allow_hyphen_values = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<String>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let Args { id, session, .. } = &args;
    if !stdin().is_terminal() || !stdout().is_terminal() {
        bail!(
            "attach needs a terminal as standard input and output; in a script, use: isolet exec {id} COMMAND"
        );
    }
    let server = Rc::new(ApiClient::find()?);
    let mut socket = open(&server, &args, args.view).await;
    let mut view = args.view;
    let refused = socket.as_ref().err().and_then(|error| error.downcast_ref::<ServerError>());
    if refused.is_some_and(|refused| refused.code == "read_only") && !view {
        socket = open(&server, &args, true).await;
        view = true;
    }
    let begun = match socket {
        Ok(mut socket) => socket.attached().await.map(|attached| (socket, attached)),
        Err(error) => Err(error),
    };
    let (socket, attached) = match begun {
        Ok(begun) => begun,
        Err(error) => return exit_code_of_unstarted(error),
    };
    if !args.command.is_empty() && attached["fresh"] == false {
        runs_the_same(&server, &args).await?;
    }
    let terminal = AttachedTerminal::new(id, session, &common_query(view), &attached);
    let reason = match (view, args.view) {
        (false, _) => None,
        (true, false) => Some(session::KEY_IS_READ_ONLY),
        (true, true) => Some("view only"),
    };
    let attach_session =
        AttachSession::new(server.clone(), terminal, socket, args.detach_keys.clone(), reason)?;
    let (end, line_open) = attach_session.run().await?;
    if line_open {
        let _ = std::io::Write::write_all(&mut stderr(), b"\r\n");
    }
    let mut back = format!("isolet attach {id}");
    if session != "default" {
        let _ = write!(back, " --session {session}");
    }
    Ok(match end {
        DetachReason::Detached => {
            print_message(format_args!(
                "detached; the terminal keeps running. To attach again: {back}"
            ));
            ExitCode::SUCCESS
        }
        DetachReason::Exit(code, signal) => {
            match signal.as_deref() {
                Some("SIGKILL") if sandbox_is_removed(&server, id).await => {
                    print_message(format_args!("sandbox {id} was deleted with its terminals"));
                }
                Some(signal) => {
                    print_message(format_args!("the terminal's program was killed by {signal}"))
                }
                None => {}
            }
            to_exit_code(code)
        }
        DetachReason::Signalled(code) => to_exit_code(code),
        DetachReason::Gone(reason) => {
            print_message(reason);
            ExitCode::from(EXIT_CLIENT_ERROR)
        }
    })
}

/// Whether the sandbox was deleted, which kills everything in it.
async fn sandbox_is_removed(server: &ApiClient, id: &str) -> bool {
    let answer = server.json(Method::GET, &format!("/v1/sandboxes/{id}")).await;
    let refused = answer.as_ref().err().and_then(|error| error.downcast_ref::<ServerError>());
    refused.is_some_and(|refused| refused.code == "no_sandbox")
}

async fn open(server: &ApiClient, args: &Args, view: bool) -> Result<TerminalSocket> {
    let (cols, rows) = tty::size();
    let common_query = common_query(view);
    let mut query = format!("&session={}&cols={cols}&rows={rows}{common_query}", args.session);
    if args.record {
        query.push_str("&record=1");
    }
    let mut words = args.command.iter();
    if let Some(program) = words.next() {
        let _ = write!(query, "&shell={}", percent_encode(program));
    }
    for word in words {
        let _ = write!(query, "&arg={}", percent_encode(word));
    }
    TerminalSocket::open(server, &args.id, &query).await
}

/// The part of the query that every attach of this client sends: its mode, and its name for other clients.
fn common_query(view: bool) -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut name = if user.is_empty() { host } else { format!("{user}@{host}") };
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    let mode = if view { "&mode=view" } else { "" };
    format!("{mode}&name={}", percent_encode(&name))
}

/// The characters that a query value may contain: the unreserved ones of RFC 3986.
const QUERY_VALUE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn percent_encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, QUERY_VALUE)
}

/// Checks the program of a terminal that existed already against the one that `--command` names.
async fn runs_the_same(server: &ApiClient, args: &Args) -> Result<()> {
    let Args { id, session, command, .. } = args;
    let path = format!("/v1/sandboxes/{id}/terminals");
    let (list, _) = server.json(Method::GET, &path).await?;
    let of_it = |one: &&Value| one["session"] == **session;
    let runs = list.as_array().and_then(|list| list.iter().find(of_it)).map(|one| &one["command"]);
    let words = runs.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if words.iter().map(Value::as_str).eq(command.iter().map(|word| Some(word.as_str()))) {
        return Ok(());
    }
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    bail!(
        "the terminal of session {session} in sandbox {id} already runs {:?}; give --session another \
         name for {command:?}, or leave --command away",
        sanitize(&words.join(" "))
    )
}

#[cfg(test)]
mod tests {
    use super::percent_encode;

    #[test]
    fn a_query_takes_any_text() {
        assert_eq!(percent_encode("a b&c=%ü~").to_string(), "a%20b%26c%3D%25%C3%BC~");
    }
}
