//! `isolet backup`: writes a backup of a data directory, with or without a running server, and
//! verifies one.

pub(crate) mod freezer;
mod holds;
pub(crate) mod passphrase;
pub(crate) mod reporter;

use crate::admin::client::DataAccess;
use crate::client::args::format::OutputFormat;
use crate::client::output::{print_message, sanitize};
use crate::config::DATA_DIR;
use anyhow::{Context, Result, bail};
use clap::Parser;
use holds::{OfflineHolds, ServerHolds};
use isolet_backup::{BackupOptions, Content, Manifest, SkippedFile};
use reporter::Reporter;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet backup`.
#[derive(Parser)]
#[command(after_help = "\
The server may run. Each sandbox stands still while its files are copied; its shells are saved
first. Run the command as root. The target becomes a directory, which appears when it is complete.

Examples:
  isolet backup /backup/monday
  isolet backup /backup/monday --with-secrets --passphrase-file /root/passphrase
  isolet backup --verify /backup/monday
  isolet restore /backup/monday --data-dir /var/lib/isolet")]
pub(crate) struct Args {
    /// Write the backup to this directory, which must not exist or be empty
    target: PathBuf,
    /// Verify this backup instead of writing one
    #[arg(long, conflicts_with_all = ["with_secrets", "passphrase_file", "without_images"])]
    verify: bool,
    /// Include keys and credentials, encrypted with a passphrase
    #[arg(long)]
    with_secrets: bool,
    /// Read the passphrase from the first line of this file [default: ask]
    #[arg(long, value_name = "FILE", requires = "with_secrets")]
    passphrase_file: Option<PathBuf>,
    /// Leave out images, which must be pulled again after a restore
    #[arg(long)]
    without_images: bool,
    /// Begin even if the target may have too little space without compression
    #[arg(long)]
    skip_space_check: bool,
    #[command(flatten)]
    format: OutputFormat,
    /// Back up this data directory of a server
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let reporter = Reporter::new(args.format.is_json());
    if args.verify {
        let manifest = isolet_backup::verify(&args.target, &reporter)?;
        reporter.finished("intact", &summary(&manifest));
        return Ok(left_out(&manifest));
    }
    require_root()?;
    if !args.data_dir.join("isolet.db").try_exists()? {
        let data = args.data_dir.display();
        bail!("{data} is not the data directory of a server; set it with --data-dir");
    }
    let passphrase = match args.with_secrets {
        true => Some(passphrase::read(args.passphrase_file.as_deref(), passphrase::Use::Encrypt)?),
        false => None,
    };
    let options = BackupOptions {
        data_dir: args.data_dir.clone(),
        target: args.target.clone(),
        with_images: !args.without_images,
        passphrase,
        check_space: !args.skip_space_check,
    };
    let manifest = match DataAccess::open(&args.data_dir)? {
        DataAccess::Server(client) => {
            isolet_backup::create(&options, &mut ServerHolds::new(client), &reporter)
        }
        DataAccess::Locked(_lock) => {
            isolet_backup::create(&options, &mut OfflineHolds::new(&args.data_dir)?, &reporter)
        }
    };
    let manifest = manifest.context("no backup was written")?;
    let target = args.target.display();
    reporter.finished("complete", &format!("{target}: {}", summary(&manifest)));
    Ok(left_out(&manifest))
}

/// Tenants' files keep their owners only for root.
pub(crate) fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!("backups contain files of all sandboxes with their owners; run this command as root")
}

/// The exit code: failure if a sandbox or a file is missing.
fn left_out(manifest: &Manifest) -> ExitCode {
    for missing in &manifest.left_out {
        print_message(sanitize(&format!(
            "sandbox {} of tenant {} is NOT in the backup: {}",
            missing.id, missing.tenant, missing.reason
        )));
    }
    for (content, SkippedFile { path, reason }) in manifest.skipped() {
        let of = owner(manifest, content);
        print_message(sanitize(&format!("{of}: file {path} is NOT in the backup: {reason}")));
    }
    let complete = manifest.left_out.is_empty() && manifest.skipped().next().is_none();
    if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The sandbox whose files an archive contains, or the archive.
fn owner(manifest: &Manifest, content: &Content) -> String {
    let sandbox = match content {
        Content::Sandbox { name } => manifest.sandboxes.iter().find(|one| one.name == *name),
        _ => None,
    };
    match sandbox {
        Some(sandbox) => format!("sandbox {} of tenant {}", sandbox.id, sandbox.tenant),
        None => content.path(),
    }
}

fn summary(manifest: &Manifest) -> String {
    let sandboxes = manifest.sandboxes.len();
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let mib = bytes.div_ceil(1024 * 1024);
    let frozen = manifest.sandboxes.iter().filter_map(|one| one.frozen_ms).max();
    let frozen = frozen.map_or_else(String::new, |ms| format!(", frozen for at most {ms} ms"));
    let secrets = if manifest.secrets { "with secrets" } else { "without secrets" };
    format!("{sandboxes} sandboxes, {mib} MiB, {secrets}{frozen}")
}
