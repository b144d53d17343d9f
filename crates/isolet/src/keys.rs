//! `isolet keys`: creates, lists and revokes API keys in a data directory, and rotates keys of all kinds. A running server sees the
//! change at once.

mod rotate;

use crate::client::args::format::OutputFormat;
use crate::client::output::{print_message, write};
use crate::config::DATA_DIR;
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use isolet_clock::{now_ms, rfc3339};
use isolet_sandbox::{KeyFormat, Keys, NewKey, TenantId, check_format, check_or_write_format};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet keys`.
#[derive(Parser)]
#[command(after_help = "\
  isolet keys add --tenant acme --label laptop
  isolet keys add --read-only --expires 30d
  isolet keys ls
  isolet keys revoke key_0123456789abcdef
  isolet keys rotate api key_0123456789abcdef
  isolet keys rotate links
  isolet keys rotate audit")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: KeyCommand,
    /// Read this data directory of a server
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR", default_value = DATA_DIR, global = true)]
    data_dir: PathBuf,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Create a key. It is printed once; the server stores only its hash.
    #[command(after_help = "\
  isolet keys add --tenant acme --label laptop
  isolet keys add --read-only --expires 30d
  isolet keys add --e2b --label sdk")]
    Add {
        /// Create the key for this tenant
        #[arg(long, default_value = "default")]
        tenant: TenantId,
        /// Set a label that helps you to recognise the key
        #[arg(long, default_value = "")]
        label: String,
        /// Allow only requests that change nothing
        #[arg(long)]
        read_only: bool,
        /// Let the key expire after this time: 90s, 15m, 12h, 30d
        #[arg(long, value_name = "TIME", value_parser = span)]
        expires: Option<i64>,
        /// Write the key in the format that E2B's clients expect: e2b_ and 40 hexadecimal digits
        #[arg(long)]
        e2b: bool,
    },
    /// List keys with their expiry and last use, without their secrets.
    #[command(after_help = "\
Times are in UTC. The server records the last use of a key once a minute, and when it stops.

  isolet keys ls
  isolet keys ls --json | jq -r '.[].id'")]
    Ls {
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Replace a key: an API key, the secrets of links, or the key that signs audit logs.
    Rotate(rotate::Args),
    /// Revoke a key by its id.
    #[command(after_help = "  isolet keys revoke key_0123456789abcdef")]
    Revoke {
        /// Id of the key, from `isolet keys ls`
        id: String,
    },
}

/// Parses a duration. Returns milliseconds.
fn span(text: &str) -> Result<i64, String> {
    let wrong = || "use a number and s, m, h or d, such as 30d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: i64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let ms = number.checked_mul(seconds * 1000).filter(|ms| (0..=3_200_000_000_000).contains(ms));
    ms.ok_or_else(wrong)
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let args_data_dir = args.data_dir.clone();
    match args.command {
        KeyCommand::Add { .. } => check_or_write_format(&args.data_dir)?,
        _ => drop(check_format(&args.data_dir)?),
    }
    let file = args.data_dir.join("isolet.db");
    if !file.try_exists()? && !matches!(args.command, KeyCommand::Add { .. }) {
        bail!(
            "{} is not the data directory of a server; set it with --data-dir",
            args.data_dir.display()
        );
    }
    if let KeyCommand::Rotate(args) = args.command {
        return rotate::run(&args, &args_data_dir);
    }
    let keys = Keys::open(&file).with_context(|| format!("cannot open {}", file.display()))?;
    match args.command {
        KeyCommand::Add { tenant, label, read_only, expires, e2b } => {
            let expires_at_ms = expires.map(|ms| now_ms() + ms);
            let tenant = tenant.as_str().to_owned();
            let format = if e2b { KeyFormat::E2b } else { KeyFormat::Isolet };
            let new = NewKey { tenant, label, read_only, expires_at_ms, format };
            let (key, secret) = keys.add(&new)?;
            write(true, format!("{secret}\n").as_bytes())?;
            print_message(format_args!(
                "this is {} of tenant {}; it will not be shown again",
                key.id, key.tenant
            ));
        }
        KeyCommand::Ls { format } => list(&keys, format.is_json())?,
        KeyCommand::Rotate(_) => {}
        KeyCommand::Revoke { id } => {
            if !keys.revoke(&id)? {
                bail!("no active key {id}; see `isolet keys ls`");
            }
            print_message(format_args!("{id} was revoked"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(keys: &Keys, json: bool) -> Result<()> {
    let all = keys.list()?;
    if json {
        let all: Vec<_> = all
            .iter()
            .map(|key| {
                serde_json::json!({
                    "id": key.id, "tenant": key.tenant, "label": key.label,
                    "read_only": key.read_only, "created_at_ms": key.created_at_ms,
                    "expires_at_ms": key.expires_at_ms, "revoked_at_ms": key.revoked_at_ms,
                    "last_used_at_ms": key.last_used_at_ms,
                })
            })
            .collect();
        return write(true, format!("{}\n", serde_json::to_string_pretty(&all)?).as_bytes());
    }
    let now = now_ms();
    let mut lines = format!(
        "{:<22} {:<16} {:<5} {:<8} {:<21} {:<21} LABEL\n",
        "ID", "TENANT", "MAY", "STATE", "EXPIRES", "LAST USED"
    );
    for key in all {
        let state = if key.revoked_at_ms.is_some() {
            "revoked"
        } else if key.expires_at_ms.is_some_and(|at| at <= now) {
            "expired"
        } else {
            "open"
        };
        let may = if key.read_only { "read" } else { "all" };
        let label = key.label.escape_debug();
        let id = &key.id;
        let tenant = &key.tenant;
        let expires = moment(key.expires_at_ms);
        let used = moment(key.last_used_at_ms);
        lines.push_str(&format!(
            "{id:<22} {tenant:<16} {may:<5} {state:<8} {expires:<21} {used:<21} {label}\n"
        ));
    }
    write(true, lines.as_bytes())
}

/// A time to the second, in UTC.
fn moment(ms: Option<i64>) -> String {
    ms.map_or_else(|| "never".to_owned(), |ms| rfc3339(ms / 1000 * 1000).replace(".000Z", "Z"))
}

#[cfg(test)]
mod tests {
    use super::{moment, span};

    #[test]
    fn times_have_seconds_and_can_be_never() {
        assert_eq!(moment(None), "never");
        assert_eq!(moment(Some(1_709_251_199_987)), "2024-02-29T23:59:59Z");
    }

    #[test]
    fn spans_have_units() {
        assert_eq!(span("90s"), Ok(90_000));
        assert_eq!(span("30d"), Ok(30 * 86_400_000));
        for bad in ["", "30", "d", "-1s", "1w", "99999999999999999d", "1ä"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
