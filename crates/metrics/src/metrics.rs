//! The registry of all groups, and its text.

use crate::fleet::FleetMetrics;
use crate::images::ImageMetrics;
use crate::labels::described;
use crate::lifecycle::{AgentLosses, Commands, Lifecycle, Restarts};
use crate::process::ProcessCollector;
use crate::requests::RequestMetrics;
use crate::snapshot::Snapshot;
use crate::store::StoreMetrics;
use crate::streams::StreamBytes;
use crate::tenants::Tenants;
use crate::webhooks::WebhookMetrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt;

/// The media type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// How long changes of state took.
    pub lifecycle: Lifecycle,
    /// How long commands and programs took.
    pub commands: Commands,
    /// How many bytes passed in each kind of stream.
    pub streams: StreamBytes,
    /// How requests were answered or refused.
    pub requests: RequestMetrics,
    /// How long pulls and imports of images took.
    pub images: ImageMetrics,
    /// How often agents were lost, by cause.
    pub agents_lost: AgentLosses,
    /// How often processes of the server were restarted.
    pub restarts: Restarts,
    /// How long work on the records took.
    pub store: StoreMetrics,
    /// Gauges that are set when the metrics are read.
    pub snapshot: Snapshot,
    /// What each tenant used in total.
    pub tenants: Tenants,
    /// What this server does as a node of a fleet.
    pub fleet: FleetMetrics,
    /// Webhooks and their deliveries.
    pub webhooks: WebhookMetrics,
}

impl Metrics {
    /// The metrics of a server of this version.
    #[must_use]
    pub fn new(version: &'static str) -> Self {
        let mut registry = Registry::default();
        let build = described("isolet_build_info", "The version of the server; the value is 1")
            .register(&mut registry, Family::<[(&str, &str); 1], Gauge>::default());
        build.get_or_create(&[("version", version)]).set(1);
        let lifecycle = Lifecycle::register(&mut registry);
        let commands = Commands::register(&mut registry);
        let streams = StreamBytes::register(&mut registry);
        let requests = RequestMetrics::register(&mut registry);
        let images = ImageMetrics::register(&mut registry);
        let agents_lost = AgentLosses::register(&mut registry);
        let restarts = Restarts::register(&mut registry);
        let store = StoreMetrics::register(&mut registry);
        let snapshot = Snapshot::register(&mut registry);
        let tenants = Tenants::register(&mut registry);
        let fleet = FleetMetrics::register(&mut registry);
        let webhooks = WebhookMetrics::register(&mut registry);
        registry.register_collector(Box::new(ProcessCollector));
        Self {
            registry,
            lifecycle,
            commands,
            streams,
            requests,
            images,
            agents_lost,
            restarts,
            store,
            snapshot,
            tenants,
            fleet,
            webhooks,
        }
    }

    /// All metrics in OpenMetrics.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(32 * 1024);
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
#[path = "metrics_test.rs"]
mod tests;
