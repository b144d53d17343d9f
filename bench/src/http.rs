//! Commands over HTTP, on one keep-alive connection.

use crate::server::{BenchServer, Endpoint};
use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::TcpStream;
use tokio::runtime::Runtime;

/// A keep-alive connection with blocking calls, so that one call is one measurement.
pub(crate) struct HttpClient {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    key: String,
    host: String,
}

impl HttpClient {
    pub(crate) fn connect(server: &BenchServer) -> Result<Self> {
        Self::to(&server.endpoint())
    }

    pub(crate) fn to(endpoint: &Endpoint) -> Result<Self> {
        Self::through(TcpStream::connect(endpoint.address)?, endpoint)
    }

    /// A client with another key than the server's own.
    pub(crate) fn connect_with(server: &BenchServer, key: &str) -> Result<Self> {
        Ok(Self { key: key.to_owned(), ..Self::connect(server)? })
    }

    /// A client over a connection that exists already.
    pub(crate) fn over(stream: TcpStream, server: &BenchServer) -> Result<Self> {
        Self::through(stream, &server.endpoint())
    }

    fn through(stream: TcpStream, endpoint: &Endpoint) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let host = endpoint.address.to_string();
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let sender = runtime.block_on(async {
            let stream = tokio::net::TcpStream::from_std(stream)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            anyhow::Ok(sender)
        })?;
        Ok(Self { runtime, sender, key: endpoint.key.clone(), host })
    }

    pub(crate) fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let bytes = body.map(|value| Bytes::from(value.to_string())).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", self.key));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::new(bytes))?;
        let (status, bytes) = self.runtime.block_on(async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        })?;
        if !status.is_success() {
            bail!("{path}: {status} {}", String::from_utf8_lossy(&bytes));
        }
        if bytes.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&bytes)?) }
    }

    /// The status of a response, also of an error.
    pub(crate) fn status(&mut self, method: Method, path: &str) -> Result<StatusCode> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", self.key))
            .body(Full::default())?;
        self.runtime.block_on(async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            response.into_body().collect().await?;
            Ok(status)
        })
    }

    /// Sends a GET request, discards the body, and returns its length.
    pub(crate) fn fetch(&mut self, path: &str) -> Result<usize> {
        let request = Request::builder()
            .uri(path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", self.key))
            .body(Full::default())?;
        self.discard(request)
    }

    /// Sends a request, discards the body of the response, and returns its length.
    fn discard(&mut self, request: Request<Full<Bytes>>) -> Result<usize> {
        let path = request.uri().path().to_owned();
        self.runtime.block_on(async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            if !response.status().is_success() {
                bail!("{path}: {}", response.status());
            }
            let mut body = response.into_body();
            let mut count = 0;
            while let Some(frame) = body.frame().await {
                count += frame?.into_data().map_or(0, |bytes| bytes.len());
            }
            Ok(count)
        })
    }

    /// Writes a file through the files API.
    pub(crate) fn put(&mut self, path: &str, bytes: Vec<u8>) -> Result<()> {
        let request = Request::put(path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", self.key))
            .body(Full::new(Bytes::from(bytes)))?;
        self.runtime.block_on(async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            if !status.is_success() {
                bail!("{path}: {status} {}", String::from_utf8_lossy(&body));
            }
            Ok(())
        })
    }

    pub(crate) fn create(&mut self, id: &str) -> Result<()> {
        self.call(Method::POST, "/v1/sandboxes", Some(&json!({ "id": id }))).map(drop)
    }

    pub(crate) fn delete(&mut self, id: &str) -> Result<()> {
        self.call(Method::DELETE, &format!("/v1/sandboxes/{id}"), None).map(drop)
    }

    pub(crate) fn list(&mut self) -> Result<Vec<String>> {
        let answer = self.call(Method::GET, "/v1/sandboxes", None)?;
        let rows = answer.as_array().context("a list is an array")?;
        Ok(rows.iter().filter_map(|row| row["id"].as_str().map(str::to_owned)).collect())
    }

    /// Runs a command in the default session. Returns the number of bytes that it wrote.
    pub(crate) fn session(&mut self, id: &str, text: &str) -> Result<usize> {
        let path = format!("/v1/sandboxes/{id}/sessions/default/exec");
        let body = json!({ "command": text, "max_output_bytes": 64 << 20 });
        let answer = self.call(Method::POST, &path, Some(&body))?;
        Ok(answer["stdout"].as_str().context("stdout")?.len())
    }

    /// Runs a command in the default session, and discards its answer. Returns the length of the
    /// answer's body.
    pub(crate) fn discard_output(&mut self, id: &str, text: &str, accept: &str) -> Result<usize> {
        let body = json!({ "command": text, "max_output_bytes": 64 << 20 }).to_string();
        let request = Request::post(format!("/v1/sandboxes/{id}/sessions/default/exec"))
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", "application/json")
            .header("accept", accept)
            .body(Full::new(Bytes::from(body)))?;
        self.discard(request)
    }

    /// Runs a command without a shell. Returns the number of bytes that it wrote.
    pub(crate) fn exec(&mut self, id: &str, text: &str) -> Result<usize> {
        let path = format!("/v1/sandboxes/{id}/exec");
        let body = json!({ "command": text, "max_output_bytes": 64 << 20 });
        let answer = self.call(Method::POST, &path, Some(&body))?;
        Ok(answer["stdout"].as_str().context("stdout")?.len())
    }
}
