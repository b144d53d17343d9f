//! `isolet log-level`: shows or changes what the running server logs.

use crate::admin::client::DataAccess;
use crate::admin::{AdminRequest, AdminResponse};
use crate::client::output::write;
use crate::config::DATA_DIR;
use anyhow::{Result, bail};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet log-level`.
#[derive(Parser)]
#[command(after_help = "\
FILTER is off, error, warn, info, debug or trace, or directives by module:
  isolet log-level                            show the filter in force
  isolet log-level debug                      log every request, with its id and its duration
  isolet log-level info,isolet_sandbox=debug  log more about one part
  isolet log-level info                       log as usual

The change ends with the server. --log-level, ISOLET_LOG and `log` in the configuration file set the filter of
its start.")]
pub(crate) struct Args {
    /// Log what this level or these directives admit [default: change nothing]
    filter: Option<String>,
    /// Find the server by its data directory
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let DataAccess::Server(mut server) = DataAccess::open(&args.data_dir)? else {
        bail!("no server runs on {}", args.data_dir.display());
    };
    match server.ask(&AdminRequest::LogFilter { filter: args.filter })? {
        AdminResponse::LogFilter { filter } => {
            write(true, format!("{filter}\n").as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        AdminResponse::Failed { message } => bail!(message),
        other => bail!("unexpected answer {other:?}"),
    }
}
