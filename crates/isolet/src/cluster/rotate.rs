//! `isolet cluster rotate-ca`.

use crate::client::list::pretty;
use crate::client::output::print_message;
use crate::cluster::{AuthorityDirectory, list, now_s, open};
use anyhow::Result;
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `isolet cluster rotate-ca`.
#[derive(Parser)]
#[command(after_help = "\
A rotation has three steps. Between them, copy files to the nodes; none needs a restart:

  isolet cluster rotate-ca start --dir ca      creates a second CA; nodes trust both
    copy ca/ca.pem and ca/revoked.pem to every node
  isolet cluster rotate-ca switch --dir ca     from now on the new CA issues certificates
    isolet cluster renew --dir ca --out renewed, and copy the files to each node
  isolet cluster rotate-ca finish --dir ca     ends the trust in the old CA, deletes its key
    copy ca/ca.pem and ca/revoked.pem to every node

Connections that began with a certificate of the old CA end when a node gets the last files. If the
key of the CA is in other hands, take the steps at once, one after the other.")]
pub(super) struct Args {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Create a second CA, which nodes trust from then on.
    Start(AuthorityDirectory),
    /// Issue certificates by the new CA. Every node must have the files of `start`.
    Switch(AuthorityDirectory),
    /// End the trust in the old CA, and delete its key.
    Finish(AuthorityDirectory),
}

pub(super) fn run(args: &Args, json: bool) -> Result<ExitCode> {
    let now_s = now_s();
    let (Step::Start(ca) | Step::Switch(ca) | Step::Finish(ca)) = &args.step;
    let mut cluster = open(ca)?;
    let shown = ca.path.display();
    let copy = format!("copy {shown}/ca.pem and {shown}/revoked.pem to every node");
    let next = match args.step {
        Step::Start(_) => {
            cluster.start_rotation(now_s)?;
            format!("{copy}; then: isolet cluster rotate-ca switch --dir {shown}")
        }
        Step::Switch(_) => {
            cluster.switch_rotation(now_s)?;
            format!(
                "renew all nodes: isolet cluster renew --dir {shown} --out renewed; copy the files to each node; then: isolet cluster rotate-ca finish --dir {shown}"
            )
        }
        Step::Finish(_) => {
            cluster.finish_rotation(now_s)?;
            copy
        }
    };
    let authorities = cluster.index().authorities();
    if json {
        let authorities: Vec<Value> = authorities.iter().map(list::authority).collect();
        return pretty(&json!({"authorities": authorities, "next": next}));
    }
    let names: Vec<&str> = authorities.iter().map(|authority| authority.name.as_str()).collect();
    print_message(format_args!("trusted: {}", names.join(", ")));
    print_message(format_args!("next: {next}"));
    Ok(ExitCode::SUCCESS)
}
