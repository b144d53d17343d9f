//! The data of server-sent events and the frames of WebSockets, for the OpenAPI document. Routes
//! cannot name them, because OpenAPI only describes whole bodies.

use crate::foundation::error::ApiError;
use crate::routes::events::view::SandboxEventView;
use crate::routes::files::watch::{ChangeEvent, WatchingEvent};
use crate::routes::images::ProgressEvent;
use crate::stream::bridge_events::{BridgeErrorEvent, BridgeExitEvent};
use crate::stream::command_events::CommandExitEvent;
use crate::stream::context_run_view::{FaultView, RunEndEvent, ShownView};
use crate::stream::event_data::{BytesEvent, GapEvent, OutputGapEvent, TextEvent};
use crate::ws::client_frame::ShellClientFrame;
use crate::ws::shell_frames::ShellServerFrame;
use crate::ws::tcp::TcpFrame;
use crate::ws::terminal::frames::{TerminalClientFrame, TerminalServerFrame};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(components(schemas(
    ApiError,
    BridgeErrorEvent,
    BridgeExitEvent,
    BytesEvent,
    ChangeEvent,
    CommandExitEvent,
    FaultView,
    GapEvent,
    OutputGapEvent,
    ProgressEvent,
    RunEndEvent,
    SandboxEventView,
    ShellClientFrame,
    ShellServerFrame,
    ShownView,
    TcpFrame,
    TerminalClientFrame,
    TerminalServerFrame,
    TextEvent,
    WatchingEvent,
)))]
struct Messages;

/// A document with nothing but the schemas of events and frames.
pub(crate) fn messages() -> utoipa::openapi::OpenApi {
    Messages::openapi()
}
