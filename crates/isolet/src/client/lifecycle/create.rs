//! `isolet create`: creates a sandbox with its image, limits and network.

use crate::client::args::credential::{self, Credential, credential};
use crate::client::args::format::OutputFormat;
use crate::client::args::units::{cpu_millis, mebibytes, seconds};
use crate::client::list::{pretty, text};
use crate::client::network::asked;
use crate::client::output::write;
use crate::client::{ApiClient, id, variable};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Arguments of `isolet create`.
#[derive(Parser)]
#[command(after_help = "\
Prints the id. Other commands create a missing sandbox with defaults; this one sets its image, limits
and network. A rule is HOST, *.HOST, an address, a network (10.0.0.0/8) or *, each with optional :PORT.

  isolet create demo --network open
  isolet create demo --allow example.com:443 --allow '*.example.org'
  isolet create demo --profile packages
  isolet create --memory 2g --cpu 0.5cpu --ttl 1h
  isolet create --snapshot ready
  isolet create demo --snapshot-every 1h --keep 24 --snapshot-on-destroy
  isolet create demo --region eu --node-label gpu=yes
  isolet create demo --allow api.example.com --credential api.example.com:Authorization=@key.txt

The egress proxy injects a credential into requests to its host; the sandbox never sees the value.
HOST:HEADER=SOURCE sets the header. HOST:{PLACEHOLDER}=SOURCE replaces the word PLACEHOLDER in
headers that the sandbox sends. SOURCE is @FILE, - for standard input, or env:NAME. The command line
never holds the value, because all processes of this machine can read command lines.")]
pub(crate) struct Args {
    /// Set the id [default: generated]
    #[arg(value_parser = id)]
    id: Option<String>,
    /// Use this image (python:3.12-slim); the server pulls it if it is missing [default: host, the
    /// programs of the server's machine]
    #[arg(long)]
    image: Option<String>,
    /// Start with the files, shells and settings of this snapshot (id or name)
    #[arg(long, value_parser = id, conflicts_with = "image")]
    snapshot: Option<String>,
    /// Limit the memory of its processes: 512m, 2g; a number without a unit is in MiB
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    memory: Option<u64>,
    /// Limit its processor time: 0.5cpu, 2cpu, 500m; a number without a unit is in thousandths
    #[arg(long, value_name = "CPU", value_parser = cpu_millis)]
    cpu: Option<u64>,
    /// Set the size of its disk, at least 32m: 512m, 20g; a number without a unit is in MiB
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    disk: Option<u64>,
    /// Limit the number of its processes and threads
    #[arg(long, value_name = "COUNT")]
    pids: Option<u64>,
    /// Delete the sandbox after this time: 90s, 10m, 1h, 7d; a number without a unit is in seconds
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    ttl: Option<u64>,
    /// Let it sleep when it was idle for this time; 0 means never
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    sleep_after: Option<u64>,
    /// Delete its files when it sleeps
    #[arg(long)]
    ephemeral: bool,
    /// Set an environment variable of all its shells and programs. Repeatable
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Allow only loopback, or all destinations that are not closed to every sandbox
    #[arg(long, value_name = "none|open", conflicts_with_all = ["profile", "allow", "deny"], value_parser = ["none", "open"])]
    network: Option<String>,
    /// Use the rules of this network profile
    #[arg(long, visible_alias = "network-profile", value_name = "NAME", conflicts_with_all = ["allow", "deny"])]
    profile: Option<String>,
    /// Allow this destination. Repeatable
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Deny this destination, even if --allow matches it. Repeatable
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// Inject a credential into requests to its host; the value is never visible inside. Repeatable
    #[arg(long, value_name = "HOST:HEADER=SOURCE", value_parser = credential)]
    credential: Vec<Credential>,
    /// In a fleet: place it in this region [default: that of the node that gets the request]
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// In a fleet: place it on a node with this label. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    node_label: Vec<(String, String)>,
    /// Take a snapshot at this interval (90s, 30m, 1h, 1d), while the sandbox changes
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    snapshot_every: Option<u64>,
    /// Delete the oldest snapshots at intervals beyond this number, 1 to 100 [default: 5]
    #[arg(long, value_name = "COUNT", requires = "snapshot_every")]
    keep: Option<u64>,
    /// Take a snapshot before the sandbox is deleted, also by --ttl
    #[arg(long)]
    snapshot_on_destroy: bool,
    /// Let another node of the fleet take the sandbox over when its node is lost (store), or not
    /// [default: node]
    #[arg(long, value_name = "node|store", value_parser = ["node", "store"])]
    class: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let mut body = wish(&args);
    if !args.credential.is_empty() {
        body.insert("credentials".into(), credential::credentials(&args.credential)?.into());
    }
    let body = Value::from(body);
    let made = asked(&ApiClient::find()?, Method::POST, "/v1/sandboxes", Some(&body)).await?;
    if args.format.is_json() {
        return pretty(&made);
    }
    write(true, format!("{}\n", text(&made["id"])).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The body of the request.
fn wish(args: &Args) -> Map<String, Value> {
    let mut body = Map::new();
    for (name, value) in [
        ("id", &args.id),
        ("image", &args.image),
        ("snapshot", &args.snapshot),
        ("network_profile", &args.profile),
        ("region", &args.region),
        ("class", &args.class),
    ] {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
    }
    for (name, value) in [
        ("memory_mib", args.memory),
        ("cpu_millis", args.cpu),
        ("disk_mib", args.disk),
        ("pids", args.pids),
        ("ttl_s", args.ttl),
        ("sleep_after_s", args.sleep_after),
        ("snapshot_every_s", args.snapshot_every),
        ("keep", args.keep),
    ] {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
    }
    if args.ephemeral {
        body.insert("persistent".into(), json!(false));
    }
    if args.snapshot_on_destroy {
        body.insert("snapshot_on_destroy".into(), json!(true));
    }
    for (name, pairs) in [("env", &args.env), ("labels", &args.node_label)] {
        if !pairs.is_empty() {
            let all: Map<String, Value> =
                pairs.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            body.insert(name.into(), all.into());
        }
    }
    if let Some(word) = &args.network {
        body.insert("network".into(), json!(word));
    } else if !args.allow.is_empty() || !args.deny.is_empty() {
        body.insert("network".into(), json!({"allow": args.allow, "deny": args.deny}));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_for(flags: &[&str]) -> Result<Value, clap::Error> {
        let words = ["create"].iter().chain(flags);
        Args::try_parse_from(words).map(|args| Value::from(wish(&args)))
    }

    #[test]
    fn what_is_asked_for_is_what_the_flags_say() {
        assert_eq!(asked_for(&["demo"]).unwrap(), json!({"id": "demo"}));
        assert_eq!(asked_for(&["--network", "open"]).unwrap(), json!({"network": "open"}));
        let rules = json!({"network": {"allow": ["a.b:443", "c.d"], "deny": ["e.f"]}, "ttl_s": 5});
        let flags = ["--allow", "a.b:443", "--allow", "c.d", "--deny", "e.f", "--ttl", "5"];
        assert_eq!(asked_for(&flags).unwrap(), rules);
        let profile = json!({"network_profile": "packages"});
        assert_eq!(asked_for(&["--profile", "packages"]).unwrap(), profile);
        let flags = ["--region", "eu", "--node-label", "gpu=yes", "--node-label", "disk=nvme"];
        let node = json!({"region": "eu", "labels": {"gpu": "yes", "disk": "nvme"}});
        assert_eq!(asked_for(&flags).unwrap(), node);
        let flags = ["--snapshot-every", "1h", "--keep", "7", "--snapshot-on-destroy"];
        let snapshots = json!({"snapshot_every_s": 3600, "keep": 7, "snapshot_on_destroy": true});
        assert_eq!(asked_for(&flags).unwrap(), snapshots);
        assert_eq!(asked_for(&["--class", "store"]).unwrap(), json!({"class": "store"}));
        let flags = ["--memory", "2g", "--cpu", "0.5cpu", "--disk", "1g", "--sleep-after", "10m"];
        let limits = json!({"memory_mib": 2048, "cpu_millis": 500, "disk_mib": 1024,
                            "sleep_after_s": 600});
        assert_eq!(asked_for(&flags).unwrap(), limits);
        let flags = ["--ephemeral", "--pids", "64", "--ttl", "1h"];
        let short = json!({"persistent": false, "pids": 64, "ttl_s": 3600});
        assert_eq!(asked_for(&flags).unwrap(), short);
        for wrong in [
            &["--network", "rules"][..],
            &["--class", "other"],
            &["--keep", "3"],
            &["--node-label", "gpu"],
            &["--snapshot-every", "h"],
            &["--snapshot-every", "1w"],
            &["--memory", "much"],
            &["--cpu", "2"],
            &["--network", "open", "--allow", "a"],
            &["--profile", "a", "--network", "none"],
            &["--profile", "a", "--deny", "b"],
        ] {
            assert!(asked_for(wrong).is_err(), "{wrong:?}");
        }
    }
}
