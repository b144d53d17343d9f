//! What is said to a registry: the distribution protocol's reading half.
//!
//! Not `oci-client`, the known library: it reads manifests, tokens and errors however long they
//! are, and follows redirects to wherever they lead. Everything here has a bound in bytes and in
//! time, and every address that is connected to is looked at.

use crate::error::Error;
use crate::manifest::ACCEPT;
use crate::reference::Reference;
use crate::registry::address::{Lookup, Named};
use crate::registry::credentials::{self, Credentials};
use bytes::Bytes;
use reqwest::header::{ACCEPT as ACCEPTS, AUTHORIZATION, HeaderMap, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Redirects of one request. Blobs come with one, from where they are stored.
const REDIRECTS_MAX: usize = 5;
/// How long a connection, and then an answer's beginning, may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Tries of a request that failed for a reason that may pass, and the pause before each next.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];
/// What is read of an error, or a token, in bytes.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// What is given on of an error, in characters.
const SAID_MAX: usize = 300;

/// Registries, asked over one client.
#[derive(Clone)]
pub(crate) struct Registries {
    client: Client,
    named: Named,
    credentials: Option<PathBuf>,
    /// How long a body may say nothing.
    idle: Duration,
}

/// One repository, and what lets us read it.
pub(crate) struct Repository<'a> {
    registries: &'a Registries,
    reference: Reference,
    /// Host and port that are asked: the registry's, or a mirror's.
    host: String,
    header: tokio::sync::Mutex<Option<String>>,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl Registries {
    pub(crate) fn new(
        named: Vec<String>,
        credentials: Option<PathBuf>,
        idle: Duration,
    ) -> Result<Self, Error> {
        // The first to say which cryptography is meant is heard; all of ours say the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let named = Named(Arc::new(named));
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .dns_resolver(Arc::new(Lookup(named.clone())))
            .connect_timeout(ANSWER_MAX)
            .read_timeout(idle)
            .user_agent(concat!("isolet/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Error::Disk(format!("no client for registries: {error}")))?;
        Ok(Self { client, named, credentials, idle })
    }

    /// The repository of a reference, asked at `host`.
    pub(crate) fn repository(&self, reference: &Reference, host: &str) -> Repository<'_> {
        Repository {
            registries: self,
            reference: reference.clone(),
            host: host.to_owned(),
            header: tokio::sync::Mutex::default(),
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
        Url::parse(&text).map_err(|_| self.failed("its name makes no URL"))
    }

    /// A manifest or index, by tag or digest.
    ///
    /// # Errors
    /// What the registry says, and the bounds.
    pub(crate) async fn manifest(&self, which: &str, bytes_max: u64) -> Result<Bytes, Error> {
        let answer = self.get(self.url(&format!("manifests/{which}"))?).await?;
        self.whole(answer, bytes_max, "its manifest").await
    }

    /// A blob that is small.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) async fn small(&self, digest: &str, bytes_max: u64) -> Result<Bytes, Error> {
        let answer = self.blob(digest).await?;
        self.whole(answer, bytes_max, "its configuration").await
    }

    /// A blob, to be read by [`Repository::chunk`].
    ///
    /// # Errors
    /// Likewise.
    pub(crate) async fn blob(&self, digest: &str) -> Result<Response, Error> {
        self.get(self.url(&format!("blobs/{digest}"))?).await
    }

    /// The next bytes of a body; `None` at its end.
    ///
    /// # Errors
    /// When nothing comes for too long, or the connection breaks.
    pub(crate) async fn chunk(&self, body: &mut Response) -> Result<Option<Bytes>, Error> {
        let idle = self.registries.idle;
        match timeout(idle, body.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) if error.is_timeout() => Err(slow(idle)),
            Ok(Err(error)) => Err(self.failed(format!("its answer broke off: {}", cause(&error)))),
            Err(_) => Err(slow(idle)),
        }
    }

    async fn whole(
        &self,
        mut body: Response,
        bytes_max: u64,
        what: &'static str,
    ) -> Result<Bytes, Error> {
        let mut all = Vec::new();
        // A drip is no answer either.
        let read = async {
            while let Some(chunk) = self.chunk(&mut body).await? {
                all.extend_from_slice(&chunk);
                if all.len() as u64 > bytes_max {
                    return Err(Error::large(what, format!("{bytes_max} bytes")));
                }
            }
            Ok(())
        };
        timeout(ANSWER_MAX, read).await.map_err(|_| slow(ANSWER_MAX))??;
        Ok(all.into())
    }

    /// Asks, shows who we are where that is wanted, and tries again what may pass.
    async fn get(&self, url: Url) -> Result<Response, Error> {
        let mut pauses = PAUSES.iter();
        loop {
            let tried = self.with_identity(&url).await;
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
            return Err(self.refused(answer).await);
        }
    }

    async fn with_identity(&self, url: &Url) -> Result<Response, Error> {
        let known = self.header.lock().await.clone();
        let answer = self.follow(url, known.as_deref()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let Some(header) = self.identity(answer.headers()).await? else { return Ok(answer) };
        if known.as_ref() == Some(&header) {
            return Ok(answer);
        }
        *self.header.lock().await = Some(header.clone());
        self.follow(url, Some(&header)).await
    }

    /// Goes where redirects lead, if that may be asked; who we are is told to nobody there.
    async fn follow(&self, url: &Url, header: Option<&str>) -> Result<Response, Error> {
        let mut url = url.clone();
        let first = url.origin();
        for _ in 0..=REDIRECTS_MAX {
            self.registries.named.check(&url)?;
            let mut request = self.registries.client.get(url.clone()).header(ACCEPTS, ACCEPT);
            if let Some(header) = header.filter(|_| url.origin() == first) {
                request = request.header(AUTHORIZATION, header);
            }
            let answer = self.sent(request).await?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| url.join(to).ok());
            url = to.ok_or_else(|| self.failed("it redirects to nowhere"))?;
        }
        // It would do so again.
        Err(Error::Bad(format!("registry {} redirects without an end", self.host)))
    }

    async fn sent(&self, request: reqwest::RequestBuilder) -> Result<Response, Error> {
        match timeout(ANSWER_MAX, request.send()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is_timeout() => Err(slow(ANSWER_MAX)),
            Ok(Err(error)) => Err(self.failed(format!("no connection: {}", cause(&error)))),
            Err(_) => Err(slow(ANSWER_MAX)),
        }
    }

    /// What answers a challenge; `None` where we have nothing for it.
    async fn identity(&self, headers: &HeaderMap) -> Result<Option<String>, Error> {
        let path = self.registries.credentials.clone();
        // A mirror has its own: what is for the registry is not for it.
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
        let mut url = realm.ok_or_else(|| self.failed("it asks for a token of no service"))?;
        let scope = format!("repository:{}:pull", self.reference.path());
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = of("service") {
                query.append_pair("service", service);
            }
            query.append_pair("scope", &scope);
        }
        self.registries.named.check(&url)?;
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
        let answer = self.sent(request).await?;
        if !answer.status().is_success() {
            return Err(self.refused(answer).await);
        }
        let text = self.whole(answer, SMALL_BYTES_MAX, "its token").await?;
        let token: Option<Token> = serde_json::from_slice(&text).ok();
        let token = token.and_then(|token| token.token.or(token.access_token));
        let token = token.filter(|token| token.bytes().all(|b| b.is_ascii_graphic()));
        let token = token.ok_or_else(|| self.failed("its token service gave no token"))?;
        Ok(format!("Bearer {token}"))
    }

    /// What an answer that is no success means.
    async fn refused(&self, answer: Response) -> Error {
        let status = answer.status();
        let text = self.whole(answer, SMALL_BYTES_MAX, "its answer").await.unwrap_or_default();
        let said = format!("{} {}", status.as_u16(), message(&text));
        let said = said.trim_end().to_owned();
        let (image, registry) = (self.reference.to_string(), self.host.clone());
        match status {
            StatusCode::NOT_FOUND => Error::NotFound { image, registry, said },
            StatusCode::UNAUTHORIZED => Error::Denied { image, registry, said, forbidden: false },
            StatusCode::FORBIDDEN => Error::Denied { image, registry, said, forbidden: true },
            _ => Error::Registry { registry, said },
        }
    }
}

