//! `isolet cluster`: the certificate authority of a fleet. The commands work on a directory of the
//! operator; no node needs it.

mod list;
mod renew;
mod rotate;

use crate::client::args::format::OutputFormat;
use crate::client::list::pretty;
use crate::client::output::print_message;
use crate::doctor;
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use isolet_clock::now_ms;
use isolet_peer::PeerFiles;
use isolet_peer::certificates::{
    CertificateError, CertificateRecord, Cluster, Issued, NODE_DAYS, NODE_DAYS_MAX, Revocation,
    Serial,
};
use isolet_wire::node::NodeName;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `isolet cluster`.
#[derive(Parser)]
#[command(after_help = "\
Nodes of a fleet accept connections only with a certificate of the fleet's certificate authority (CA).
The CA is a directory. Keep it on a machine that is no node, with a backup: its key can create nodes.

  isolet cluster init --dir ca
  isolet cluster issue node-1 --dir ca --out node-1
  scp node-1/* root@node-1:/etc/isolet/peer/
  isolet cluster ls --dir ca

Running servers read their files again when they change.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ClusterCommand,
    #[command(flatten)]
    format: OutputFormat,
}

/// Which CA a command uses.
#[derive(clap::Args)]
struct AuthorityDirectory {
    /// Use the CA in this directory
    #[arg(long = "dir", env = "ISOLET_CLUSTER_DIR", value_name = "DIR")]
    path: PathBuf,
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// Create a CA.
    #[command(after_help = "\
Creates DIR with the key of the CA (ca-1-key.pem), its certificate (ca.pem), an empty revocation list
(revoked.pem) and a list of all certificates (index.json). Only its owner can read it.

  isolet cluster init --dir ca")]
    Init {
        #[command(flatten)]
        ca: AuthorityDirectory,
    },
    /// Issue a certificate to a node.
    #[command(after_help = "\
Writes ca.pem, revoked.pem, node.pem and node-key.pem. The key is stored nowhere else: copy the
files to the node, and delete them here. Earlier certificates of the node stay valid.

  isolet cluster issue node-1 --dir ca --out node-1")]
    Issue {
        /// Name of the node: lower-case letters, digits and hyphens
        node: NodeName,
        #[command(flatten)]
        ca: AuthorityDirectory,
        /// Write the files into this directory, which is created if it is missing
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Number of days for which the certificate is valid
        #[arg(long, value_name = "N", default_value_t = NODE_DAYS, value_parser = days())]
        days: u32,
    },
    /// Issue new certificates to nodes whose certificates end soon, and sign the revocation lists.
    Renew(renew::Args),
    /// Revoke the certificates of a node, or one certificate.
    #[command(after_help = "\
Signs revoked.pem again. A node that gets this file closes its connections with the revoked one
within some seconds, and accepts no new ones. Copy the file to one node that runs: it gives the list to
all others through etcd. Lists of more than 900 KiB must be copied to every node.

  isolet cluster revoke node-3 --dir ca
  isolet cluster revoke 5b0e6c2e2b7f4c6f9d8a0f3e1c2d4b5a --dir ca
  scp ca/revoked.pem root@node-1:/etc/isolet/peer/")]
    Revoke {
        /// Name of the node, or serial number of a certificate from `isolet cluster ls`
        #[arg(value_name = "NODE|SERIAL")]
        what: String,
        #[command(flatten)]
        ca: AuthorityDirectory,
    },
    /// Replace the CA while nodes run.
    RotateCa(rotate::Args),
    /// List the CA and all certificates.
    #[command(after_help = "\
A certificate is valid, replaced (valid, but the node has a newer one), expired or revoked.

  isolet cluster ls --dir ca
  isolet cluster ls --dir ca --json | jq -r '.certificates[] | select(.state == \"valid\").node'")]
    Ls {
        #[command(flatten)]
        ca: AuthorityDirectory,
    },
    /// Check the files of a node: who may read them, and whether other nodes accept them.
    #[command(after_help = "\
The exit code is that of `isolet doctor`: 0 if everything is ok, 1 with warnings, 2 with failures.

  isolet cluster check /etc/isolet/peer")]
    Check {
        /// Directory with ca.pem, revoked.pem, node.pem and node-key.pem
        #[arg(value_name = "DIR")]
        files: PathBuf,
        /// Expect the certificate of this node
        #[arg(long, value_name = "NODE")]
        node: Option<NodeName>,
    },
}

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(NODE_DAYS_MAX))
}

fn now_s() -> i64 {
    now_ms() / 1000
}

fn open(ca: &AuthorityDirectory) -> Result<Cluster, CertificateError> {
    Cluster::open(&ca.path, now_s())
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let json = args.format.is_json();
    match args.command {
        ClusterCommand::Init { ca } => init(&ca.path, json),
        ClusterCommand::Issue { node, ca, out, days } => {
            let issued = open(&ca)?.issue(&node, days, &out, now_s())?;
            report_issued(&issued, &out, json)
        }
        ClusterCommand::Renew(args) => renew::run(&args, json),
        ClusterCommand::Revoke { what, ca } => revoke(&what, &ca, json),
        ClusterCommand::RotateCa(args) => rotate::run(&args, json),
        ClusterCommand::Ls { ca } => list::run(&ca.path, json),
        ClusterCommand::Check { files, node } => {
            doctor::print_peer_files(&PeerFiles::in_directory(&files), node.as_ref(), json)
        }
    }
}

fn init(directory: &Path, json: bool) -> Result<ExitCode> {
    let cluster = Cluster::init(directory, now_s())?;
    let authority = cluster.index().authorities().first().context("no authority was created")?;
    let shown = directory.display();
    if json {
        return pretty(&json!({
            "directory": directory, "authority": list::authority(authority),
            "files": {"ca": cluster.authorities_file(), "revoked": cluster.lists_file()},
        }));
    }
    let expires = list::moment(authority.expires_at_s);
    print_message(format_args!("created {:?} in {shown}, valid until {expires}", authority.name));
    print_message(format_args!(
        "the keys in {shown} can create nodes: keep the directory off the nodes, and back it up"
    ));
    print_message(format_args!("next: isolet cluster issue node-1 --dir {shown} --out node-1"));
    Ok(ExitCode::SUCCESS)
}

fn report_issued(issued: &Issued, out: &Path, json: bool) -> Result<ExitCode> {
    if json {
        return pretty(&issued_json(issued, out));
    }
    let CertificateRecord { node, serial, expires_at_s, .. } = &issued.record;
    let out = out.display();
    let expires = list::moment(*expires_at_s);
    print_message(format_args!("issued {serial} to {node}, valid until {expires}"));
    print_message(format_args!(
        "copy the files in {out} to {node}, then delete {out}/node-key.pem here"
    ));
    Ok(ExitCode::SUCCESS)
}

fn issued_json(issued: &Issued, out: &Path) -> Value {
    json!({"certificate": issued.record, "files": PeerFiles::in_directory(out)})
}

fn revoke(what: &str, ca: &AuthorityDirectory, json: bool) -> Result<ExitCode> {
    let revocation = match (Serial::parse(what), NodeName::parse(what)) {
        (Some(serial), _) => Revocation::Certificate(serial),
        (None, Ok(node)) => Revocation::Node(node),
        (None, Err(_)) => return Err(CertificateError::Unknown(what.to_owned()).into()),
    };
    let mut cluster = open(ca)?;
    let revoked = cluster.revoke(&revocation, now_s())?;
    let lists = cluster.lists_file();
    if json {
        return pretty(&json!({"revoked": revoked, "files": {"revoked": lists}}));
    }
    if revoked.is_empty() {
        print_message(format_args!("{what} was revoked before; the list was signed again"));
    }
    for CertificateRecord { serial, node, .. } in &revoked {
        print_message(format_args!("revoked {serial} of {node}"));
    }
    print_message(format_args!(
        "copy {} to every node; each refuses the certificate some seconds later",
        lists.display()
    ));
    Ok(ExitCode::SUCCESS)
}
