//! Errors of the service as error responses.

use crate::foundation::error::ApiError;
use crate::foundation::error::image::classify_image;
use axum::http::StatusCode;
use isolet_sandbox::{BadInput, Error};

/// When to retry a request for a suspended sandbox, in seconds: about the time in which a node
/// renews its lease.
const SUSPENDED_RETRY_S: u64 = 3;
/// When to move a sandbox again for which the object store took too long, in seconds.
const NOT_DEPARTED_RETRY_S: u64 = 10;
/// When to retry a request for a sandbox that has just left its node, in seconds.
const DEPARTED_RETRY_S: u64 = 1;

impl From<BadInput> for ApiError {
    fn from(BadInput { field, reason }: BadInput) -> Self {
        Self::bad_field(field, &reason)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Refused { reason, .. } => Self::from_agent(reason, message),
            Error::Link(error) => error.into(),
            Error::BadField { field, reason } => Self::bad_field(field, &reason),
            other => {
                let (status, code, hint) = classify(&other);
                // Calls that arrive while the server stops are no reason to look into its log.
                if status.is_server_error() && code != "stopping" {
                    tracing::warn!(code, error = %message, "call failed");
                }
                let error = Self::new(status, code, message, hint);
                match other {
                    Error::Suspended { .. } => error.retry_after(SUSPENDED_RETRY_S),
                    Error::Departed(_) => error.retry_after(DEPARTED_RETRY_S),
                    Error::NotDeparted(_) => error.retry_after(NOT_DEPARTED_RETRY_S),
                    _ => error,
                }
            }
        }
    }
}

