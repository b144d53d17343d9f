//! Watches: the changes of the keys below a prefix, from a revision on.
//!
//! A watch on which nothing happens and one that etcd has forgotten look alike. So a watch asks for its
//! progress, and ends with [`EtcdError::Silent`] when no answer comes.

use crate::etcd::client::Etcd;
use crate::etcd::client::KeyValue;
use crate::etcd::client::client;
use crate::etcd::client::prefix_end;
use crate::etcd::client::ready;
use crate::etcd::client::with_leader;
use crate::etcd::error::EtcdError;
use crate::etcd::error::describe;
use crate::etcd::history::History;
use crate::etcd::history::Mark;
use crate::etcd::messages;
use crate::etcd::messages::Answered;
use crate::etcd::open_request::OpenRequest;
use crate::etcd::open_request::open_request;
use http::uri::PathAndQuery;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio::time::sleep_until;
use tonic::Status;
use tonic::Streaming;
use tonic_prost::ProstCodec;

/// How often a watch asks for its progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// A watch is given up when it is time for the next question after this number without an answer: 15 s
/// after something was heard.
const UNANSWERED_MAX: u32 = 2;
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
    requests: OpenRequest<messages::WatchRequest>,
    history: Arc<History>,
    begun: Mark,
    generations: watch::Receiver<u64>,
    answers: Streaming<messages::WatchResponse>,
    endpoint: Arc<str>,
    reported: i64,
    /// When progress is asked for next, and the questions since anything was heard.
    ask_at: Instant,
    unanswered: u32,
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
        let mut generations = self.generations();
        generations.borrow_and_update();
        let begun = self.history.mark();
        let (endpoint, (requests, answers)) = self
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
        Ok(Watch {
            requests,
            history: Arc::clone(&self.history),
            begun,
            generations,
            answers,
            endpoint,
            reported: from - 1,
            ask_at: Instant::now() + PROGRESS_EVERY,
            unanswered: 0,
            parts: Vec::new(),
        })
    }
}

impl Watch {
    /// The next changes. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// [`EtcdError::Compacted`], [`EtcdError::Silent`]: list the keys again.
    /// [`EtcdError::Unavailable`]: watch again, from the revision behind the last batch.
    /// [`EtcdError::Malformed`].
    pub async fn next(&mut self) -> Result<WatchBatch, EtcdError> {
        loop {
            let answer = tokio::select! {
                // What is here counts, also if nobody has asked for it in time.
                biased;
                answer = self.answers.message() => answer,
                // An etcd that was restored may be silent until it reaches the revision of the watch.
                Ok(()) = self.generations.changed() => {
                    return Err(self.ended_with_history());
                }
                () = sleep_until(self.ask_at) => {
                    if self.unanswered >= UNANSWERED_MAX {
                        return Err(EtcdError::Silent { endpoint: self.endpoint.to_string() });
                    }
                    let kind = messages::WatchKind::Progress(messages::WatchProgressRequest {});
                    self.requests.send(messages::WatchRequest { kind: Some(kind) });
                    self.unanswered += 1;
                    self.ask_at = Instant::now() + PROGRESS_EVERY;
                    continue;
                }
            };
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(self.ended("the stream ended".to_owned())),
                Err(status) => return Err(self.ended(describe(&status))),
            };
            self.history.check(answer.header(), self.begun, false, &self.endpoint)?;
            self.unanswered = 0;
            self.ask_at = Instant::now() + PROGRESS_EVERY;
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
                if self.parts.is_empty() {
                    // An answer to a question for progress.
                    continue;
                }
                // Not the header's revision: that is etcd's newest, also while a watch catches up.
                let changes = std::mem::take(&mut self.parts);
                let last = changes.iter().map(|(at, _)| *at).max();
                self.reported = self.reported.max(last.unwrap_or_default());
                let changes = changes.into_iter().map(|(_, change)| change).collect();
                return Ok(WatchBatch { revision: self.reported, changes });
            }
        }
    }

    /// The state that the watch continues is void.
    fn ended_with_history(&self) -> EtcdError {
        EtcdError::Silent { endpoint: self.endpoint.to_string() }
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
