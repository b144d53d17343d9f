//! `isolet image build`: reads a Dockerfile, uploads the files that it copies, and follows the build.

use super::upload;
use crate::client::ApiClient;
use crate::client::events::SseEvents;
use crate::client::list::{pretty, text};
use crate::client::output::{print_message, sanitize, write};
use anyhow::{Context, Result, anyhow};
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use isolet_build::dockerfile::{self, PackedFiles, Plan, PlannedStep};
use isolet_build::{Action, RunProgram};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The longest Dockerfile, in bytes.
const DOCKERFILE_BYTES_MAX: u64 = 1024 * 1024;

/// Arguments of `isolet image build`.
#[derive(Parser)]
pub(super) struct Args {
    /// Directory with the files that COPY and ADD name
    context: PathBuf,
    /// Dockerfile to read [default: CONTEXT/Dockerfile]
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Name the image, as in tools:1. Repeatable
    #[arg(short, long = "tag", required = true, value_name = "NAME:TAG")]
    tags: Vec<String>,
    /// Set the value of an ARG instruction; without =VALUE, that of the environment. Repeatable
    #[arg(long = "build-arg", value_name = "NAME[=VALUE]")]
    build_args: Vec<String>,
    /// Run all steps, also those whose results are cached
    #[arg(long)]
    no_cache: bool,
}

/// Builds an image.
pub(super) async fn run(server: &ApiClient, args: Args, json: bool) -> Result<ExitCode> {
    let file = args.file.unwrap_or_else(|| args.context.join("Dockerfile"));
    let plan = read(&file, &values(&args.build_args)?)?;
    for warning in &plan.warnings {
        print_message(format_args!("{}: line {}: {}", file.display(), warning.line, warning.text));
    }
    let steps = steps(server, &args.context, &file, &plan).await?;
    let mut body = json!({
        "names": args.tags, "from": plan.base, "steps": steps, "no_cache": args.no_cache,
        "labels": plan.labels,
    });
    if let Some(start) = &plan.start {
        body["start"] = json!(start);
    }
    let path = "/v1/images/builds";
    let answer = server.send(Method::POST, path, "text/event-stream", Some(&body)).await?;
    let mut events = SseEvents::new(answer.into_body());
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "log" if json => {}
            "log" => {
                let line = format!("{}\n", sanitize(&text(&event.data["message"])));
                write(false, line.as_bytes())?;
            }
            "done" if json => return pretty(&event.data),
            "done" => {
                write(true, format!("{}\n", text(&event.data["digest"])).as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            "error" => {
                let message = sanitize(&text(&event.data["message"]));
                return Err(anyhow!("{message}"));
            }
            _ => {}
        }
    }
    Err(anyhow!("connection lost; the server continues the build"))
}

/// The values of `--build-arg`.
fn values(all: &[String]) -> Result<BTreeMap<String, String>> {
    let value = |text: &String| -> Result<Option<(String, String)>> {
        match text.split_once('=') {
            Some(("", _)) => Err(anyhow!("--build-arg {text}: expected NAME=VALUE")),
            Some((name, value)) => Ok(Some((name.to_owned(), value.to_owned()))),
            // As in docker, one that is not in the environment is not set.
            None => Ok(std::env::var(text).ok().map(|value| (text.clone(), value))),
        }
    };
    all.iter().filter_map(|text| value(text).transpose()).collect()
}

fn read(file: &Path, args: &BTreeMap<String, String>) -> Result<Plan> {
    let about = std::fs::metadata(file);
    let about = about.with_context(|| format!("cannot read {}", file.display()))?;
    if about.len() > DOCKERFILE_BYTES_MAX {
        return Err(anyhow!("{} has more than 1 MiB", file.display()));
    }
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    dockerfile::read(&text, args).with_context(|| file.display().to_string())
}

/// The steps for the server, after their files were uploaded.
async fn steps(server: &ApiClient, context: &Path, file: &Path, plan: &Plan) -> Result<Vec<Value>> {
    let mut steps = Vec::new();
    let has_files = |(_, step): &(usize, PlannedStep)| matches!(step, PlannedStep::Copy { .. });
    let files = match plan.steps.iter().any(has_files) {
        true => Some(dockerfile::Context::open(context)?),
        false => None,
    };
    for (line, step) in &plan.steps {
        let of_line = || format!("{}: line {line}", file.display());
        let step = match step {
            PlannedStep::Other(action) => other(action),
            PlannedStep::Copy { source, dest, owner, mode } => {
                let files = files.as_ref().context("the files were not listed")?;
                let packed = files.pack(source).with_context(of_line)?;
                let digest = packed.digest.clone();
                put(server, packed).await.with_context(of_line)?;
                let mut step = json!({
                    "type": "copy", "files": digest, "source": source, "dest": dest,
                });
                if let Some(owner) = owner {
                    step["owner"] = json!(owner);
                }
                if let Some(mode) = mode {
                    step["mode"] = json!(mode);
                }
                step
            }
        };
        steps.push(step);
    }
    Ok(steps)
}

/// Uploads files that the server does not have.
async fn put(server: &ApiClient, files: PackedFiles) -> Result<()> {
    let path = format!("/v1/images/builds/files/{}", files.digest);
    let answer = server.send(Method::GET, &path, "application/json", None).await?;
    let known: Value = serde_json::from_slice(&answer.collect().await?.to_bytes())?;
    if known["present"] == true {
        return Ok(());
    }
    let source = Box::new(tokio::fs::File::from_std(files.file));
    upload::send(server, Method::PUT, &path, source).await.map(drop)
}

fn other(action: &Action) -> Value {
    match action {
        Action::Run(run) => match &run.program {
            RunProgram::Command(text) => json!({"type": "run", "command": text}),
            RunProgram::Argv(words) => json!({"type": "run", "argv": words}),
        },
        Action::Env(all) => {
            let variable = |(name, value): &(String, String)| json!({"name": name, "value": value});
            let all: Vec<Value> = all.iter().map(variable).collect();
            json!({"type": "env", "variables": all})
        }
        Action::Arg(name, value) => json!({"type": "arg", "name": name, "value": value}),
        Action::Workdir(path) => json!({"type": "workdir", "path": path}),
        Action::User(user) => json!({"type": "user", "user": user}),
        // The plan has copies apart from the other steps.
        Action::Copy(_) => Value::Null,
    }
}
