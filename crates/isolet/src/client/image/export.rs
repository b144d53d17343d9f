//! `isolet image export`: writes an image to an archive.

use crate::client::ApiClient;
use crate::client::image::escaped;
use crate::client::output::print_message;
use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper::Method;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::io::{AsyncWrite, AsyncWriteExt};

pub(super) async fn run(server: &ApiClient, image: &str, file: PathBuf) -> Result<ExitCode> {
    let is_output = file.as_os_str() == "-";
    if is_output && std::io::stdout().is_terminal() {
        bail!("refusing to write an archive to a terminal; name a file, or redirect the output");
    }
    let path = format!("/v1/images/export?name={}", escaped(image));
    let answer = server.send(Method::GET, &path, "application/x-tar", None).await?;
    let length = answer.headers().get("content-length").and_then(|text| text.to_str().ok());
    let length: Option<u64> = length.and_then(|text| text.parse().ok());
    let body = answer.into_body();
    if is_output {
        receive(body, length, &mut tokio::io::stdout()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let part = part(&file);
    let shown = part.display();
    let mut to =
        tokio::fs::File::create(&part).await.with_context(|| format!("cannot write {shown}"))?;
    let received = async {
        let bytes = receive(body, length, &mut to).await?;
        to.sync_all().await?;
        tokio::fs::rename(&part, &file).await?;
        Ok::<u64, anyhow::Error>(bytes)
    };
    match received.await {
        Ok(bytes) => {
            print_message(format_args!("{}: {bytes} bytes", file.display()));
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let _ = tokio::fs::remove_file(&part).await;
            Err(error)
        }
    }
}

/// The file that is written until the archive is complete.
fn part(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Copies the body. An archive that ends early is an error.
async fn receive(
    mut body: impl hyper::body::Body<Data = bytes::Bytes, Error = hyper::Error> + Unpin,
    length: Option<u64>,
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<u64> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the connection was lost; run the command again")?;
        if let Ok(data) = frame.into_data() {
            to.write_all(&data).await?;
            bytes += data.len() as u64;
        }
    }
    to.flush().await?;
    match length {
        Some(length) if length != bytes => {
            bail!("the archive ended after {bytes} of {length} bytes")
        }
        _ => Ok(bytes),
    }
}
