//! The error response: a code for programs, a message, and what to do next.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use isolet_sandbox::{Error, LinkError, image};
use isolet_wire::tell::Why;
use serde::Serialize;
use utoipa::ToSchema;

/// The longest message, in bytes, so that a response never repeats a whole request.
const MESSAGE_BYTES_MAX: usize = 400;

/// The body of every answer that is not 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Failure)]
pub(crate) struct ApiError {
    #[serde(skip)]
    status: u16,
    /// For programs; stays the same between versions.
    #[serde(rename = "error")]
    pub(crate) code: &'static str,
    /// For people: what is wrong.
    pub(crate) message: String,
    /// For people: what to do next.
    pub(crate) hint: String,
}

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            message.push('…');
        }
        Self { status: status.as_u16(), code, message, hint: hint.into() }
    }

    /// 400: the request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        let hint = "see /v1/openapi.json for what this call takes";
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message, hint)
    }

    /// 400: a field is invalid.
    pub(crate) fn bad_field(name: &str, reason: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad_field",
            format!("{name}: {reason}"),
            format!("change {name} and send the request again"),
        )
    }

    /// 400: a field that this version does not support.
    pub(crate) fn field_not_implemented(name: &str, reason: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "not_built",
            format!("{name}: {reason}"),
            format!("leave {name} out"),
        )
    }

    /// 501: a route that this version does not support.
    pub(crate) fn not_implemented(reason: &str) -> Self {
        let hint = "this call is known and not built yet";
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_built", reason, hint)
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The code for a refusal by the agent.
pub(crate) fn agent_code(why: Why) -> &'static str {
    classify_agent(why).1
}

/// Status, code and hint for a refusal by the agent.
fn classify_agent(why: Why) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    match why {
        Why::BadAsk => (S::BAD_REQUEST, "bad_request", "check the fields and ids of this message"),
        Why::NoShell => (S::NOT_FOUND, "no_shell", "the shell is gone; open a new one"),
        Why::QueueFull => {
            (S::TOO_MANY_REQUESTS, "queue_full", "wait for a command of this shell to end")
        }
        Why::IdInUse => (S::CONFLICT, "id_in_use", "give every command an id of its own"),
        Why::TooMany => (S::TOO_MANY_REQUESTS, "too_many", "end a shell or a program first"),
        Why::BadCwd => (S::BAD_REQUEST, "bad_cwd", "name a directory that exists in the sandbox"),
        Why::NotFound => {
            (S::NOT_FOUND, "not_found", "check the name; it is looked up inside the sandbox")
        }
        Why::Denied => (S::FORBIDDEN, "denied", "the sandbox's user may not do this"),
        Why::NoProcess => (
            S::SERVICE_UNAVAILABLE,
            "no_process",
            "end processes of the sandbox, or raise pids or memory_mib",
        ),
        Why::WrongKind => (
            S::CONFLICT,
            "wrong_kind",
            "a file was named where a directory is needed, or the reverse",
        ),
        Why::TooLarge => (S::PAYLOAD_TOO_LARGE, "too_large", "ask for less at once"),
        Why::NoSpace => (
            S::INSUFFICIENT_STORAGE,
            "no_space",
            "remove files; the disk is full, by bytes or by inodes",
        ),
        Why::Exists => (S::CONFLICT, "exists", "remove what is there, or choose another name"),
        Why::NoSuchProcess => (S::NOT_FOUND, "no_such_process", "list them with GET …/processes"),
        Why::Ended => (
            S::CONFLICT,
            "process_ended",
            "ask for the process: it has ended, or was started without stdin",
        ),
        Why::NotEmpty => (S::CONFLICT, "not_empty", "add ?recursive=1 to remove all it holds"),
        Why::NotListening => (
            S::BAD_GATEWAY,
            "not_listening",
            "start a server on that port; it may listen on 127.0.0.1 or on all addresses",
        ),
        Why::NoAnswer => {
            (S::GATEWAY_TIMEOUT, "port_silent", "look whether the program on that port still works")
        }
        Why::Short => (
            S::SERVICE_UNAVAILABLE,
            "short",
            "descriptors or memory are short at this moment; try again",
        ),
        Why::Unable => (
            S::NOT_IMPLEMENTED,
            "not_in_image",
            "use an image that has it, or put it where the message says",
        ),
        Why::Failed => {
            (S::INTERNAL_SERVER_ERROR, "failed", "the message says what the kernel answered")
        }
    }
}

impl ApiError {
    pub(crate) fn from_agent(why: Why, message: impl Into<String>) -> Self {
        let (status, code, hint) = classify_agent(why);
        Self::new(status, code, message, hint)
    }
}

