//! The operator's credentials for registries, as the Docker client stores them: `auths` and credential
//! helpers of a `config.json`. Tenants have none.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use docker_credential::{CredentialRetrievalError, DockerCredential};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a credential helper may take.
const HELPER_MAX: Duration = Duration::from_secs(10);

/// The credentials for one registry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    None,
    /// The value of a `Basic` authorization header.
    Basic(String),
    /// A refresh token for the token service.
    Identity(String),
}

/// The default path of the Docker client's `config.json`.
pub(crate) fn default_path() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("DOCKER_CONFIG") {
        return Some(Path::new(&folder).join("config.json"));
    }
    Some(Path::new(&std::env::var_os("HOME")?).join(".docker/config.json"))
}

/// The credentials for a registry. A file that cannot be read is logged and ignored: most images need
/// no credentials.
pub(crate) async fn of(path: Option<PathBuf>, registry: &str) -> Credentials {
    let Some(path) = path else { return Credentials::None };
    let name = match registry {
        "docker.io" => "https://index.docker.io/v1/".to_owned(),
        other => other.to_owned(),
    };
    let read = move || {
        let file = File::open(&path).ok()?;
        match docker_credential::get_credential_from_reader(file, &name) {
            Ok(found) => Some(found),
            Err(CredentialRetrievalError::NoCredentialConfigured) => None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read registry credentials");
                None
            }
        }
    };
    let found = tokio::time::timeout(HELPER_MAX, tokio::task::spawn_blocking(read)).await;
    match found {
        Ok(Ok(Some(DockerCredential::UsernamePassword(name, password)))) => {
            Credentials::Basic(STANDARD.encode(format!("{name}:{password}")))
        }
        Ok(Ok(Some(DockerCredential::IdentityToken(token)))) => Credentials::Identity(token),
        _ => Credentials::None,
    }
}
