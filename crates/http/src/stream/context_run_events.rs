//! Streams a run in a code context as server-sent events.

use crate::auth::cancellation::Cancellation;
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::EventEncoding;
use crate::foundation::utf8_stream::Utf8Decoder;
use crate::stream::context_run::{ContextRun, context_error, death_exception};
use crate::stream::context_run_view::{FaultView, RunEndEvent, RunReport, ShownView};
use crate::stream::event_data::{write_bytes, write_text};
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream};
use axum::response::Response;
use isolet_sandbox::contexts::ContextRunEvent;
use isolet_wire::context::ContextRunEnd;
use isolet_wire::frame::DataFrame;
use std::ops::ControlFlow;

/// The events of one run.
struct RunEvents {
    run: ContextRun,
    decoder: Utf8Decoder,
    encoding: EventEncoding,
    /// Taken by the last event.
    report: Option<RunReport>,
    /// Results that could not be read.
    unread: u64,
}

/// The response: events up to the end of the run.
pub(crate) fn events(
    run: ContextRun,
    encoding: EventEncoding,
    report: RunReport,
    cancellation: Cancellation,
) -> Response {
    let mut first = EventBuffer::default();
    first.comment("begun");
    let decoder = Utf8Decoder::default();
    let events = RunEvents { run, decoder, encoding, report: Some(report), unread: 0 };
    EventStream::new(Some(events), first, cancellation).into_response()
}

impl EventSource for RunEvents {
    type Item = ContextRunEvent;

    async fn next(&mut self) -> Result<ContextRunEvent, ApiError> {
        self.run.next().await.map_err(context_error)
    }

    fn ready(&mut self) -> Result<Option<ContextRunEvent>, ApiError> {
        self.run.ready().map_err(context_error)
    }

    fn write(&mut self, event: ContextRunEvent, out: &mut EventBuffer) -> ControlFlow<()> {
        match event {
            ContextRunEvent::Began(_) => {}
            ContextRunEvent::Unread => self.unread += 1,
            ContextRunEvent::Output(DataFrame { stream, offset, bytes, .. })
                if self.encoding == EventEncoding::Base64 =>
            {
                write_bytes(out, None, stream, offset, &bytes);
            }
            ContextRunEvent::Output(DataFrame { stream, offset, bytes, .. }) => {
                if let Some(chunk) = self.decoder.decode_chunk(stream, "", offset, &bytes) {
                    write_text(out, None, &chunk);
                }
            }
            ContextRunEvent::Shown(shown) => out.event(None, "result", &ShownView::from(&shown)),
            ContextRunEvent::Fault(fault) => out.event(None, "exception", &FaultView::from(&fault)),
            ContextRunEvent::End(end) => {
                self.write_end(&end, out);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

impl RunEvents {
    fn write_end(&mut self, end: &ContextRunEnd, out: &mut EventBuffer) {
        self.decoder.close().iter().for_each(|chunk| write_text(out, None, chunk));
        if let Some(fault) = death_exception(end).filter(|_| !self.run.fault) {
            out.event(None, "exception", &FaultView::from(&fault));
        }
        let denied = self.run.denied();
        if let Some(report) = self.report.take() {
            let data = RunEndEvent::new(end, self.run.fresh, self.unread, denied, report);
            out.event(None, "end", &data);
        }
    }
}
