//! The client commands: how they find the server and the key, and how they read responses.

pub(crate) mod args;
pub(crate) mod attach;
pub(crate) mod cp;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod forward;
pub(crate) mod image;
pub(crate) mod lifecycle;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod network;
pub(crate) mod output;
pub(crate) mod processes;
pub(crate) mod server_error;
pub(crate) mod sessions;
pub(crate) mod shell;
mod socket;
pub(crate) mod stats;
mod stream;

use crate::config::{DATA_DIR, LISTEN};
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use output::{EXIT_OUTPUT_CLOSED, OutputClosed, print_message};
use serde_json::Value;
use server_error::ServerError;
use std::future::Future;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
pub(crate) use stream::set_ca_file;
use stream::{ServerStream, ServerVerifier};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_util::either::Either;

/// Exit code of `attach`, `exec` and `shell` when this program or the server fails. Every other exit code
/// of these commands is that of the program in the sandbox.
pub(crate) const EXIT_CLIENT_ERROR: u8 = 125;

/// Runs a client command to its end. Prints its error, if any, and exits with `own` then.
pub(crate) fn run(own: u8, command: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // As an object, because the runtime would instantiate each command's code three times.
    let command: Pin<Box<dyn Future<Output = Result<ExitCode>>>> = Box::pin(command);
    let done = runtime.block_on(command);
    // A thread may still be blocked in a read of standard input.
    runtime.shutdown_background();
    Ok(done.unwrap_or_else(|error| {
        if error.is::<OutputClosed>() {
            return ExitCode::from(EXIT_OUTPUT_CLOSED);
        }
        print_message(format_args!("{error:#}"));
        ExitCode::from(own)
    }))
}

/// The address of a server, and an API key for it.
pub(crate) struct ApiClient {
    /// The host and the port.
    host: String,
    /// `None` for a server without TLS.
    tls: Option<ServerVerifier>,
    key: String,
}

impl ApiClient {
    /// Finds the address and the key in the environment or in their default places.
    pub(crate) fn find() -> Result<Self> {
        let url = std::env::var("ISOLET_URL").unwrap_or_else(|_| {
            let listen = std::env::var("ISOLET_LISTEN").unwrap_or_else(|_| LISTEN.to_owned());
            format!("http://{listen}")
        });
        let (scheme, host) = url.split_once("://").unwrap_or_default();
        let host = host.trim_end_matches('/');
        let plain = !host.is_empty() && !host.contains(['/', '@', '?', '#']);
        let default_port = match scheme {
            "http" if plain => 80,
            "https" if plain => 443,
            _ => {
                bail!("ISOLET_URL must look like http://{LISTEN} or https://box.example, not {url}")
            }
        };
        let name =
            if has_port(host) { host.rsplit_once(':').map_or(host, |at| at.0) } else { host };
        let tls = (scheme == "https").then(|| ServerVerifier::new(name)).transpose()?;
        let host = if has_port(host) { host.to_owned() } else { format!("{host}:{default_port}") };
        Ok(Self { host, tls, key: key()? })
    }

    fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.host)
    }

    async fn connect(&self) -> Result<ServerStream> {
        let stream = TcpStream::connect(&self.host).await.map_err(|error| {
            anyhow!(
                "no server at {} ({error}); start one with `isolet serve`, or set ISOLET_URL",
                self.url()
            )
        })?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Either::Left(stream)) };
        let secured = tls.connect(stream).await.with_context(|| self.url())?;
        Ok(Either::Right(secured))
    }

    /// The request that opens a WebSocket.
    fn socket_request(&self, path: &str) -> Result<Request<()>> {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        let mut request = format!("{scheme}://{}{path}", self.host).into_client_request()?;
        let bearer = format!("Bearer {}", self.key).parse().context("the key is malformed")?;
        request.headers_mut().insert("authorization", bearer);
        Ok(request)
    }

    /// The whole response to a request, whatever its status; at most `most` bytes of the body.
    pub(crate) async fn pass(
        &self,
        mut request: Request<Bytes>,
        most: usize,
    ) -> Result<Response<Bytes>> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let headers = request.headers_mut();
        headers.insert("host", self.host.parse()?);
        headers.insert("authorization", format!("Bearer {}", self.key).parse()?);
        let response = sender.send_request(request.map(Full::new)).await;
        let (head, body) = response.context("the server closed the connection")?.into_parts();
        let body = Limited::new(body, most).collect().await.map_err(|error| anyhow!(error))?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    /// The response to a request. A status other than 2xx is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("accept", accept)
            .header("authorization", format!("Bearer {}", self.key));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let response = sender.send_request(request.body(Full::new(body))?).await;
        let response = response.context("the server closed the connection")?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        let about = path.strip_prefix("/v1/sandboxes/").unwrap_or_default();
        let id = about.split('/').next().unwrap_or_default();
        Err(ServerError::from_response(status, &body, id).into())
    }

    /// The JSON response to a request, and the `Link` to its next page.
    pub(crate) async fn json(&self, method: Method, path: &str) -> Result<(Value, Option<String>)> {
        let response = self.send(method, path, "application/json", None).await?;
        let link = response.headers().get("link").and_then(|link| link.to_str().ok());
        let next = link.and_then(|link| link.strip_prefix('<')?.split('>').next());
        let next = next.map(str::to_owned);
        let body = response.into_body().collect().await?.to_bytes();
        let value = serde_json::from_slice(&body).context("the server's response is not JSON")?;
        Ok((value, next))
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

fn key() -> Result<String> {
    if let Ok(key) = std::env::var("ISOLET_API_KEY")
        && !key.is_empty()
    {
        return Ok(key);
    }
    let data = std::env::var_os("ISOLET_DATA_DIR").map_or_else(|| DATA_DIR.into(), PathBuf::from);
    let file = data.join("key");
    match std::fs::read_to_string(&file) {
        Ok(key) => Ok(key.trim().to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "no key: set ISOLET_API_KEY, or ISOLET_DATA_DIR to the server's data directory ({} does not exist)",
            file.display()
        ),
        Err(error) => bail!("cannot read {}: {error}; set ISOLET_API_KEY", file.display()),
    }
}

/// Parses the id of a sandbox.
pub(crate) fn id(text: &str) -> Result<String, String> {
    isolet_sandbox::SandboxId::parse(text).map(String::from).map_err(|error| error.to_string())
}

/// Parses the id of a session.
pub(crate) fn session_id(text: &str) -> Result<String, String> {
    isolet_sandbox::SessionId::parse(text).map(String::from).map_err(|error| error.to_string())
}

/// Parses an environment variable in the form `NAME=VALUE`.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

/// An exit code as a process can have it: the low byte.
pub(crate) fn to_exit_code(code: i64) -> ExitCode {
    ExitCode::from(u8::try_from(code & 255).unwrap_or(1))
}
