//! The table `[telemetry]`: where traces go.

use super::urls::refuse_user;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The table in the file.
#[derive(Debug, Default, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetryFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_headers_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_name: Option<String>,
}

/// The effective settings of the export.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TelemetrySettings {
    /// A URL of a receiver of OTLP over HTTP; `None`: no traces.
    pub(crate) otlp_endpoint: Option<String>,
    /// Headers for the receiver, one in each line.
    pub(crate) otlp_headers_file: Option<PathBuf>,
    /// The share of requests that are traced if their client does not decide, from 0 to 1.
    pub(crate) sample_ratio: f64,
    /// The `service.name` of all spans.
    pub(crate) service_name: Option<String>,
}

impl TelemetryFile {
    /// Prefers the `endpoint` of a flag or variable.
    ///
    /// # Errors
    /// When the ratio is out of bounds, or the path of the headers is not absolute.
    pub(super) fn settings(self, endpoint: Option<String>) -> Result<TelemetrySettings> {
        let sample_ratio = self.sample_ratio.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&sample_ratio) {
            bail!("[telemetry] sample_ratio must be from 0 to 1: {sample_ratio}");
        }
        let headers = self.otlp_headers_file.map(|path| {
            std::path::absolute(&path).with_context(|| format!("{} is not a path", path.display()))
        });
        let endpoint = endpoint.or(self.otlp_endpoint);
        if let Some(endpoint) = &endpoint {
            refuse_user("[telemetry] otlp_endpoint", endpoint, "use otlp_headers_file")?;
        }
        Ok(TelemetrySettings {
            otlp_endpoint: endpoint.filter(|endpoint| !endpoint.is_empty()),
            otlp_headers_file: headers.transpose()?,
            sample_ratio,
            service_name: self.service_name.filter(|name| !name.is_empty()),
        })
    }

    /// The effective settings, for `--print-config`.
    pub(super) fn shown(settings: &TelemetrySettings) -> Self {
        Self {
            otlp_endpoint: settings.otlp_endpoint.clone(),
            otlp_headers_file: settings.otlp_headers_file.clone(),
            sample_ratio: Some(settings.sample_ratio),
            service_name: settings.service_name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str, endpoint: Option<&str>) -> Result<TelemetrySettings> {
        toml::from_str::<TelemetryFile>(text).unwrap().settings(endpoint.map(String::from))
    }

    #[test]
    fn traces_are_off_without_an_endpoint() {
        assert_eq!(settings("", None).unwrap().otlp_endpoint, None);
        assert_eq!(settings("otlp_endpoint = \"\"", None).unwrap().otlp_endpoint, None);
        let of_file = "otlp_endpoint = \"http://a\"";
        assert_eq!(settings(of_file, None).unwrap().otlp_endpoint.as_deref(), Some("http://a"));
        let given = settings(of_file, Some("http://b")).unwrap();
        assert_eq!(given.otlp_endpoint.as_deref(), Some("http://b"));
        assert_eq!(settings(of_file, Some("")).unwrap().otlp_endpoint, None, "a flag turns it off");
    }

    #[test]
    fn an_endpoint_has_no_password() {
        for (file, given) in
            [("otlp_endpoint = \"http://u:hush@a\"", None), ("", Some("http://u:hush@a"))]
        {
            let refused = settings(file, given).unwrap_err().to_string();
            assert!(
                refused.contains("otlp_headers_file") && !refused.contains("hush"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_ratio_is_from_0_to_1() {
        assert_eq!(settings("", None).unwrap().sample_ratio, 1.0);
        assert_eq!(settings("sample_ratio = 0.01", None).unwrap().sample_ratio, 0.01);
        for bad in ["-0.1", "1.1", "nan"] {
            assert!(settings(&format!("sample_ratio = {bad}"), None).is_err(), "{bad}");
        }
    }
}
