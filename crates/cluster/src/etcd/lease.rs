//! Leases: keys that end when nobody renews them.

use crate::etcd::client::Etcd;
use crate::etcd::client::client;
use crate::etcd::client::ready;
use crate::etcd::client::with_leader;
use crate::etcd::error::EtcdError;
use crate::etcd::messages;
use crate::etcd::messages::Answered;
use crate::etcd::open_request::open_request;
use http::uri::PathAndQuery;
use tonic::Status;
use tonic_prost::ProstCodec;

/// A new lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedLease {
    /// The lease.
    pub id: i64,
    /// Its lifetime in seconds, which may be longer than what was asked for.
    pub ttl_s: u32,
}

/// A lease that was renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewedLease {
    /// Its lifetime in seconds, from when etcd received the request.
    pub ttl_s: u32,
    /// The term of the leader that the member knew before it renewed the lease. A member that has
    /// just been replaced as leader can answer as if it had renewed the lease; a read or write that
    /// follows and has the same term proves that it had not been replaced.
    pub term: u64,
}

/// How long a lease lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimeToLive {
    /// The seconds that are left.
    pub left_s: u32,
    /// The lifetime after a renewal, in seconds.
    pub granted_s: u32,
}

impl Etcd {
    /// Creates a lease.
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`] (a lease that nobody renews may have been created),
    /// [`EtcdError::Refused`].
    pub async fn grant_lease(&self, ttl_s: u32) -> Result<GrantedLease, EtcdError> {
        let request = messages::LeaseGrantRequest { ttl: i64::from(ttl_s) };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let answer =
            self.unary::<_, messages::LeaseGrantResponse>("LeaseGrant", path, request).await?;
        match seconds(answer.ttl) {
            Some(ttl_s) if answer.error.is_empty() && answer.id != 0 => {
                Ok(GrantedLease { id: answer.id, ttl_s })
            }
            _ => Err(EtcdError::Refused {
                endpoint: "one of the endpoints".to_owned(),
                operation: "LeaseGrant",
                reason: answer.error,
                hint: "see the log of etcd",
            }),
        }
    }

    /// Ends a lease and deletes its keys. A lease that has ended already is no error.
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn revoke_lease(&self, lease: i64) -> Result<(), EtcdError> {
        let request = messages::LeaseRevokeRequest { id: lease };
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let answer = self.unary::<_, messages::LeaseRevokeResponse>("LeaseRevoke", path, request);
        match answer.await {
            Err(EtcdError::Refused { reason, .. }) if reason.contains("lease not found") => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Renews a lease for its lifetime.
    ///
    /// # Errors
    /// [`EtcdError::LeaseNotFound`], [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn renew_lease(&self, lease: i64) -> Result<RenewedLease, EtcdError> {
        let operation = "LeaseKeepAlive";
        let mark = self.history.mark();
        let (endpoint, answer) = self
            .attempts(operation, |connection| async move {
                let mut grpc = client(connection.channel);
                ready(&mut grpc).await?;
                let request = messages::LeaseKeepAliveRequest { id: lease };
                // The stream stays open until the answer is here: etcd may drop the request otherwise.
                let (_open, requests) = open_request(request);
                let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
                let codec = ProstCodec::default();
                let answers = grpc.streaming(with_leader(requests), path, codec).await?;
                let answer: Option<messages::LeaseKeepAliveResponse> =
                    answers.into_inner().message().await?;
                answer.ok_or_else(|| Status::unavailable("the stream ended"))
            })
            .await?;
        self.history.check(answer.header(), mark, false, &endpoint)?;
        let term = answer.header.unwrap_or_default().raft_term;
        match seconds(answer.ttl) {
            Some(ttl_s) => Ok(RenewedLease { ttl_s, term }),
            None => Err(EtcdError::LeaseNotFound { lease }),
        }
    }

    /// How long a lease lasts.
    ///
    /// # Errors
    /// [`EtcdError::LeaseNotFound`], [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn lease_time_to_live(&self, lease: i64) -> Result<LeaseTimeToLive, EtcdError> {
        let request = messages::LeaseTimeToLiveRequest { id: lease };
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let answer = self
            .unary::<_, messages::LeaseTimeToLiveResponse>("LeaseTimeToLive", path, request)
            .await?;
        let left_s = u32::try_from(answer.ttl).map_err(|_| EtcdError::LeaseNotFound { lease })?;
        Ok(LeaseTimeToLive { left_s, granted_s: seconds(answer.granted_ttl).unwrap_or(left_s) })
    }
}

/// A lifetime of at least a second.
fn seconds(ttl: i64) -> Option<u32> {
    u32::try_from(ttl).ok().filter(|seconds| *seconds > 0)
}
