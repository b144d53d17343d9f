//! Refusals by the agent, and broken connections to it, as error responses.

use crate::foundation::error::ApiError;
use axum::http::StatusCode;
use isolet_sandbox::AgentError;
use isolet_wire::response::RefusalReason;

/// The code for a refusal by the agent.
pub(crate) fn agent_code(reason: RefusalReason) -> &'static str {
    classify_agent(reason).1
}

/// When to retry a call in a sandbox that has just left its node, in seconds.
const DEPARTED_RETRY_S: u64 = 1;

/// Status, code and hint for a refusal by the agent.
fn classify_agent(reason: RefusalReason) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    match reason {
        RefusalReason::BadRequest => {
            (S::BAD_REQUEST, "bad_request", "check the fields and ids of the message")
        }
        RefusalReason::NoShell => (S::NOT_FOUND, "no_shell", "the shell is gone; open a new one"),
        RefusalReason::QueueFull => {
            (S::TOO_MANY_REQUESTS, "queue_full", "wait for a command of this shell to end")
        }
        RefusalReason::IdInUse => (S::CONFLICT, "id_in_use", "use a unique id for each command"),
        RefusalReason::TooMany => {
            (S::TOO_MANY_REQUESTS, "too_many", "close a shell or end a program first")
        }
        RefusalReason::BadCwd => {
            (S::BAD_REQUEST, "bad_cwd", "use a directory that exists in the sandbox")
        }
        RefusalReason::NotFound => {
            (S::NOT_FOUND, "not_found", "check the name; the server looks it up inside the sandbox")
        }
        RefusalReason::Denied => {
            (S::FORBIDDEN, "denied", "the user inside the sandbox lacks the permission")
        }
        RefusalReason::NoProcess => (
            S::SERVICE_UNAVAILABLE,
            "no_process",
            "end processes of the sandbox, or raise pids or memory_mib",
        ),
        RefusalReason::WrongKind => (
            S::CONFLICT,
            "wrong_kind",
            "name a path of the needed kind; a list of its directory shows the kind of each entry",
        ),
        RefusalReason::TooLarge => (S::PAYLOAD_TOO_LARGE, "too_large", "request less data at once"),
        RefusalReason::NoSpace => (
            S::INSUFFICIENT_STORAGE,
            "no_space",
            "remove files; the disk has no free bytes or no free inodes",
        ),
        RefusalReason::Exists => {
            (S::CONFLICT, "exists", "remove the existing file, or choose another name")
        }
        RefusalReason::NoSuchProcess => {
            (S::NOT_FOUND, "no_such_process", "list them with GET …/processes")
        }
        RefusalReason::Ended => (
            S::CONFLICT,
            "process_ended",
            "get the process to see its state: it has ended, or it was started without stdin",
        ),
        RefusalReason::NotEmpty => {
            (S::CONFLICT, "not_empty", "add ?recursive=1 to remove the directory with its contents")
        }
        RefusalReason::NotListening => (
            S::BAD_GATEWAY,
            "not_listening",
            "start a server on that port inside the sandbox; it may listen on 127.0.0.1 or on all addresses",
        ),
        RefusalReason::NoAnswer => (
            S::GATEWAY_TIMEOUT,
            "port_silent",
            "check whether the program on that port still responds",
        ),
        RefusalReason::ResourcesExhausted => (
            S::SERVICE_UNAVAILABLE,
            "resource_exhausted",
            "file descriptors or memory are exhausted; retry in a moment",
        ),
        RefusalReason::Unsupported => (
            S::NOT_IMPLEMENTED,
            "not_in_image",
            "use an image that contains it, or install it at the path in the message",
        ),
        RefusalReason::Changed => (
            S::PRECONDITION_FAILED,
            "file_changed",
            "read the file again and apply the change to its new content",
        ),
        RefusalReason::Failed => {
            (S::INTERNAL_SERVER_ERROR, "failed", "the message contains the kernel's error")
        }
    }
}

impl ApiError {
    pub(crate) fn from_agent(reason: RefusalReason, message: impl Into<String>) -> Self {
        let (status, code, hint) = classify_agent(reason);
        let message = message.into();
        Self::new(status, code, without_number(&message), hint)
    }
}

/// A message without the number that Rust adds to the text of an error of the kernel.
fn without_number(message: &str) -> &str {
    let Some((text, number)) = message.rsplit_once(" (os error ") else { return message };
    let digits = number.strip_suffix(')').unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text } else { message }
}

impl From<AgentError> for ApiError {
    fn from(error: AgentError) -> Self {
        if matches!(error, AgentError::Destroyed(_)) {
            let hint = "its commands were killed and are not run again; the same request would \
                        create a new sandbox with this id";
            let message = error.to_string();
            return Self::new(StatusCode::CONFLICT, "sandbox_destroyed", message, hint);
        }
        if matches!(error, AgentError::Departed(_)) {
            let hint = "what it has done is in the files of the sandbox, and its processes ended: look \
                        before you repeat it";
            let message = error.to_string();
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "owner_moved", message, hint)
                .retry_after(DEPARTED_RETRY_S);
        }
        if matches!(error, AgentError::Slept(_)) {
            let hint = "its commands were killed and are not run again; the same request would \
                        wake the sandbox";
            return Self::new(StatusCode::CONFLICT, "sandbox_slept", error.to_string(), hint);
        }
        if error == AgentError::SessionEnded {
            let hint = "its commands were killed; create another session to run them again";
            return Self::new(StatusCode::CONFLICT, "session_ended", error.to_string(), hint);
        }
        if error == AgentError::Short {
            let hint =
                "retry in a moment; the operator of the server can raise its limit on open files";
            return Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "resource_exhausted",
                error.to_string(),
                hint,
            );
        }
        if matches!(error, AgentError::TooOld { .. }) {
            let hint = "put the sandbox to sleep and wake it: it then has an agent of this \
                        server's version, with its files and the state of its shells";
            return Self::new(StatusCode::CONFLICT, "agent_too_old", error.to_string(), hint);
        }
        let hint = "get the sandbox's state, then retry";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "agent_lost", error.to_string(), hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_kernel_has_no_number() {
        let of = |message: &str| ApiError::from_agent(RefusalReason::NotFound, message).message;
        assert_eq!(of("a: No such file (os error 2)"), "a: No such file");
        for kept in ["a (os error x)", "(os error 2): no", "plain", "a (os error )"] {
            assert_eq!(of(kept), kept);
        }
    }
}
