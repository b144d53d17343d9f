//! Calls, and the endpoints that they try; reading and writing keys.

use crate::etcd::endpoints::Connection;
use crate::etcd::endpoints::Endpoints;
use crate::etcd::error::EtcdError;
use crate::etcd::error::describe;
use crate::etcd::error::is_of_endpoint;
use crate::etcd::error::refused;
use crate::etcd::history::History;
use crate::etcd::messages;
use crate::etcd::messages::Answered;
use crate::etcd::settings::EtcdSettings;
use http::uri::PathAndQuery;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio::time::sleep_until;
use tokio::time::timeout;
use tonic::Request;
use tonic::Status;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

/// Default time limit of a call, with all attempts: etcd elects a new leader within about 2 s.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of one attempt, after which the next endpoint is tried: well above the time of a write
/// to a busy disk, and below the call's.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after all endpoints failed.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum size of a request in bytes; etcd refuses more than 1.5 MiB.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Maximum size of an answer in bytes: a full page of values as large as this crate writes them.
const RESPONSE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of keys in a page of [`Etcd::list`].
pub const PAGE_KEYS_MAX: u16 = 1000;

/// A client of etcd. Clones share their connections.
#[derive(Clone)]
pub struct Etcd {
    endpoints: Arc<Endpoints>,
    pub(super) history: Arc<History>,
    timeout: Duration,
}

/// One key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The revision at which the key was created.
    pub created_at: i64,
    /// The revision at which the key was last written.
    pub modified_at: i64,
    /// The lease that the key ends with; 0: none.
    pub lease: i64,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The keys, in ascending order.
    pub pairs: Vec<KeyValue>,
    /// Whether more keys follow the last one.
    pub has_more: bool,
    /// The revision at which the list was read; later pages of the same list name it.
    pub revision: i64,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Etcd {
    /// Reads the files for TLS, and prepares connections, which are made by the first call. Blocks for
    /// the files only.
    ///
    /// # Errors
    /// [`EtcdError::Settings`].
    pub fn new(settings: EtcdSettings) -> Result<Self, EtcdError> {
        Ok(Self {
            endpoints: Arc::new(Endpoints::open(settings)?),
            history: Arc::default(),
            timeout: CALL_TIMEOUT,
        })
    }

    /// The same client with another time limit of calls.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// How often etcd has gone back in time ([`EtcdError::WentBack`]), now and whenever it does.
    #[must_use]
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.history.generations()
    }

    /// Makes new connections if a file for TLS was replaced; true if so.
    ///
    /// # Errors
    /// [`EtcdError::Settings`]: the new files are not usable, so the old connections stay.
    pub async fn reload_tls(&self) -> Result<bool, EtcdError> {
        let endpoints = Arc::clone(&self.endpoints);
        let reloaded = tokio::task::spawn_blocking(move || endpoints.reload()).await;
        reloaded.unwrap_or_else(|error| Err(EtcdError::Settings(error.to_string())))
    }

    /// One key, read from the newest state (linearizable).
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, EtcdError> {
        let request = messages::RangeRequest { key: key.to_vec(), ..Default::default() };
        let answer = self.range(request).await?;
        Ok(answer.kvs.into_iter().next().map(KeyValue::from))
    }

    /// Keys below a prefix, in ascending order: those behind `after`, at the newest revision or at
    /// that of an earlier page. `limit` is at most [`PAGE_KEYS_MAX`].
    ///
    /// # Errors
    /// [`EtcdError::Compacted`] if `at` is too old, [`EtcdError::Unavailable`],
    /// [`EtcdError::Refused`].
    pub async fn list(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u16,
        at: Option<i64>,
    ) -> Result<Page, EtcdError> {
        let request = messages::RangeRequest {
            key: after.map_or_else(|| prefix.to_vec(), first_behind),
            range_end: prefix_end(prefix),
            limit: i64::from(limit.clamp(1, PAGE_KEYS_MAX)),
            revision: at.unwrap_or_default(),
            ..Default::default()
        };
        let answer = self.range(request).await?;
        let read_at = answer.header.map(|header| header.revision).unwrap_or_default();
        Ok(Page {
            pairs: answer.kvs.into_iter().map(KeyValue::from).collect(),
            has_more: answer.more,
            revision: at.unwrap_or(read_at),
        })
    }

    /// The number of keys below a prefix.
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn count(&self, prefix: &[u8]) -> Result<u64, EtcdError> {
        let request = messages::RangeRequest {
            key: prefix.to_vec(),
            range_end: prefix_end(prefix),
            count_only: true,
            ..Default::default()
        };
        let answer = self.range(request).await?;
        Ok(u64::try_from(answer.count).unwrap_or_default())
    }

    /// Writes a key without a condition.
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), EtcdError> {
        let request =
            messages::PutRequest { key: key.to_vec(), value: value.to_vec(), ..Default::default() };
        let path = "/etcdserverpb.KV/Put";
        self.unary::<_, messages::PutResponse>("Put", path, request).await.map(drop)
    }

    /// Deletes a key without a condition.
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn delete(&self, key: &[u8]) -> Result<bool, EtcdError> {
        let request = messages::DeleteRangeRequest { key: key.to_vec(), ..Default::default() };
        let path = "/etcdserverpb.KV/DeleteRange";
        let answer =
            self.unary::<_, messages::DeleteRangeResponse>("DeleteRange", path, request).await?;
        Ok(answer.deleted > 0)
    }

    async fn range(
        &self,
        request: messages::RangeRequest,
    ) -> Result<messages::RangeResponse, EtcdError> {
        self.unary("Range", "/etcdserverpb.KV/Range", request).await
    }

    /// Sends a request to one endpoint after the other until one answers.
    pub(super) async fn unary<Q, A>(
        &self,
        operation: &'static str,
        path: &'static str,
        request: Q,
    ) -> Result<A, EtcdError>
    where
        Q: prost::Message + Clone + 'static,
        A: Answered,
    {
        let bytes = request.encoded_len();
        if bytes > REQUEST_BYTES_MAX {
            return Err(EtcdError::TooLarge { operation, bytes, limit: REQUEST_BYTES_MAX });
        }
        let mark = self.history.mark();
        let attempt = |connection: Connection| {
            let request = request.clone();
            async move {
                let mut grpc = client(connection.channel);
                ready(&mut grpc).await?;
                let codec = ProstCodec::<Q, A>::default();
                let path = PathAndQuery::from_static(path);
                grpc.unary(with_leader(request), path, codec).await.map(tonic::Response::into_inner)
            }
        };
        let (endpoint, answer): (_, A) = self.attempts(operation, attempt).await?;
        // Calls about leases and members are answered by a member that may lag.
        let is_current = path.starts_with("/etcdserverpb.KV/");
        self.history.check(answer.header(), mark, is_current, &endpoint)?;
        Ok(answer)
    }

    /// Runs `attempt` on one endpoint after the other until one answers or the time is over. Returns
    /// the endpoint that answered.
    pub(super) async fn attempts<T, F>(
        &self,
        operation: &'static str,
        attempt: impl Fn(Connection) -> F,
    ) -> Result<(Arc<str>, T), EtcdError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let end = Instant::now() + self.timeout;
        let mut failures: Vec<(Arc<str>, String)> = Vec::new();
        loop {
            let (first, all) = self.endpoints.in_order();
            for index in (0..all.len()).map(|step| (first + step) % all.len()) {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(self.unavailable(operation, &failures));
                }
                let connection = all[index].clone();
                let url = Arc::clone(&connection.url);
                let failure = match timeout(left.min(ATTEMPT_TIMEOUT), attempt(connection)).await {
                    Ok(Ok(answer)) => return Ok((url, answer)),
                    Ok(Err(status)) if is_of_endpoint(&status) => describe(&status),
                    Ok(Err(status)) => return Err(from_status(&url, operation, &status)),
                    Err(_) => "no answer".to_owned(),
                };
                self.endpoints.leave(index, all.len());
                failures.retain(|(failed, _)| *failed != url);
                failures.push((url, failure));
            }
            sleep_until(end.min(Instant::now() + PAUSE)).await;
        }
    }

    fn unavailable(&self, operation: &'static str, failures: &[(Arc<str>, String)]) -> EtcdError {
        let mut attempts = String::new();
        for (url, failure) in failures {
            let separator = if attempts.is_empty() { "" } else { "; " };
            let _ = write!(attempts, "{separator}{url}: {failure}");
        }
        EtcdError::Unavailable { operation, timeout: self.timeout, attempts }
    }

    /// All connections, to ask each member about itself.
    pub(super) fn connections(&self) -> Arc<[Connection]> {
        self.endpoints.in_order().1
    }

    /// The time limit of calls.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// A client on a connection, with the limits on messages.