impl From<LinkError> for ApiError {
    fn from(error: LinkError) -> Self {
        if matches!(error, LinkError::Destroyed(_)) {
            let hint = "what ran in it was ended and is not run again; the same request would \
                        create a new sandbox with this id";
            let message = error.to_string();
            return Self::new(StatusCode::CONFLICT, "sandbox_destroyed", message, hint);
        }
        if error == LinkError::SessionEnded {
            let hint = "what ran in it was ended; make another session to run it again";
            return Self::new(StatusCode::CONFLICT, "session_ended", error.to_string(), hint);
        }
        if error == LinkError::Short {
            let hint =
                "try again in a moment; whoever runs the server may raise its limit of open files";
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "short", error.to_string(), hint);
        }
        let hint = "ask for the sandbox's state, then try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "agent_lost", error.to_string(), hint)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Refused { why, .. } => Self::from_agent(why, message),
            Error::Link(error) => error.into(),
            Error::BadField { field, reason } => Self::bad_field(field, &reason),
            other => {
                let (status, code, hint) = classify(&other);
                if status.is_server_error() {
                    tracing::warn!(code, error = %message, "call failed");
                }
                Self::new(status, code, message, hint)
            }
        }
    }
}

/// Status, code and hint for the other errors of the service.
fn classify(error: &Error) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    match error {
        Error::NoSandbox(_) => (S::NOT_FOUND, "no_sandbox", "create it with POST /v1/sandboxes"),
        Error::SandboxExists(_) => {
            (S::CONFLICT, "sandbox_exists", "use it, delete it, or choose another id")
        }
        Error::Failed { .. } => (
            S::CONFLICT,
            "sandbox_failed",
            "its files can be read; recover it with POST /v1/sandboxes/{id}/recover where it is persistent, or delete it",
        ),
        Error::Unreachable(_) => (
            S::SERVICE_UNAVAILABLE,
            "sandbox_unreachable",
            "it is asked again and again: wait, or delete it",
        ),
        Error::Sleeping(_) => {
            (S::CONFLICT, "sandbox_sleeping", "run a command in it: that wakes it")
        }
        Error::InUse(_) => (
            S::CONFLICT,
            "sandbox_in_use",
            "let its commands end and its clients go, then try again",
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
            "put the directory back in a session that sees all, or delete this session",
        ),
        Error::DefaultSession => (
            S::CONFLICT,
            "default_session",
            "delete the sandbox instead: DELETE /v1/sandboxes/{id}",
        ),
        Error::Lacks { .. } => (
            S::BAD_REQUEST,
            "not_here",
            "leave the field out, or have whoever runs this server provide what is missing",
        ),
        Error::NoWay(_) => (
            S::NOT_IMPLEMENTED,
            "no_network",
            "have whoever runs this server provide what is missing; network \"none\" can be had",
        ),
        Error::WayLost(_) => {
            (S::SERVICE_UNAVAILABLE, "network_lost", "it is started anew; try again in a moment")
        }
        Error::NoSpace { .. } | Error::DiskFull { .. } => (
            S::INSUFFICIENT_STORAGE,
            "no_space",
            "delete files or sandboxes, or free space on the server's disk; reads and deletes go on",
        ),
        Error::Image(error) => classify_image(error),
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
        Error::NotExposed { .. } => {
            (S::NOT_FOUND, "no_link", "list the ports that links lead to with GET …/links")
        }
        Error::TooManyExposed { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_links", "withdraw a port first: DELETE …/links/{port}")
        }
        Error::ServerFull(_) => {
            (S::SERVICE_UNAVAILABLE, "server_full", "delete a sandbox, or use another server")
        }
        Error::OtherBody => {
            (S::UNPROCESSABLE_ENTITY, "other_body", "use a new Idempotency-Key for another request")
        }
        Error::Missing(_) => (
            S::SERVICE_UNAVAILABLE,
            "cannot_make_sandboxes",
            "whoever runs this server must provide what is missing",
        ),
        Error::Launch { .. } => (
            S::INTERNAL_SERVER_ERROR,
            "launch_failed",
            "nothing is left of it; try again, then look at the server's log",
        ),
        Error::TooLate(_) => {
            (S::GATEWAY_TIMEOUT, "too_late", "it goes on being tried; ask again in a moment")
        }
        Error::StoreFull => (
            S::INSUFFICIENT_STORAGE,
            "store_full",
            "free space on the disk of the data directory; nothing was changed",
        ),
        Error::StoreBroken => (
            S::SERVICE_UNAVAILABLE,
            "store_broken",
            "look at the disk of the data directory, then start the server anew; sandboxes live on",
        ),
        Error::Store(_) => {
            (S::SERVICE_UNAVAILABLE, "store", "nothing was changed; look at the server's log")
        }
        Error::Stopping => {
            (S::SERVICE_UNAVAILABLE, "stopping", "come back in a moment; sandboxes stay")
        }
        _ => {
            (S::INTERNAL_SERVER_ERROR, "fault", "only this call suffers; look at the server's log")
        }
    }
}