/// Status, code and hint for the other errors of the service.
fn classify(error: &Error) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    match error {
        Error::NoSandbox(_) => (S::NOT_FOUND, "no_sandbox", "create it with POST /v1/sandboxes"),
        Error::Departed(_) => (
            S::SERVICE_UNAVAILABLE,
            "owner_moved",
            "send the request again; if it was a call that works in the sandbox, look first what it has done",
        ),
        Error::NotMovable { .. } => {
            (S::UNPROCESSABLE_ENTITY, "not_movable", "nothing was changed; it stays on its node")
        }
        Error::NotDeparted(_) => (
            S::SERVICE_UNAVAILABLE,
            "not_moved",
            "nothing is lost; check the object store, and move it again",
        ),
        Error::SandboxExists(_) => {
            (S::CONFLICT, "sandbox_exists", "use it, delete it, or choose another id")
        }
        Error::Failed { .. } => (
            S::CONFLICT,
            "sandbox_failed",
            "its files stay readable; if it is persistent, recover it with POST /v1/sandboxes/{id}/recover; otherwise delete it",
        ),
        Error::Unreachable(_) => (
            S::SERVICE_UNAVAILABLE,
            "sandbox_unreachable",
            "the server keeps retrying; wait, or delete the sandbox",
        ),
        Error::Sleeping(_) => (S::CONFLICT, "sandbox_sleeping", "run a command in it to wake it"),
        Error::Suspended { .. } => (
            S::SERVICE_UNAVAILABLE,
            "suspended",
            "retry; the sandbox continues when its node has compared its ownership with the fleet",
        ),
        Error::FleetUnavailable { .. } => (
            S::SERVICE_UNAVAILABLE,
            "fleet_unavailable",
            "retry in a moment; sandboxes that this node knows still work",
        ),
        Error::NoClass { .. } => (
            S::UNPROCESSABLE_ENTITY,
            "class_unavailable",
            "leave class out, or ask the operator of this server for [cluster] with store = true, and [store]",
        ),
        Error::NotRecorded { .. } => (
            S::SERVICE_UNAVAILABLE,
            "fleet_unavailable",
            "retry when the records of the fleet can be reached",
        ),
        Error::Paused(_) => (
            S::CONFLICT,
            "sandbox_paused",
            "resume it with POST /v1/sandboxes/{id}/resume, or set auto_resume",
        ),
        Error::NotPaused { .. } => (
            S::SERVICE_UNAVAILABLE,
            "not_paused",
            "a process may be waiting for a disk; retry in a moment",
        ),
        Error::InUse(_) => (
            S::CONFLICT,
            "sandbox_in_use",
            "wait until no command is running and no client is attached, then retry",
        ),
        Error::NoSession { .. } => {
            (S::NOT_FOUND, "no_session", "create it with POST …/sessions, or run a command in it")
        }
        Error::SessionExists(_) => {
            (S::CONFLICT, "session_exists", "use it, delete it, or choose another id")
        }
        Error::ScopeBlocked { .. } => (
            S::CONFLICT,
            "scope_blocked",
            "restore the directory from a session without file access rules, or delete this session",
        ),
        Error::DefaultSession => (
            S::CONFLICT,
            "default_session",
            "delete the sandbox instead: DELETE /v1/sandboxes/{id}",
        ),
        Error::Lacks { .. } => (
            S::BAD_REQUEST,
            "unsupported",
            "leave the field out, or ask the operator of this server to install what is missing",
        ),
        Error::NoWay(_) => (
            S::NOT_IMPLEMENTED,
            "no_network",
            "ask the operator of this server to install what is missing, or use network \"none\"",
        ),
        Error::WayLost(_) => (
            S::SERVICE_UNAVAILABLE,
            "network_lost",
            "the server is restarting it; retry in a moment",
        ),
        Error::NoSpace { .. } | Error::DiskFull { .. } | Error::CopyFull { .. } => (
            S::INSUFFICIENT_STORAGE,
            "no_space",
            "delete files or sandboxes, or free space on the server's disk; reads and deletes still work",
        ),
        Error::QuotaExceeded { .. } => (
            S::INSUFFICIENT_STORAGE,
            "quota_exceeded",
            "delete sandboxes, or files in them, or ask the operator of this server to raise the quota; reads and deletes still work",
        ),
        Error::Image(error) => classify_image(error),
        Error::NameConfigured { .. } => (
            S::CONFLICT,
            "image_name_configured",
            "choose another name; GET /v1/images/aliases lists the configured ones",
        ),
        Error::TooManySandboxes { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_sandboxes", "delete a sandbox first")
        }
        Error::TooManySessions { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_sessions", "delete a session first")
        }
        Error::NoProcess { .. } => {
            (S::NOT_FOUND, "no_such_process", "list them with GET …/processes")
        }
        Error::ProcessLost { .. } => {
            (S::GONE, "process_lost", "start it again; set sleep_after_s to 0 to keep it running")
        }
        Error::VersionExpired(_) => (
            S::GONE,
            "version_expired",
            "take a new version with ?changes_since=now, then list the directory",
        ),
        Error::NoProfile(_) => {
            (S::NOT_FOUND, "no_network_profile", "list them with GET /v1/network-profiles")
        }
        Error::TooManyProfiles { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_network_profiles", "delete a network profile first")
        }
        Error::NoRecording { .. } => {
            (S::NOT_FOUND, "no_recording", "list them with GET …/recordings")
        }
        Error::TooManyRecordings { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_recordings", "delete a recording first")
        }
        Error::NoSnapshot(_) => (S::NOT_FOUND, "no_snapshot", "list them with GET /v1/snapshots"),
        Error::SnapshotExists(_) => {
            (S::CONFLICT, "snapshot_exists", "use it, delete it, or choose another name")
        }
        Error::SnapshotIncompatible { .. } => (
            S::CONFLICT,
            "snapshot_incompatible",
            "create a sandbox from it instead: POST /v1/sandboxes {\"snapshot\": …}",
        ),
        Error::SnapshotInUse(_) => {
            (S::CONFLICT, "snapshot_in_use", "wait until they are created, then retry")
        }
        Error::TooManySnapshots { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_snapshots", "delete a snapshot first")
        }
        Error::NoStore => (
            S::NOT_IMPLEMENTED,
            "no_snapshot_store",
            "the operator of this server can configure one: [store] in its configuration file",
        ),
        Error::NotInStore(_) => (
            S::NOT_FOUND,
            "no_stored_snapshot",
            "list them with GET /v1/store/snapshots; one is named by its id",
        ),
        Error::Transfer { .. } => (
            S::BAD_GATEWAY,
            "snapshot_store_failed",
            "retry, which continues a push; the operator finds more in the log and in docs/snapshot-store.md",
        ),
        Error::ImageMissing { .. } => (
            S::CONFLICT,
            "image_missing",
            "pull the image with POST /v1/images/pull or import it, then retry",
        ),
        Error::TooManyTransfers { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_transfers", "wait until one has ended, then retry")
        }
        Error::Copy { .. } => (
            S::INTERNAL_SERVER_ERROR,
            "copy_failed",
            "nothing was left behind; retry, and see the server's log if it fails again",
        ),
        Error::NotSnapshotted { cause, .. } => {
            let (status, code, _) = classify(cause);
            (status, code, "retry, or delete it without a snapshot: DELETE …?force=true")
        }
        Error::NotExposed { .. } => {
            (S::NOT_FOUND, "no_link", "list the ports that have links with GET …/links")
        }
        Error::TooManyExposed { .. } => (
            S::TOO_MANY_REQUESTS,
            "too_many_links",
            "revoke the links of a port first: DELETE …/links/{port}",
        ),
        Error::TooManyLinkTokens { .. } => (
            S::TOO_MANY_REQUESTS,
            "too_many_links",
            "wait until one has expired, or revoke the links of a port: DELETE …/links/{port}",
        ),
        Error::LinkTokenInUse { .. } => (
            S::CONFLICT,
            "link_token_in_use",
            "choose another token, or revoke the links of the port: DELETE …/links/{port}",
        ),
        Error::ServerFull(_) => {
            (S::SERVICE_UNAVAILABLE, "server_full", "delete a sandbox, or use another server")
        }
        Error::OtherBody => (
            S::UNPROCESSABLE_ENTITY,
            "idempotency_mismatch",
            "use a new Idempotency-Key for a different request",
        ),
        Error::TooManyAnswers { .. } => (
            S::TOO_MANY_REQUESTS,
            "too_many_idempotency_keys",
            "send the request without an Idempotency-Key, or wait: an answer is stored for 24 hours",
        ),
        Error::Missing(_) => (
            S::SERVICE_UNAVAILABLE,
            "cannot_make_sandboxes",
            "the operator of this server must install what is missing",
        ),
        Error::Launch { .. } | Error::GrantRefused { .. } => (
            S::INTERNAL_SERVER_ERROR,
            "launch_failed",
            "nothing was left behind; retry, and see the server's log if it fails again",
        ),
        Error::TooLate(_) => (
            S::GATEWAY_TIMEOUT,
            "deadline_exceeded",
            "the server continues in the background; retry in a moment",
        ),
        Error::StoreFull => (
            S::INSUFFICIENT_STORAGE,
            "store_full",
            "nothing was changed; free space on the disk that holds the data directory",
        ),
        Error::StoreBroken => (
            S::SERVICE_UNAVAILABLE,
            "store_broken",
            "check the disk that holds the data directory, then restart the server; sandboxes keep running",
        ),
        Error::Store(_) => {
            (S::SERVICE_UNAVAILABLE, "storage_error", "nothing was changed; see the server's log")
        }
        Error::Stopping => {
            (S::SERVICE_UNAVAILABLE, "stopping", "reconnect in a moment; sandboxes keep running")
        }
        _ => (
            S::INTERNAL_SERVER_ERROR,
            "internal_error",
            "only this request failed; see the server's log",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_sandbox::{AgentError, SandboxId};
    use isolet_wire::response::RefusalReason;

    #[test]
    fn every_cause_has_its_status_and_code() {
        let id = SandboxId::parse("a").unwrap();
        let cases = [
            (Error::NoSandbox(id.clone()), 404, "no_sandbox"),
            (Error::SandboxExists(id.clone()), 409, "sandbox_exists"),
            (Error::Unreachable(id.clone()), 503, "sandbox_unreachable"),
            (Error::Failed { id: id.clone(), cause: "agent killed".into() }, 409, "sandbox_failed"),
            (Error::DefaultSession, 409, "default_session"),
            (Error::OtherBody, 422, "idempotency_mismatch"),
            (Error::StoreFull, 507, "store_full"),
            (Error::StoreBroken, 503, "store_broken"),
            (Error::NoSpace { free_mib: 1, floor_mib: 2 }, 507, "no_space"),
            (Error::QuotaExceeded { used_mib: 2, quota_mib: 1 }, 507, "quota_exceeded"),
            (
                Error::NameConfigured { name: "a".into(), image: "host".into() },
                409,
                "image_name_configured",
            ),
            (Error::Lacks { field: "disk_mib", reason: "no ext4".into() }, 400, "unsupported"),
            (Error::NoWay("no nft".into()), 501, "no_network"),
            (Error::WayLost("ended".into()), 503, "network_lost"),
            (Error::NoStore, 501, "no_snapshot_store"),
            (Error::Stopping, 503, "stopping"),
            (Error::Paused("a".parse().unwrap()), 409, "sandbox_paused"),
            (Error::Suspended { id: id.clone(), reason: "lease".into() }, 503, "suspended"),
            (Error::Departed(id.clone()), 503, "owner_moved"),
            (Error::NotMovable { id: id.clone(), reason: "a".into() }, 422, "not_movable"),
            (Error::NotDeparted(id.clone()), 503, "not_moved"),
            (Error::NoClass { class: "store", lack: "a fleet" }, 422, "class_unavailable"),
            (Error::TooLate("delete"), 504, "deadline_exceeded"),
            (
                Error::Refused { reason: RefusalReason::QueueFull, message: "full".into() },
                429,
                "queue_full",
            ),
            (Error::BadField { field: "pids", reason: "at least 1".into() }, 400, "bad_field"),
            (Error::Link(AgentError::Silent), 503, "agent_lost"),
            (Error::Link(AgentError::TooOld { has: 1, needs: 2 }), 409, "agent_too_old"),
            (Error::Link(AgentError::Short), 503, "resource_exhausted"),
            (Error::Link(AgentError::SessionEnded), 409, "session_ended"),
            (Error::Link(AgentError::Slept(id.clone())), 409, "sandbox_slept"),
            (Error::Link(AgentError::Destroyed(id)), 409, "sandbox_destroyed"),
        ];
        for (error, status, code) in cases {
            let failure = ApiError::from(error);
            assert_eq!((failure.status().as_u16(), failure.code), (status, code));
            assert!(!failure.message.is_empty() && !failure.hint.is_empty());
        }
    }
}
