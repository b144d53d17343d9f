//! Adds the id of the request to what is logged while a request is answered.

use serde_json::{Map, Value};
use std::fmt;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Lines of text end with `request_id=ID`.
pub(super) struct InText<F>(pub(super) F);
/// JSON objects have a member `request_id`.
pub(super) struct InJson<F>(pub(super) F);

/// The line that `format` writes, without its line break.
fn line<S, N, F>(
    format: &F,
    ctx: &FmtContext<'_, S, N>,
    event: &Event<'_>,
) -> Result<String, fmt::Error>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    let mut line = String::new();
    format.format_event(ctx, Writer::new(&mut line), event)?;
    line.truncate(line.trim_end_matches('\n').len());
    Ok(line)
}

impl<S, N, F> FormatEvent<S, N> for InText<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(id) = isolet_http::current_request_id() else {
            return self.0.format_event(ctx, writer, event);
        };
        writeln!(writer, "{} request_id={id}", line(&self.0, ctx, event)?)
    }
}

impl<S, N, F> FormatEvent<S, N> for InJson<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(id) = isolet_http::current_request_id() else {
            return self.0.format_event(ctx, writer, event);
        };
        let line = line(&self.0, ctx, event)?;
        let mut object: Map<String, Value> = serde_json::from_str(&line).map_err(|_| fmt::Error)?;
        object.insert("request_id".to_owned(), Value::String(id));
        writeln!(writer, "{}", Value::Object(object))
    }
}
