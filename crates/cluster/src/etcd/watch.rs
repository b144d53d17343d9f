//! Watches: the changes of the keys below a prefix, from a revision on.

use crate::etcd::client::Etcd;
use crate::etcd::client::KeyValue;
use crate::etcd::client::client;
use crate::etcd::client::prefix_end;
use crate::etcd::client::ready;
use crate::etcd::client::with_leader;
use crate::etcd::error::EtcdError;
use crate::etcd::error::describe;
use crate::etcd::messages;
use crate::etcd::open_request::OpenRequest;
use crate::etcd::open_request::open_request;
use http::uri::PathAndQuery;
use std::sync::Arc;
use tonic::Status;
use tonic::Streaming;
use tonic_prost::ProstCodec;

/// Maximum number of changes of one revision: etcd applies at most 128 operations together, but a
/// deleted prefix may hold more keys.
const CHANGES_MAX: usize = 100_000;

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key was written.
    Put(KeyValue),
    /// The key was deleted, or its lease ended.
    Deleted {
        /// The key.
        key: Vec<u8>,
    },
}

/// Changes that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchBatch {
    /// All changes up to this revision have been reported. A watch that continues this one begins at
    /// the next.
    pub revision: i64,
    /// The changes, oldest first.
    pub changes: Vec<Change>,
}

/// A running watch. It ends in etcd when it is dropped.
pub struct Watch {
    _open: OpenRequest,
    answers: Streaming<messages::WatchResponse>,
    endpoint: Arc<str>,
    reported: i64,
    /// Changes of an answer that came in parts, until its last part is here.
    parts: Vec<(i64, Change)>,
}

impl Etcd {
    /// Watches the keys below a prefix, from a revision on. Waits until etcd has begun.
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn watch(&self, prefix: &[u8], from: i64) -> Result<Watch, EtcdError> {
        let create = messages::WatchCreateRequest {
            key: prefix.to_vec(),
            range_end: prefix_end(prefix),
            start_revision: from,
            fragment: true,
        };
        let kind = messages::WatchKind::Create(create);
        let request = messages::WatchRequest { kind: Some(kind) };
        let (endpoint, (open, answers)) = self
            .attempts("Watch", |connection| {
                let (open, requests) = open_request(request.clone());
                async move {
                    let mut grpc = client(connection.channel);
                    ready(&mut grpc).await?;
                    let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
                    let codec = ProstCodec::default();
                    let answers = grpc.streaming(with_leader(requests), path, codec).await?;
                    let mut answers: Streaming<messages::WatchResponse> = answers.into_inner();
                    match answers.message().await? {
                        Some(first) if first.created && !first.canceled => Ok((open, answers)),
                        Some(first) => Err(Status::failed_precondition(first.cancel_reason)),
                        None => Err(Status::unavailable("the stream ended")),
                    }
                }
            })
            .await?;
        Ok(Watch { _open: open, answers, endpoint, reported: from - 1, parts: Vec::new() })
    }
}

impl Watch {
    /// The next changes. Waits without a limit: a connection whose peer is gone ends by its pings. A
    /// call that is dropped loses nothing.
    ///
    /// # Errors
    /// [`EtcdError::Compacted`]: list the keys again. [`EtcdError::Unavailable`]: watch again, from
    /// the revision behind the last batch. [`EtcdError::Malformed`].
    pub async fn next(&mut self) -> Result<WatchBatch, EtcdError> {
        loop {
            let answer = match self.answers.message().await {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(self.ended("the stream ended".to_owned())),
                Err(status) => return Err(self.ended(describe(&status))),
            };
            if answer.compact_revision > 0 {
                return Err(EtcdError::Compacted { compacted: answer.compact_revision });
            }
            if answer.canceled {
                return Err(self.ended(answer.cancel_reason));
            }
            self.parts.extend(answer.events.into_iter().filter_map(change));
            if self.parts.len() > CHANGES_MAX {
                return Err(self.malformed("an end of a list of changes"));
            }
            if !answer.fragment {
                // Not the header's revision: that is etcd's newest, also while a watch catches up.
                let changes = std::mem::take(&mut self.parts);
                let last = changes.iter().map(|(at, _)| *at).max();
                self.reported = self.reported.max(last.unwrap_or_default());
                let changes = changes.into_iter().map(|(_, change)| change).collect();
                return Ok(WatchBatch { revision: self.reported, changes });
            }
        }
    }

    fn ended(&self, reason: String) -> EtcdError {
        let attempts = format!("{}: {reason}", self.endpoint);
        EtcdError::Unavailable { operation: "Watch", timeout: std::time::Duration::ZERO, attempts }
    }

    fn malformed(&self, what: &'static str) -> EtcdError {
        EtcdError::Malformed { endpoint: self.endpoint.to_string(), operation: "Watch", what }
    }
}

fn change(event: messages::Event) -> Option<(i64, Change)> {
    let is_deletion = event.kind == messages::EventType::Delete as i32;
    let pair = event.kv?;
    let at = pair.mod_revision;
    let change = if is_deletion {
        Change::Deleted { key: pair.key }
    } else {
        Change::Put(KeyValue::from(pair))
    };
    Some((at, change))
}
