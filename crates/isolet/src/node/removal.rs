//! `isolet node rm`.

use super::source::Source;
use crate::client::list::{pretty, text};
use crate::client::output::print_message;
use anyhow::{Context, Result, bail};
use clap::Parser;
use isolet_http::fleet::NodeChange;
use isolet_wire::node::NodeName;
use serde_json::{Value, json};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// Maximum number of sandboxes that are named before the question.
const NAMED_MAX: usize = 20;

/// Arguments of `isolet node rm`.
#[derive(Parser)]
pub(super) struct Args {
    /// Name of the node
    #[arg(value_name = "NODE")]
    node: NodeName,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Also give up the ids of its sandboxes of the class `node`, so that they can be used again
    #[arg(long)]
    release: bool,
}

pub(super) async fn run(source: &Source, args: &Args, json: bool) -> Result<ExitCode> {
    let node = &args.node;
    let before = source.get(node).await?;
    let state = text(&before["state"]);
    if !matches!(state.as_str(), "lost" | "dead") {
        bail!(
            "node {node} is {state}, so it cannot be removed: stop its server and wait until its lease \
             has ended (`isolet node cordon {node}` keeps new sandboxes away)"
        );
    }
    let losses = losses(node, &before, args.release);
    for line in &losses {
        print_message(line);
    }
    if !args.yes {
        confirm(node)?;
    }
    let declares = state != "dead";
    if declares {
        source.change(node, NodeChange::DeclareDead).await?;
    }
    let forgotten = source.forget(node, args.release).await?;
    let released = forgotten.as_ref().map_or(&Value::Null, |gone| &gone["released"]);
    if json {
        return pretty(&json!({
            "name": node, "declared_dead": declares, "forgotten": forgotten.is_some(),
            "released": released, "owned": before["owned"],
        }));
    }
    match &forgotten {
        Some(_) if args.release => {
            print_message(format_args!("node {node} is forgotten, and {released} ids are free"));
        }
        Some(_) => print_message(format_args!("node {node} is forgotten")),
        None => print_message(format_args!(
            "node {node} is dead, and still listed because it owns sandboxes: `isolet node rm {node} \
             --release` gives up the ids of those of the class node; others take over the rest"
        )),
    }
    Ok(ExitCode::SUCCESS)
}

/// What the removal costs, one line each.
fn losses(node: &NodeName, info: &Value, release: bool) -> Vec<String> {
    let owned = &info["owned"];
    let count = |name: &str| owned[name].as_u64().unwrap_or_default();
    let mut lines = Vec::new();
    match count("node") {
        0 => lines.push(format!("no sandbox has its files on {node} only")),
        lost => {
            let most = if owned["is_cut"] == true { "at least " } else { "" };
            lines.push(format!(
                "{most}{lost} sandboxes of the class node have their files on {node} only; if it does \
                 not return, these are lost with all their files:"
            ));
            let names = owned["first"].as_array().map(Vec::as_slice).unwrap_or_default();
            lines.extend(names.iter().take(NAMED_MAX).map(|name| format!("  {}", text(name))));
            let named = names.len().min(NAMED_MAX) as u64;
            if lost > named {
                lines.push(format!("  and {} more", lost - named));
            }
            if release {
                lines.push("their ids are given up: the next request creates a new sandbox".into());
            }
        }
    }
    if count("store") > 0 {
        lines.push(format!(
            "{} sandboxes of the class store continue on other nodes, from their latest snapshot",
            count("store")
        ));
    }
    lines
}

/// Asks for the name of the node.
fn confirm(node: &NodeName) -> Result<()> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("add --yes to remove node {node} without a question; nothing was changed");
    }
    let mut stderr = std::io::stderr();
    write!(stderr, "Type the name of the node to declare it dead: ").context("cannot ask")?;
    stderr.flush().context("cannot ask")?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).context("cannot read the answer")?;
    if answer.trim() == node.as_str() {
        return Ok(());
    }
    bail!("the answer is not {node}; nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_says_what_is_lost() {
        let node = NodeName::parse("n").unwrap();
        let first: Vec<String> = (0..30).map(|n| format!("t/s{n}")).collect();
        let info = json!({"owned": {"node": 40, "store": 2, "first": first, "is_cut": false}});
        let lines = losses(&node, &info, true);
        assert!(lines[0].starts_with("40 sandboxes of the class node"), "{lines:?}");
        assert_eq!(lines[1], "  t/s0");
        assert_eq!(lines[21], "  and 20 more");
        assert!(lines[22].contains("new sandbox") && lines[23].starts_with("2 sandboxes"));
        let none = losses(&node, &json!({"owned": {"node": 0, "store": 0}}), false);
        assert_eq!(none, ["no sandbox has its files on n only"]);
    }
}
