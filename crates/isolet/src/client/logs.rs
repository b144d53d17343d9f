//! `isolet logs`: what a process, or a session's shell, has said, as far as it is still held.

use super::{
    Server, id,
    output::{print_message, sanitize, write},
    processes,
    socket::{Frame, Socket},
};
use anyhow::Result;
use clap::Parser;
use std::{process::ExitCode, time::Duration};
use tokio::time::timeout;

/// After the last byte that is known, nothing more is waited for than this.
const QUIET: Duration = Duration::from_secs(2);

/// Flags of `isolet logs`.
#[derive(Parser)]
#[command(after_help = "\
Of a process the last MiB is held, of both its streams in their order. Without one, it is what
`exec --session` and `shell --session` have run.

  isolet logs demo web                  what the process `web` has said
  isolet logs demo web -f               and what it says until it ends
  isolet logs demo web -f --since now   only what comes
  isolet logs demo                      what the session `default` has said
  isolet logs demo --session build -f   and what it says from now on")]
pub(crate) struct Args {
    /// Which sandbox
    #[arg(value_parser = id)]
    id: String,
    /// Which process; a session's shell unless given
    #[arg(value_parser = processes::id)]
    process: Option<String>,
    /// Which session
    #[arg(long, short, value_parser = crate::client::session_id, default_value = "default", conflicts_with = "process")]
    session: String,
    /// Go on with what comes
    #[arg(long, short)]
    follow: bool,
    /// From this position of a process's log on, or `now`
    #[arg(long, value_name = "POSITION", value_parser = processes::log::since, requires = "process")]
    since: Option<String>,
}

/// Carries out `isolet logs`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = Server::find()?;
    if let Some(process) = &args.process {
        return processes::log::show(&server, (&args.id, process), args.since, args.follow).await;
    }
    // Looking must not make anything.
    let path = format!("/v1/sandboxes/{}/sessions/{}", args.id, args.session);
    let (session, _) = server.json(hyper::Method::GET, &path).await?;
    if session["shell_pid"].is_null() && !args.follow {
        print_message(format_args!(
            "session {} of sandbox {} has no shell open",
            args.session, args.id
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let query = format!("&session={}&watch=1&since=0,0", args.session);
    let mut socket = Socket::open(&server, &args.id, &query).await?;
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
            Frame::Data { stream, offset, bytes } => {
                let end = offset + bytes.len() as u64;
                if stream == 1 {
                    out = end
                } else {
                    err = end
                }
                write(stream == 1, &bytes)?;
            }
            Frame::Json(said) if said["type"] == "shell_gap" => {
                let to = said["to"].as_u64().unwrap_or(0);
                let from = said["from"].as_u64().unwrap_or(0);
                if said["stream"] == "stdout" {
                    out = to
                } else {
                    err = to
                }
                print_message(format_args!("{} bytes are no longer held", to.saturating_sub(from)));
            }
            Frame::Json(said) if said["type"] == "shell_closed" => {
                print_message("the shell has ended");
                if out >= socket.at.0 && err >= socket.at.1 {
                    break;
                }
            }
            Frame::Json(_) => {}
            Frame::Closed(reason) => {
                if args.follow {
                    print_message(sanitize(&reason));
                }
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
