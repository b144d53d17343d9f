//! Streams a command as server-sent events: its output, then its exit.

use crate::auth::cancellation::Cancellation;
use crate::foundation::denied::{DeniedFields, DeniedView};
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::EventEncoding;
use crate::foundation::lost::{LostFields, LostStateView};
use crate::foundation::time::Millis;
use crate::foundation::utf8_stream::Utf8Decoder;
use crate::stream::bridge_events;
use crate::stream::command::{CommandEvent, RunningCommand};
use crate::stream::event_data::{OutputGapEvent, write_bytes, write_text};
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream, stream_name};
use axum::response::Response;
use isolet_sandbox::{Denied, SessionId};
use isolet_wire::response::CommandExit;
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::timeout;
use utoipa::ToSchema;

/// A refusal within this time becomes an HTTP status; a later one becomes an event.
const FIRST_EVENT_WAIT: Duration = Duration::from_millis(50);

/// The data of `exit`, the last event of a command.
#[derive(Debug, Serialize, ToSchema)]
// More than 12 fields: it has one for each member of the JSON object.
pub(crate) struct CommandExitEvent {
    /// 128 and the signal where a signal ended the command.
    exit_code: i32,
    /// The signal that ended it.
    signal: Option<i32>,
    /// Whether it was ended at its timeout.
    timed_out: bool,
    /// Whether the kernel killed a process of the sandbox for memory while it ran.
    oom: bool,
    /// Whether it was cancelled.
    cancelled: bool,
    /// From its start to its end, in ms.
    #[schema(value_type = f64)]
    duration_ms: Millis,
    /// Bytes that it wrote to standard output.
    out_bytes: u64,
    /// Bytes that it wrote to standard error.
    err_bytes: u64,
    /// Whether its shell was opened in place of one that had ended; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    fresh: bool,
    /// Whether the shell has ended with the command; absent for a command without a shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    shell_ended: Option<bool>,
    /// The session that the request named.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// Only in the first answer after the sandbox woke: what the sleep ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<&'static str>>,
    /// With `shell_state` in `lost`: the shells that do not come back as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_state: Option<Vec<LostStateView>>,
    /// Traffic that the sandbox was denied while the command ran; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<Vec<DeniedView>>,
    /// How much more was denied than the list holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_lost: Option<u64>,
}

impl CommandExitEvent {
    fn new(exit: &CommandExit, report: ExitReport, denied: Denied) -> Self {
        let ExitReport { session, lost: LostFields { lost, lost_state }, shell_ended } = report;
        let DeniedFields { denied, denied_lost } = denied.into();
        Self {
            exit_code: exit.code,
            signal: exit.signal,
            timed_out: exit.timed_out,
            oom: exit.oom,
            cancelled: exit.cancelled,
            duration_ms: Millis::from_micros(exit.micros),
            out_bytes: exit.out,
            err_bytes: exit.err,
            fresh: exit.fresh,
            shell_ended,
            session: session.map(String::from),
            lost,
            lost_state,
            denied,
            denied_lost,
        }
    }
}

/// What the exit event reports beside the exit.
#[derive(Debug, Default)]
pub(crate) struct ExitReport {
    /// The session, if the request named one.
    pub(crate) session: Option<SessionId>,
    pub(crate) lost: LostFields,
    /// Whether the session's shell has ended with the command; `None` if that is not known.
    pub(crate) shell_ended: Option<bool>,
}

/// The events of one command.
struct CommandEvents {
    command: RunningCommand,
    writer: CommandEventWriter,
}

struct CommandEventWriter {
    decoder: Utf8Decoder,
    encoding: EventEncoding,
    /// Bytes of output that were no longer available.
    lost: u64,
    /// Taken by the exit event.
    report: ExitReport,
}

/// The response: events up to the exit of the command.
pub(crate) async fn answer(
    command: RunningCommand,
    encoding: EventEncoding,
    report: ExitReport,
    cancellation: Cancellation,
) -> Result<Response, ApiError> {
    let mut first = EventBuffer::default();
    let writer = CommandEventWriter { decoder: Utf8Decoder::default(), encoding, lost: 0, report };
    let mut events = CommandEvents { command, writer };
    let flow = match timeout(FIRST_EVENT_WAIT, events.next()).await {
        Err(_) => ControlFlow::Continue(()),
        Ok(event) => events.write(event?, &mut first),
    };
    first.comment("begun");
    let source = match flow {
        ControlFlow::Continue(()) => Some(events),
        ControlFlow::Break(()) => {
            events.finish();
            None
        }
    };
    Ok(EventStream::new(source, first, cancellation).into_response())
}

impl EventSource for CommandEvents {
    type Item = CommandEvent;

    async fn next(&mut self) -> Result<CommandEvent, ApiError> {
        self.command.next().await
    }

    fn ready(&mut self) -> Result<Option<CommandEvent>, ApiError> {
        self.command.ready()
    }

    fn write(&mut self, event: CommandEvent, out: &mut EventBuffer) -> ControlFlow<()> {
        self.writer.report.shell_ended = self.command.shell_ended();
        self.writer.write(event, out)
    }

    fn write_error(&self, failure: &ApiError, out: &mut EventBuffer) {
        match self.writer.encoding {
            EventEncoding::Bridge => bridge_events::write_error(out, failure),
            _ => out.event(None, "error", failure),
        }
    }

