//! The data of server-sent events and the frames of WebSockets, for the OpenAPI document. Routes
//! cannot name them, because OpenAPI only describes whole bodies.

use crate::{
    foundation::error::ApiError,
    routes::{
        events::view::SandboxEventView,
        files::watch::{ChangeEvent, WatchingEvent},
        images::ProgressEvent,
    },
    stream::{
        bridge_events::{BridgeErrorEvent, BridgeExitEvent},
        command_events::CommandExitEvent,
        context_run_view::{FaultView, RunEndEvent, ShownView},
        event_data::{BytesEvent, GapEvent, OutputGapEvent, TextEvent},
    },
    ws::{
        client_frame::ShellClientFrame,
        shell_frames::ShellServerFrame,
        tcp::TcpFrame,
        terminal::frames::{TerminalClientFrame, TerminalServerFrame},
    },
};
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
