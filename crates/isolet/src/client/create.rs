//! `isolet create`: a sandbox with an image, limits and a network of its own.

use super::{
    Server,
    credential::{self, Credential, credential},
    id,
    list::{pretty, text},
    network::asked,
    output::write,
    variable,
};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Flags of `isolet create`.
#[derive(Parser)]
#[command(after_help = "\
Its id is printed. Other commands make a sandbox by themselves; this one says how it is to be. A
rule is a host, *. and a host, an address, a network (10.0.0.0/8) or *, with or without :PORT.

  isolet create demo --network open
  isolet create demo --allow example.com:443 --allow '*.example.org'
  isolet create demo --profile packages
  isolet create --memory 2048 --ttl 3600
  isolet create demo --allow api.example.com --credential api.example.com:Authorization=@key.txt

A credential is put into requests to its host on their way out; its value never is in the sandbox.
It is HOST:HEADER=SOURCE, where the header is set, or HOST:{PLACEHOLDER}=SOURCE, where the word
stands in the sandbox's own headers. SOURCE is @FILE, - for standard input, or env:NAME; the value
itself is not taken from the command line, which every process of this machine can read.")]
pub(crate) struct Args {
    /// Its id; one is made unless given
    #[arg(value_parser = id)]
    id: Option<String>,
    /// An image by its name (python:3.12-slim), pulled if it is not here; `host`, the default, is the
    /// machine's own programs
    #[arg(long)]
    image: Option<String>,
    /// Memory of its processes, in MiB
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Processor time, in thousandths of one core
    #[arg(long, value_name = "MILLIS")]
    cpu: Option<u64>,
    /// Ends by itself after so many seconds
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,
    /// A variable of every shell and program; may be given again
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Loopback alone, or everything but what is closed to every sandbox
    #[arg(long, value_name = "none|open", conflicts_with_all = ["profile", "allow", "deny"], value_parser = ["none", "open"])]
    network: Option<String>,
    /// The rules of this network profile
    #[arg(long, visible_alias = "network-profile", value_name = "NAME", conflicts_with_all = ["allow", "deny"])]
    profile: Option<String>,
    /// Allow this; may be given again
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Refuse this, also where a rule of --allow has it; may be given again
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// Put this into requests to its host, from outside; may be given again
    #[arg(long, value_name = "HOST:HEADER=SOURCE", value_parser = credential)]
    credential: Vec<Credential>,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// Carries out `isolet create`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let mut body = wish(&args);
    if !args.credential.is_empty() {
        body.insert("credentials".into(), credential::lent(&args.credential)?.into());
    }
    let body = Value::from(body);
    let made = asked(&Server::find()?, Method::POST, "/v1/sandboxes", Some(&body)).await?;
    if args.json {
        return pretty(&made);
    }
    write(true, format!("{}\n", text(&made["id"])).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The sandbox as it is asked for.
fn wish(args: &Args) -> Map<String, Value> {
    let mut body = Map::new();
    for (name, value) in
        [("id", &args.id), ("image", &args.image), ("network_profile", &args.profile)]
    {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
    }
    for (name, value) in
        [("memory_mib", args.memory), ("cpu_millis", args.cpu), ("ttl_s", args.ttl)]
    {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
    }
    if !args.env.is_empty() {
        let env: Map<String, Value> =
            args.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        body.insert("env".into(), env.into());
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
        for wrong in [
            &["--network", "rules"][..],
            &["--network", "open", "--allow", "a"],
            &["--profile", "a", "--network", "none"],
            &["--profile", "a", "--deny", "b"],
        ] {
            assert!(asked_for(wrong).is_err(), "{wrong:?}");
        }
    }
}
