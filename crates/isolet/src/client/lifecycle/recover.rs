//! `isolet recover`: makes failed sandboxes usable again, and says what is lost.

use crate::client::args::complete;
use crate::client::args::format::OutputFormat;
use crate::client::list::{pretty, text};
use crate::client::output::{print_message, write};
use crate::client::server_error::ServerError;
use crate::client::{ApiClient, id};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use isolet_clock::rfc3339;
use serde_json::Value;
use std::process::ExitCode;

/// Arguments of `isolet recover`.
#[derive(Parser)]
#[command(after_help = "\
A failed sandbox that is persistent becomes `sleeping`, with its files and the saved state of its
shells; the next command wakes it. A sandbox that has not failed stays as it is. Continues if one
sandbox cannot be recovered, and exits with 1 then.

  isolet recover demo
  isolet ls -q --filter state=failed | xargs -r isolet recover
  isolet recover demo --json | jq .lost")]
pub(crate) struct Args {
    /// Ids of the sandboxes to recover
    #[arg(required = true, value_parser = id, add = complete::sandboxes())]
    ids: Vec<String>,
    #[command(flatten)]
    format: OutputFormat,
}

/// Continues if one sandbox cannot be recovered.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let mut all = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for id in args.ids {
        match server.json(Method::POST, &format!("/v1/sandboxes/{id}/recover")).await {
            Ok((recovered, _)) => all.push(recovered),
            Err(error) if error.is::<ServerError>() => {
                print_message(error);
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error.context(format!("sandbox {id} was not recovered"))),
        }
    }
    if args.format.is_json() {
        pretty(&all)?;
    } else {
        let lines: String = all.iter().map(describe).collect();
        write(true, lines.as_bytes())?;
    }
    Ok(code)
}

pub(super) fn describe(recovered: &Value) -> String {
    let mut lines = format!("{} is {}\n", text(&recovered["id"]), text(&recovered["state"]));
    let words: Vec<String> = recovered["lost"].as_array().into_iter().flatten().map(text).collect();
    if !words.is_empty() {
        lines.push_str(&format!("  lost: {}\n", words.join(", ").replace('_', " ")));
    }
    for state in recovered["lost_state"].as_array().into_iter().flatten() {
        let session = text(&state["session"]);
        let reason = text(&state["why"]);
        let since = state["saved_at_ms"].as_i64().map_or_else(
            || "everything".to_owned(),
            |saved| format!("changes since {}", rfc3339(saved)),
        );
        lines.push_str(&format!("  lost of the shell of session {session}: {since} ({reason})\n"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_is_lost() {
        let recovered = serde_json::json!({
            "id": "demo", "state": "sleeping", "lost": ["shells", "shell_state"],
            "lost_state": [{"session": "a", "why": "crash", "saved_at_ms": 0}],
        });
        assert_eq!(
            describe(&recovered),
            "demo is sleeping\n  lost: shells, shell state\n  \
             lost of the shell of session a: changes since 1970-01-01T00:00:00.000Z (crash)\n"
        );
        assert_eq!(describe(&serde_json::json!({"id": "x", "state": "running"})), "x is running\n");
    }
}
