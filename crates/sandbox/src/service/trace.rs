//! The spans of requests, for OpenTelemetry.

/// The target of every span that belongs to the trace of a request.
///
/// The log never shows these spans. They cost an atomic read unless the server exports traces, and
/// a request that is not sampled has none.
pub const TRACE_TARGET: &str = "isolet::trace";