pub(super) fn client(channel: Channel) -> Grpc<Channel> {
    Grpc::new(channel)
        .max_decoding_message_size(RESPONSE_BYTES_MAX)
        .max_encoding_message_size(REQUEST_BYTES_MAX)
}

/// Waits until the connection is made.
pub(super) async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))
}

/// A member without a leader refuses such a request at once; it would wait otherwise, and a watch
/// would be silent.
pub(super) fn with_leader<Q>(request: Q) -> Request<Q> {
    let mut request = Request::new(request);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

/// The first key behind `key`.
fn first_behind(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

/// The first key behind all that begin with `prefix`.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // etcd's name for the end of all keys.
    vec![0]
}

fn from_status(endpoint: &str, operation: &'static str, status: &Status) -> EtcdError {
    let message = status.message();
    // The message has no number; the next list finds it.
    if message.contains("required revision has been compacted") {
        return EtcdError::Compacted { compacted: 0 };
    }
    refused(endpoint, operation, status)
}

impl From<messages::KeyValue> for KeyValue {
    fn from(pair: messages::KeyValue) -> Self {
        Self {
            key: pair.key,
            value: pair.value,
            created_at: pair.create_revision,
            modified_at: pair.mod_revision,
            lease: pair.lease,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_behind_all_its_keys() {
        assert_eq!(prefix_end(b"a/"), b"a0");
        assert_eq!(prefix_end(&[b'a', 0xFF]), b"b");
        assert_eq!(prefix_end(&[0xFF, 0xFF]), [0]);
        assert_eq!(prefix_end(b""), [0]);
        assert_eq!(first_behind(b"a"), [b'a', 0]);
    }
}
