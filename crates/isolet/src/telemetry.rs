//! Traces for OpenTelemetry: the export that the table `[telemetry]` asks for.
//!
//! The Cargo feature `otlp` contains the export. Without the feature a server refuses to start with
//! an `otlp_endpoint`, so that nobody waits for traces that never come.

#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod headers_file;
#[cfg(feature = "otlp")]
mod layer;
#[cfg(feature = "otlp")]
mod propagation;

use crate::config::TelemetrySettings;
use crate::logging::BoxedLayer;
use anyhow::Result;

/// The export of traces; nothing without an endpoint.
#[derive(Default)]
pub(crate) struct Telemetry {
    /// What receives the spans, for the subscriber.
    pub(crate) layer: Option<BoxedLayer>,
    #[cfg(feature = "otlp")]
    exporter: Option<export::Exporter>,
}

impl Telemetry {
    /// Prepares the export. Opens no connection.
    ///
    /// # Errors
    /// When the endpoint or the file of headers is malformed.
    #[cfg(feature = "otlp")]
    pub(crate) fn prepare(settings: &TelemetrySettings) -> Result<Self> {
        let Some(endpoint) = &settings.otlp_endpoint else { return Ok(Self::default()) };
        let prepared = layer::prepare(endpoint, settings)?;
        Ok(Self { layer: Some(prepared.layer), exporter: Some(prepared.exporter) })
    }

    /// Does nothing without an endpoint.
    ///
    /// # Errors
    /// When there is an endpoint, because this program was built without the feature `otlp`.
    #[cfg(not(feature = "otlp"))]
    pub(crate) fn prepare(settings: &TelemetrySettings) -> Result<Self> {
        if settings.otlp_endpoint.is_some() {
            anyhow::bail!(
                "otlp_endpoint is set, and this program was built without traces; install a package, or build with `cargo build --release -p isolet --features otlp`"
            );
        }
        Ok(Self::default())
    }

    /// Exports the spans that have ended, until [`RunningTelemetry::finish`].
    pub(crate) fn start(self) -> RunningTelemetry {
        RunningTelemetry {
            #[cfg(feature = "otlp")]
            export: self.exporter.map(export::Exporter::start),
        }
    }
}

/// An export that sends traces until it is finished.
pub(crate) struct RunningTelemetry {
    #[cfg(feature = "otlp")]
    export: Option<export::RunningExport>,
}

impl RunningTelemetry {
    /// Exports what is left, within 1 s.
    pub(crate) async fn finish(self) {
        #[cfg(feature = "otlp")]
        if let Some(export) = self.export {
            export.finish().await;
        }
    }
}
