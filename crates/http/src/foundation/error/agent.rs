//! Refusals by the agent, and broken connections to it, as error responses.

use crate::foundation::error::ApiError;
use axum::http::StatusCode;
use isolet_sandbox::AgentError;
use isolet_wire::response::RefusalReason;

/// The code for a refusal by the agent.
pub(crate) fn agent_code(why: RefusalReason) -> &'static str {
    classify_agent(why).1
}

/// Status, code and hint for a refusal by the agent.
fn classify_agent(why: RefusalReason) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    match why {
        RefusalReason::BadAsk => {
            (S::BAD_REQUEST, "bad_request", "check the fields and ids of this message")
        }
        RefusalReason::NoShell => (S::NOT_FOUND, "no_shell", "the shell is gone; open a new one"),
        RefusalReason::QueueFull => {
            (S::TOO_MANY_REQUESTS, "queue_full", "wait for a command of this shell to end")
        }
        RefusalReason::IdInUse => (S::CONFLICT, "id_in_use", "give every command an id of its own"),
        RefusalReason::TooMany => {
            (S::TOO_MANY_REQUESTS, "too_many", "end a shell or a program first")
        }
        RefusalReason::BadCwd => {
            (S::BAD_REQUEST, "bad_cwd", "name a directory that exists in the sandbox")
        }
        RefusalReason::NotFound => {
            (S::NOT_FOUND, "not_found", "check the name; it is looked up inside the sandbox")
        }
        RefusalReason::Denied => (S::FORBIDDEN, "denied", "the sandbox's user may not do this"),
        RefusalReason::NoProcess => (
            S::SERVICE_UNAVAILABLE,
            "no_process",
            "end processes of the sandbox, or raise pids or memory_mib",
        ),
        RefusalReason::WrongKind => (
            S::CONFLICT,
            "wrong_kind",
            "a file was named where a directory is needed, or the reverse",
        ),
        RefusalReason::TooLarge => (S::PAYLOAD_TOO_LARGE, "too_large", "ask for less at once"),
        RefusalReason::NoSpace => (
            S::INSUFFICIENT_STORAGE,
            "no_space",
            "remove files; the disk is full, by bytes or by inodes",
        ),
        RefusalReason::Exists => {
            (S::CONFLICT, "exists", "remove what is there, or choose another name")
        }
        RefusalReason::NoSuchProcess => {
            (S::NOT_FOUND, "no_such_process", "list them with GET …/processes")
        }
        RefusalReason::Ended => (
            S::CONFLICT,
            "process_ended",
            "ask for the process: it has ended, or was started without stdin",
        ),
        RefusalReason::NotEmpty => {
            (S::CONFLICT, "not_empty", "add ?recursive=1 to remove all it holds")
        }
        RefusalReason::NotListening => (
            S::BAD_GATEWAY,
            "not_listening",
            "start a server on that port; it may listen on 127.0.0.1 or on all addresses",
        ),
        RefusalReason::NoAnswer => {
            (S::GATEWAY_TIMEOUT, "port_silent", "look whether the program on that port still works")
        }
        RefusalReason::Short => (
            S::SERVICE_UNAVAILABLE,
            "short",
            "descriptors or memory are short at this moment; try again",
        ),
        RefusalReason::Unable => (
            S::NOT_IMPLEMENTED,
            "not_in_image",
            "use an image that has it, or put it where the message says",
        ),
        RefusalReason::Failed => {
            (S::INTERNAL_SERVER_ERROR, "failed", "the message says what the kernel answered")
        }
    }
}

impl ApiError {
    pub(crate) fn from_agent(why: RefusalReason, message: impl Into<String>) -> Self {
        let (status, code, hint) = classify_agent(why);
        Self::new(status, code, message, hint)
    }
}

impl From<AgentError> for ApiError {
    fn from(error: AgentError) -> Self {
        if matches!(error, AgentError::Destroyed(_)) {
            let hint = "what ran in it was ended and is not run again; the same request would \
                        create a new sandbox with this id";
            let message = error.to_string();
            return Self::new(StatusCode::CONFLICT, "sandbox_destroyed", message, hint);
        }
        if error == AgentError::SessionEnded {
            let hint = "what ran in it was ended; make another session to run it again";
            return Self::new(StatusCode::CONFLICT, "session_ended", error.to_string(), hint);
        }
        if error == AgentError::Short {
            let hint =
                "try again in a moment; whoever runs the server may raise its limit of open files";
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "short", error.to_string(), hint);
        }
        let hint = "ask for the sandbox's state, then try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "agent_lost", error.to_string(), hint)
    }
}
