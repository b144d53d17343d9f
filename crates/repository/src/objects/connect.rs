//! Connects to the store that a URL names.

use super::bounded_http::BoundedConnector;
use super::client::Objects;
use super::settings::StoreSettings;
use super::store_clock::{LastDate, StoreClock};
use crate::error::Error;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Time limit to connect.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time limit of one request with its body: 16 MiB at 1 Mbit/s.
const REQUEST_MAX: Duration = Duration::from_secs(150);
/// How often a request is repeated after a failure of the connection or a status from 500 up.
const RETRIES: usize = 6;
/// No further retry begins this long after the first attempt.
const RETRY_MAX: Duration = Duration::from_secs(180);
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Makes a client. Sends nothing yet. Blocks.
pub(crate) fn connect(settings: &StoreSettings) -> Result<Objects, Error> {
    // Only the first call in a process counts; all callers install the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bad = |reason: String| Error::Settings(reason);
    let url = Url::parse(&settings.url);
    let url = url.map_err(|error| bad(format!("url is not valid: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        let reason =
            "url contains credentials or a query; use the environment or `credentials_file`";
        return Err(bad(reason.into()));
    }
    let options = settings.all_options()?;
    let date = Arc::<LastDate>::default();
    let connector = BoundedConnector { date: Arc::clone(&date) };
    let store: Arc<dyn ObjectStore> = match url.scheme() {
        "file" => return directory(&url, &options),
        "s3" => {
            let builder = AmazonS3Builder::from_env().with_url(url.as_str());
            let with = |builder: AmazonS3Builder, key: AmazonS3ConfigKey, value| {
                builder.with_config(key, value)
            };
            let builder = configured(builder, options, with)?
                .with_retry(retries())
                .with_http_connector(connector);
            Arc::new(builder.build().map_err(rejected)?)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url.as_str());
            let with = |builder: GoogleCloudStorageBuilder, key: GoogleConfigKey, value| {
                builder.with_config(key, value)
            };
            let builder = configured(builder, options, with)?
                .with_retry(retries())
                .with_http_connector(connector);
            Arc::new(builder.build().map_err(rejected)?)
        }
        "az" => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
            let with = |builder: MicrosoftAzureBuilder, key: AzureConfigKey, value| {
                builder.with_config(key, value)
            };
            let builder = configured(builder, options, with)?
                .with_retry(retries())
                .with_http_connector(connector);
            Arc::new(builder.build().map_err(rejected)?)
        }
        other => {
            let known = "s3, gs, az and file are known";
            return Err(bad(format!("url has the unknown scheme {other:?}; {known}")));
        }
    };
    let prefix = ObjectPath::from_url_path(url.path());
    let prefix = prefix.map_err(|_| bad("the path of url is not valid".into()))?;
    Ok(Objects::new(store, prefix, shown(&url), StoreClock::Answers(date)))
}

fn directory(url: &Url, options: &BTreeMap<String, String>) -> Result<Objects, Error> {
    let bad = |reason: String| Error::Settings(reason);
    if let Some(name) = options.keys().next() {
        return Err(bad(format!("a directory has no option {name:?}")));
    }
    let path = url.to_file_path();
    let path = path.map_err(|()| bad("url must be file:///DIRECTORY".into()))?;
    if !Path::new(&path).is_dir() {
        return Err(bad(format!("the directory {} does not exist; create it", path.display())));
    }
    let store = LocalFileSystem::new_with_prefix(&path).map_err(rejected)?.with_fsync(true);
    let store = Arc::new(store);
    Ok(Objects::new(store, ObjectPath::default(), shown(url), StoreClock::Files))
}

/// Applies options and the limits of the client. An unknown option is refused by its name.
fn configured<B, K: FromStr>(
    mut builder: B,
    mut options: BTreeMap<String, String>,
    with: impl Fn(B, K, String) -> B,
) -> Result<B, Error> {
    options.entry("connect_timeout".into()).or_insert(format!("{} seconds", CONNECT_MAX.as_secs()));
    options.entry("timeout".into()).or_insert(format!("{} seconds", REQUEST_MAX.as_secs()));
    for (name, value) in options {
        let Ok(key) = name.parse::<K>() else {
            return Err(Error::Settings(format!("there is no option {name:?} for this url")));
        };
        builder = with(builder, key, value);
    }
    Ok(builder)
}

fn retries() -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: BACKOFF_MIN, max_backoff: BACKOFF_MAX, base: 2.0 };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_MAX }
}

/// What the builder says may contain values of settings.
fn rejected(error: object_store::Error) -> Error {
    let name = match &error {
        object_store::Error::UnknownConfigurationKey { key, .. } => format!(" ({key})"),
        _ => String::new(),
    };
    let reason = "credentials or options are missing or not valid";
    Error::Settings(format!("{reason}{name}; see docs/snapshot-store.md"))
}

/// The URL for messages.
fn shown(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str, options: &[(&str, &str)]) -> StoreSettings {
        let text = |pair: &(&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
        StoreSettings {
            url: url.into(),
            key_file: "/key".into(),
            credentials_file: None,
            options: options.iter().map(text).collect(),
        }
    }

    #[test]
    fn urls_and_options_are_checked_before_anything_is_sent() {
        let keys = [("access_key_id", "a"), ("secret_access_key", "SECRET"), ("region", "r")];
        assert!(connect(&settings("s3://bucket/some/prefix", &keys)).is_ok());
        let account = [("azure_storage_account_name", "a"), ("azure_storage_account_key", "QUFB")];
        assert!(connect(&settings("az://container", &account)).is_ok());
        for (url, options) in [
            ("ftp://bucket", &keys[..]),
            ("s3://user:SECRET@bucket", &keys[..]),
            ("az://container?sig=SECRET", &account[..]),
            ("s3://bucket", &[("no_such_option", "SECRET")][..]),
            ("file:///nowhere/at/all", &[][..]),
            ("not a url", &[][..]),
        ] {
            let refused = connect(&settings(url, options)).err().map(|error| error.to_string());
            let refused = refused.unwrap_or_else(|| panic!("{url} was accepted"));
            assert!(!refused.contains("SECRET"), "{refused}");
        }
    }
}
