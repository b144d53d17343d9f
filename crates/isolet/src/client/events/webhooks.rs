//! `isolet webhooks`: URLs that the server tells about the sandboxes of the tenant.

use crate::client::args::format::OutputFormat;
use crate::client::list::{pretty, text};
use crate::client::network::asked;
use crate::client::output::{print_message, supports_color, write};
use crate::client::server_error::ServerError;
use crate::client::{ApiClient, id};
use anyhow::Result;
use clap::{Parser, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Where all webhooks are.
const PATH: &str = "/v1/webhooks";

/// Arguments of `isolet webhooks`.
#[derive(Parser)]
#[command(after_help = "\
The server sends an HTTP POST to the URL for each event, signed, in order and at least once. The secret
that verifies the signatures is printed once, when a webhook is added or its secret is rotated.

  isolet webhooks add https://example.com/isolet
  isolet webhooks add https://example.com/failed --event sandbox.failed --label pager
  isolet webhooks ls
  isolet webhooks test wh_4b8e1f0a6c2d9753e8b1a4f7c0d36295
  isolet webhooks rm wh_4b8e1f0a6c2d9753e8b1a4f7c0d36295")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: WebhookCommand,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Subcommand)]
enum WebhookCommand {
    /// List the webhooks of the tenant, with the state of their deliveries.
    Ls,
    /// Add a webhook, and print its id and its secret.
    Add {
        /// URL that events are sent to
        url: String,
        /// Send this event: a name, all of a subject (sandbox.*), or *. Repeatable [default: sandbox.*]
        #[arg(long = "event", value_name = "EVENT")]
        events: Vec<String>,
        /// Send the events of this sandbox only
        #[arg(long, value_name = "ID", value_parser = id)]
        sandbox: Option<String>,
        /// Name the webhook, for people
        #[arg(long)]
        label: Option<String>,
    },
    /// Start the deliveries again, from the first event that was not delivered.
    Enable {
        /// Id of the webhook
        webhook: String,
    },
    /// Stop the deliveries; events wait in the audit log.
    Disable {
        /// Id of the webhook
        webhook: String,
    },
    /// Delete webhooks.
    Rm {
        /// Ids of the webhooks
        #[arg(required = true, value_name = "WEBHOOK")]
        webhooks: Vec<String>,
    },
    /// Replace the secret and print the new one. The old one signs for another 24 hours.
    Rotate {
        /// Id of the webhook
        webhook: String,
    },
    /// Send a test event now, and print the status of the receiver. Exits with 1 unless it is 2xx.
    Test {
        /// Id of the webhook
        webhook: String,
    },
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let json = args.format.is_json();
    match args.command {
        WebhookCommand::Ls => list(&server, json).await,
        WebhookCommand::Add { url, events, sandbox, label } => {
            let mut body = Map::from_iter([("url".to_owned(), json!(url))]);
            if !events.is_empty() {
                body.insert("events".to_owned(), json!(events));
            }
            let given = [("sandbox", sandbox), ("label", label)];
            body.extend(
                given
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?)))),
            );
            let made = asked(&server, Method::POST, PATH, Some(&body.into())).await?;
            print_secret(&made, json)
        }
        WebhookCommand::Enable { webhook } => enable(&server, &webhook, true, json).await,
        WebhookCommand::Disable { webhook } => enable(&server, &webhook, false, json).await,
        WebhookCommand::Rm { webhooks } => remove(&server, &webhooks).await,
        WebhookCommand::Rotate { webhook } => {
            let path = format!("{}/rotate", path(&webhook));
            print_secret(&asked(&server, Method::POST, &path, None).await?, json)
        }
        WebhookCommand::Test { webhook } => test(&server, &webhook, json).await,
    }
}

fn path(webhook: &str) -> String {
    let escaped =
        percent_encoding::utf8_percent_encode(webhook, percent_encoding::NON_ALPHANUMERIC);
    format!("{PATH}/{escaped}")
}

