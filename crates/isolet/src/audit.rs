//! `isolet audit`: shows the audit log of a tenant, and verifies the log or an export of it against
//! its hash chain. Reads the data directory, so no server needs to run.

use crate::client::output::{print_message, write};
use crate::config::DATA_DIR;
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use isolet_sandbox::audit::{AuditDirectory, Expected, Verdict, verify};
use isolet_sandbox::{SandboxId, TenantId, check_format};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet audit`.
#[derive(Parser)]
#[command(after_help = "\
  isolet audit show --tenant acme > acme.ndjson
  isolet audit verify --tenant acme
  isolet audit verify --tenant acme acme.ndjson")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: AuditCommand,
    /// Read this data directory of a server
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR", default_value = DATA_DIR, global = true)]
    data_dir: PathBuf,
    /// Read the log of this tenant
    #[arg(long, default_value = "default", global = true)]
    tenant: TenantId,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Show the log as NDJSON, oldest entry first.
    #[command(after_help = "\
  isolet audit show --tenant acme
  isolet audit show --sandbox demo | jq -r '.ts + \" \" + .event'")]
    Show {
        /// Show only entries about this sandbox
        #[arg(long)]
        sandbox: Option<SandboxId>,
    },
    /// Find entries that were changed, removed, reordered or truncated. Exits with 1 if there are any.
    #[command(after_help = "\
  isolet audit verify --tenant acme
  isolet audit verify --tenant acme acme.ndjson
  isolet audit verify --earlier last-month.ndjson")]
    Verify {
        /// Verify this export, of a tenant or of one sandbox [default: the log itself]
        file: Option<PathBuf>,
        /// Accept an export that ends before the log does
        #[arg(long, requires = "file")]
        earlier: bool,
    },
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    check_format(&args.data_dir)?;
    let place = AuditDirectory::open(&args.data_dir).with_context(|| {
        let data = args.data_dir.display();
        format!(
            "{data} contains no audit log; set the data directory of the server with --data-dir"
        )
    })?;
    let tenant = args.tenant.as_str();
    match args.command {
        AuditCommand::Show { sandbox } => {
            let mut written = Ok(());
            place.read(tenant, sandbox.as_ref().map(SandboxId::as_str), |line| {
                written = write(true, line);
                written.is_ok()
            })?;
            written?;
            Ok(ExitCode::SUCCESS)
        }
        AuditCommand::Verify { file: None, .. } => {
            let verdict = place.verify(tenant).with_context(|| {
                let known = place.tenants().unwrap_or_default().join(", ");
                format!("tenant {tenant} has no audit log; tenants with a log: {known}")
            })?;
            print_verdict(&verdict)
        }
        AuditCommand::Verify { file: Some(file), earlier } => {
            let expected = if earlier { Expected::Earlier } else { Expected::Now };
            print_verdict(&verify(&place, tenant, &file, expected)?)
        }
    }
}

fn print_verdict(verdict: &Verdict) -> Result<ExitCode> {
    let mut text = String::new();
    for finding in &verdict.findings {
        text.push_str(&format!("{finding}\n"));
    }
    if verdict.more > 0 {
        text.push_str(&format!("and {} more\n", verdict.more));
    }
    write(true, text.as_bytes())?;
    let range = verdict.range.map_or_else(String::new, |(from, to)| format!(", {from} to {to}"));
    if verdict.holds() {
        print_message(format_args!("{} entries{range}: all intact", verdict.good));
        return Ok(ExitCode::SUCCESS);
    }
    print_message(format_args!(
        "{} entries{range} are intact; the other entries are listed above",
        verdict.good
    ));
    Ok(ExitCode::FAILURE)
}