fn slow(limit: Duration) -> Error {
    Error::TooLate { what: "the registry's answer", seconds: limit.as_secs() }
}

/// The innermost reason: the outer ones say the URL, which may hold a signature.
fn cause(error: &reqwest::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string().chars().take(SAID_MAX).collect()
}

/// The message in an error as the protocol has it, or the beginning of a text.
fn message(text: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(text).ok();
    let inner = json.as_ref().and_then(|json| json["errors"][0]["message"].as_str());
    let text = inner.map_or_else(|| String::from_utf8_lossy(text).into_owned(), str::to_owned);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(SAID_MAX).collect::<String>().trim().to_owned()
}

/// `key="value",key=value`.
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
    fn a_challenge_is_read() {
        let text = r#"realm="https://a.b/token?x=1",service="reg, one",scope=pull"#;
        let all = parameters(text);
        assert_eq!(all[0], ("realm".into(), "https://a.b/token?x=1".into()));
        assert_eq!(all[1], ("service".into(), "reg, one".into()));
        assert_eq!(all[2], ("scope".into(), "pull".into()));
    }

    #[test]
    fn what_a_registry_says_is_one_short_line() {
        let text = br#"{"errors":[{"code":"X","message":"no\n\u001b[31msuch"}]}"#;
        assert_eq!(message(text), "no  [31msuch");
        assert_eq!(message(&[b'x'; 1000]).len(), SAID_MAX);
    }
}
