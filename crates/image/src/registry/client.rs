//! A client of registries: the pull half of the OCI distribution protocol.
//!
//! Not `oci-client`, the usual library: it reads manifests, tokens and errors of any length, and
//! follows redirects to any address. Everything here has a limit in bytes and in time, and every
//! address is checked before a connection.
//!
//! `oci-client` 0.18 also accepts neither an HTTP client nor a resolver from its caller, so the
//! addresses that it connects to cannot be checked.

use crate::error::Error;
use crate::manifest::ACCEPT;
use crate::reference::Reference;
use crate::registry::address::{AllowedHosts, GuardedResolver};
use crate::registry::credentials::{self, Credentials};
use bytes::Bytes;
use reqwest::header::{ACCEPT as ACCEPTS, AUTHORIZATION, HeaderMap, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Maximum number of redirects of one request. Registries redirect requests for blobs to their
/// storage.
const REDIRECTS_MAX: usize = 5;
/// How long connecting may take, and after that the response until its headers.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The pauses before each retry of a request that failed for a transient reason.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];
/// Maximum size of an error or token response, in bytes.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Maximum length of a registry's error message in ours, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// Connects to all registries with one HTTP client.
#[derive(Clone)]
pub(crate) struct RegistryClient {
    client: Client,
    allowed_hosts: AllowedHosts,
    credentials: Option<PathBuf>,
    /// How long a response body may send nothing.
    idle: Duration,
}

/// One repository at a registry or mirror, and the authorization to read it.
pub(crate) struct Repository<'a> {
    registries: &'a RegistryClient,
    reference: Reference,
    /// Host and port of the registry, or of a mirror.
    host: String,
    authorization: tokio::sync::Mutex<Option<String>>,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl RegistryClient {
    pub(crate) fn new(
        allowed: Vec<String>,
        credentials: Option<PathBuf>,
        idle: Duration,
    ) -> Result<Self, Error> {
        // Only the first call in a process counts; all callers install the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed_hosts = AllowedHosts(Arc::new(allowed));
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            // Another crate compiles HTTP/2 in, which registries are not asked for.
            .http1_only()
            .dns_resolver(Arc::new(GuardedResolver(allowed_hosts.clone())))
            .connect_timeout(ANSWER_MAX)
            .read_timeout(idle)
            .user_agent(concat!("isolet/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Error::Disk(format!("no client for registries: {error}")))?;
        Ok(Self { client, allowed_hosts, credentials, idle })
    }

    /// The repository of a reference at `host`, which is its registry or a mirror.
    pub(crate) fn repository(&self, reference: &Reference, host: &str) -> Repository<'_> {
        Repository {
            registries: self,
            reference: reference.clone(),
            host: host.to_owned(),
            authorization: tokio::sync::Mutex::default(),
        }
    }
}

impl Repository<'_> {
    fn failed(&self, said: impl Into<String>) -> Error {
        Error::Registry { registry: self.host.clone(), said: said.into() }
    }

    fn url(&self, rest: &str) -> Result<Url, Error> {
        let bare = self.host.rsplit_once(':').map_or(self.host.as_str(), |(host, _)| host);
        let local = bare == "localhost" || bare == "[::1]" || bare.starts_with("127.");
        let scheme = if local { "http" } else { "https" };
        let text = format!("{scheme}://{}/v2/{}/{rest}", self.host, self.reference.path());
        Url::parse(&text).map_err(|_| self.failed("its name is not valid in a URL"))
    }

    /// Fetches a manifest or index by tag or digest.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Denied`], [`Error::NotAsked`], [`Error::Registry`],
    /// [`Error::TooLate`], [`Error::TooLarge`], [`Error::Bad`].
    pub(crate) async fn manifest(
        &self,
        tag_or_digest: &str,
        bytes_max: u64,
    ) -> Result<Bytes, Error> {
        let answer = self.get(self.url(&format!("manifests/{tag_or_digest}"))?).await?;
        self.read_all(answer, bytes_max, "its manifest").await
    }

    /// Fetches a blob into memory.
    ///
    /// # Errors
    /// Those of [`Repository::manifest`].
    pub(crate) async fn small_blob(&self, digest: &str, bytes_max: u64) -> Result<Bytes, Error> {
        let answer = self.blob(digest).await?;
        self.read_all(answer, bytes_max, "its configuration").await
    }

    /// Requests a blob, whose body [`Repository::chunk`] reads.
    ///
    /// # Errors
    /// Those of [`Repository::manifest`].
    pub(crate) async fn blob(&self, digest: &str) -> Result<Response, Error> {
        self.get(self.url(&format!("blobs/{digest}"))?).await
    }

    /// Reads the next bytes of a body; `None` at its end.
    ///
    /// # Errors
    /// [`Error::TooLate`] if the registry sends nothing for too long, [`Error::Registry`] if the
    /// connection breaks.
    pub(crate) async fn chunk(&self, body: &mut Response) -> Result<Option<Bytes>, Error> {
        let idle = self.registries.idle;
        match timeout(idle, body.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) if error.is_timeout() => Err(timed_out(idle)),
            Ok(Err(error)) => {
                Err(self
                    .failed(format!("the connection broke during the response: {}", cause(&error))))
            }
            Err(_) => Err(timed_out(idle)),
        }
    }

    async fn read_all(
        &self,
        mut body: Response,
        bytes_max: u64,
        document: &'static str,
    ) -> Result<Bytes, Error> {
        let mut all = Vec::new();
        // A body that arrives slowly must end in time too.
        let read = async {
            while let Some(chunk) = self.chunk(&mut body).await? {
                all.extend_from_slice(&chunk);
                if all.len() as u64 > bytes_max {
                    return Err(Error::large(document, format!("{bytes_max} bytes")));
                }
            }
            Ok(())
        };
        timeout(ANSWER_MAX, read).await.map_err(|_| timed_out(ANSWER_MAX))??;
        Ok(all.into())
    }

    /// Sends a GET request, authenticates on demand, and retries transient failures.
    async fn get(&self, url: Url) -> Result<Response, Error> {
        let mut pauses = PAUSES.iter();
        loop {
            let tried = self.get_authenticated(&url).await;
            let passing = match &tried {
                Ok(answer) => {
                    let status = answer.status();
                    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
                }
                Err(Error::Registry { .. }) => true,
                Err(_) => false,
            };
            if passing && let Some(pause) = pauses.next() {
                sleep(*pause).await;
                continue;
            }
            let answer = tried?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            return Err(self.error_of(answer).await);
        }
    }

    async fn get_authenticated(&self, url: &Url) -> Result<Response, Error> {
        let known = self.authorization.lock().await.clone();
        let answer = self.follow(url, known.as_deref()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let Some(header) = self.authorization(answer.headers()).await? else { return Ok(answer) };
        if known.as_ref() == Some(&header) {
            return Ok(answer);
        }
        *self.authorization.lock().await = Some(header.clone());
        self.follow(url, Some(&header)).await
    }

    /// Follows redirects to allowed addresses. The authorization is not sent to other origins.
    async fn follow(&self, url: &Url, header: Option<&str>) -> Result<Response, Error> {
        let mut url = url.clone();
        let first = url.origin();
        for _ in 0..=REDIRECTS_MAX {
            self.registries.allowed_hosts.check(&url)?;
            let mut request = self.registries.client.get(url.clone()).header(ACCEPTS, ACCEPT);
            if let Some(header) = header.filter(|_| url.origin() == first) {
                request = request.header(AUTHORIZATION, header);
            }
            let answer = self.execute(request).await?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| url.join(to).ok());
            url = to.ok_or_else(|| self.failed("it sent a redirect without a valid location"))?;
        }
        // A retry would be redirected again.
        Err(Error::Bad(format!("registry {} sent too many redirects", self.host)))
    }

    async fn execute(&self, request: reqwest::RequestBuilder) -> Result<Response, Error> {
        match timeout(ANSWER_MAX, request.send()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is_timeout() => Err(timed_out(ANSWER_MAX)),
            Ok(Err(error)) => Err(self.failed(format!("cannot connect: {}", cause(&error)))),
            Err(_) => Err(timed_out(ANSWER_MAX)),
        }
    }

    /// The `Authorization` header that answers a challenge; `None` without credentials for it.
    async fn authorization(&self, headers: &HeaderMap) -> Result<Option<String>, Error> {
        let path = self.registries.credentials.clone();
        // The credentials of a registry are not sent to its mirrors.
        let asked = self.host == self.reference.host();
        let whose = if asked { self.reference.registry() } else { &self.host };
        let ours = credentials::of(path, whose).await;
        for challenge in headers.get_all(WWW_AUTHENTICATE) {
            let Ok(challenge) = challenge.to_str() else { continue };
            let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
            if scheme.eq_ignore_ascii_case("basic")
                && let Credentials::Basic(pair) = &ours
            {
                return Ok(Some(format!("Basic {pair}")));
            }
            if scheme.eq_ignore_ascii_case("bearer") {
                return self.token(rest, &ours).await.map(Some);
            }
        }
        Ok(None)
    }

    async fn token(&self, challenge: &str, ours: &Credentials) -> Result<String, Error> {
        let said = parameters(challenge);
        let of = |name: &str| said.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let realm = of("realm").and_then(|realm| Url::parse(realm).ok());
        let mut url = realm.ok_or_else(|| self.failed("its challenge names no token service"))?;
        let scope = format!("repository:{}:pull", self.reference.path());
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = of("service") {
                query.append_pair("service", service);
            }
            query.append_pair("scope", &scope);
        }
        self.registries.allowed_hosts.check(&url)?;
        let mut request = self.registries.client.get(url.clone());
        match ours {
            Credentials::None => {}
            Credentials::Basic(pair) => {
                request = request.header(AUTHORIZATION, format!("Basic {pair}"));
            }
            Credentials::Identity(token) => {
                let body: String = [
                    ("grant_type", "refresh_token"),
                    ("service", of("service").map_or("", String::as_str)),
                    ("scope", &scope),
                    ("client_id", "isolet"),
                    ("refresh_token", token),
                ]
                .iter()
                .fold(url.clone(), |mut url, (key, value)| {
                    url.query_pairs_mut().append_pair(key, value);
                    url
                })
                .query()
                .unwrap_or_default()
                .to_owned();
                url.set_query(None);
                request = self
                    .registries
                    .client
                    .post(url)
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(body);
            }
        }
        let answer = self.execute(request).await?;
        if !answer.status().is_success() {
            return Err(self.error_of(answer).await);
        }
        let text = self.read_all(answer, SMALL_BYTES_MAX, "its token").await?;
        let token: Option<Token> = serde_json::from_slice(&text).ok();
        let token = token.and_then(|token| token.token.or(token.access_token));
        let token = token.filter(|token| token.bytes().all(|b| b.is_ascii_graphic()));
        let token = token.ok_or_else(|| self.failed("its token service returned no token"))?;
        Ok(format!("Bearer {token}"))
    }

    /// Turns an unsuccessful response into an error.
    async fn error_of(&self, answer: Response) -> Error {
        let status = answer.status();
        let text = self.read_all(answer, SMALL_BYTES_MAX, "its response").await.unwrap_or_default();
        let said = format!("{} {}", status.as_u16(), message(&text));
        let said = said.trim_end().to_owned();
        let image = self.reference.to_string();
        let registry = self.host.clone();
        match status {
            StatusCode::NOT_FOUND => Error::NotFound { image, registry, said },
            StatusCode::UNAUTHORIZED => Error::Denied { image, registry, said, forbidden: false },
            StatusCode::FORBIDDEN => Error::Denied { image, registry, said, forbidden: true },
            _ => Error::Registry { registry, said },
        }
    }
}

