//! The table `[store]`: the object store for copies of snapshots.

use super::urls::refuse_user;
use anyhow::{Result, bail};
use isolet_repository::StoreSettings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The default file of the repository key.
const KEY_FILE: &str = "/etc/isolet/store.key";
/// Options whose name contains one of these are secrets.
const SECRET_NAMES: [&str; 6] = ["key", "secret", "token", "password", "sas", "credential"];

/// The table in the file.
#[derive(Debug, Default, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StoreFile {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
}

impl StoreFile {
    /// # Errors
    /// When the URL or a path is not valid, or when an option is a secret.
    pub(super) fn settings(self) -> Result<StoreSettings> {
        let Some((scheme, _)) = self.url.split_once("://") else {
            bail!("[store] url must be a URL such as s3://BUCKET/PREFIX");
        };
        if !["s3", "gs", "az", "file"].contains(&scheme) {
            bail!("[store] url begins with s3://, gs://, az:// or file://, not with {scheme}://");
        }
        let instead = "use the environment or `credentials_file`";
        refuse_user("[store] url", &self.url, instead)?;
        if self.url.contains('?') {
            bail!("[store] url has a query, which may be a secret; {instead}");
        }
        for (name, value) in &self.options {
            refuse_user(&format!("[store.options] {name}"), value, instead)?;
        }
        let secret = |name: &&String| {
            let name = name.to_ascii_lowercase();
            SECRET_NAMES.iter().any(|part| name.contains(part))
        };
        if let Some(name) = self.options.keys().find(secret) {
            bail!(
                "[store.options] {name} may be a secret, which this file does not hold; \
                 set it in the environment or in `credentials_file`"
            );
        }
        let key_file = self.key_file.unwrap_or_else(|| KEY_FILE.into());
        for path in [Some(&key_file), self.credentials_file.as_ref()].into_iter().flatten() {
            if !path.is_absolute() {
                bail!("[store] {} must be an absolute path", path.display());
            }
        }
        Ok(StoreSettings {
            url: self.url,
            key_file,
            credentials_file: self.credentials_file,
            options: self.options,
        })
    }

    /// The effective settings, for `--print-config`.
    pub(super) fn shown(settings: &StoreSettings) -> Self {
        Self {
            url: settings.url.clone(),
            key_file: Some(settings.key_file.clone()),
            credentials_file: settings.credentials_file.clone(),
            options: settings.options.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<StoreSettings> {
        toml::from_str::<StoreFile>(text).unwrap().settings()
    }

    #[test]
    fn a_store_has_a_url_and_no_secrets() {
        let read = settings("url = \"s3://a/b\"\n[options]\nregion = \"r\"").unwrap();
        assert_eq!(read.key_file, PathBuf::from(KEY_FILE));
        assert_eq!(read.options["region"], "r");
        for bad in [
            "",
            "url = \"a\"",
            "url = \"http://a\"",
            "url = \"s3://a\"\nkey_file = \"relative\"",
            "url = \"s3://a\"\n[options]\naws_secret_access_key = \"SECRET\"",
            "url = \"s3://u:SECRET@a\"",
            "url = \"az://a/b?sig=SECRET\"",
            "url = \"s3://a\"\n[options]\nendpoint = \"http://u:SECRET@a\"",
        ] {
            let refused = settings(bad).unwrap_err().to_string();
            assert!(!refused.contains("SECRET"), "{refused}");
        }
    }
}
