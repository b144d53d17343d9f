//! Why etcd did not do what was asked.

use std::time::Duration;
use tonic::Code;
use tonic::Status;

/// Maximum length of a message of etcd or of the transport within an error, in bytes.
const MESSAGE_BYTES_MAX: usize = 400;

/// A failed call. Contains endpoints and no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// An endpoint or a TLS file is not usable.
    #[error("the settings of etcd are not usable: {0}")]
    Settings(String),
    /// No endpoint answered in time. A write may have been applied.
    #[error(
        "etcd did not answer {operation} within {} ms ({attempts}); check that a majority of its \
         members runs and that this node reaches one of the endpoints", timeout.as_millis()
    )]
    Unavailable {
        /// The method of etcd's API.
        operation: &'static str,
        /// The time limit of the call.
        timeout: Duration,
        /// The last failure of each endpoint.
        attempts: String,
    },
    /// An endpoint answered with an error that another endpoint would repeat.
    #[error("etcd at {endpoint} refused {operation}: {reason}; {hint}")]
    Refused {
        /// The endpoint that answered.
        endpoint: String,
        /// The method of etcd's API.
        operation: &'static str,
        /// The message of etcd.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// A request is larger than etcd accepts. It was not sent.
    #[error("a request of {bytes} bytes for {operation} of etcd is over the limit of {limit}")]
    TooLarge {
        /// The method of etcd's API.
        operation: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The revision is older than the history that etcd keeps. The caller lists again.
    #[error("etcd has compacted its history up to revision {compacted}; list the keys again")]
    Compacted {
        /// The oldest revision that can be read.
        compacted: i64,
    },
    /// Nothing was heard of a watch although its progress was asked for, or it did not report a key
    /// that this node has written. The caller lists again.
    #[error("a watch of etcd at {endpoint} is silent; list the keys again")]
    Silent {
        /// The endpoint.
        endpoint: String,
    },
    /// etcd was restored from a backup, or is another cluster. What this node knows of its keys is void.
    #[error(
        "etcd at {endpoint} {}: its revision is {found}, and this node has seen {known}; it counts as \
         restored from a backup, and everything is read again",
        if *is_other_cluster { "is another cluster" } else { "has gone back in time" }
    )]
    WentBack {
        /// The endpoint that answered.
        endpoint: String,
        /// The highest revision that was seen.
        known: i64,
        /// The revision of the answer.
        found: i64,
        /// Whether the answer came from another cluster.
        is_other_cluster: bool,
    },
    /// The lease ended or was revoked.
    #[error("etcd has no lease {lease:x} any more; register again with a new one")]
    LeaseNotFound {
        /// The lease.
        lease: i64,
    },
    /// An answer lacks a part that etcd always sends.
    #[error("etcd at {endpoint} answered {operation} without {what}; is it etcd 3.4 or later?")]
    Malformed {
        /// The endpoint that answered.
        endpoint: String,
        /// The method of etcd's API.
        operation: &'static str,
        /// What is missing.
        what: &'static str,
    },
}

/// Whether another endpoint may succeed.
pub(super) fn is_of_endpoint(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted => true,
        // Errors of HTTP/2 and of TLS have a source and one of these codes.
        Code::Unknown | Code::Internal => std::error::Error::source(status).is_some(),
        _ => false,
    }
}

/// The error for an answer that another endpoint would repeat.
pub(super) fn refused(endpoint: &str, operation: &'static str, status: &Status) -> EtcdError {
    let hint = match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => {
            "give the user of the client certificate the role `readwrite` on the prefix"
        }
        Code::ResourceExhausted if status.message().contains("space") => {
            "etcd's database is full: compact and defragment it, disarm the alarm, and raise \
             --quota-backend-bytes"
        }
        Code::ResourceExhausted => "etcd is overloaded, or a message is too large: retry later",
        Code::Unimplemented => "use etcd 3.4 or later",
        _ => "see the log of etcd",
    };
    EtcdError::Refused { endpoint: endpoint.to_owned(), operation, reason: describe(status), hint }
}

/// The code and the message of a status, with the causes in the transport.
pub(super) fn describe(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    shortened(text)
}

fn shortened(mut text: String) -> String {
    if text.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let long = shortened("ä".repeat(MESSAGE_BYTES_MAX));
        assert!(long.ends_with('…') && long.len() <= MESSAGE_BYTES_MAX + 3, "{}", long.len());
        assert_eq!(shortened("short".into()), "short");
    }

    #[test]
    fn a_full_database_says_what_to_do() {
        let status = Status::resource_exhausted("etcdserver: mvcc: database space exceeded");
        let text = refused("http://e:2379", "Put", &status).to_string();
        assert!(text.contains("http://e:2379") && text.contains("defragment"), "{text}");
        assert!(is_of_endpoint(&Status::unavailable("etcdserver: no leader")));
        assert!(!is_of_endpoint(&status));
    }
}
