//! `isolet exec --stdin`: passes standard input on while it arrives.
//!
//! The command runs in a shell over a WebSocket: one of its own, or that of a session. Input goes in frames;
//! when the command does not read, the server stops reading the socket, and this program stops reading its
//! standard input. So no side holds more than a few frames.

use super::{Args, ended, lost, quoted};
use crate::client::output::{print_message, sanitize, write};
use crate::client::server_error::ServerError;
use crate::client::socket::{ShellFrame, ShellSocket};
use crate::client::{ApiClient, EXIT_CLIENT_ERROR, to_exit_code};
use anyhow::{Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value, json};
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

/// Bytes of one read, sent as one frame.
const READ_BYTES: usize = 64 * 1024;
/// How many reads wait to be sent.
const READS_MAX: usize = 4;
/// How long the server may take to confirm that a command was cancelled.
const CANCEL: Duration = Duration::from_secs(2);
/// The id of the only command.
const COMMAND: &str = "c1";

/// Runs the command to its end.
pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let query = args.session.as_ref().map_or_else(String::new, |id| format!("&session={id}"));
    let mut socket = ShellSocket::open(&server, &args.id, &query).await?;
    socket.send(&start(&args)).await?;
    let (mut sink, mut frames) = socket.split();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let sending = async {
        let mut pieces = pieces();
        while let Some(bytes) = pieces.recv().await {
            let eof = bytes.is_empty();
            let frame = match eof {
                true => json!({"type": "shell_stdin", "id": COMMAND, "eof": true}),
                false => {
                    json!({"type": "shell_stdin", "id": COMMAND, "data_b64": STANDARD.encode(&bytes)})
                }
            };
            // The receiving side reports a lost connection.
            if sink.send(Message::text(frame.to_string())).await.is_err() || eof {
                break;
            }
        }
    };
    let mut receiving = std::pin::pin!(receive(&mut frames, &args));
    let code = {
        let mut sending = std::pin::pin!(sending);
        let mut sent = false;
        loop {
            tokio::select! {
                () = &mut sending, if !sent => sent = true,
                code = &mut receiving => break Some(code),
                _ = interrupt.recv() => break None,
                _ = terminate.recv() => break None,
            }
        }
    };
    let code = match code {
        Some(code) => code,
        // Ctrl-C: a shell of its own ends with the socket; that of a session goes on without a cancel.
        None => {
            let cancel = json!({"type": "shell_cancel", "id": COMMAND});
            let cancelled = async {
                sink.send(Message::text(cancel.to_string())).await.ok()?;
                receiving.await.ok()
            };
            Ok(timeout(CANCEL, cancelled).await.ok().flatten().unwrap_or(128 + 2))
        }
    };
    // The output was closed: the command of a session must not go on.
    if code.is_err() && args.session.is_some() {
        let cancel = json!({"type": "shell_cancel", "id": COMMAND});
        let _ = timeout(CANCEL, sink.send(Message::text(cancel.to_string()))).await;
    }
    let _ = timeout(CANCEL, sink.close()).await;
    code.map(to_exit_code)
}

/// The frame that starts the command.
fn start(args: &Args) -> Value {
    let text = match args.command.as_slice() {
        [one] => one.clone(),
        several => quoted(several),
    };
    let mut frame = Map::new();
    frame.insert("type".into(), json!("shell_run"));
    frame.insert("id".into(), json!(COMMAND));
    frame.insert("command".into(), json!(text));
    frame.insert("stdin".into(), json!(true));
    if let Some(cwd) = &args.cwd {
        frame.insert("cwd".into(), json!(cwd));
    }
    if let Some(timeout) = args.timeout {
        frame.insert("timeout_ms".into(), json!(timeout));
    }
    if !args.env.is_empty() {
        let env: Map<String, Value> =
            args.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        frame.insert("env".into(), env.into());
    }
    frame.into()
}

/// Standard input in pieces; an empty one is its end. A thread reads it, because a read blocks.
fn pieces() -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(READS_MAX);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match stdin.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    print_message(format_args!("cannot read standard input: {error}"));
                    0
                }
            };
            let bytes = Bytes::copy_from_slice(&buffer[..count]);
            if sender.blocking_send(bytes).is_err() || count == 0 {
                return;
            }
        }
    });
    receiver
}

/// Writes the output, and returns the exit code.
async fn receive(
    frames: &mut (impl StreamExt<Item = ShellFrame> + Unpin),
    args: &Args,
) -> Result<i64> {
    let id = &args.id;
    loop {
        let message = match frames.next().await {
            Some(ShellFrame::Data { stream, bytes, .. }) => {
                write(stream == 1, &bytes)?;
                continue;
            }
            Some(ShellFrame::Json(message)) => message,
            Some(ShellFrame::Closed(_)) | None => bail!("{}", lost(id, args.session.as_deref())),
        };
        match message["type"].as_str().unwrap_or_default() {
            "shell_exit" if message["id"] == COMMAND => {
                return Ok(ended(&message, id, message["code"].as_i64()));
            }
            "shell_error" => return Err(ServerError::from_event(&message, id).into()),
            "shell_gap" => print_message("output was lost because it was not read in time"),
            "shell_closed" if message["error"].is_string() => {
                let cause = sanitize(message["cause"].as_str().unwrap_or_default());
                print_message(format_args!("sandbox {id}: the command ended: {cause}"));
                return Ok(EXIT_CLIENT_ERROR.into());
            }
            _ => {}
        }
    }
}
