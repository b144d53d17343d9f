//! Turns the spans of sampled requests into OpenTelemetry's.

use super::export::{self, Exporter};
use super::headers_file;
use super::propagation::Propagation;
use crate::config::TelemetrySettings;
use crate::logging::{BoxedLayer, is_trace};
use anyhow::{Context as _, Result, bail};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanExporter as _};
use reqwest::{Client, Url, redirect};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;

/// The path of traces at a receiver, for an endpoint without a path.
const TRACES_PATH: &str = "/v1/traces";
/// How long one request to the receiver may take.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// A variable that would carry keys, which every process of the same user can read.
const HEADERS_VARIABLES: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// What receives spans, and what sends them on.
pub(super) struct Prepared {
    pub(super) layer: BoxedLayer,
    pub(super) exporter: Exporter,
}

/// Prepares the export to an endpoint.
///
/// # Errors
/// When the endpoint or the headers are malformed.
pub(super) fn prepare(endpoint: &str, settings: &TelemetrySettings) -> Result<Prepared> {
    let url = url(endpoint)?;
    if let Some(name) = HEADERS_VARIABLES.iter().find(|name| std::env::var_os(name).is_some()) {
        bail!(
            "{name} is set; unset it, and write the headers to otlp_headers_file, because an environment is no place for keys"
        );
    }
    let headers = match &settings.otlp_headers_file {
        Some(_) if url.scheme() == "http" && !is_loopback(&url) => {
            bail!("otlp_headers_file is sent over https, or to this machine: {endpoint}")
        }
        Some(path) => headers_file::read(path)?,
        None => HashMap::new(),
    };
    let resource = resource(settings);
    let mut exporter = exporter(&url, headers).context("cannot export traces")?;
    exporter.set_resource(&resource);
    let (processor, exporter) = export::queue(exporter);
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        // Requests that are not sampled have no spans at all.
        .with_sampler(Sampler::AlwaysOn)
        .with_span_processor(processor)
        .build();
    let tracer = provider.tracer("isolet");
    let propagation = Propagation::new(tracer.clone(), settings.sample_ratio);
    isolet_http::enable_tracing(Box::new(propagation));
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false);
    Ok(Prepared { layer: Box::new(layer.with_filter(filter_fn(is_trace))), exporter })
}

/// Parses an endpoint. Without a path, it is the base address of a receiver.
fn url(endpoint: &str) -> Result<Url> {
    let url = Url::parse(endpoint);
    let mut url = url.with_context(|| format!("otlp_endpoint {endpoint:?} is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        bail!("otlp_endpoint must begin with http:// or https://: {endpoint:?}");
    }
    if url.path() == "/" {
        url.set_path(TRACES_PATH);
    }
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What all spans have in common. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` count too.
fn resource(settings: &TelemetrySettings) -> Resource {
    let of_variable = || std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let name = settings.service_name.clone().or_else(of_variable);
    Resource::builder()
        .with_service_name(name.unwrap_or_else(|| "isolet".to_owned()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// OTLP as protobuf over HTTP/1.1. Follows no redirects: the headers may contain a key.
fn exporter(url: &Url, headers: HashMap<String, String>) -> Result<SpanExporter> {
    // Only the first call in a process counts; all callers install the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .redirect(redirect::Policy::none())
        .timeout(REQUEST_MAX)
        .user_agent(concat!("isolet/", env!("CARGO_PKG_VERSION")))
        .build()?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url.as_str())
        .with_timeout(REQUEST_MAX)
        .with_headers(headers);
    Ok(exporter.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_gets_the_usual_one() {
        let of = |text: &str| url(text).map(String::from).unwrap();
        assert_eq!(of("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(of("http://127.0.0.1:4318/"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(of("https://traces.example/own"), "https://traces.example/own");
    }

    #[test]
    fn an_endpoint_is_a_url() {
        for bad in ["127.0.0.1:4318", "ftp://a", "http://"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_stay_on_this_machine_or_are_encrypted() {
        let loopback = |text: &str| is_loopback(&url(text).unwrap());
        for own in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"] {
            assert!(loopback(own), "{own}");
        }
        for other in ["http://traces.example", "http://10.0.0.1:1", "http://localhost.example"] {
            assert!(!loopback(other), "{other}");
        }
    }
}
