//! `isolet snapshot`: takes, lists, restores and deletes snapshots. `isolet fork`: copies a sandbox.

use super::snapshot_files;
use crate::client::args::complete;
use crate::client::args::format::OutputFormat;
use crate::client::args::units::seconds;
use crate::client::lifecycle::transfer;
use crate::client::list::{pretty, text};
use crate::client::network::asked;
use crate::client::output::{print_message, write};
use crate::client::server_error::ServerError;
use crate::client::{ApiClient, id};
use anyhow::Result;
use clap::{Parser, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

const KIB: f64 = 1024.0;

/// Arguments of `isolet snapshot`.
#[derive(Parser)]
#[command(after_help = "\
A snapshot holds the files of a sandbox and the state of its shells. It does not contain processes,
terminals and credentials.

  isolet snapshot create demo --name ready
  isolet create --snapshot ready
  isolet snapshot restore demo ready
  isolet snapshot ls --json | jq -r '.snapshots[].id'
  isolet snapshot diff before ready
  isolet snapshot files ready /etc
  isolet snapshot cat ready src/main.rs
  isolet snapshot rm ready

Copies in the store that the operator has configured, for other servers:

  isolet snapshot push ready
  isolet snapshot ls --store
  isolet snapshot pull snap_0123456789abcdef
  isolet snapshot rm --store snap_0123456789abcdef")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: SnapshotCommand,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Subcommand)]
enum SnapshotCommand {
    /// Take a snapshot of a running, paused or sleeping sandbox, and print its id.
    Create {
        /// Id of the sandbox
        #[arg(value_parser = id, add = complete::sandboxes())]
        id: String,
        /// Set a name that can stand for the id
        #[arg(long, value_parser = id)]
        name: Option<String>,
        /// Delete the snapshot after this time: 90s, 10m, 1h, 7d
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        ttl: Option<u64>,
    },
    /// List the snapshots of the tenant.
    Ls {
        /// List only the snapshots of this sandbox
        #[arg(value_parser = id, add = complete::sandboxes())]
        id: Option<String>,
        /// List the snapshots in the store, also those of other servers
        #[arg(long, conflicts_with = "id")]
        store: bool,
    },
    /// Replace the files of a sandbox by those of a snapshot, and end what runs in it.
    #[command(after_help = "\
Files, sessions, shell state, image and environment become those of the snapshot. The id, links,
network, limits and metadata of the sandbox stay. If it fails, nothing is changed.

  isolet snapshot restore demo ready
  isolet snapshot restore demo ready --json | jq .lost")]
    Restore {
        /// Id of the sandbox
        #[arg(value_parser = id, add = complete::sandboxes())]
        id: String,
        /// Id or name of the snapshot
        #[arg(value_parser = id, add = complete::snapshots())]
        snapshot: String,
    },
    /// List the paths that differ between two snapshots: A added, C changed, D removed.
    Diff {
        /// Id or name of the first snapshot
        #[arg(value_parser = id, add = complete::snapshots())]
        from: String,
        /// Id or name of the second snapshot
        #[arg(value_parser = id, add = complete::snapshots())]
        to: String,
    },
    /// List a directory of a snapshot: mode, size and path.
    Files {
        /// Id or name of the snapshot
        #[arg(value_parser = id, add = complete::snapshots())]
        snapshot: String,
        /// Directory; a relative path starts in /workspace [default: /workspace]
        path: Option<String>,
        /// List all directories below
        #[arg(long, short)]
        recursive: bool,
    },
    /// Write the content of a file of a snapshot to standard output.
    Cat {
        /// Id or name of the snapshot
        #[arg(value_parser = id, add = complete::snapshots())]
        snapshot: String,
        /// File; a relative path starts in /workspace
        path: String,
    },
    /// Delete snapshots. Sandboxes that were created from them stay.
    Rm {
        /// Ids or names of the snapshots
        #[arg(required = true, value_parser = id, add = complete::snapshots())]
        snapshots: Vec<String>,
        /// Delete them from the store, by their ids; those on servers stay
        #[arg(long)]
        store: bool,
    },
    /// Copy a snapshot to the store. A repeated push sends only what is missing.
    Push {
        /// Id or name of the snapshot
        #[arg(value_parser = id, add = complete::snapshots())]
        snapshot: String,
    },
    /// Copy a snapshot from the store to this server, where it has the same id.
    Pull {
        /// Id of the snapshot, from `isolet snapshot ls --store`
        #[arg(value_parser = id, add = complete::snapshots())]
        snapshot: String,
        /// Give it this name instead of the one it was pushed with
        #[arg(long, value_parser = id)]
        name: Option<String>,
    },
}

/// Arguments of `isolet fork`.
#[derive(Parser)]
#[command(after_help = "\
Prints the ids of the copies. Creates all of them or none.

  isolet fork demo
  isolet fork demo --count 5 --json | jq -r '.forks[].id'")]
pub(crate) struct ForkArgs {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Create this number of copies: 1 to 100
    #[arg(long, short = 'n', default_value_t = 1)]
    count: u32,
    #[command(flatten)]
    format: OutputFormat,
}

/// Runs a subcommand of `isolet snapshot`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    match args.command {
        SnapshotCommand::Create { id, name, ttl } => {
            let mut body = Map::new();
            body.extend(name.map(|name| ("name".to_owned(), json!(name))));
            body.extend(ttl.map(|ttl| ("ttl_s".to_owned(), json!(ttl))));
            let path = format!("/v1/sandboxes/{id}/snapshots");
            let taken = asked(&server, Method::POST, &path, Some(&body.into())).await?;
            if args.format.is_json() {
                return pretty(&taken);
            }
            write(true, format!("{}\n", text(&taken["id"])).as_bytes())?;
            print_lost("not part of the snapshot", &taken);
            Ok(ExitCode::SUCCESS)
        }
        SnapshotCommand::Restore { id, snapshot } => {
            let path = format!("/v1/sandboxes/{id}/restore");
            let body = json!({"snapshot": snapshot});
            let restored = asked(&server, Method::POST, &path, Some(&body)).await?;
            if args.format.is_json() {
                return pretty(&restored);
            }
            print_lost("ended, or not part of the snapshot", &restored);
            Ok(ExitCode::SUCCESS)
        }
        SnapshotCommand::Ls { id: _, store: true } => {
            transfer::list(&server, args.format.is_json()).await
        }
        SnapshotCommand::Ls { id, store: false } => list(&server, id, args.format.is_json()).await,
        SnapshotCommand::Rm { snapshots, store } => {
            let path = if store { "/v1/store/snapshots" } else { "/v1/snapshots" };
            remove(&server, path, snapshots).await
        }
        SnapshotCommand::Push { snapshot } => {
            transfer::push(&server, &snapshot, args.format.is_json()).await
        }
        SnapshotCommand::Pull { snapshot, name } => {
            transfer::pull(&server, &snapshot, name, args.format.is_json()).await
        }
        SnapshotCommand::Diff { from, to } => {
            snapshot_files::diff(&server, &from, &to, args.format.is_json()).await
        }
        SnapshotCommand::Files { snapshot, path, recursive } => {
            let path = path.as_deref();
            snapshot_files::files(&server, &snapshot, path, recursive, args.format.is_json()).await
        }
        SnapshotCommand::Cat { snapshot, path } => {
            snapshot_files::cat(&server, &snapshot, &path).await
        }
    }
}

