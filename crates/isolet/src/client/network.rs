//! `isolet network`: shows and changes where a sandbox may connect to, and describes refused connections.

use super::args::credential::{self, Credential, Name, credential, named};
use super::args::format::OutputFormat;
use super::list::{pretty, text};
use super::output::{print_message, sanitize, write};
use super::{ApiClient, id};
use crate::client::args::complete;
use anyhow::Result;
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

/// The most refused connections that are listed for one command; further ones are counted.
const SHOWN_MAX: usize = 8;

/// Arguments of `isolet network`.
#[derive(Parser)]
#[command(after_help = "\
Without options, shows the network. With options, changes it, also while the sandbox runs. A rule
is HOST, *.HOST, an address, a network (10.0.0.0/8) or *, each with optional :PORT. Connections that
no rule allows are refused. Deny rules win over allow rules.

  isolet network demo
  isolet network demo --allow-add example.com:443
  isolet network demo --profile packages
  isolet network demo --set none
  isolet network demo --credential-add api.example.com:Authorization=@key.txt
  isolet network demo --credential-remove api.example.com

For credentials, see `isolet create --help`: SOURCE is @FILE, - for standard input, or env:NAME,
never the value.")]
pub(crate) struct Args {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Allow only loopback, or all destinations that are not closed to every sandbox
    #[arg(long, value_name = "none|open", conflicts_with = "profile", value_parser = ["none", "open"])]
    set: Option<String>,
    /// Replace the rules by those of this network profile
    #[arg(long, visible_alias = "network-profile", value_name = "NAME")]
    profile: Option<String>,
    /// Add an allow rule. Repeatable
    #[arg(long, value_name = "RULE")]
    allow_add: Vec<String>,
    /// Remove an allow rule. Repeatable
    #[arg(long, value_name = "RULE")]
    allow_remove: Vec<String>,
    /// Add a deny rule. Repeatable
    #[arg(long, value_name = "RULE")]
    deny_add: Vec<String>,
    /// Remove a deny rule. Repeatable
    #[arg(long, value_name = "RULE")]
    deny_remove: Vec<String>,
    /// Inject a credential into requests to its host; the value is never visible inside. Repeatable
    #[arg(long, value_name = "HOST:HEADER=SOURCE", value_parser = credential)]
    credential_add: Vec<Credential>,
    /// Remove the credentials of a host, or one credential (HOST:HEADER). Repeatable
    #[arg(long, value_name = "HOST[:HEADER]", value_parser = named)]
    credential_remove: Vec<Name>,
    #[command(flatten)]
    format: OutputFormat,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let path = format!("/v1/sandboxes/{}/network", args.id);
    let mut change = change(&args);
    let credentials = credential::credentials(&args.credential_add)?;
    let gone = &args.credential_remove;
    for (name, all) in
        [("credentials_add", credentials), ("credentials_remove", credential::names(gone))]
    {
        if !all.is_empty() {
            change.insert(name.into(), all.into());
        }
    }
    let (method, body) = match change.is_empty() {
        true => (Method::GET, None),
        false => (Method::PATCH, Some(Value::from(change))),
    };
    let network = asked(&server, method, &path, body.as_ref()).await?;
    if args.format.is_json() {
        return pretty(&network);
    }
    let mut lines = format!("network {}\n", text(&network["mode"]));
    if let Some(profile) = network["profile"].as_str() {
        let _ = writeln!(lines, "profile {}", sanitize(profile));
    }
    for name in ["allow", "deny"] {
        for rule in network[name].as_array().into_iter().flatten() {
            let _ = writeln!(lines, "{name:<7} {}", text(rule));
        }
    }
    for one in network["credentials"].as_array().into_iter().flatten() {
        let place = [&one["header"], &one["placeholder"]].into_iter().filter_map(Value::as_str);
        let place: Vec<String> = place.map(sanitize).collect();
        let note = if one["allowed"] == false { " (no rule allows this host)" } else { "" };
        let _ = writeln!(lines, "inject  {} {}{note}", text(&one["host"]), place.join(" "));
    }
    write(true, lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The requested changes; empty if there are none.
fn change(args: &Args) -> Map<String, Value> {
    let mut body = Map::new();
    for (name, value) in [("network", &args.set), ("network_profile", &args.profile)] {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
    }
    for (name, rules) in [
        ("allow_add", &args.allow_add),
        ("allow_remove", &args.allow_remove),
        ("deny_add", &args.deny_add),
        ("deny_remove", &args.deny_remove),
    ] {
        if !rules.is_empty() {
            body.insert(name.into(), json!(rules));
        }
    }
    body
}

/// The JSON response to a request with a body.
pub(super) async fn asked(
    server: &ApiClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value> {
    let answer = server.send(method, path, "application/json", body).await?;
    Ok(serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?)
}

/// Prints the connections that were refused while a command ran, and the command that allows each.
pub(super) fn refusals(response: &Value, id: &str) {
    lines(response, id).iter().for_each(print_message);
}

fn lines(response: &Value, id: &str) -> Vec<String> {
    let all = response["denied"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = all.iter().take(SHOWN_MAX).map(|one| line(one, id)).collect();
    let more = (all.len().saturating_sub(SHOWN_MAX) as u64)
        .saturating_add(response["denied_lost"].as_u64().unwrap_or(0));
    if more > 0 {
        lines.push(format!("{more} more connections were refused"));
    }
    lines
}

fn line(one: &Value, id: &str) -> String {
    let host = text(&one["host"]);
    let rule = text(&one["rule"]);
    let port = one["port"].as_u64().map_or_else(String::new, |port| format!(":{port}"));
    let place = if host.contains(':') && !port.is_empty() {
        format!("[{host}]{port}")
    } else {
        format!("{host}{port}")
    };
    let protocol = text(&one["protocol"]);
    match rule.as_str() {
        "default" => format!(
            "refused: {place} ({protocol}); to allow it: isolet network {id} --allow-add {place}"
        ),
        closed @ ("host" | "this network" | "private" | "loopback" | "metadata" | "link-local"
        | "reserved" | "multicast") => {
            format!("refused: {place} ({protocol}); closed to every sandbox ({closed})")
        }
        "protocol" => format!(
            "refused: {place} ({protocol}): neither TLS nor HTTP; to allow it: isolet network {id} --allow-add {place}"
        ),
        unproven @ ("no name" | "hidden name" | "other host") => format!(
            "refused: {place} ({protocol}): {unproven}, and the rules name hosts; only a rule with the address allows it"
        ),
        "bad request" => format!(
            "refused: {place} ({protocol}): not an HTTP request that the proxy can forward; no rule allows it"
        ),
        "trace" => format!(
            "refused: {place} ({protocol}): TRACE would reveal the injected credential; no rule allows it"
        ),
        "headers too long" => format!(
            "refused: {place} ({protocol}): too many placeholders in one request; no rule allows it"
        ),
        "limit" => format!(
            "refused: {place} ({protocol}): too many connections of this sandbox at once; retry when others have ended"
        ),
        "certificate" => format!(
            "refused: {place} ({protocol}): the program does not trust the certificate in /etc/isolet/credentials.pem"
        ),
        deny => format!(
            "refused: {place} ({protocol}) by {deny}; to allow it: isolet network {id} --deny-remove {deny}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: Q15.
    #[test]
    fn what_was_refused_is_said_with_the_call_that_opens_it() {
        let one = |host: &str, port: Option<u16>, rule: &str| json!({"host": host, "port": port, "protocol": "tcp", "rule": rule, "times": 1});
        let response = json!({"denied": [
            one("a.example", Some(443), "default"),
            one("b.example", None, "*.example"),
            one("10.0.0.1", Some(80), "private"),
            one("fd00::1", Some(80), "default"),
            one("x\u{1b}[31m", None, "default"),
            one("a.example", Some(443), "no name"),
            one("a.example", Some(443), "trace"),
            one("a.example", Some(443), "limit"),
            one("a.example", Some(443), "certificate"),
        ], "denied_lost": 2});
        let lines = lines(&response, "demo");
        assert!(lines[0].ends_with("isolet network demo --allow-add a.example:443"), "{lines:?}");
        assert!(lines[1].ends_with("isolet network demo --deny-remove *.example"), "{lines:?}");
        assert!(lines[2].ends_with("closed to every sandbox (private)"), "{lines:?}");
        assert!(lines[3].ends_with("--allow-add [fd00::1]:80"), "{lines:?}");
        assert!(!lines[4].contains('\u{1b}'), "{lines:?}");
        assert!(lines[5].ends_with("only a rule with the address allows it"), "{lines:?}");
        assert!(lines[6].ends_with("no rule allows it"), "{lines:?}");
        assert!(!lines[7].contains("isolet network"), "no call opens it: {lines:?}");
        assert_eq!(lines[8], "3 more connections were refused");
        for rule in ["headers too long", "limit", "certificate"] {
            let response = json!({"denied": [one("a.example", Some(443), rule)]});
            let line = &super::lines(&response, "demo")[0];
            assert!(!line.contains("isolet network"), "no call opens it: {line}");
        }
        assert!(super::lines(&json!({"exit_code": 0}), "demo").is_empty());
    }
}
