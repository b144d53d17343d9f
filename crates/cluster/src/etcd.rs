//! A client of etcd's API (version 3, over gRPC).
//!
//! It has the calls that this crate needs: keys, transactions, leases, watches and the state of the
//! members. Every call has a time limit, a limit on the size of its messages, and tries the other
//! endpoints when one does not answer. A call that failed with [`EtcdError::Unavailable`] may have
//! been applied, so each writing transaction of this crate compares what it expects and can be
//! repeated.
//!
//! The client notices when etcd goes back in time, because it was restored from a backup: see
//! [`EtcdError::WentBack`].
//!
//! The published clients of etcd generate their code in a build script that needs the program
//! `protoc`. Building Isolet needs only Rust, so [`messages`] declares the messages by hand, and
//! `tonic` does the rest. Users of etcd log in with client certificates; passwords are not supported.

mod client;
mod endpoints;
mod error;
mod history;
mod lease;
mod maintenance;
mod messages;
mod open_request;
mod settings;
mod transaction;
mod watch;

pub use client::{CALL_TIMEOUT, Etcd, KeyValue, PAGE_KEYS_MAX, Page};
pub use error::EtcdError;
pub use lease::{GrantedLease, LeaseTimeToLive, RenewedLease};
pub use maintenance::{EtcdMember, MemberStatus};
pub use settings::{ENDPOINTS_MAX, EtcdIdentityFiles, EtcdSettings, EtcdTlsFiles};
pub use transaction::{Answer, Compare, Operation, Outcome, Transaction};
pub use watch::{Change, Watch, WatchBatch};