/// Runs `isolet fork`.
pub(crate) async fn fork(args: ForkArgs) -> Result<ExitCode> {
    let body = json!({"count": args.count});
    let path = format!("/v1/sandboxes/{}/fork", args.id);
    let forked = asked(&ApiClient::find()?, Method::POST, &path, Some(&body)).await?;
    if args.format.is_json() {
        return pretty(&forked);
    }
    let forks = forked["forks"].as_array().into_iter().flatten();
    let lines: String = forks.map(|fork| format!("{}\n", text(&fork["id"]))).collect();
    write(true, lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn print_lost(why: &str, answer: &Value) {
    let words: Vec<String> = answer["lost"].as_array().into_iter().flatten().map(text).collect();
    if !words.is_empty() {
        let words = words.join(", ").replace('_', " ");
        print_message(format_args!("{why}: {words}"));
    }
}

async fn list(server: &ApiClient, sandbox: Option<String>, json: bool) -> Result<ExitCode> {
    let query = sandbox.as_ref().map_or_else(String::new, |id| format!("?sandbox={id}"));
    let (list, _) = server.json(Method::GET, &format!("/v1/snapshots{query}")).await?;
    if json {
        return pretty(&list);
    }
    let all = list["snapshots"].as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        print_message("no snapshots; take one with `isolet snapshot create SANDBOX`");
        return Ok(ExitCode::SUCCESS);
    }
    write(true, table(all).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Value]) -> String {
    let name = |one: &Value| one["name"].as_str().map_or_else(|| "-".to_owned(), str::to_owned);
    let width = |of: &dyn Fn(&Value) -> String, head: &str| {
        all.iter().map(|one| of(one).len()).max().unwrap_or(0).max(head.len())
    };
    let ids = width(&|one| text(&one["id"]), "ID");
    let names = width(&name, "NAME");
    let sandboxes = width(&|one| text(&one["sandbox"]), "SANDBOX");
    let mut table = format!(
        "{:<ids$}  {:<names$}  {:<sandboxes$}  {:>9}  CREATED\n",
        "ID", "NAME", "SANDBOX", "SIZE"
    );
    for one in all {
        let _ = writeln!(
            table,
            "{:<ids$}  {:<names$}  {:<sandboxes$}  {:>9}  {}",
            text(&one["id"]),
            name(one),
            text(&one["sandbox"]),
            size(one["size_bytes"].as_u64().unwrap_or(0)),
            text(&one["created_at"]),
        );
    }
    table
}

pub(super) fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        _ if bytes < KIB * KIB => format!("{:.0} KiB", (bytes / KIB).ceil()),
        _ if bytes < KIB * KIB * KIB => format!("{:.1} MiB", bytes / KIB / KIB),
        _ => format!("{:.1} GiB", bytes / KIB / KIB / KIB),
    }
}