/// Status, code and hint for errors of images. A registry's refusals are never 401, which would
/// make a client suspect its own key.
fn classify_image(error: &image::Error) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    use image::Error as E;
    match error {
        E::Reference(_) => (
            S::BAD_REQUEST,
            "bad_image",
            "use \"host\", or a name as docker has it: registry/path:tag",
        ),
        E::NotHere(_) => (
            S::NOT_FOUND,
            "no_image",
            "pull it with POST /v1/images/pull, import it, or use \"host\"",
        ),
        E::NotFound { .. } => {
            (S::NOT_FOUND, "no_image", "check name and tag; \"host\" needs no registry")
        }
        E::Denied { .. } => (
            S::FORBIDDEN,
            "image_denied",
            "check the name; whoever runs this server gives it credentials for the registry",
        ),
        E::NotAsked { .. } => (
            S::FORBIDDEN,
            "registry_not_asked",
            "whoever runs this server names the registry in [images] registries",
        ),
        E::Registry { .. } => {
            (S::BAD_GATEWAY, "registry_failed", "try again; layers that came are kept")
        }
        E::TooLate { .. } => {
            (S::GATEWAY_TIMEOUT, "registry_slow", "try again: layers that came are kept")
        }
        E::TooLarge { .. } => (
            S::PAYLOAD_TOO_LARGE,
            "image_too_large",
            "use a smaller image, or have the limits in [images] raised",
        ),
        E::Busy { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_imports", "wait until one has ended, then try again")
        }
        E::Bad(_) => (
            S::UNPROCESSABLE_ENTITY,
            "bad_image",
            "the message says what of the image or its archive is to be changed",
        ),
        E::Unnamed => (
            S::UNPROCESSABLE_ENTITY,
            "no_name",
            "say which name it gets: `isolet image import --name NAME`, or ?name=NAME",
        ),
        E::Lacks(_) => (
            S::NOT_IMPLEMENTED,
            "image_needs_more",
            "whoever runs this server must provide what is missing",
        ),
        E::InUse(_) => {
            (S::CONFLICT, "image_in_use", "delete the sandboxes that are made of it first")
        }
        E::LayerGone { .. } => (
            S::CONFLICT,
            "image_gone",
            "pull the image again by its digest (image_resolved), or import it again, then go on; \
             deleting works",
        ),
        E::ImportGone { .. } => {
            (S::CONFLICT, "image_gone", "import the image again under this name, then go on")
        }
        E::Full => (
            S::INSUFFICIENT_STORAGE,
            "no_space",
            "delete images or sandboxes, or free space on the server's disk",
        ),
        E::Disk(_) => (S::INTERNAL_SERVER_ERROR, "images_failed", "look at the server's log"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_sandbox::SandboxId;

    #[test]
    fn every_cause_has_its_status_and_code() {
        let id = SandboxId::parse("a").unwrap();
        let cases = [
            (Error::NoSandbox(id.clone()), 404, "no_sandbox"),
            (Error::SandboxExists(id.clone()), 409, "sandbox_exists"),
            (Error::Unreachable(id.clone()), 503, "sandbox_unreachable"),
            (Error::Failed { id: id.clone(), cause: "agent killed".into() }, 409, "sandbox_failed"),
            (Error::DefaultSession, 409, "default_session"),
            (Error::OtherBody, 422, "other_body"),
            (Error::StoreFull, 507, "store_full"),
            (Error::StoreBroken, 503, "store_broken"),
            (Error::NoSpace { free_mib: 1, floor_mib: 2 }, 507, "no_space"),
            (Error::Lacks { field: "disk_mib", reason: "no ext4".into() }, 400, "not_here"),
            (Error::NoWay("no nft".into()), 501, "no_network"),
            (Error::WayLost("ended".into()), 503, "network_lost"),
            (Error::Stopping, 503, "stopping"),
            (Error::TooLate("delete"), 504, "too_late"),
            (Error::Refused { why: Why::QueueFull, message: "full".into() }, 429, "queue_full"),
            (Error::BadField { field: "pids", reason: "at least 1".into() }, 400, "bad_field"),
            (Error::Link(LinkError::Silent), 503, "agent_lost"),
            (Error::Link(LinkError::Short), 503, "short"),
            (Error::Link(LinkError::SessionEnded), 409, "session_ended"),
            (Error::Link(LinkError::Destroyed(id)), 409, "sandbox_destroyed"),
        ];
        for (error, status, code) in cases {
            let failure = ApiError::from(error);
            assert_eq!((failure.status().as_u16(), failure.code), (status, code));
            assert!(!failure.message.is_empty() && !failure.hint.is_empty());
        }
    }

    #[test]
    fn a_message_gives_nothing_long_back() {
        let failure = ApiError::bad_request("ü".repeat(100_000));
        assert!(failure.message.len() <= MESSAGE_BYTES_MAX + 3);
    }
}