    fn finish(self) {
        self.command.park();
    }
}

impl CommandEventWriter {
    fn write(&mut self, event: CommandEvent, out: &mut EventBuffer) -> ControlFlow<()> {
        match self.encoding {
            EventEncoding::Bridge => return self.write_bridge(&event, out),
            EventEncoding::Base64 | EventEncoding::Text => {}
        }
        match event {
            CommandEvent::Started => {}
            CommandEvent::Output { stream, offset, bytes }
                if self.encoding == EventEncoding::Base64 =>
            {
                write_bytes(out, None, stream, offset, &bytes);
            }
            CommandEvent::Output { stream, offset, bytes } => {
                if let Some(chunk) = self.decoder.decode_chunk(stream, "", offset, &bytes) {
                    write_text(out, None, &chunk);
                }
            }
            CommandEvent::Gap { stream, from, to } => {
                self.decoder.gap(stream).iter().for_each(|chunk| write_text(out, None, chunk));
                out.event(None, "gap", &OutputGapEvent { stream: stream_name(stream), from, to });
            }
            CommandEvent::Exit(exit, denied) => {
                self.decoder.close().iter().for_each(|chunk| write_text(out, None, chunk));
                let report = std::mem::take(&mut self.report);
                out.event(None, "exit", &CommandExitEvent::new(&exit, report, denied));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn write_bridge(&mut self, event: &CommandEvent, out: &mut EventBuffer) -> ControlFlow<()> {
        match event {
            CommandEvent::Started => {}
            CommandEvent::Output { stream, bytes, .. } => {
                bridge_events::write_output(out, stream_name(*stream), bytes);
            }
            CommandEvent::Gap { from, to, .. } => self.lost += to.saturating_sub(*from),
            CommandEvent::Exit(exit, _) => {
                bridge_events::write_exit(out, exit, self.lost);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use isolet_sandbox::NetworkDenial;

    fn writer(encoding: EventEncoding) -> CommandEventWriter {
        let lost = LostFields { lost: Some(vec!["shells"]), lost_state: None };
        let session = Some("s".parse().unwrap());
        let report = ExitReport { session, lost, shell_ended: Some(true) };
        CommandEventWriter { decoder: Utf8Decoder::default(), encoding, lost: 0, report }
    }

    #[test]
    fn events_keep_their_bytes() {
        let mut out = EventBuffer::default();
        let mut writer = writer(EventEncoding::Text);
        assert!(writer.write(CommandEvent::Started, &mut out).is_continue());
        let bytes = Bytes::from_static(b"a\"\xe2");
        assert!(
            writer
                .write(CommandEvent::Output { stream: 1, offset: 5, bytes }, &mut out)
                .is_continue()
        );
        assert!(
            writer.write(CommandEvent::Gap { stream: 1, from: 8, to: 9 }, &mut out).is_continue()
        );
        let exit = CommandExit {
            code: 3,
            micros: 1000,
            out: 4,
            err: 5,
            fresh: true,
            ..CommandExit::default()
        };
        let refused = NetworkDenial {
            host: "a".into(),
            port: None,
            protocol: "dns".into(),
            rule: "default".into(),
            times: 1,
        };
        let denied = Denied { list: vec![refused], lost: 2 };
        assert!(writer.write(CommandEvent::Exit(exit, denied), &mut out).is_break());
        let lines = [
            "event: stdout",
            r#"data: {"offset":5,"data":"a\""}"#,
            "",
            "event: stdout",
            r#"data: {"offset":7,"data":"�"}"#,
            "",
            "event: gap",
            r#"data: {"stream":"stdout","from":8,"to":9}"#,
            "",
            "event: exit",
            r#"data: {"exit_code":3,"signal":null,"timed_out":false,"oom":false,"cancelled":false,"duration_ms":1,"out_bytes":4,"err_bytes":5,"fresh":true,"shell_ended":true,"session":"s","lost":["shells"],"denied":[{"host":"a","port":null,"protocol":"dns","rule":"default","times":1}],"denied_lost":2}"#,
            "",
            "",
        ];
        assert_eq!(out.as_str(), lines.join("\n"));
    }

    #[test]
    fn exact_bytes_are_base64() {
        let mut out = EventBuffer::default();
        let mut writer = writer(EventEncoding::Base64);
        writer.report = ExitReport::default();
        let bytes = Bytes::from_static(b"\xff");
        assert!(
            writer
                .write(CommandEvent::Output { stream: 2, offset: 5, bytes }, &mut out)
                .is_continue()
        );
        let exit = CommandExit { micros: 1500, ..CommandExit::default() };
        assert!(writer.write(CommandEvent::Exit(exit, Denied::default()), &mut out).is_break());
        let lines = [
            "event: stderr",
            r#"data: {"offset":5,"data_b64":"/w=="}"#,
            "",
            "event: exit",
            r#"data: {"exit_code":0,"signal":null,"timed_out":false,"oom":false,"cancelled":false,"duration_ms":1.5,"out_bytes":0,"err_bytes":0}"#,
            "",
            "",
        ];
        assert_eq!(out.as_str(), lines.join("\n"));
    }
}
