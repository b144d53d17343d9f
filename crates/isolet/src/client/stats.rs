//! `isolet stats`: a live table of what sandboxes use.

mod sample;
mod screen;

use super::args::complete;
use super::args::format::OutputFormat;
use super::args::units::milliseconds;
use super::list::{pretty, sandboxes};
use super::output::{print_message, supports_color, write};
use super::server_error::ServerError;
use super::{ApiClient, id};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use sample::{Sample, Usage};
use screen::Screen;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The shortest interval. Each row is a request.
const INTERVAL_MS_MIN: u64 = 250;
/// The longest interval.
const INTERVAL_MS_MAX: u64 = 3_600_000;

/// Arguments of `isolet stats`.
#[derive(Parser)]
#[command(after_help = "\
Shows all sandboxes that run, or those that you name. CPU is the share of one core since the last line; a
sandbox with two cores can reach 200%. Memory and network stay empty where a sandbox has none. Looking
wakes no sandbox and does not keep one awake.

  isolet stats
  isolet stats demo build-7 --interval 5s
  isolet stats --no-stream
  isolet stats --no-stream --output json | jq '.[] | select(.cpu_percent > 90).id'")]
pub(crate) struct Args {
    /// Ids of the sandboxes [default: all that run]
    #[arg(value_parser = id, add = complete::sandboxes())]
    ids: Vec<String>,
    /// Show sandboxes that do not run, too
    #[arg(long, short, conflicts_with = "ids")]
    all: bool,
    /// Print one table and exit
    #[arg(long)]
    no_stream: bool,
    /// Measure at this interval, at least 250ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: u64,
    #[command(flatten)]
    format: OutputFormat,
}

fn interval(text: &str) -> Result<u64, String> {
    match milliseconds(text)? {
        ms if (INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&ms) => Ok(ms),
        _ => Err("must be 250ms to 1h".to_owned()),
    }
}

/// Runs `isolet stats`, until it is interrupted unless `--no-stream` is given.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let interval = Duration::from_millis(args.interval);
    let mut before = measure(&server, &args).await?;
    if before.is_empty() && args.no_stream && !args.format.is_json() {
        print_message("no sandbox is running; `isolet ls` lists all");
        return Ok(ExitCode::SUCCESS);
    }
    let mut screen = Screen::new();
    loop {
        sleep_until(Instant::now() + interval).await;
        let now = measure(&server, &args).await?;
        let usage: Vec<Usage> = now.iter().map(|one| one.since(&before)).collect();
        before = now;
        if args.format.is_json() {
            let all: Vec<Value> = usage.iter().map(Usage::json).collect();
            match args.no_stream {
                true => drop(pretty(&all)?),
                false => write(true, format!("{}\n", Value::from(all)).as_bytes())?,
            }
        } else {
            let colours = supports_color(&std::io::stdout());
            let table = sample::table(&usage, colours);
            match args.no_stream {
                true => write(true, table.as_bytes())?,
                false => screen.draw(&table)?,
            }
        }
        if args.no_stream {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Reads what the sandboxes have used so far.
async fn measure(server: &ApiClient, args: &Args) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let named = !args.ids.is_empty();
    let ids = match named {
        true => args.ids.clone(),
        false => {
            let all = sandboxes(server, &[]).await?;
            let shown = all.iter().filter(|one| args.all || one["state"] == "running");
            shown.filter_map(|one| one["id"].as_str().map(str::to_owned)).collect()
        }
    };
    for id in ids {
        match server.json(Method::GET, &format!("/v1/sandboxes/{id}")).await {
            Ok((record, _)) => samples.push(Sample::new(&record)),
            // It was deleted since the list was read.
            Err(error)
                if !named
                    && error
                        .downcast_ref::<ServerError>()
                        .is_some_and(|e| e.code == "no_sandbox") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(samples)
}
