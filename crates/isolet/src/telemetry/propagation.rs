//! Decides which requests are traced, and connects their traces to those of other processes.

use hyper::HeaderMap;
use isolet_http::RequestTracing;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, TraceContextExt, Tracer};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer};
use std::time::{Duration, SystemTime};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// The longest `tracestate` that is passed on, in bytes: what W3C asks of everyone. Each span repeats
/// it.
const STATE_BYTES_MAX: usize = 512;

/// The W3C trace context of requests.
pub(super) struct Propagation {
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    /// From 0 to 1.
    sample_ratio: f64,
}

impl Propagation {
    pub(super) fn new(tracer: SdkTracer, sample_ratio: f64) -> Self {
        Self { tracer, propagator: TraceContextPropagator::new(), sample_ratio }
    }

    /// The client's span; `None` without a valid `traceparent`.
    fn remote(&self, headers: &HeaderMap) -> Option<Context> {
        let parent = headers.get(TRACEPARENT)?;
        let mut own = HeaderMap::new();
        own.insert(TRACEPARENT, parent.clone());
        if let Some(state) = headers.get(TRACESTATE).filter(|it| it.len() <= STATE_BYTES_MAX) {
            own.insert(TRACESTATE, state.clone());
        }
        let context = self.propagator.extract_with_context(&Context::new(), &HeaderExtractor(&own));
        Some(context).filter(|context| context.span().span_context().is_valid())
    }
}

impl RequestTracing for Propagation {
    fn samples(&self, headers: &HeaderMap) -> bool {
        match self.remote(headers) {
            Some(remote) => remote.span().span_context().is_sampled(),
            None => random() < self.sample_ratio,
        }
    }

    fn set_parent(&self, span: &Span, headers: &HeaderMap) {
        if let Some(remote) = self.remote(headers) {
            let _ = span.set_parent(remote);
        }
    }

    fn rename(&self, span: &Span, name: String) {
        span.context().span().update_name(name);
    }

    fn propagate(&self, span: &Span, headers: &mut HeaderMap) {
        headers.remove(TRACESTATE);
        self.propagator.inject_context(&span.context(), &mut HeaderInjector(headers));
        if headers.get(TRACESTATE).is_some_and(|state| state.is_empty()) {
            headers.remove(TRACESTATE);
        }
    }

    fn record_past(&self, parent: &Span, name: &'static str, start: SystemTime, lasted: Duration) {
        let builder =
            SpanBuilder::from_name(name).with_kind(SpanKind::Server).with_start_time(start);
        let mut span = self.tracer.build_with_context(builder, &parent.context());
        span.end_with_timestamp(start + lasted);
    }
}

/// A random number from 0 to 1, without 1.
fn random() -> f64 {
    let bytes = RandomIdGenerator::default().new_trace_id().to_bytes();
    let low = bytes.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    (low >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn propagation(sample_ratio: f64) -> Propagation {
        Propagation::new(SdkTracerProvider::builder().build().tracer("test"), sample_ratio)
    }

    fn headers(parent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, parent.parse().unwrap());
        headers
    }

    #[test]
    fn a_client_decides_on_its_trace_and_chance_on_others() {
        let all = propagation(1.0);
        let none = propagation(0.0);
        let sampled = headers(&format!("00-{TRACE}-b7ad6b7169203331-01"));
        let unsampled = headers(&format!("00-{TRACE}-b7ad6b7169203331-00"));
        assert!(none.samples(&sampled));
        assert!(!all.samples(&unsampled));
        for bad in ["", "00-0-0-01", &format!("00-{TRACE}-0000000000000000-01"), "x"] {
            assert!(all.samples(&headers(bad)), "{bad}");
            assert!(!none.samples(&headers(bad)), "{bad}");
        }
        assert!(all.samples(&HeaderMap::new()));
        assert!(!none.samples(&HeaderMap::new()));
    }

    #[test]
    fn about_half_of_the_requests_are_sampled_by_half() {
        let half = propagation(0.5);
        let sampled = (0..1000).filter(|_| half.samples(&HeaderMap::new())).count();
        assert!((350..650).contains(&sampled), "{sampled}");
    }

    #[test]
    fn a_long_tracestate_is_left_out() {
        let mut given = headers(&format!("00-{TRACE}-b7ad6b7169203331-01"));
        given.insert(TRACESTATE, "a=1".parse().unwrap());
        let state = |headers: &HeaderMap| {
            let remote = propagation(1.0).remote(headers).unwrap();
            remote.span().span_context().trace_state().header()
        };
        assert_eq!(state(&given), "a=1");
        given.insert(TRACESTATE, format!("a={}", "x".repeat(STATE_BYTES_MAX)).parse().unwrap());
        assert_eq!(state(&given), "");
    }
}
