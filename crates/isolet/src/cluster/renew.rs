//! `isolet cluster renew`.

use crate::client::list::pretty;
use crate::client::output::print_message;
use crate::cluster::{AuthorityDirectory, days, issued_json, list, now_s, open};
use anyhow::Result;
use clap::Parser;
use isolet_peer::certificates::{CertificateError, NODE_DAYS, RENEW_DAYS};
use isolet_wire::node::NodeName;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// Arguments of `isolet cluster renew`.
#[derive(Parser)]
#[command(after_help = "\
Without names, all nodes are renewed whose newest certificate ends within 30 days (--within), or is
from the old CA during a rotation. Revoke the certificates of nodes that you remove: they are then no
longer renewed. The files of each node are written into a directory with its name. Running servers
take them into use without a restart, and connections stay open until their certificate ends.

  isolet cluster renew --dir ca --out renewed
  isolet cluster renew node-1 --dir ca --out renewed
  for node in renewed/*; do scp $node/* root@$(basename $node):/etc/isolet/peer/; done")]
pub(super) struct Args {
    /// Renew these nodes only, whenever their certificates end
    #[arg(value_name = "NODE")]
    nodes: Vec<NodeName>,
    #[command(flatten)]
    ca: AuthorityDirectory,
    /// Write the files of each node into a directory below this one
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Renew certificates that end within this number of days
    #[arg(long, value_name = "N", default_value_t = RENEW_DAYS)]
    within: u32,
    /// Number of days for which the new certificates are valid
    #[arg(long, value_name = "N", default_value_t = NODE_DAYS, value_parser = days())]
    days: u32,
}

pub(super) fn run(args: &Args, json: bool) -> Result<ExitCode> {
    let now_s = now_s();
    let mut cluster = open(&args.ca)?;
    let index = cluster.index();
    let mut nodes = args.nodes.clone();
    for node in &nodes {
        if !index.certificates().iter().any(|record| record.node == *node) {
            return Err(CertificateError::Unknown(node.to_string()).into());
        }
    }
    if nodes.is_empty() {
        nodes = index.due(i64::from(args.within) * DAY_S, now_s);
    }
    let mut renewed: Vec<Value> = Vec::new();
    for node in &nodes {
        let out = args.out.join(node.as_str());
        let issued = cluster.issue(node, args.days, &out, now_s)?;
        if !json {
            let expires = list::moment(issued.record.expires_at_s);
            let serial = &issued.record.serial;
            print_message(format_args!("issued {serial} to {node}, valid until {expires}"));
        }
        renewed.push(issued_json(&issued, &out));
    }
    if nodes.is_empty() {
        cluster.sign_lists(now_s)?;
    }
    let lists = cluster.lists_file();
    if json {
        return pretty(&json!({"renewed": renewed, "files": {"revoked": lists}}));
    }
    if nodes.is_empty() {
        print_message(format_args!(
            "no certificate ends within {} days; {} was signed again",
            args.within,
            lists.display()
        ));
    } else {
        let out = args.out.display();
        print_message(format_args!("copy {out}/NODE to each node, then delete the keys here"));
    }
    Ok(ExitCode::SUCCESS)
}