async fn list(server: &ApiClient, json: bool) -> Result<ExitCode> {
    let (list, _) = server.json(Method::GET, PATH).await?;
    if json {
        return pretty(&list);
    }
    let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        print_message("no webhooks; add one with `isolet webhooks add URL`");
        return Ok(ExitCode::SUCCESS);
    }
    write(true, table(all, supports_color(&std::io::stdout())).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Value], colours: bool) -> String {
    let width = all.iter().filter_map(|one| one["id"].as_str()).map(str::len).max();
    let width = width.unwrap_or(0).max("WEBHOOK".len());
    let head = format!(
        "{:<width$}  {:<8}  {:>9}  {:>7}  {:>6}  URL",
        "WEBHOOK", "STATE", "DELIVERED", "PENDING", "STATUS"
    );
    let mut table = if colours { format!("\x1b[1m{head}\x1b[0m\n") } else { head + "\n" };
    for one in all {
        let delivery = &one["delivery"];
        let status =
            delivery["last_status"].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string());
        let _ = writeln!(
            table,
            "{:<width$}  {:<8}  {:>9}  {:>7}  {status:>6}  {}",
            text(&one["id"]),
            state(one),
            text(&delivery["delivered"]),
            text(&delivery["pending"]),
            text(&one["url"]),
        );
    }
    table
}

/// The state of a webhook in one word.
fn state(webhook: &Value) -> &'static str {
    let delivery = &webhook["delivery"];
    match delivery["disabled"]["reason"].as_str() {
        _ if webhook["enabled"] == false => "off",
        Some("gone") => "gone",
        Some("key_changed") => "key",
        Some(_) => "failed",
        None if delivery["failures"].as_u64() > Some(0) => "failing",
        None => "on",
    }
}

/// Prints a new secret, which the server does not show again.
fn print_secret(webhook: &Value, json: bool) -> Result<ExitCode> {
    if json {
        return pretty(webhook);
    }
    let lines = format!("{}\n{}\n", text(&webhook["id"]), text(&webhook["secret"]));
    write(true, lines.as_bytes())?;
    print_message("the second line is the secret, which is not shown again");
    Ok(ExitCode::SUCCESS)
}

async fn enable(server: &ApiClient, webhook: &str, enabled: bool, json: bool) -> Result<ExitCode> {
    let body = json!({"enabled": enabled});
    let changed = asked(server, Method::PATCH, &path(webhook), Some(&body)).await?;
    if json { pretty(&changed) } else { Ok(ExitCode::SUCCESS) }
}

/// Continues if one webhook cannot be deleted.
async fn remove(server: &ApiClient, webhooks: &[String]) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for webhook in webhooks {
        let path = path(webhook);
        match server.send(Method::DELETE, &path, "application/json", None).await {
            Ok(_) => {}
            Err(error) if error.is::<ServerError>() => {
                print_message(error);
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error.context(format!("webhook {webhook} was not deleted"))),
        }
    }
    Ok(code)
}

async fn test(server: &ApiClient, webhook: &str, json: bool) -> Result<ExitCode> {
    let path = format!("{}/test", path(webhook));
    let result = asked(server, Method::POST, &path, None).await?;
    let code = if result["error"].is_null() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if json {
        pretty(&result)?;
        return Ok(code);
    }
    match result["error"].as_str() {
        None => {
            let status = text(&result["status"]);
            let ms = text(&result["duration_ms"]);
            write(true, format!("{status} in {ms} ms\n").as_bytes())?;
        }
        Some(error) => print_message(crate::client::output::sanitize(error)),
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_that_gets_no_events_says_why() {
        let webhook = |enabled: bool, failures: u64, reason: Option<&str>| {
            let disabled = reason.map(|reason| json!({"reason": reason, "at_ms": 1}));
            let delivery = json!({"failures": failures, "disabled": disabled});
            json!({"id": "wh_1", "enabled": enabled, "delivery": delivery})
        };
        assert_eq!(state(&webhook(true, 0, None)), "on");
        assert_eq!(state(&webhook(true, 2, None)), "failing");
        assert_eq!(state(&webhook(true, 80, Some("failing"))), "failed");
        assert_eq!(state(&webhook(true, 1, Some("gone"))), "gone");
        assert_eq!(state(&webhook(true, 0, Some("key_changed"))), "key");
        assert_eq!(state(&webhook(false, 1, Some("gone"))), "off");
    }

    #[test]
    fn an_id_cannot_lead_to_another_path() {
        assert_eq!(path("wh_1/../../keys"), "/v1/webhooks/wh%5F1%2F%2E%2E%2F%2E%2E%2Fkeys");
    }
}
