//! `isolet forward`: forwards ports of this machine to ports of a sandbox.

use super::output::print_message;
use super::server_error::ServerError;
use super::stream::ServerStream;
use super::{ApiClient, id};
use crate::client::args::complete;
use anyhow::{Context, Result};
use clap::Parser;
use futures_util::{SinkExt, StreamExt};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// The most connections at once. More connections wait.
const CONNECTIONS_MAX: usize = 256;
/// Bytes of one read, sent as one frame.
const READ_BYTES: usize = 64 * 1024;
const EOF: &str = r#"{"type":"eof"}"#;

/// Arguments of `isolet forward`.
#[derive(Parser)]
#[command(after_help = "\
Listens on 127.0.0.1 of this machine until you interrupt it.

  isolet forward demo 5173                 forward local port 5173 to port 5173
  isolet forward demo 8080:80 15432:5432   forward local port 8080 to port 80, 15432 to 5432
  isolet forward demo 0:80                 any port here; it says which")]
pub(crate) struct Args {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Ports as LOCAL:REMOTE, or one number for both
    #[arg(required = true, value_parser = pair, value_name = "LOCAL:REMOTE")]
    ports: Vec<(u16, u16)>,
}

fn pair(text: &str) -> Result<(u16, u16), String> {
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().map_err(|_| format!("{text:?} is not a port"));
    match (number(local)?, number(remote)?) {
        (_, 0) => Err("the sandbox's port must be 1 to 65535".to_owned()),
        pair => Ok(pair),
    }
}

/// Runs `isolet forward` until a signal ends it.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = Arc::new(ApiClient::find()?);
    // Reports a missing sandbox now instead of at the first connection.
    server.json(hyper::Method::GET, &format!("/v1/sandboxes/{}", args.id)).await?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut all = tokio::task::JoinSet::new();
    for (local, remote) in args.ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await;
        let listener =
            listener.with_context(|| format!("cannot listen on port {local} of this machine"))?;
        let at = listener.local_addr()?;
        print_message(format_args!("forwarding {at} to port {remote} of sandbox {}", args.id));
        let way = Way { server: Arc::clone(&server), id: args.id.clone(), remote };
        all.spawn(listen(listener, way, Arc::clone(&places)));
    }
    tokio::select! {
        ended = all.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            _ => Ok(ExitCode::SUCCESS),
        },
        interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}

/// A port of a sandbox.
#[derive(Clone)]
struct Way {
    server: Arc<ApiClient>,
    id: String,
    remote: u16,
}

async fn listen(listener: TcpListener, way: Way, places: Arc<Semaphore>) -> Result<()> {
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let (stream, _) = listener.accept().await.context("cannot accept a connection")?;
        let way = way.clone();
        tokio::spawn(async move {
            if let Err(error) = way.carry(stream).await {
                print_message(format_args!("port {}: {error:#}", way.remote));
            }
            drop(place);
        });
    }
}

impl Way {
    async fn open(&self) -> Result<WebSocketStream<ServerStream>> {
        let Self { server, id, remote } = self;
        let path = format!("/v1/sandboxes/{id}/tcp/{remote}?half=1");
        let request = server.socket_request(&path)?;
        let opened = client_async(request, server.connect().await?).await;
        let (socket, _) = opened.map_err(|error| match error {
            Error::Http(answer) => anyhow::Error::new({
                let body = answer.body().as_deref().unwrap_or_default();
                ServerError::from_response(answer.status().as_u16(), body, id)
            }),
            other => other.into(),
        })?;
        Ok(socket)
    }

    /// Forwards one connection until both sides have ended.
    async fn carry(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let (mut to, mut from) = self.open().await?.split();
        let (mut read, mut write) = stream.into_split();
        let up = async move {
            let mut buffer = bytes::BytesMut::new();
            loop {
                buffer.reserve(READ_BYTES);
                // A reset counts as an end too; the other side sees its effect.
                if !matches!(read.read_buf(&mut buffer).await, Ok(1..)) {
                    return to.send(Message::text(EOF)).await;
                }
                to.send(Message::Binary(buffer.split().freeze())).await?;
            }
        };
        let down = async move {
            while let Some(message) = from.next().await {
                match message {
                    Ok(Message::Binary(bytes)) if write.write_all(&bytes).await.is_err() => return,
                    Ok(Message::Text(text)) if text.as_str() == EOF => {
                        let _ = write.shutdown().await;
                    }
                    Ok(Message::Close(_)) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        tokio::pin!(up, down);
        // The server closes the socket once both directions have ended, or one side is gone.
        tokio::select! {
            _ = &mut up => down.await,
            () = &mut down => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::pair;

    #[test]
    fn ports_are_pairs_or_one_for_both() {
        assert_eq!(pair("80"), Ok((80, 80)));
        assert_eq!(pair("8080:80"), Ok((8080, 80)));
        assert_eq!(pair("0:80"), Ok((0, 80)));
        for bad in ["", "0", "80:", ":80", "80:0", "65536", "a:80", "1:2:3", "-1"] {
            assert!(pair(bad).is_err(), "{bad}");
        }
    }
}
