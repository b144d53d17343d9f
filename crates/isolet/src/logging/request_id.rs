//! Adds the id of the request to what is logged while a request is answered.

use serde_json::{Map, Value};
use std::fmt;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes a line and the id of a request. The line has no line break at its end.
type AddId = fn(Writer<'_>, line: &str, id: String) -> fmt::Result;

/// A format of log lines that includes the id of the request, if there is one.
pub(super) struct WithRequestId<F> {
    format: F,
    add: AddId,
}

impl<F> WithRequestId<F> {
    /// Lines of text end with `request_id=ID`.
    pub(super) fn in_text(format: F) -> Self {
        Self { format, add: add_to_text }
    }

    /// JSON objects have a member `request_id`.
    pub(super) fn in_json(format: F) -> Self {
        Self { format, add: add_to_json }
    }
}

fn add_to_text(mut writer: Writer<'_>, line: &str, id: String) -> fmt::Result {
    writeln!(writer, "{line} request_id={id}")
}

fn add_to_json(mut writer: Writer<'_>, line: &str, id: String) -> fmt::Result {
    let mut object: Map<String, Value> = serde_json::from_str(line).map_err(|_| fmt::Error)?;
    object.insert("request_id".to_owned(), Value::String(id));
    writeln!(writer, "{}", Value::Object(object))
}

impl<S, N, F> FormatEvent<S, N> for WithRequestId<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(id) = isolet_http::current_request_id() else {
            return self.format.format_event(ctx, writer, event);
        };
        let mut line = String::new();
        self.format.format_event(ctx, Writer::new(&mut line), event)?;
        (self.add)(writer, line.trim_end_matches('\n'), id)
    }
}
