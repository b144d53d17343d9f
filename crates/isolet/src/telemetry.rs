//! Traces for OpenTelemetry: the export that the table `[telemetry]` asks for.

mod export;
mod headers_file;
mod layer;
mod propagation;

use crate::config::TelemetrySettings;
use crate::logging::BoxedLayer;
use anyhow::Result;

/// The export of traces; nothing without an endpoint.
#[derive(Default)]
pub(crate) struct Telemetry {
    /// What receives the spans, for the subscriber.
    pub(crate) layer: Option<BoxedLayer>,
    exporter: Option<export::Exporter>,
}

impl Telemetry {
    /// Prepares the export. Opens no connection.
    ///
    /// # Errors
    /// When the endpoint or the file of headers is malformed.
    pub(crate) fn prepare(settings: &TelemetrySettings) -> Result<Self> {
        let Some(endpoint) = &settings.otlp_endpoint else { return Ok(Self::default()) };
        let prepared = layer::prepare(endpoint, settings)?;
        Ok(Self { layer: Some(prepared.layer), exporter: Some(prepared.exporter) })
    }

    /// Exports the spans that have ended, until [`RunningTelemetry::finish`].
    pub(crate) fn start(self) -> RunningTelemetry {
        RunningTelemetry { export: self.exporter.map(export::Exporter::start) }
    }
}

/// An export that sends traces until it is finished.
pub(crate) struct RunningTelemetry {
    export: Option<export::RunningExport>,
}

impl RunningTelemetry {
    /// Exports what is left, within 1 s.
    pub(crate) async fn finish(self) {
        if let Some(export) = self.export {
            export.finish().await;
        }
    }
}
