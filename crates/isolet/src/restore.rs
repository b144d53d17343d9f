//! `isolet restore`: brings a backup back into an empty data directory, on this machine or another.

use crate::backup::passphrase::{self, Use};
use crate::backup::reporter::Reporter;
use crate::backup::require_root;
use crate::config::DATA_DIR;
use anyhow::{Context, Result};
use clap::Parser;
use isolet_backup::{Event, Progress, Restored, restore};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet restore`.
#[derive(Parser)]
#[command(after_help = "\
Every file is verified before anything is written. The data directory must be missing or empty. A
restore that fails leaves it empty; after one that was killed, run the command again. Then start the
server: all sandboxes are asleep, with their files and the saved state of their shells.

Examples:
  isolet restore /backup/monday --data-dir /var/lib/isolet
  isolet restore /backup/monday --data-dir /var/lib/isolet --with-secrets")]
pub(crate) struct Args {
    /// Restore this backup
    source: PathBuf,
    /// Restore keys and credentials too, with the backup's passphrase
    #[arg(long)]
    with_secrets: bool,
    /// Read the passphrase from the first line of this file [default: ask]
    #[arg(long, value_name = "FILE", requires = "with_secrets")]
    passphrase_file: Option<PathBuf>,
    /// Begin even if the disk may have too little space
    #[arg(long)]
    skip_space_check: bool,
    /// Print JSON events, one per line
    #[arg(long)]
    json: bool,
    /// Restore into this data directory
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    require_root()?;
    let reporter = Reporter::new(args.json);
    let passphrase = match args.with_secrets {
        true => Some(passphrase::read(args.passphrase_file.as_deref(), Use::Decrypt)?),
        false => None,
    };
    let check_space = !args.skip_space_check;
    let data = &args.data_dir;
    let Restored { manifest, notes } =
        restore(&args.source, data, passphrase.as_ref(), check_space, &reporter)
            .context("nothing was restored")?;
    for text in notes {
        reporter.event(&Event::Note { text });
    }
    let count = manifest.sandboxes.len();
    let data = data.display();
    reporter.finished("restored", &format!("{data}: {count} sandboxes, all asleep"));
    Ok(ExitCode::SUCCESS)
}
