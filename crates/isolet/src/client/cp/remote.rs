//! Files of a sandbox, through the files API.

use super::pieces::Piece;
use super::target::{Kind, absolute};
use crate::client::ApiClient;
use crate::client::network::asked;
use crate::client::output::sanitize;
use crate::client::server_error::ServerError;
use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use tokio::sync::mpsc::Receiver;

/// A sandbox whose files are copied.
pub(super) struct Remote {
    server: ApiClient,
    id: String,
}

/// What a path leads to.
pub(super) struct Entry {
    /// A directory or not.
    pub(super) kind: Kind,
    /// Bytes of a file.
    pub(super) size: u64,
    /// Permission bits.
    pub(super) mode: u32,
    /// The time of the last change, in milliseconds since 1970.
    pub(super) modified_ms: i64,
    /// The target of a symbolic link.
    pub(super) link: Option<Vec<u8>>,
}

impl Remote {
    /// The sandbox with this id.
    pub(super) fn new(server: ApiClient, id: String) -> Self {
        Self { server, id }
    }

    /// A path of it for people.
    pub(super) fn shown(&self, path: &[u8]) -> String {
        let path = OsString::from_vec(path.to_vec());
        format!("{}:{}", self.id, sanitize(&path.to_string_lossy()))
    }

    /// Fails unless the sandbox exists: reading must not create it.
    pub(super) async fn check_exists(&self) -> Result<()> {
        self.server.json(Method::GET, &format!("/v1/sandboxes/{}", self.id)).await.map(drop)
    }

    /// What an absolute path leads to; `None` if nothing is there.
    pub(super) async fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Entry>> {
        let body = json!({"op": "stat", "path_b64": STANDARD.encode(path), "follow": follow});
        match self.operation(&body).await {
            Ok(entry) => Ok(Some(parsed(&entry))),
            Err(error) if code(&error) == Some("not_found") => Ok(None),
            Err(error) => Err(error).with_context(|| self.shown(path)),
        }
    }

    /// The kind of what a path leads to, links followed.
    pub(super) async fn kind(&self, path: &[u8]) -> Result<Kind> {
        Ok(self.stat(path, true).await?.map_or(Kind::Missing, |entry| entry.kind))
    }

    /// Creates a directory with this mode.
    pub(super) async fn create_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        let path_b64 = STANDARD.encode(path);
        let make = json!({"op": "mkdir", "path_b64": path_b64});
        self.operation(&make).await.with_context(|| self.shown(path))?;
        let mode = format!("{:04o}", mode & 0o777);
        let chmod = json!({"op": "chmod", "path_b64": path_b64, "mode": mode});
        self.operation(&chmod).await.with_context(|| self.shown(path)).map(drop)
    }

    async fn operation(&self, body: &Value) -> Result<Value> {
        let path = format!("/v1/sandboxes/{}/files", self.id);
        asked(&self.server, Method::POST, &path, Some(body)).await
    }

    /// The bytes of a file, or with `tar=1` of an archive of a directory.
    pub(super) async fn read(&self, path: &[u8], query: &str) -> Result<Incoming> {
        let path_of_request = self.url(path, query);
        let accept = "application/octet-stream";
        let answer = self.server.send(Method::GET, &path_of_request, accept, None).await;
        Ok(answer.with_context(|| self.shown(path))?.into_body())
    }

    /// Writes a file, or with `untar=1` what an archive contains.
    pub(super) async fn write(
        &self,
        path: &[u8],
        query: &str,
        pieces: Receiver<Piece>,
    ) -> Result<()> {
        let body = futures_util::stream::unfold(pieces, |mut pieces| async move {
            let piece = pieces.recv().await?;
            Some((piece.map(Frame::data), pieces))
        });
        let request = Request::put(self.url(path, query))
            .header("host", &self.server.host)
            .header("authorization", format!("Bearer {}", self.server.key))
            .header("content-type", "application/octet-stream")
            .body(StreamBody::new(Box::pin(body)))?;
        let stream = TokioIo::new(self.server.connect().await?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(|error| {
            anyhow!("{}: the server ended the upload ({error})", self.shown(path))
        })?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        if status.is_success() {
            return Ok(());
        }
        let refused = ServerError::from_response(status.as_u16(), &bytes, &self.id);
        Err(anyhow::Error::new(refused).context(self.shown(path)))
    }

    fn url(&self, path: &[u8], query: &str) -> String {
        let mut url = format!("/v1/sandboxes/{}/files/", self.id);
        // A slash at the beginning of the path is encoded, so that the path starts at the root.
        for (at, byte) in absolute(path).into_iter().enumerate() {
            match byte {
                b'/' if at > 0 => url.push('/'),
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => {
                    url.push(char::from(byte));
                }
                _ => {
                    let _ = write!(url, "%{byte:02X}");
                }
            }
        }
        if !query.is_empty() {
            let _ = write!(url, "?{query}");
        }
        url
    }
}

/// The code of an error of the server.
fn code(error: &anyhow::Error) -> Option<&str> {
    error.downcast_ref::<ServerError>().map(|refused| refused.code.as_str())
}

fn parsed(entry: &Value) -> Entry {
    let kind = match entry["type"].as_str() {
        Some("directory") => Kind::Directory,
        _ => Kind::Other,
    };
    let mode = entry["mode"].as_str().and_then(|mode| u32::from_str_radix(mode, 8).ok());
    let link = match entry["target_b64"].as_str() {
        Some(bytes) => STANDARD.decode(bytes).ok(),
        None => entry["target"].as_str().map(|target| target.as_bytes().to_vec()),
    };
    Entry {
        kind,
        size: entry["size"].as_u64().unwrap_or(0),
        mode: mode.unwrap_or(0o644),
        modified_ms: entry["modified_ms"].as_i64().unwrap_or(0),
        link: link.filter(|_| entry["type"] == "symlink"),
    }
}
