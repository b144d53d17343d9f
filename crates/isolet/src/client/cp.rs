//! `isolet cp`: copies files and directories between this machine and a sandbox, by the rules of `docker cp`.

mod download;
mod endpoint;
mod local_tree;
mod pieces;
mod progress;
mod remote;
mod target;
mod upload;

use super::ApiClient;
use super::args::complete;
use anyhow::{Result, bail};
use clap::Parser;
use endpoint::{Endpoint, endpoint};
use progress::Progress;
use remote::Remote;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `isolet cp`.
#[derive(Parser)]
#[command(
    override_usage = "isolet cp [OPTIONS] <SANDBOX:SOURCE|SOURCE|-> <SANDBOX:TARGET|TARGET|->",
    after_help = "\
One of the two paths is in a sandbox. There, a relative path begins in /workspace. A local path that
contains a colon is written as ./a:b. A missing sandbox is created when something is copied into it.

  isolet cp main.py demo:                     to /workspace/main.py
  isolet cp demo:out/report.pdf .             to ./report.pdf
  isolet cp src demo:/opt                     a directory, to /opt/src
  isolet cp src/. demo:/opt                   its content, to /opt
  isolet cp demo:/var/log - | tar -t          a tar archive to standard output
  tar -c src | isolet cp - demo:/opt          unpacks a tar archive
  isolet cp a:data - | isolet cp - b:/tmp     between two sandboxes

Where the source goes depends on the target:

  file, to a directory             into the directory
  file, to a file                  replaces it
  file, to a missing name          gets this name; a name that ends with / must exist
  directory, to a directory        into the directory; of SOURCE/. only the content
  directory, to a missing name     gets this name
  directory, to a file             an error

The directory above the target must exist. `-` is always a tar archive; for the bytes of one file, use
`isolet exec demo cat FILE`. Modes, times and symbolic links are copied; owners are not: copies belong to
the user of the sandbox, or to you. Sockets, FIFOs and devices are left out. The progress appears on a
terminal only. After Ctrl-C, a file is either old or complete; of a directory, some files may be copied."
)]
pub(crate) struct Args {
    /// File or directory to copy; - for a tar archive on standard input
    #[arg(value_parser = endpoint(), value_name = "SOURCE", add = complete::copied())]
    source: Endpoint,
    /// File or directory to write; - for a tar archive on standard output
    #[arg(value_parser = endpoint(), value_name = "TARGET", add = complete::copied())]
    target: Endpoint,
    /// Copy what the source points to if it is a symbolic link
    #[arg(long, short = 'L')]
    follow_link: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // A dropped copy removes what it has not completed.
    tokio::select! {
        done = copy(args) => done.map(|()| ExitCode::SUCCESS),
        _ = interrupt.recv() => Ok(ExitCode::from(128 + 2)),
        _ = terminate.recv() => Ok(ExitCode::from(128 + 15)),
    }
}

async fn copy(args: Args) -> Result<()> {
    let follow = args.follow_link;
    let shown = args.target.to_string();
    let progress = Progress::start(args.quiet);
    match (args.source, args.target) {
        (Endpoint::Remote { .. }, Endpoint::Remote { .. }) => bail!(
            "copying from sandbox to sandbox needs two commands: isolet cp A:PATH - | isolet cp - B:PATH"
        ),
        (Endpoint::Remote { id, path }, target) => {
            let remote = Remote::new(ApiClient::find()?, id);
            remote.check_exists().await?;
            match target {
                Endpoint::Stream => download::to_stdout(&remote, &path, follow, &progress).await?,
                Endpoint::Local(target) => {
                    download::to_local(&remote, &path, &target, follow, &progress).await?;
                }
                Endpoint::Remote { .. } => {}
            }
        }
        (source, Endpoint::Remote { id, path }) => {
            let remote = Remote::new(ApiClient::find()?, id);
            match source {
                Endpoint::Stream => upload::from_stdin(&remote, &path, &progress).await?,
                Endpoint::Local(source) => {
                    upload::from_local(&remote, &source, &path, follow, &progress).await?;
                }
                Endpoint::Remote { .. } => {}
            }
        }
        _ => bail!("one of the two paths must be in a sandbox: SANDBOX:PATH"),
    }
    progress.finish(&shown);
    Ok(())
}
