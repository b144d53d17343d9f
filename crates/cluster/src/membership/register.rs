//! Registration under a lease, and its renewal.

use crate::etcd::Compare;
use crate::etcd::Etcd;
use crate::etcd::EtcdError;
use crate::etcd::KeyValue;
use crate::etcd::Operation;
use crate::etcd::Transaction;
use crate::membership::MemberState;
use crate::membership::error::JoinError;
use crate::membership::margin;
use crate::model::BootTime;
use crate::model::Epoch;
use crate::model::Keys;
use crate::model::LeaseDeadline;
use crate::model::NodeKey;
use crate::model::NodeRecord;
use isolet_wire::node::NodeName;
use std::time::Duration;
use tracing::warn;

/// Maximum number of attempts while the key changes: it changes when a lease ends in between.
const ATTEMPTS: u32 = 4;

/// A registration that is in force.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registered {
    /// The lease.
    pub(super) lease: i64,
    /// The lifetime with which it was granted. That of a lease that is continued is the one that the node
    /// had configured then.
    pub(super) ttl: Duration,
    /// Its end, and the registration.
    pub(super) deadline: LeaseDeadline,
    /// Whether an operator had declared the node dead.
    pub(super) was_declared_dead: bool,
}

impl Registered {
    /// The state of a node that is registered.
    pub(super) fn state(&self) -> MemberState {
        let registration = self.deadline.registration;
        let was_declared_dead = self.was_declared_dead;
        MemberState::Member { registration, was_declared_dead, history: 0 }
    }
}

/// The result of a renewal.
#[derive(Debug, Clone, Copy)]
pub(super) enum Renewal {
    /// The lease lasts until the deadline at least.
    Confirmed {
        /// The deadline.
        deadline: LeaseDeadline,
        /// The lifetime of the lease.
        ttl: Duration,
        /// The revision after the transaction: that of the record, if it was written.
        revision: i64,
    },
    /// etcd elected a leader, so it is unknown whether the lease was renewed. Retry.
    Unconfirmed,
    /// The lease, or the key of this node, is gone.
    Gone,
}

/// Registers the node, or continues the registration of the previous server of the same node.
pub(super) async fn register(
    etcd: &Etcd,
    keys: &Keys,
    record: &NodeRecord,
    ttl: Duration,
) -> Result<Registered, JoinError> {
    let value = record.value()?;
    let name = &record.name;
    let live = keys.node(&NodeKey::Live(name.clone()));
    for _ in 0..ATTEMPTS {
        if let Some(found) = etcd.get(&live).await? {
            check_same_node(etcd, record, &found).await?;
            let lease = found.lease;
            let held = Held { lease, registration: Epoch::of_revision(found.created_at) };
            match renew(etcd, keys, name, held, Some(record)).await? {
                Renewal::Confirmed { deadline, ttl: granted, .. } => {
                    if granted != ttl {
                        warn!(
                            node = %name,
                            granted_s = granted.as_secs(),
                            configured_s = ttl.as_secs(),
                            "the lease of this node has another lifetime than lease_ttl_s, which \
                             applies once the server was stopped until the lease had ended"
                        );
                    }
                    return Ok(Registered {
                        lease,
                        ttl: granted,
                        deadline,
                        was_declared_dead: false,
                    });
                }
                Renewal::Unconfirmed | Renewal::Gone => continue,
            }
        }
        let before = BootTime::now();
        let ttl_s = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
        let lease = etcd.grant_lease(ttl_s).await?;
        let dead = keys.node(&NodeKey::Dead(name.clone()));
        let outcome = etcd
            .transaction(Transaction {
                compares: vec![Compare::absent(live.clone())],
                then: vec![
                    Operation::Put { key: live.clone(), value: value.clone(), lease: lease.id },
                    Operation::put(keys.node(&NodeKey::Known(name.clone())), value.clone()),
                    Operation::Delete { key: dead },
                ],
                otherwise: vec![Operation::Get { key: live.clone() }],
            })
            .await?;
        if outcome.succeeded {
            let registration = Epoch::of_revision(outcome.revision);
            let deadline = deadline(registration, before, lease.ttl_s);
            let was_declared_dead = outcome.count(2) > 0;
            let ttl = seconds(lease.ttl_s);
            return Ok(Registered { lease: lease.id, ttl, deadline, was_declared_dead });
        }
        if let Some(own) = outcome.pair(0).filter(|pair| pair.lease == lease.id) {
            // An earlier attempt was applied and its answer was lost. It may have deleted the mark of
            // a dead node, so that is assumed: sandboxes are then compared before they run.
            let registration = Epoch::of_revision(own.created_at);
            let deadline = deadline(registration, before, lease.ttl_s);
            let ttl = seconds(lease.ttl_s);
            return Ok(Registered { lease: lease.id, ttl, deadline, was_declared_dead: true });
        }
        if let Err(error) = etcd.revoke_lease(lease.id).await {
            warn!(%error, "cannot revoke a lease that is not needed; it ends with its lifetime");
        }
    }
    Err(JoinError::Contended { name: name.clone(), attempts: ATTEMPTS })
}

