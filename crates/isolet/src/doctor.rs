//! `isolet doctor`: checks whether this machine and these settings can run sandboxes. Each group of
//! checks is a module. [`at_start`] is the short form that `serve` runs.

mod clock;
mod control_groups;
mod egress;
mod exposure;
mod finding;
mod fleet;
mod host;
mod kernel;
mod limits;
mod listen;
mod peers;
mod report;
mod snapshot_store;
mod storage;

use crate::client::args::format::OutputFormat;
use crate::config::{Overrides, ServerSettings};
use anyhow::Result;
use clap::Parser;
use finding::{Finding, Status};
use isolet_peer::PeerFiles;
use isolet_wire::node::NodeName;
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `isolet doctor`.
#[derive(Parser)]
#[command(after_help = "\
Each line is ok, a warning or a failure, with the remedy below it. Checks really create namespaces,
control groups, mounts and a packet filter, and remove them again. Run it as root: without root, the
checks that need it are warnings.

Exit code: 0 if everything is ok, 1 with warnings, 2 with failures.

  sudo isolet doctor
  sudo isolet doctor --config /etc/isolet/isolet.toml
  isolet doctor --json | jq -r '.findings[] | select(.status != \"ok\").remedy'")]
pub(crate) struct Args {
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten, next_help_heading = "The settings to check, as for `isolet serve`")]
    settings: Overrides,
}

/// Runs all checks. The process must have one thread.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let mut findings = Vec::new();
    let settings = match ServerSettings::read(args.settings.clone()) {
        Ok(settings) => settings,
        Err(error) => {
            findings.push(Finding::failure(
                "settings",
                "configuration",
                format!("{error:#}"),
                "correct the setting; the other checks use the defaults",
            ));
            let defaults = Overrides { file: Some("/dev/null".into()), ..Overrides::default() };
            let data_dir = args.settings.data_dir;
            ServerSettings::read(Overrides { data_dir, ..defaults.clone() })
                .or_else(|_| ServerSettings::read(defaults))?
        }
    };
    findings.extend(all(&settings));
    report::print(&findings, args.format.is_json())?;
    Ok(ExitCode::from(finding::worst(&findings).exit_code()))
}

fn all(settings: &ServerSettings) -> Vec<Finding> {
    let config = &settings.sandboxes;
    let is_root = rustix::process::geteuid().is_root();
    let mut all = host::check(config);
    all.extend(kernel::check(&config.data_dir, is_root));
    all.extend(control_groups::check(is_root));
    all.extend(egress::check(&config.network, is_root));
    all.extend(limits::check());
    all.push(storage::format(&config.data_dir));
    all.extend(storage::check(config));
    all.extend(storage::try_out(&config.data_dir));
    all.extend(clock::check(&config.data_dir));
    all.extend(listen::check(settings, &config.data_dir));
    all.extend(exposure::check(settings));
    all.extend(snapshot_store::check(config.store.as_ref()));
    all.extend(fleet::check(settings.cluster.as_ref(), &config.data_dir));
    all
}

/// Checks the certificates of a node, and prints the findings.
pub(crate) fn print_peer_files(
    files: &PeerFiles,
    node: Option<&NodeName>,
    json: bool,
) -> Result<ExitCode> {
    let findings = peers::check(files, node);
    report::print(&findings, json)?;
    Ok(ExitCode::from(finding::worst(&findings).exit_code()))
}

/// The checks that a start of the server makes. They only read, and take less than a millisecond.
/// The launcher checks the requirements of sandboxes, and the start itself the address and the keys.
pub(crate) fn at_start(settings: &ServerSettings) {
    let config = &settings.sandboxes;
    let mut all = limits::check();
    all.extend(kernel::no_disk_limits());
    all.extend(storage::check(config));
    all.extend(clock::check(&config.data_dir));
    all.extend(exposure::at_start(settings));
    for finding in all.iter().filter(|finding| finding.status != Status::Ok && finding.checked) {
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        tracing::warn!(check = finding.check, remedy, "{}", finding.message);
    }
}

/// The directory itself, or the nearest one above it that exists.
fn nearest(directory: &Path) -> &Path {
    directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
}