/// Continues if one snapshot cannot be deleted.
async fn remove(server: &ApiClient, path: &str, snapshots: Vec<String>) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for snapshot in snapshots {
        match server
            .send(Method::DELETE, &format!("{path}/{snapshot}"), "application/json", None)
            .await
        {
            Ok(_) => {}
            Err(error) if error.is::<ServerError>() => {
                print_message(error);
                code = ExitCode::FAILURE;
            }
            Err(error) => {
                return Err(error.context(format!("snapshot {snapshot} was not deleted")));
            }
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_aligned_columns_and_readable_sizes() {
        let one = json!({"id": "snap_a", "name": null, "sandbox": "demo", "size_bytes": 1,
                         "created_at": "2026-01-01T00:00:00Z"});
        let other = json!({"id": "snap_bb", "name": "ready", "sandbox": "x",
                           "size_bytes": 5_368_709_120_u64, "created_at": "2026-01-02T00:00:00Z"});
        assert_eq!(
            table(&[one, other]),
            "ID       NAME   SANDBOX       SIZE  CREATED\n\
             snap_a   -      demo         1 KiB  2026-01-01T00:00:00Z\n\
             snap_bb  ready  x          5.0 GiB  2026-01-02T00:00:00Z\n"
        );
        assert_eq!(size(3 << 20), "3.0 MiB");
    }
}
