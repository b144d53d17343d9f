//! `isolet create`: creates a sandbox with its image, limits and network.

use super::credential::{self, Credential, credential};
use super::list::{pretty, text};
use super::network::asked;
use super::output::write;
use super::{ApiClient, id, variable};
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
  isolet create --memory 2048 --ttl 3600
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
    /// Limit the memory of its processes, in MiB
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Limit its processor time, in thousandths of one core
    #[arg(long, value_name = "MILLIS")]
    cpu: Option<u64>,
    /// Delete the sandbox after this number of seconds
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,
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
    #[arg(long, value_name = "TIME", value_parser = interval)]
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
    /// Print JSON for scripts instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let mut body = wish(&args);
    if !args.credential.is_empty() {
        body.insert("credentials".into(), credential::credentials(&args.credential)?.into());
    }
    let body = Value::from(body);
    let made = asked(&ApiClient::find()?, Method::POST, "/v1/sandboxes", Some(&body)).await?;
    if args.json {
        return pretty(&made);
    }
    write(true, format!("{}\n", text(&made["id"])).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Parses a time in seconds: a number, with `s`, `m`, `h` or `d` behind it if it is not in seconds.
fn interval(text: &str) -> Result<u64, String> {
    let unit = text.chars().last().filter(char::is_ascii_alphabetic);
    let number = &text[..text.len() - unit.map_or(0, char::len_utf8)];
    let seconds = match unit {
        None | Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        Some(_) => 0,
    };
    let parsed = number.parse::<u64>().ok().filter(|_| seconds > 0);
    let time = parsed.and_then(|number| number.checked_mul(seconds));
    time.ok_or_else(|| "must be a time such as 90s, 30m, 1h or 1d".to_owned())
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
        ("ttl_s", args.ttl),
        ("snapshot_every_s", args.snapshot_every),
        ("keep", args.keep),
    ] {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
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
        let times = ["90", "90s", "2m", "1d"].map(|text| interval(text).unwrap());
        assert_eq!(times, [90, 90, 120, 86_400]);
        for wrong in [
            &["--network", "rules"][..],
            &["--class", "other"],
            &["--keep", "3"],
            &["--node-label", "gpu"],
            &["--snapshot-every", "h"],
            &["--snapshot-every", "1w"],
            &["--snapshot-every", "18446744073709551615d"],
            &["--snapshot-every", "\u{e9}"],
            &["--network", "open", "--allow", "a"],
            &["--profile", "a", "--network", "none"],
            &["--profile", "a", "--deny", "b"],
        ] {
            assert!(asked_for(wrong).is_err(), "{wrong:?}");
        }
    }
}
