//! The output of a process: both streams, byte for byte, in the order in which the agent read them.

use super::{path, state};
use crate::client::ApiClient;
use crate::client::events::{SseEvent, SseEvents};
use crate::client::output::{print_message, write};
use crate::client::server_error::ServerError;
use anyhow::{Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Parses a position, or `now`.
pub(crate) fn since(text: &str) -> Result<String, String> {
    match text == "now" || text.parse::<u64>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("use a position (from `isolet ps ID --json`) or `now`".to_owned()),
    }
}

/// Writes the retained output; with `follow`, also new output until the process ends.
pub(crate) async fn show(
    server: &ApiClient,
    which: (&str, &str),
    since: Option<String>,
    follow: bool,
) -> Result<ExitCode> {
    let (process, _) = server.json(Method::GET, &path(which, "")).await?;
    // The output up to the moment of the request.
    let end = if follow { None } else { process["position"].as_u64() };
    let since = since.unwrap_or_else(|| "0".to_owned());
    if end.is_some_and(|end| since == "now" || since.parse().is_ok_and(|since: u64| since >= end)) {
        return Ok(ExitCode::SUCCESS);
    }
    let accept = "text/event-stream; encoding=base64";
    let asked = path(which, &format!("/logs?since={since}"));
    let mut events =
        SseEvents::new(server.send(Method::GET, &asked, accept, None).await?.into_body());
    let (id, name) = which;
    let mut at = since;
    loop {
        let event = events.next().await;
        let Ok(Some(event)) = event else {
            return Err(anyhow!(
                "connection lost; continue with: isolet logs {id} {name} --follow --since {at}"
            ));
        };
        let heard = heard(&event, id).inspect_err(|_| {
            if follow && event.data["error"] == "stopping" {
                print_message(format_args!(
                    "continue with: isolet logs {id} {name} --follow --since {at}"
                ));
            }
        });
        if heard? || end.is_some_and(|end| event.id.is_some_and(|id| id >= end)) {
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(id) = event.id {
            at = id.to_string();
        }
    }
}

/// Writes the output of an event. Returns whether it was the last one.
fn heard(event: &SseEvent, id: &str) -> Result<bool> {
    let data = &event.data;
    match event.name.as_str() {
        name @ ("stdout" | "stderr") => {
            let bytes = STANDARD.decode(data["data_b64"].as_str().unwrap_or_default())?;
            write(name == "stdout", &bytes)?;
        }
        "gap" => {
            let at = |name: &str| data[name].as_u64().unwrap_or(0);
            let count = at("to").saturating_sub(at("from"));
            print_message(format_args!("{count} bytes are no longer retained"));
        }
        "error" => return Err(ServerError::from_event(data, id).into()),
        "exit" => {
            if std::io::stderr().is_terminal() {
                print_message(state(data));
            }
            return Ok(true);
        }
        _ => {}
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::since;

    #[test]
    fn a_log_is_read_from_a_number_or_from_now() {
        assert!(since("0").is_ok() && since("now").is_ok());
        assert!(since("-1").is_err() && since("later").is_err());
    }
}
