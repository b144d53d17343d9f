//! The table `[webhooks]`: how the server tells webhooks about events.

use anyhow::{Result, bail};
use isolet_webhook::{
    AddressRules, GIVE_UP_AFTER, KeySource, RETRY_AFTER, RetrySchedule, Settings,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of waits.
const WAITS_MAX: usize = 20;
/// The longest wait and the longest time of failures: 30 days, in seconds.
const TIME_S_MAX: u64 = 30 * 24 * 3600;

/// The table in the file.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WebhooksFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
    allow_networks: Option<Vec<String>>,
    retry_after_s: Option<Vec<u64>>,
    give_up_after_s: Option<u64>,
}

impl WebhooksFile {
    /// The settings, with defaults for missing values.
    ///
    /// # Errors
    /// When a value is out of bounds.
    pub(super) fn settings(self, data: &Path) -> Result<Settings> {
        let key = match self.key_file {
            Some(path) if !path.is_absolute() => {
                bail!("[webhooks] key_file must be an absolute path: {}", path.display())
            }
            Some(path) => KeySource::File(path),
            None => Settings::new(data).key,
        };
        let mut allowed = Vec::new();
        for text in self.allow_networks.unwrap_or_default() {
            match text.parse() {
                Ok(network) => allowed.push(network),
                Err(_) => bail!(
                    "[webhooks] allow_networks: {text:?} is no network such as \"10.0.0.0/8\""
                ),
            }
        }
        let waits = self.retry_after_s.unwrap_or_else(|| RETRY_AFTER.to_vec());
        if waits.is_empty() || waits.len() > WAITS_MAX {
            bail!("[webhooks] retry_after_s must have 1 to {WAITS_MAX} waits");
        }
        let give_up_after = self.give_up_after_s.unwrap_or(GIVE_UP_AFTER);
        if let Some(bad) =
            waits.iter().chain([&give_up_after]).find(|s| !(1..=TIME_S_MAX).contains(*s))
        {
            bail!(
                "[webhooks] retry_after_s and give_up_after_s are 1 to {TIME_S_MAX} s, not {bad}"
            );
        }
        Ok(Settings {
            key,
            addresses: AddressRules { allowed },
            retry: RetrySchedule {
                waits: waits.into_iter().map(Duration::from_secs).collect(),
                give_up_after: Duration::from_secs(give_up_after),
            },
            node: None,
        })
    }

    /// The effective settings, for `--print-config`.
    pub(super) fn shown(settings: &Settings) -> Self {
        Self {
            key_file: match &settings.key {
                KeySource::File(path) => Some(path.clone()),
                KeySource::Own(_) => None,
            },
            allow_networks: Some(
                settings.addresses.allowed.iter().map(ToString::to_string).collect(),
            ),
            retry_after_s: Some(settings.retry.waits.iter().map(Duration::as_secs).collect()),
            give_up_after_s: Some(settings.retry.give_up_after.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings> {
        toml::from_str::<WebhooksFile>(text)
            .map_err(anyhow::Error::from)?
            .settings(Path::new("/data"))
    }

    #[test]
    fn what_is_said_is_in_force_and_shows_itself() {
        let all = read("").unwrap();
        assert_eq!(all.key, KeySource::Own("/data/webhooks.key".into()));
        assert_eq!(all.retry, RetrySchedule::default());
        assert!(all.addresses.allowed.is_empty());
        let text = "key_file = \"/k\"\nallow_networks = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
            retry_after_s = [1, 2]\ngive_up_after_s = 9\n";
        let all = read(text).unwrap();
        assert_eq!(all.key, KeySource::File("/k".into()));
        assert_eq!(all.retry.waits, [1, 2].map(Duration::from_secs));
        let shown = WebhooksFile::shown(&all).settings(Path::new("/data")).unwrap();
        assert_eq!(shown, all);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [
            "key_file = \"k\"",
            "allow_networks = [\"10.0.0.0\"]",
            "allow_networks = [\"10.0.0.0/33\"]",
            "retry_after_s = []",
            "retry_after_s = [0]",
            "retry_after_s = [99999999]",
            "give_up_after_s = 0",
            "nope = 1",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
