//! `isolet image`: pulls, lists, imports, exports and removes images, and makes them from snapshots.

mod build;
mod commit;
mod export;
mod upload;

use super::args::format::OutputFormat;
use super::events::progress::{Followed, follow};
use super::list::{pretty, text};
use super::output::{print_message, sanitize, write};
use super::{ApiClient, id};
use anyhow::{Context, Result, anyhow};
use clap::{Parser, Subcommand};
use commit::CommitParts;
use http_body_util::BodyExt;
use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `isolet image`.
#[derive(Parser)]
#[command(after_help = "\
  isolet image pull python:3.12-slim
  isolet image ls
  isolet image build -t tools:1 .
  isolet image commit --sandbox demo tools:1
  isolet image export tools:1 tools.tar
  isolet image import tools.tar --name tools:1
  isolet image tag python:3.12-slim tools:1
  isolet image rm python:3.12-slim
  isolet image gc")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ImageCommand,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Subcommand)]
enum ImageCommand {
    /// Pull an image, or update it if its tag now names another digest.
    Pull {
        /// Image reference as in docker: python:3.12-slim
        image: String,
        /// Pull the image for this platform, such as linux/arm64 [default: that of the server]
        #[arg(long)]
        platform: Option<String>,
    },
    /// Build an image from a Dockerfile, in a sandbox on the server.
    #[command(after_help = "\
Instructions: FROM (one), RUN, COPY and ADD (local files), ENV, ARG, WORKDIR, USER, LABEL, CMD,
ENTRYPOINT. EXPOSE is ignored. Any other is an error. Files that .dockerignore names are left out.

Examples:
  isolet image build -t tools:1 .
  isolet image build -f tools.Dockerfile -t tools:1 -t tools:latest --build-arg VERSION=3 src
  isolet create --image tools:1")]
    Build(build::Args),
    /// List the images of the tenant.
    Ls,
    /// Import an image from an archive: an OCI layout, or the output of `docker save`.
    Import {
        /// Archive to read; - for standard input
        file: PathBuf,
        /// Name the image [default: the names in the archive]
        #[arg(long)]
        name: Option<String>,
    },
    /// Make an image from a snapshot. Files with secrets in it, such as .netrc, become part of the
    /// image: the command lists those that it finds by their names.
    #[command(after_help = "\
  isolet image commit ready tools:1
  isolet image commit --sandbox demo tools:1
  isolet create --image tools:1")]
    Commit {
        /// Id or name of the snapshot
        #[arg(required_unless_present = "sandbox", value_name = "SNAPSHOT")]
        first: Option<String>,
        /// Name of the image
        #[arg(value_name = "NAME")]
        second: Option<String>,
        /// Take a snapshot of this sandbox, and delete it afterwards
        #[arg(long, value_parser = id, value_name = "ID")]
        sandbox: Option<String>,
        /// Make the sandbox's variables those of the image. They may hold secrets
        #[arg(long)]
        env: bool,
        /// Let its sandboxes start with the sessions and the shell states of the snapshot. Their
        /// variables may hold secrets
        #[arg(long)]
        shells: bool,
        /// Leave out the files of the workspace
        #[arg(long)]
        no_workspace: bool,
    },
    /// Export an image as a tar archive with an OCI image layout, which podman and `isolet image
    /// import` read.
    Export {
        /// Name of the image
        image: String,
        /// Archive to write; - for standard output
        file: PathBuf,
    },
    /// Give an image another name. Another image of the tenant that has this name loses it.
    #[command(after_help = "\
  isolet image tag python:3.12-slim tools:1
  isolet create --image tools:1")]
    Tag {
        /// A name of the image
        source: String,
        /// The name that it gets as well
        name: String,
    },
    /// Remove names of images. Removing the last name of an image removes the image.
    Rm {
        /// Names of the images to remove
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Remove images without a name, and layers that no image uses.
    Gc {
        /// Also remove images that no sandbox uses (needs a key of the tenant `default`)
        #[arg(long)]
        all: bool,
    },
}

/// Runs a subcommand of `isolet image`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let is_json = args.format.is_json();
    match args.command {
        ImageCommand::Pull { image, platform } => {
            pull(&server, &image, platform, args.format.is_json()).await
        }
        ImageCommand::Build(args) => build::run(&server, args, is_json).await,
        ImageCommand::Ls => list(&server, args.format.is_json()).await,
        ImageCommand::Import { file, name } => {
            import(&server, file, name, args.format.is_json()).await
        }
        ImageCommand::Commit { first, second, sandbox, env, shells, no_workspace } => {
            let (snapshot, name) = match (sandbox.is_some(), first, second) {
                (true, Some(name), None) => (None, name),
                (false, Some(snapshot), Some(name)) => (Some(snapshot), name),
                _ => {
                    return Err(anyhow!(
                        "expected SNAPSHOT NAME, or --sandbox ID NAME; see `isolet image commit --help`"
                    ));
                }
            };
            let parts = CommitParts { workspace: !no_workspace, env, shells };
            commit::run(&server, snapshot, sandbox, &name, parts, args.format.is_json()).await
        }
        ImageCommand::Export { image, file } => export::run(&server, &image, file).await,
        ImageCommand::Tag { source, name } => tag(&server, &source, &name, is_json).await,
        ImageCommand::Rm { images } => remove(&server, images).await,
        ImageCommand::Gc { all } => {
            let body = json!({"all": all});
            let path = "/v1/images/gc";
            let answer = server.send(Method::POST, path, "application/json", Some(&body)).await?;
            let response: Value = serde_json::from_slice(&answer.collect().await?.to_bytes())?;
            if args.format.is_json() {
                return pretty(&response);
            }
            print_message(format_args!(
                "removed: images {}, layers {}",
                response["images"], response["layers"]
            ));
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn pull(
    server: &ApiClient,
    image: &str,
    platform: Option<String>,
    json: bool,
) -> Result<ExitCode> {
    let mut body = json!({"image": image});
    if let Some(platform) = platform {
        body["platform"] = platform.into();
    }
    let of = Followed {
        path: "/v1/images/pull",
        body: Some(&body),
        what: "pull",
        numbers: pull_numbers,
    };
    let done = follow(server, of, json).await?;
    if json {
        return pretty(&done);
    }
    write(true, format!("{}\n", text(&done["digest"])).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn pull_numbers(now: &Value) -> String {
    let mb = |field: &str| now[field].as_u64().unwrap_or(0) / 1_000_000;
    let layers = now["layers"].as_array().map_or(&[][..], Vec::as_slice);
    let ready = layers.iter().filter(|layer| layer["ready"] == true).count();
    let copied = layers.iter().filter(|layer| layer["from"] == "node").count();
    let copied = if copied > 0 { format!(", {copied} from other nodes") } else { String::new() };
    format!("{} of {} MB, {ready} of {} layers{copied}", mb("done"), mb("total"), layers.len())
}

async fn list(server: &ApiClient, json: bool) -> Result<ExitCode> {
    let (all, _) = server.json(Method::GET, "/v1/images").await?;
    if json {
        return pretty(&all);
    }
    let all = all.as_array().map_or(&[][..], Vec::as_slice);
    if all.is_empty() {
        print_message(
            "no images; pull one with `isolet image pull python:3.12-slim` (the image `host` is built in)",
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = format!(
        "{:<19} {:>8} {:>6}  {:<8}  {:<12}  NAMES\n",
        "DIGEST", "SIZE", "LAYERS", "SOURCE", "OWNER"
    );
    for one in all {
        let names = one["names"].as_array().map_or(&[][..], Vec::as_slice);
        let names: Vec<String> = names.iter().map(text).collect();
        let digest: String = text(&one["digest"]).chars().take(19).collect();
        let mb = one["unpacked_bytes"].as_u64().unwrap_or(0).div_ceil(1_000_000);
        let layers = &one["layers"];
        let source = text(&one["source"]);
        let owner = text(&one["owner"]);
        let names = names.join(", ");
        let _ = writeln!(
            lines,
            "{digest:<19} {mb:>5} MB {layers:>6}  {source:<8}  {owner:<12}  {names}"
        );
    }
    write(true, lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

async fn tag(server: &ApiClient, source: &str, name: &str, json: bool) -> Result<ExitCode> {
    let body = json!({"image": source, "name": name});
    let answer =
        server.send(Method::POST, "/v1/images/tag", "application/json", Some(&body)).await?;
    let tagged: Value = serde_json::from_slice(&answer.collect().await?.to_bytes())?;
    if json {
        return pretty(&tagged);
    }
    write(true, format!("{}\n", text(&tagged["name"])).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(server: &ApiClient, images: Vec<String>) -> Result<ExitCode> {
    for image in images {
        let path = format!("/v1/images/{}", escaped(&image));
        server.send(Method::DELETE, &path, "application/json", None).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The characters of image references that stand for themselves in a URL.
const REFERENCE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-').remove(b'/').remove(b':').remove(b'@');

fn escaped(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, REFERENCE)
}

async fn import(
    server: &ApiClient,
    file: PathBuf,
    name: Option<String>,
    json: bool,
) -> Result<ExitCode> {
    let source: Box<dyn tokio::io::AsyncRead + Send + Unpin> = if file.as_os_str() == "-" {
        Box::new(tokio::io::stdin())
    } else {
        let opened = tokio::fs::File::open(&file).await;
        Box::new(opened.with_context(|| format!("cannot read {}", file.display()))?)
    };
    let path = match name {
        Some(name) => format!("/v1/images/import?name={}", escaped(&name)),
        None => "/v1/images/import".to_owned(),
    };
    let response = upload::send(server, Method::POST, &path, source).await?;
    if json {
        return pretty(&response);
    }
    write(
        true,
        format!("{}\n", sanitize(response["digest"].as_str().unwrap_or_default())).as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}
