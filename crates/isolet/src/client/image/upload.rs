//! Sends an archive to the server as it is read.

use crate::client::ApiClient;
use crate::client::list::text;
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of one read of an archive.
const PIECE_BYTES: usize = 256 * 1024;

/// Sends an archive, and returns the answer.
pub(super) async fn send(
    server: &ApiClient,
    method: Method,
    path: &str,
    source: Box<dyn AsyncRead + Send + Unpin>,
) -> Result<Value> {
    let pieces = futures_util::stream::unfold(source, |mut source| async move {
        let mut piece = vec![0; PIECE_BYTES];
        match source.read(&mut piece).await {
            Ok(0) => None,
            Ok(count) => {
                piece.truncate(count);
                Some((Ok(Frame::data(Bytes::from(piece))), source))
            }
            Err(error) => Some((Err(error), source)),
        }
    });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", &server.host)
        .header("authorization", format!("Bearer {}", server.key))
        .header("content-type", "application/x-tar")
        .body(StreamBody::new(Box::pin(pieces)))?;
    let stream = TokioIo::new(server.connect().await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let answer =
        sender.send_request(request).await.context("the server did not accept the archive")?;
    let status = answer.status();
    let response: Value = serde_json::from_slice(&answer.collect().await?.to_bytes())?;
    if !status.is_success() {
        return Err(anyhow!("{}; {}", text(&response["message"]), text(&response["hint"])));
    }
    Ok(response)
}
