//! `isolet logs`: shows the retained output of a process or of a session's shell.

use super::output::{print_message, sanitize, write};
use super::socket::{ShellFrame, ShellSocket};
use super::{ApiClient, id, processes};
use crate::client::args::complete;
use anyhow::Result;
use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::timeout;

/// How long to wait for more output after the last known byte.
const QUIET: Duration = Duration::from_secs(2);

/// Arguments of `isolet logs`.
#[derive(Parser)]
#[command(after_help = "\
The server retains the last MiB of a process, both streams in their order. Without PROCESS, shows
the output of `exec --session` and `shell --session`.

  isolet logs demo web                  show the output of the process `web`
  isolet logs demo web -f               follow it until the process ends
  isolet logs demo web -f --since now   follow only new output
  isolet logs demo                      show the output of the session `default`
  isolet logs demo --session build -f   and what it says from now on")]
pub(crate) struct Args {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Process to read [default: the shell of a session]
    #[arg(value_parser = processes::id, add = complete::processes())]
    process: Option<String>,
    /// Read the shell of this session
    #[arg(long, short, value_parser = crate::client::session_id, add = complete::sessions(), default_value = "default", conflicts_with = "process")]
    session: String,
    /// Keep printing new output
    #[arg(long, short)]
    follow: bool,
    /// Begin at this position of a process's log, or `now`
    #[arg(long, value_name = "POSITION", value_parser = processes::log::since, requires = "process")]
    since: Option<String>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    if let Some(process) = &args.process {
        return processes::log::show(&server, (&args.id, process), args.since, args.follow).await;
    }
    // Reading a log must not create a sandbox or a shell.
    let path = format!("/v1/sandboxes/{}/sessions/{}", args.id, args.session);
    let (session, _) = server.json(hyper::Method::GET, &path).await?;
    if session["shell_pid"].is_null() && !args.follow {
        print_message(format_args!(
            "session {} of sandbox {} has no open shell",
            args.session, args.id
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let query = format!("&session={}&watch=1&since=0,0", args.session);
    let mut socket = ShellSocket::open(&server, &args.id, &query).await?;
    let mut out = 0;
    let mut err = 0;
    while args.follow || out < socket.at.0 || err < socket.at.1 {
        let frame = if args.follow {
            socket.next().await
        } else {
            match timeout(QUIET, socket.next()).await {
                Ok(frame) => frame,
                Err(_) => break,
            }
        };
        match frame {
            ShellFrame::Data { stream, offset, bytes } => {
                let end = offset + bytes.len() as u64;
                if stream == 1 {
                    out = end
                } else {
                    err = end
                }
                write(stream == 1, &bytes)?;
            }
            ShellFrame::Json(said) if said["type"] == "shell_gap" => {
                let to = said["to"].as_u64().unwrap_or(0);
                let from = said["from"].as_u64().unwrap_or(0);
                if said["stream"] == "stdout" {
                    out = to
                } else {
                    err = to
                }
                print_message(format_args!(
                    "{} bytes are no longer retained",
                    to.saturating_sub(from)
                ));
            }
            ShellFrame::Json(said) if said["type"] == "shell_closed" => {
                print_message("the shell has ended");
                if out >= socket.at.0 && err >= socket.at.1 {
                    break;
                }
            }
            ShellFrame::Json(_) => {}
            ShellFrame::Closed(reason) => {
                if args.follow {
                    print_message(sanitize(&reason));
                }
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