fn timed_out(limit: Duration) -> Error {
    Error::TooLate { operation: "the registry's response", seconds: limit.as_secs() }
}

/// The innermost cause: the outer ones contain the URL, which may contain a signature.
fn cause(error: &reqwest::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string().chars().take(MESSAGE_CHARS_MAX).collect()
}

/// The message of an OCI error, or the beginning of another body.
fn message(text: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(text).ok();
    let inner = json.as_ref().and_then(|json| json["errors"][0]["message"].as_str());
    let text = inner.map_or_else(|| String::from_utf8_lossy(text).into_owned(), str::to_owned);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MESSAGE_CHARS_MAX).collect::<String>().trim().to_owned()
}

/// Parses the parameters of a challenge: `key="value",key=value`.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        let key = key.trim_matches([',', ' ']).to_ascii_lowercase();
        all.push((key, value.to_owned()));
        rest = next;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_a_challenge_are_parsed() {
        let text = r#"realm="https://a.b/token?x=1",service="reg, one",scope=pull"#;
        let all = parameters(text);
        assert_eq!(all[0], ("realm".into(), "https://a.b/token?x=1".into()));
        assert_eq!(all[1], ("service".into(), "reg, one".into()));
        assert_eq!(all[2], ("scope".into(), "pull".into()));
    }

    #[test]
    fn a_message_of_a_registry_becomes_one_short_line() {
        let text = br#"{"errors":[{"code":"X","message":"no\n\u001b[31msuch"}]}"#;
        assert_eq!(message(text), "no  [31msuch");
        assert_eq!(message(&[b'x'; 1000]).len(), MESSAGE_CHARS_MAX);
    }
}
