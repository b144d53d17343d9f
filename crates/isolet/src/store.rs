//! `isolet store`: creates, checks and prunes the object store for copies of snapshots. It talks to
//! the store itself, with the settings of the server.

use crate::client::args::format::OutputFormat;
use crate::client::list::pretty;
use crate::client::output::print_message;
use crate::config::{Overrides, ServerSettings};
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use isolet_repository::{DeepCheck, NotPruned, PRUNE_AGE, Pruned, Repository, StoreSettings};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `isolet store`.
#[derive(Parser)]
#[command(after_help = "\
The table [store] of the configuration file says where the store is. All servers that use it need the
same key file: create it on one, and copy it to the others. Without it, nothing in the store can be read.

  isolet store init
  isolet store check
  isolet store check --deep
  isolet store prune")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: StoreCommand,
    /// Read this configuration file [default: /etc/isolet/isolet.toml, if it exists]
    #[arg(long = "config", env = "ISOLET_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Create the key file and the repository in the store, each unless it exists.
    Init,
    /// Check that the store can be reached and that the key file is the right one.
    #[command(after_help = "\
With --deep, everything in the store is read and decrypted. Exits with 1 if something is missing or damaged.

  isolet store check
  isolet store check --deep --json | jq -r .damages[]")]
    Check {
        /// Read everything of all tenants, and say what is missing or damaged
        #[arg(long)]
        deep: bool,
    },
    /// Delete chunks that no snapshot has any more. Run it once a day, on one server.
    #[command(after_help = "\
Servers may push and pull at the same time. What no snapshot needs is marked first, and deleted by a
later prune, 24 hours or more after the mark, by the clock of the store. An object that cannot be read
keeps all chunks of its tenant: the command goes on with the others, and exits with 1.

  isolet store prune
  isolet store prune --json | jq .deleted_bytes")]
    Prune {
        /// Delete what was marked this number of hours ago. Less than 24 is only safe while no server pushes
        #[arg(long, value_name = "HOURS", default_value_t = PRUNE_AGE.as_secs() / 3600)]
        age: u64,
    },
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let overrides = Overrides { file: args.config, ..Overrides::default() };
    let store = ServerSettings::read(overrides)?.sandboxes.store;
    let store = store.context("the configuration file has no table [store]")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(perform(args.command, &store, args.format.is_json()))
}

async fn perform(command: StoreCommand, store: &StoreSettings, json: bool) -> Result<ExitCode> {
    match command {
        StoreCommand::Init => {
            let (_, created) = Repository::create(store).await?;
            if json {
                return pretty(&json!({
                    "url": store.url, "key_file": store.key_file,
                    "created_key_file": created.key_file, "created_repository": created.repository,
                }));
            }
            let made = |is_new| if is_new { "created" } else { "exists" };
            let key = store.key_file.display();
            print_message(format_args!("key file {key}: {}", made(created.key_file)));
            print_message(format_args!("repository {}: {}", store.url, made(created.repository)));
            if created.key_file {
                print_message("copy the key file to every server, and keep a copy in a safe place");
            }
        }
        StoreCommand::Check { deep: true } => {
            let check = Repository::open(store).await?.check_deep().await?;
            return report_check(&check, json);
        }
        StoreCommand::Check { deep: false } => {
            Repository::open(store).await?;
            if json {
                return pretty(&json!({"url": store.url, "ok": true}));
            }
            print_message(format_args!("{} can be used", store.url));
        }
        StoreCommand::Prune { age } => {
            let age = Duration::from_secs(age.saturating_mul(3600));
            let pruned = Repository::open(store).await?.prune(age).await?;
            report(&pruned, json)?;
            return Ok(if pruned.failed.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn report_check(check: &DeepCheck, json: bool) -> Result<ExitCode> {
    let code = if check.damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if json {
        pretty(&json!({
            "ok": check.damaged == 0,
            "tenants": check.tenants,
            "snapshots": check.snapshots,
            "packs": check.packs,
            "bytes": check.bytes,
            "damaged": check.damaged,
            "damages": check.damages,
        }))?;
        return Ok(code);
    }
    for damage in &check.damages {
        print_message(damage);
    }
    print_message(format_args!(
        "snapshots {}; packs {} ({} MiB); missing or damaged {}",
        check.snapshots,
        check.packs,
        check.bytes.div_ceil(1 << 20),
        check.damaged
    ));
    Ok(code)
}

fn report(pruned: &Pruned, json: bool) -> Result<()> {
    let failed =
        |one: &NotPruned| json!({"directory": one.directory, "error": one.error.to_string()});
    if json {
        pretty(&json!({
            "tenants": pruned.tenants,
            "snapshots": pruned.snapshots,
            "marked_packs": pruned.marked_packs,
            "marked_bytes": pruned.marked_bytes,
            "deleted_packs": pruned.deleted_packs,
            "deleted_bytes": pruned.deleted_bytes,
            "repacked_packs": pruned.repacked_packs,
            "failed": pruned.failed.iter().map(failed).collect::<Vec<_>>(),
        }))?;
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    print_message(format_args!(
        "snapshots {}; marked packs {} ({} MiB), deleted packs {} ({} MiB), packs written again {}",
        pruned.snapshots,
        pruned.marked_packs,
        mib(pruned.marked_bytes),
        pruned.deleted_packs,
        mib(pruned.deleted_bytes),
        pruned.repacked_packs
    ));
    for NotPruned { directory, error } in &pruned.failed {
        print_message(format_args!(
            "{directory}: {error}; nothing more of this tenant was deleted. Restore the object from a backup \
             of the store, or delete the snapshots that need it, and repeat the command"
        ));
    }
    Ok(())
}
