//! Revocation lists of the nodes' certificates: `PREFIX/revoked/AUTHORITY` has the newest list of each
//! certificate authority.
//!
//! A list needs no trust in who passed it on: its authority has signed it, and its number never
//! decreases. So each node gives etcd what is newer, and takes from etcd what is newer.

use crate::blocking::blocking;
use crate::replication::error::ReplicationError;
use crate::replication::follow::Replica;
use isolet_cluster::etcd::Compare;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::KeyValue;
use isolet_cluster::etcd::Operation;
use isolet_cluster::etcd::Transaction;
use isolet_cluster::etcd::WatchBatch;
use isolet_cluster::model::Keys as KeyNames;
use isolet_peer::PeerTls;
use isolet_peer::tls::ListNumber;
use isolet_peer::tls::SignedList;
use tracing::error;
use tracing::info;
use tracing::warn;

/// Maximum size of a list in etcd, in bytes, below the limit of a request: some 17,000 revoked
/// certificates. Longer lists must be copied to the nodes.
const LIST_BYTES_MAX: usize = 900 * 1024;
/// Maximum number of authorities whose lists are exchanged; two during a rotation. Their lists fit
/// into one answer of etcd.
const AUTHORITIES_MAX: usize = 4;
/// How often a node tries to write lists while others write them.
const ATTEMPTS: u32 = 5;

/// The revocation lists of this node and those of the fleet.
pub(super) struct ListReplica {
    etcd: Etcd,
    names: KeyNames,
    tls: PeerTls,
    /// The numbers that were compared with etcd last.
    looked: Option<Vec<ListNumber>>,
}

/// What etcd has of one authority.
struct Found {
    list: ListNumber,
    key: Vec<u8>,
    pair: Option<KeyValue>,
    /// The number of the list in etcd, if the authority signed it.
    number: Option<u64>,
}

impl ListReplica {
    pub(super) fn new(etcd: Etcd, names: KeyNames, tls: PeerTls) -> Self {
        Self { etcd, names, tls, looked: None }
    }

    /// The lists in etcd of the authorities that this node trusts, and the revision.
    async fn read(&self, own: Vec<ListNumber>) -> Result<(Vec<Found>, i64), ReplicationError> {
        let keys: Vec<Vec<u8>> =
            own.iter().map(|list| self.names.revocation_list(&list.authority)).collect();
        let then = keys.iter().map(|key| Operation::Get { key: key.clone() }).collect();
        let outcome = self.etcd.transaction(Transaction { then, ..Default::default() }).await?;
        let revision = outcome.revision;
        let tls = self.tls.clone();
        let found = blocking(move || {
            let mut all = Vec::new();
            for (index, (list, key)) in own.into_iter().zip(keys).enumerate() {
                let pair = outcome.pair(index).cloned();
                let value = pair.as_ref().map(|pair| pair.value.as_slice());
                let number = value.and_then(|value| tls.number_of_list(&list.authority, value));
                if pair.is_some() && number.is_none() {
                    let authority = &list.authority;
                    warn!(authority, "the revocation list in etcd is not signed by its authority");
                }
                all.push(Found { list, key, pair, number });
            }
            Ok::<_, ReplicationError>(all)
        });
        Ok((found.await?, revision))
    }

    /// Takes lists that are newer than those of this node.
    async fn take(&self, all: &[Found]) -> Result<(), ReplicationError> {
        let mut newer = Vec::new();
        for found in all.iter().filter(|found| found.number > Some(found.list.number)) {
            newer.extend(found.pair.iter().flat_map(|pair| pair.value.clone()));
            newer.push(b'\n');
        }
        if newer.is_empty() {
            return Ok(());
        }
        let tls = self.tls.clone();
        if blocking(move || tls.merge_revoked(&newer)).await? {
            info!(lists = ?self.tls.list_numbers(), "installed newer revocation lists");
        }
        Ok(())
    }

    /// Writes lists that are newer than those of etcd. Returns whether it is done; if not, another
    /// node has just written one.
    async fn give(&self, all: Vec<Found>) -> Result<bool, ReplicationError> {
        let older: Vec<Found> =
            all.into_iter().filter(|found| found.number < Some(found.list.number)).collect();
        if older.is_empty() {
            return Ok(true);
        }
        let tls = self.tls.clone();
        let own = blocking(move || tls.signed_lists()).await?;
        for Found { list, key, pair, number } in older {
            // The file may be older than the list in use, until it is read again.
            let is_newer = |own: &&SignedList| {
                own.number.authority == list.authority && number < Some(own.number.number)
            };
            let Some(own) = own.iter().find(is_newer) else { continue };
            let bytes = own.pem.len();
            if bytes > LIST_BYTES_MAX {
                let authority = &list.authority;
                error!(
                    authority,
                    bytes,
                    LIST_BYTES_MAX,
                    "the revocation list is too long for etcd; copy revoked.pem to every node"
                );
                continue;
            }
            let at = pair.map_or(0, |pair| pair.modified_at);
            let transaction = Transaction {
                compares: vec![Compare::modified_at(key.clone(), at)],
                then: vec![Operation::put(key, own.pem.clone().into_bytes())],
                otherwise: Vec::new(),
            };
            if !self.etcd.transaction(transaction).await?.succeeded {
                return Ok(false);
            }
            info!(list = ?own.number, "gave a newer revocation list to all nodes");
        }
        Ok(true)
    }

    /// Makes both sides equal. Returns the revision at which etcd was read.
    async fn exchange(&mut self) -> Result<i64, ReplicationError> {
        for _ in 0..ATTEMPTS {
            let mut own = self.tls.list_numbers();
            if own.len() > AUTHORITIES_MAX {
                error!(
                    authorities = own.len(),
                    AUTHORITIES_MAX,
                    "this node trusts too many certificate authorities; lists of the others are not \
                     exchanged"
                );
            }
            self.looked = Some(own.clone());
            own.truncate(AUTHORITIES_MAX);
            let (found, revision) = self.read(own).await?;
            self.take(&found).await?;
            if self.give(found).await? {
                return Ok(revision);
            }
        }
        let what = "a revocation list".to_owned();
        Err(ReplicationError::Contended { what, attempts: ATTEMPTS })
    }
}

impl Replica for ListReplica {
    const KIND: &'static str = "revocation lists";

    fn prefix(&self) -> Vec<u8> {
        self.names.revocation_lists()
    }

    async fn join(&mut self) -> Result<i64, ReplicationError> {
        self.exchange().await
    }

    async fn apply(&mut self, batch: WatchBatch) -> Result<(), ReplicationError> {
        if batch.changes.is_empty() {
            return Ok(());
        }
        self.exchange().await.map(drop)
    }

    async fn look(&mut self) -> Result<(), ReplicationError> {
        if self.looked.as_ref() == Some(&self.tls.list_numbers()) {
            return Ok(());
        }
        self.exchange().await.map(drop)
    }
}
