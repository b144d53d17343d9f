//! Input for processes and PTYs.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::RpcError;
use crate::dialects::e2b::connect::envelope::{EnvelopeReader, Envelopes};
use crate::dialects::e2b::connect::unary::Unary;
use crate::dialects::e2b::process::calls::Empty;
use crate::dialects::e2b::process::pty;
use crate::dialects::e2b::process::select::{self, Selected, Selector};
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use isolet_sandbox::Sandbox;
use serde::Deserialize;

/// JSON of protobuf allows both alphabets, with and without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Bytes in base64, for the standard input of a process or for a PTY.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProcessInput {
    stdin: Option<String>,
    pty: Option<String>,
}

impl ProcessInput {
    /// Sends the bytes to what was selected.
    async fn send(self, sandbox: &Sandbox, to: &Selected) -> Result<(), RpcError> {
        match (self.stdin, self.pty, to) {
            (Some(text), None, Selected::Process { id, .. }) => {
                Ok(sandbox.process_input(id, &decode(&text)?, false).await?)
            }
            (None, Some(text), Selected::Pty { session, .. }) => {
                pty::type_in(sandbox, session, &decode(&text)?).await
            }
            (Some(_), None, _) => Err(RpcError::invalid("a PTY has no stdin; send pty")),
            (None, Some(_), _) => Err(RpcError::invalid("the process has no PTY; send stdin")),
            _ => Err(RpcError::invalid("input: exactly one of stdin and pty")),
        }
    }
}

fn decode(text: &str) -> Result<Vec<u8>, RpcError> {
    let bytes = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text));
    bytes.map_err(|_| RpcError::invalid("input: is not base64"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SendInputRequest {
    process: Selector,
    input: ProcessInput,
}

/// Sends input. Up to 1 MiB waits until a process reads it; more is refused.
pub(super) async fn send(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Unary(wish): Unary<SendInputRequest>,
) -> Result<Json<Empty>, RpcError> {
    let sandbox = select::reach(&app, &caller, &ids).await?;
    let to = wish.process.find(&sandbox).await?;
    wish.input.send(&sandbox, &to).await?;
    Ok(Json(Empty {}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CloseRequest {
    process: Selector,
}

/// Closes the standard input of a process.
pub(super) async fn close(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Unary(wish): Unary<CloseRequest>,
) -> Result<Json<Empty>, RpcError> {
    let sandbox = select::reach(&app, &caller, &ids).await?;
    match wish.process.find(&sandbox).await? {
        Selected::Process { id, .. } => sandbox.process_input(&id, &[], true).await?,
        Selected::Pty { .. } => {
            return Err(RpcError::invalid("a PTY has no stdin; send it Ctrl+D"));
        }
    }
    Ok(Json(Empty {}))
}

/// One message of `StreamInput`. The first has `start`, the others `data` or `keepalive`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputMessage {
    start: Option<CloseRequest>,
    data: Option<InputData>,
    keepalive: Option<Empty>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputData {
    input: ProcessInput,
}

/// Sends a stream of input, in order.
pub(super) async fn stream(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Response {
    let taken = take(&app, &caller, &ids, request).await;
    let mut out = Envelopes::default();
    if taken.is_ok() {
        out.message(&Empty {});
    }
    out.end(taken.err().as_ref());
    ([(header::CONTENT_TYPE, "application/connect+json")], out.take()).into_response()
}

async fn take(app: &App, caller: &Caller, ids: &PathIds, request: Request) -> Result<(), RpcError> {
    let (parts, body) = request.into_parts();
    let mut messages = EnvelopeReader::new(&parts, body)?;
    let first: Option<InputMessage> = messages.next().await?;
    let start = first.and_then(|first| first.start);
    let start = start.ok_or_else(|| RpcError::invalid("the first message must have start"))?;
    let sandbox = select::reach(app, caller, ids).await?;
    let to = start.process.find(&sandbox).await?;
    while let Some(message) = messages.next::<InputMessage>().await? {
        match message {
            InputMessage { data: Some(data), start: None, .. } => {
                data.input.send(&sandbox, &to).await?;
            }
            InputMessage { keepalive: Some(_), data: None, start: None } => {}
            _ => return Err(RpcError::invalid("a message must have data or keepalive")),
        }
    }
    Ok(())
}
