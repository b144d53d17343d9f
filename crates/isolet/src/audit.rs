//! `isolet audit`: shows a tenant's audit log, and looks whether it, or an export of it, is as it was
//! written. Reads the data directory; needs no running server.

use crate::{
    client::output::{print_message, write},
    config::DATA_DIR,
};
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use isolet_sandbox::{
    SandboxId, TenantId,
    audit::{Expected, Place, Verdict, verify},
};
use std::{path::PathBuf, process::ExitCode};

/// Flags of `isolet audit`.
#[derive(Parser)]
#[command(after_help = "\
  isolet audit show --tenant acme > acme.ndjson
  isolet audit verify --tenant acme
  isolet audit verify --tenant acme acme.ndjson")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// The server's data directory
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR", default_value = DATA_DIR, global = true)]
    data_dir: PathBuf,
    /// Whose log
    #[arg(long, default_value = "default", global = true)]
    tenant: TenantId,
}

#[derive(Subcommand)]
enum What {
    /// Show a log, one entry a line, the oldest first.
    #[command(after_help = "\
  isolet audit show --tenant acme
  isolet audit show --sandbox demo | jq -r '.ts + \" \" + .event'")]
    Show {
        /// What was done to this sandbox alone
        #[arg(long)]
        sandbox: Option<SandboxId>,
    },
    /// Find entries that were changed, left out, moved or cut off; ends with 1 where there are any.
    #[command(after_help = "\
  isolet audit verify --tenant acme
  isolet audit verify --tenant acme acme.ndjson
  isolet audit verify --earlier last-month.ndjson")]
    Verify {
        /// An export, whole or of one sandbox; without one the log itself
        file: Option<PathBuf>,
        /// It was exported earlier: it may end before the log does
        #[arg(long, requires = "file")]
        earlier: bool,
    },
}

/// Carries out `isolet audit`.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let place = Place::open(&args.data_dir).with_context(|| {
        let data = args.data_dir.display();
        format!(
            "no server has kept an audit log in {data}; name its data directory with --data-dir"
        )
    })?;
    let tenant = args.tenant.as_str();
    match args.what {
        What::Show { sandbox } => {
            let mut written = Ok(());
            place.read(tenant, sandbox.as_ref().map(SandboxId::as_str), |line| {
                written = write(true, line);
                written.is_ok()
            })?;
            written?;
            Ok(ExitCode::SUCCESS)
        }
        What::Verify { file: None, .. } => {
            let verdict = place.verify(tenant).with_context(|| {
                let known = place.tenants().unwrap_or_default().join(", ");
                format!("tenant {tenant} has no log; these have: {known}")
            })?;
            tell(&verdict)
        }
        What::Verify { file: Some(file), earlier } => {
            let expected = if earlier { Expected::Earlier } else { Expected::Now };
            tell(&verify(&place, tenant, &file, expected)?)
        }
    }
}

fn tell(verdict: &Verdict) -> Result<ExitCode> {
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
        print_message(format_args!("{} entries{range}: all as they were written", verdict.good));
        return Ok(ExitCode::SUCCESS);
    }
    print_message(format_args!(
        "{} entries{range} are as they were written; above is what is not",
        verdict.good
    ));
    Ok(ExitCode::FAILURE)
}
