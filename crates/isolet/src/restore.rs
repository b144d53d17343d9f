//! `isolet restore`: brings a backup back into an empty data directory, on this machine or another.

use crate::backup::passphrase::{self, Use};
use crate::backup::reporter::Reporter;
use crate::backup::require_root;
use crate::client::args::format::OutputFormat;
use crate::config::DATA_DIR;
use anyhow::{Context, Result};
use clap::Parser;
use isolet_backup::{Manifest, Progress, ProgressEvent, RestoreOptions, Restored, restore};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet restore`.
#[derive(Parser)]
#[command(after_help = "\
The size and the hash of every file are verified before anything is written. The data directory must
be missing or empty. A restore that fails leaves it empty; after one that was killed, run the command
again. Then start the server: sandboxes are asleep, with their files and the saved state of their
shells. Restore only backups that nobody else could change: hashes detect damage, not forgery.

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
    #[command(flatten)]
    format: OutputFormat,
    /// Restore into this data directory
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    require_root()?;
    let reporter = Reporter::new(args.format.is_json());
    let passphrase = match args.with_secrets {
        true => Some(passphrase::read(args.passphrase_file.as_deref(), Use::Decrypt)?),
        false => None,
    };
    let options = RestoreOptions {
        backup: &args.source,
        data_dir: &args.data_dir,
        passphrase: passphrase.as_ref(),
        check_space: !args.skip_space_check,
    };
    let Restored { manifest, notes } =
        restore(&options, &reporter).context("nothing was restored")?;
    for text in notes {
        reporter.event(&ProgressEvent::Note { text });
    }
    let data = args.data_dir.display();
    reporter.finished("restored", &format!("{data}: {}", states(&manifest)));
    Ok(ExitCode::SUCCESS)
}

/// The states that the sandboxes have now. Only a failed sandbox does not wake.
fn states(manifest: &Manifest) -> String {
    let count = manifest.sandboxes.len();
    match manifest.sandboxes.iter().filter(|one| one.state == "failed").count() {
        0 => format!("{count} sandboxes, all asleep"),
        failed => format!("{} sandboxes asleep, {failed} failed as before", count - failed),
    }
}
