//! `isolet teardown`: ends what a data directory's sandboxes run, while no server uses it.

use crate::client::output::print_message;
use crate::config::{Overrides, ServerSettings};
use anyhow::Result;
use clap::Parser;
use isolet_sandbox::{Ended, OpenError};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet teardown`.
#[derive(Parser)]
#[command(after_help = "\
Every sandbox that runs is `sleeping` afterwards, with its files, as after a reboot. Control groups,
veth pairs and nft tables are removed. Stop the server first.

  systemctl stop isolet && isolet teardown")]
pub(crate) struct Args {
    /// Read this configuration file [default: /etc/isolet/isolet.toml, if it exists]
    #[arg(long, env = "ISOLET_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// End the sandboxes of this data directory [default: /var/lib/isolet]
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Ends all sandboxes. The exit code is 1 if something is left, with a message for each.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let overrides =
        Overrides { file: args.config, data_dir: args.data_dir, ..Overrides::default() };
    let settings = ServerSettings::read(overrides)?;
    let Ended { sandboxes, left } = match isolet_sandbox::teardown(settings.sandboxes) {
        Err(error @ OpenError::Held { .. }) => {
            let hint = "stop the server first: systemctl stop isolet";
            return Err(anyhow::Error::new(error).context(hint));
        }
        ended => ended?,
    };
    print_message(format_args!("ended {sandboxes} sandboxes; their files stay"));
    left.iter().for_each(print_message);
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