/// A lease, and the key of this node that it holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// The lease.
    pub(super) lease: i64,
    /// The revision at which the key was created.
    pub(super) registration: Epoch,
}

/// Renews the lease, and proves that this node still holds its key: writes `record`, or only reads.
pub(super) async fn renew(
    etcd: &Etcd,
    keys: &Keys,
    name: &NodeName,
    held: Held,
    record: Option<&NodeRecord>,
) -> Result<Renewal, JoinError> {
    let live = keys.node(&NodeKey::Live(name.clone()));
    let then = match record {
        Some(record) => {
            let value = record.value()?;
            vec![Operation::Put { key: live.clone(), value, lease: held.lease }]
        }
        None => vec![Operation::Get { key: live.clone() }],
    };
    let before = BootTime::now();
    let renewed = match etcd.renew_lease(held.lease).await {
        Ok(renewed) => renewed,
        Err(EtcdError::LeaseNotFound { .. }) => return Ok(Renewal::Gone),
        Err(error) => return Err(error.into()),
    };
    let compares = vec![Compare::created_at(live, held.registration.revision())];
    let proof = Transaction { compares, then, otherwise: Vec::new() };
    let outcome = match etcd.transaction(proof).await {
        Err(EtcdError::Refused { reason, .. }) if reason.contains("lease not found") => {
            return Ok(Renewal::Gone);
        }
        outcome => outcome?,
    };
    if !outcome.succeeded {
        return Ok(Renewal::Gone);
    }
    if outcome.term != renewed.term {
        return Ok(Renewal::Unconfirmed);
    }
    let deadline = deadline(held.registration, before, renewed.ttl_s);
    let revision = outcome.revision;
    Ok(Renewal::Confirmed { deadline, ttl: seconds(renewed.ttl_s), revision })
}

/// Whether the key of this node is still the one that it created. Renews nothing.
pub(super) async fn holds_key(
    etcd: &Etcd,
    keys: &Keys,
    name: &NodeName,
    held: Held,
) -> Result<bool, JoinError> {
    let found = etcd.get(&keys.node(&NodeKey::Live(name.clone()))).await?;
    Ok(found.is_some_and(|pair| pair.created_at == held.registration.revision()))
}

/// Writes the record of a node that holds its key, without renewing its lease.
pub(super) async fn write(
    etcd: &Etcd,
    keys: &Keys,
    held: Held,
    record: &NodeRecord,
) -> Result<(), JoinError> {
    let live = keys.node(&NodeKey::Live(record.name.clone()));
    let compares = vec![Compare::created_at(live.clone(), held.registration.revision())];
    let then = vec![Operation::Put { key: live, value: record.value()?, lease: held.lease }];
    etcd.transaction(Transaction { compares, then, otherwise: Vec::new() }).await?;
    Ok(())
}

/// Refuses the name if another node has it.
async fn check_same_node(
    etcd: &Etcd,
    record: &NodeRecord,
    found: &KeyValue,
) -> Result<(), JoinError> {
    let other = NodeRecord::read(&found.value, &record.name);
    if other.as_ref().is_ok_and(|other| other.identity == record.identity) {
        return Ok(());
    }
    let left_s = match etcd.lease_time_to_live(found.lease).await {
        Ok(left) => left.left_s,
        Err(EtcdError::LeaseNotFound { .. }) => 0,
        Err(error) => return Err(error.into()),
    };
    Err(JoinError::NameTaken {
        name: record.name.clone(),
        address: other.map_or_else(|_| "an unknown address".to_owned(), |other| other.address),
        left_s,
    })
}

fn seconds(ttl_s: u32) -> Duration {
    Duration::from_secs(u64::from(ttl_s))
}

fn deadline(registration: Epoch, before: BootTime, ttl_s: u32) -> LeaseDeadline {
    let ttl = seconds(ttl_s);
    LeaseDeadline { registration, at: before.after(ttl.saturating_sub(margin(ttl))) }
}
