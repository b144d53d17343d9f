//! The log of the server: lines on standard error, as text or as JSON, and their filter.

mod request_id;

use anyhow::{Context, Result, bail};
use isolet_sandbox::TRACE_TARGET;
use request_id::WithRequestId;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// What the log admits without a setting.
pub(crate) const DEFAULT_FILTER: &str = "info";
/// Libraries that log what concerns only their developers, or, as `rmcp`, an error for each client that
/// leaves in the middle of a call. A filter that names them wins.
const QUIET_LIBRARIES: &str = "hyper=error,rmcp=off";

const FILTER_HINT: &str =
    "use off, error, warn, info, debug or trace, or directives such as info,isolet_sandbox=debug";

/// A part of the subscriber.
pub(crate) type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// How the log is written.
#[derive(Debug)]
pub(crate) struct LogSettings {
    /// JSON lines instead of text.
    pub(crate) json: bool,
    /// A level, or directives such as `info,isolet_sandbox=debug`.
    pub(crate) filter: String,
}

/// Changes the filter of the running server.
#[derive(Clone)]
pub(crate) struct LogControl {
    handle: reload::Handle<EnvFilter, Registry>,
    filter: Arc<Mutex<String>>,
    json: bool,
}

/// Parses a level or directives. The spans of traces are never part of the log.
///
/// # Errors
/// When a directive is malformed.
fn parse(filter: &str) -> Result<EnvFilter> {
    let given = if filter.is_empty() { DEFAULT_FILTER } else { filter };
    let directives = format!("{QUIET_LIBRARIES},{given},{TRACE_TARGET}=off");
    let parsed = EnvFilter::builder().parse(directives);
    parsed.with_context(|| format!("log filter {filter:?}: {FILTER_HINT}"))
}

/// Checks a filter of the configuration. A word without `=` must be a level, although the library
/// takes any word for the name of a module: a misspelled level would silence everything else.
///
/// # Errors
/// When it is malformed.
pub(crate) fn check(filter: &str) -> Result<()> {
    let is_directive =
        |part: &str| part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok();
    if !filter.is_empty() && !filter.split(',').map(str::trim).all(is_directive) {
        bail!("log filter {filter:?}: {FILTER_HINT}");
    }
    parse(filter).map(drop)
}

/// Whether `RUST_LOG` can be used.
pub(crate) fn is_valid(filter: &str) -> bool {
    parse(filter).is_ok()
}

/// Starts logging, and sends the spans of requests to `traces`.
///
/// # Errors
/// When the filter is malformed.
pub(crate) fn start(settings: &LogSettings, traces: Option<BoxedLayer>) -> Result<LogControl> {
    let (filter, handle) = reload::Layer::new(parse(&settings.filter)?);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let lines: BoxedLayer = if settings.json {
        let lines = lines.json().map_event_format(WithRequestId::in_json);
        Box::new(lines.with_filter(filter))
    } else {
        Box::new(lines.map_event_format(WithRequestId::in_text).with_filter(filter))
    };
    match traces {
        Some(traces) => {
            tracing_subscriber::registry().with(vec![lines, traces]).with(SampledSpans).init();
        }
        None => tracing_subscriber::registry().with(lines).init(),
    }
    if settings.json {
        log_panics();
    }
    let filter = Arc::new(Mutex::new(settings.filter.clone()));
    Ok(LogControl { handle, filter, json: settings.json })
}

/// Whether this is a span of the trace of a request. Lines of the log are never part of a trace.
pub(crate) fn is_trace(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TRACE_TARGET
}

/// Disables the spans of requests that are not sampled: all but the first span, which exists only
/// for sampled ones, and those below another span. The filter of a layer cannot do this, because it
/// does not keep a span from being created.
struct SampledSpans;

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for SampledSpans {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_trace(metadata) { Interest::sometimes() } else { Interest::always() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: LayerContext<'_, S>) -> bool {
        let is_first = metadata.name() == "request";
        !is_trace(metadata) || is_first || context.lookup_current().is_some()
    }
}

/// A panic is a line of the log too, so that each line is JSON.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string);
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(location, panic = message, "a thread panicked");
    }));
}

impl LogControl {
    /// Whether the lines are JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// The filter in force.
    pub(crate) fn filter(&self) -> String {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the filter, until the server ends.
    ///
    /// # Errors
    /// When it is malformed.
    pub(crate) fn set(&self, filter: &str) -> Result<()> {
        check(filter)?;
        let parsed = parse(filter)?;
        // Held while the filter is replaced, so that both agree.
        let mut current = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        self.handle.reload(parsed)?;
        filter.clone_into(&mut current);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_directives() {
        for good in ["", "off", "info", "DEBUG", "warn,isolet_sandbox=debug", "hyper=trace"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["loud", "isolet_http=loud", "info,,=x=y"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_of_traces_are_never_logged() {
        for filter in ["trace", "isolet=trace", "isolet::trace=trace"] {
            let parsed = parse(filter).unwrap().to_string();
            assert!(parsed.contains("isolet::trace=off"), "{parsed}");
            assert!(!parsed.contains("isolet::trace=trace"), "{parsed}");
        }
    }
}
