//! The state of etcd's members, for checks and for people.

use crate::etcd::client::Etcd;
use crate::etcd::client::client;
use crate::etcd::client::ready;
use crate::etcd::error::EtcdError;
use crate::etcd::error::describe;
use crate::etcd::messages;
use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::Request;
use tonic_prost::ProstCodec;

/// What a member says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// etcd's version.
    pub version: String,
    /// The size of its database, in bytes.
    pub database_bytes: u64,
    /// The id of the cluster: endpoints of different clusters are a mistake in the settings.
    pub cluster_id: u64,
    /// The id of the member.
    pub member_id: u64,
    /// The id of the leader that it knows; 0: it knows none.
    pub leader: u64,
    /// Alarms, such as a full database.
    pub alarms: Vec<String>,
}

/// A member of etcd's cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdMember {
    /// Its id.
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// The URLs on which clients reach it.
    pub client_urls: Vec<String>,
}

impl Etcd {
    /// Asks each endpoint about itself, one after the other.
    pub async fn statuses(&self) -> Vec<(String, Result<MemberStatus, EtcdError>)> {
        let mut all = Vec::new();
        for connection in self.connections().iter() {
            let url = connection.url.to_string();
            let asked = async {
                let mut grpc = client(connection.channel.clone());
                ready(&mut grpc).await?;
                let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Status");
                let codec = ProstCodec::default();
                let request = Request::new(messages::StatusRequest {});
                grpc.unary(request, path, codec).await.map(tonic::Response::into_inner)
            };
            let failed = |reason: String| EtcdError::Unavailable {
                operation: "Status",
                timeout: self.timeout(),
                attempts: format!("{url}: {reason}"),
            };
            let status = match timeout(self.timeout(), asked).await {
                Ok(Ok(status)) => Ok(of_response(status)),
                Ok(Err(status)) => Err(failed(describe(&status))),
                Err(_) => Err(failed("no answer".to_owned())),
            };
            all.push((url, status));
        }
        all
    }

    /// The members of etcd's cluster.
    ///
    /// # Errors
    /// [`EtcdError::Unavailable`], [`EtcdError::Refused`].
    pub async fn members(&self) -> Result<Vec<EtcdMember>, EtcdError> {
        let request = messages::MemberListRequest {};
        let path = "/etcdserverpb.Cluster/MemberList";
        let answer =
            self.unary::<_, messages::MemberListResponse>("MemberList", path, request).await?;
        let member = |member: messages::Member| EtcdMember {
            id: member.id,
            name: member.name,
            client_urls: member.client_urls,
        };
        Ok(answer.members.into_iter().map(member).collect())
    }
}

fn of_response(status: messages::StatusResponse) -> MemberStatus {
    let header = status.header.unwrap_or_default();
    MemberStatus {
        version: status.version,
        database_bytes: u64::try_from(status.db_size).unwrap_or_default(),
        cluster_id: header.cluster_id,
        member_id: header.member_id,
        leader: status.leader,
        alarms: status.errors,
    }
}
