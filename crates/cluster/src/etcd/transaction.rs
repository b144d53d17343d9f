//! Transactions: operations that etcd applies together if all compares hold.

use crate::etcd::client::Etcd;
use crate::etcd::client::KeyValue;
use crate::etcd::client::prefix_end;
use crate::etcd::error::EtcdError;
use crate::etcd::messages;
use crate::etcd::messages::CompareNumber;
use crate::etcd::messages::CompareResult;
use crate::etcd::messages::CompareTarget;
use crate::etcd::messages::RequestKind;
use crate::etcd::messages::ResponseKind;

/// A condition on one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare(messages::Compare);

impl Compare {
    /// The key does not exist.
    #[must_use]
    pub fn absent(key: Vec<u8>) -> Self {
        Self::created_at(key, 0)
    }

    /// The key exists.
    #[must_use]
    pub fn present(key: Vec<u8>) -> Self {
        let number = CompareNumber::CreateRevision(0);
        Self::new(key, CompareResult::Greater, CompareTarget::Create, number)
    }

    /// The key exists since this revision without having been deleted; 0: it does not exist.
    #[must_use]
    pub fn created_at(key: Vec<u8>, revision: i64) -> Self {
        let number = CompareNumber::CreateRevision(revision);
        Self::new(key, CompareResult::Equal, CompareTarget::Create, number)
    }

    /// The key was last written at this revision.
    #[must_use]
    pub fn modified_at(key: Vec<u8>, revision: i64) -> Self {
        let number = CompareNumber::ModRevision(revision);
        Self::new(key, CompareResult::Equal, CompareTarget::Mod, number)
    }

    /// No key exists below the prefix.
    #[must_use]
    pub fn none_below(prefix: Vec<u8>) -> Self {
        let range_end = prefix_end(&prefix);
        let mut compare = Self::absent(prefix);
        compare.0.range_end = range_end;
        compare
    }

    fn new(
        key: Vec<u8>,
        result: CompareResult,
        target: CompareTarget,
        number: CompareNumber,
    ) -> Self {
        let result = i32::from(result);
        let target = i32::from(target);
        let range_end = Vec::new();
        Self(messages::Compare { result, target, key, number: Some(number), range_end })
    }
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Writes a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// The lease that the key ends with; 0: none.
        lease: i64,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Deletes all keys below a prefix.
    DeletePrefix {
        /// The prefix.
        prefix: Vec<u8>,
    },
    /// Reads a key.
    Get {
        /// The key.
        key: Vec<u8>,
    },
    /// Counts the keys below a prefix.
    Count {
        /// The prefix.
        prefix: Vec<u8>,
    },
}

impl Operation {
    /// Writes a key that has no lease.
    #[must_use]
    pub fn put(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self::Put { key, value, lease: 0 }
    }
}

/// Operations that are applied together. etcd accepts 128 compares and operations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transaction {
    /// All of these must hold.
    pub compares: Vec<Compare>,
    /// What to do if they hold.
    pub then: Vec<Operation>,
    /// What to do if one does not hold.
    pub otherwise: Vec<Operation>,
}

/// The answer to one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The key was written.
    Put,
    /// Keys were deleted.
    Deleted {
        /// The number of keys.
        count: u64,
    },
    /// Keys were read or counted.
    Found {
        /// The key that was read, if it exists.
        pair: Option<KeyValue>,
        /// The number of keys.
        count: u64,
    },
}

/// The result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether all compares held.
    pub succeeded: bool,
    /// The revision of the store after the transaction: of the transaction itself, if it wrote.
    pub revision: i64,
    /// The term of the leader in which the transaction was applied.
    pub term: u64,
    /// An answer for each operation of the branch that was taken.
    pub answers: Vec<Answer>,
}

impl Outcome {
    /// The key that the operation at `index` read, if it exists.
    #[must_use]
    pub fn pair(&self, index: usize) -> Option<&KeyValue> {
        match self.answers.get(index) {
            Some(Answer::Found { pair, .. }) => pair.as_ref(),
            _ => None,
        }
    }

    /// The number of keys that the operation at `index` counted or deleted.
    #[must_use]
    pub fn count(&self, index: usize) -> u64 {
        match self.answers.get(index) {
            Some(Answer::Found { count, .. } | Answer::Deleted { count }) => *count,
            _ => 0,
        }
    }
}

impl Etcd {
    /// Applies a transaction.
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`] (it may have been applied), [`EtcdError::Refused`].
    pub async fn transaction(&self, transaction: Transaction) -> Result<Outcome, EtcdError> {
        let request = messages::TxnRequest {
            compare: transaction.compares.into_iter().map(|compare| compare.0).collect(),
            success: transaction.then.into_iter().map(request).collect(),
            failure: transaction.otherwise.into_iter().map(request).collect(),
        };
        let path = "/etcdserverpb.KV/Txn";
        let answer = self.unary::<_, messages::TxnResponse>("Txn", path, request).await?;
        let header = answer.header.unwrap_or_default();
        Ok(Outcome {
            succeeded: answer.succeeded,
            revision: header.revision,
            term: header.raft_term,
            answers: answer.responses.into_iter().map(of_response).collect(),
        })
    }
}

fn request(operation: Operation) -> messages::RequestOp {
    let kind = match operation {
        Operation::Put { key, value, lease } => {
            RequestKind::Put(messages::PutRequest { key, value, lease })
        }
        Operation::Delete { key } => {
            RequestKind::DeleteRange(messages::DeleteRangeRequest { key, range_end: Vec::new() })
        }
        Operation::DeletePrefix { prefix } => {
            let range_end = prefix_end(&prefix);
            RequestKind::DeleteRange(messages::DeleteRangeRequest { key: prefix, range_end })
        }
        Operation::Get { key } => {
            RequestKind::Range(messages::RangeRequest { key, ..Default::default() })
        }
        Operation::Count { prefix } => RequestKind::Range(messages::RangeRequest {
            range_end: prefix_end(&prefix),
            key: prefix,
            count_only: true,
            ..Default::default()
        }),
    };
    messages::RequestOp { request: Some(kind) }
}

fn of_response(response: messages::ResponseOp) -> Answer {
    let number = |count: i64| u64::try_from(count).unwrap_or_default();
    match response.response {
        Some(ResponseKind::Range(found)) => Answer::Found {
            count: number(found.count),
            pair: found.kvs.into_iter().next().map(KeyValue::from),
        },
        Some(ResponseKind::DeleteRange(deleted)) => {
            Answer::Deleted { count: number(deleted.deleted) }
        }
        Some(ResponseKind::Put(_)) | None => Answer::Put,
    }
}
