//! `isolet node`: lists, cordons and removes the nodes of a fleet. A server answers, or etcd itself.

mod drain;
mod removal;
mod source;
mod table;

use crate::client::args::format::OutputFormat;
use crate::client::list::pretty;
use crate::client::output::{print_message, supports_color, write};
use anyhow::Result;
use clap::{Parser, Subcommand};
use isolet_http::fleet::NodeChange;
use isolet_wire::node::NodeName;
use serde_json::Value;
use source::Source;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet node`.
#[derive(Parser)]
#[command(after_help = "\
Every node of a fleet knows all nodes, so any server can be asked, also about nodes that do not run. Only
a drain needs the running server of the node.
The commands use the server at ISOLET_URL and need a key of the tenant `default`; `isolet node ls` works
with every key, and shows less.

  isolet node ls
  isolet node cordon node-3                keep new sandboxes away, before maintenance
  isolet node uncordon node-3              let new sandboxes come again
  isolet node drain node-3                 move its sandboxes to other nodes
  isolet node rm node-3                    declare a node dead that will not return
  isolet node ls --etcd                    ask etcd, on a node, while no server runs")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: NodeCommand,
    #[command(flatten)]
    format: OutputFormat,
    /// Ask etcd instead of a server, with the table [cluster] of this machine. The audit log records no change
    #[arg(long, global = true)]
    etcd: bool,
    /// Read this configuration file for --etcd [default: /etc/isolet/isolet.toml, if it exists]
    #[arg(long, env = "ISOLET_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum NodeCommand {
    /// List all nodes.
    #[command(after_help = "\
A node is ready, suspect (the server that answers failed to reach it), starting, stopping, lost (its lease
has ended) or dead (an operator has declared it dead). A cordoned node takes no new sandboxes. Memory is what
running sandboxes may use, of what the node has.

  isolet node ls
  isolet node ls --json | jq -r '.nodes[] | select(.state != \"ready\").name'")]
    Ls,
    /// Exclude nodes from placement. Their sandboxes stay.
    #[command(after_help = "\
Works for nodes that do not run, and outlives a restart of the node.

  isolet node cordon node-3
  isolet node cordon node-3 node-4")]
    Cordon {
        /// Names of the nodes
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<NodeName>,
    },
    /// Include nodes in placement again.
    #[command(after_help = "\
  isolet node uncordon node-3")]
    Uncordon {
        /// Names of the nodes
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<NodeName>,
    },
    /// Move all sandboxes of a node to other nodes, before maintenance.
    #[command(after_help = "\
Cordons the node, and moves its sandboxes to other nodes of their regions, four at a time; those of the class
`store` that sleep are only stored away. Needs an object store. The drain runs on the node and continues when
this command is stopped; running it again shows the progress, or continues with what is left. Exits with 1 if
sandboxes are left, and names the reasons.

  isolet node drain node-3
  isolet node drain node-3 --timeout 600
  isolet node uncordon node-3              after the maintenance")]
    Drain(drain::Args),
    /// Declare a node dead that will not return, and forget it once it owns no sandboxes.
    #[command(after_help = "\
Stop the server of the node first, and wait until its lease has ended. Prints what is lost, and asks.
Sandboxes of the class `node` have their files on their node only; those of the class `store` continue on
other nodes from their latest snapshot. A node that was declared dead and starts again is a member again,
with the sandboxes that it still owns.

Also revoke the certificate of the node, if its disk may be in other hands: isolet cluster revoke NODE.

  isolet node rm node-3
  isolet node rm node-3 --yes
  isolet node rm node-3 --release          give up the ids of its sandboxes too, and forget it")]
    Rm(removal::Args),
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let is_etcd = args.etcd;
    let source = Source::open(args.etcd, args.config)?;
    let json = args.format.is_json();
    match args.command {
        NodeCommand::Ls => list(&source, json).await,
        NodeCommand::Cordon { nodes } => change(&source, &nodes, NodeChange::Cordon, json).await,
        NodeCommand::Uncordon { nodes } => {
            change(&source, &nodes, NodeChange::Uncordon, json).await
        }
        NodeCommand::Drain(args) => drain::run(&args, is_etcd, json).await,
        NodeCommand::Rm(args) => removal::run(&source, &args, json).await,
    }
}

async fn list(source: &Source, json: bool) -> Result<ExitCode> {
    let list = source.list().await?;
    if json {
        return pretty(&list);
    }
    write(true, table::table(&list, supports_color(&std::io::stdout())).as_bytes())?;
    for note in table::notes(&list) {
        print_message(note);
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes nodes. Continues if one cannot be changed.
async fn change(
    source: &Source,
    nodes: &[NodeName],
    change: NodeChange,
    json: bool,
) -> Result<ExitCode> {
    let mut changed: Vec<Value> = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for node in nodes {
        match source.change(node, change).await {
            Ok(now) => {
                if !json {
                    print_message(effect(node, change));
                }
                changed.push(now);
            }
            Err(error) => {
                print_message(format_args!("{error:#}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    if json {
        pretty(&changed)?;
    }
    Ok(code)
}

fn effect(node: &NodeName, change: NodeChange) -> String {
    match change {
        NodeChange::Cordon => format!(
            "node {node} takes no new sandboxes; those that it has stay (`isolet node uncordon {node}`)"
        ),
        NodeChange::Uncordon => format!("node {node} takes new sandboxes"),
        NodeChange::DeclareDead => format!("node {node} is declared dead"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_names_are_refused_before_anything_is_sent() {
        let parse = |words: &[&str]| {
            let all = std::iter::once(&"node").chain(words);
            Args::try_parse_from(all).is_ok()
        };
        assert!(parse(&["ls", "--json"]) && parse(&["cordon", "a", "b"]) && parse(&["rm", "a"]));
        assert!(parse(&["ls", "--etcd", "--config", "/x"]));
        for wrong in [&["cordon"][..], &["cordon", "A/B"], &["rm"], &["rm", "a", "b"]] {
            assert!(!parse(wrong), "{wrong:?}");
        }
    }
}
