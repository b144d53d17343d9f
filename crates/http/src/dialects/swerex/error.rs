//! SWE-ReX's two kinds of errors: exceptions, which the client raises again, and refused requests.

use crate::foundation::error::ApiError;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::{BadInput, Error};
use isolet_wire::response::RefusalReason;
use serde::Serialize;

/// The status of a response that contains an exception.
const EXCEPTION: StatusCode = StatusCode::NETWORK_AUTHENTICATION_REQUIRED;

/// An exception that the client raises.
#[derive(Debug, Serialize)]
pub(crate) struct Exception {
    message: String,
    /// The Python class, with its module.
    class_path: &'static str,
    /// Always empty: it would be of Python code.
    traceback: &'static str,
    extra_info: ExtraInfo,
}

/// What syntax errors have in addition.
#[derive(Debug, Default, Serialize)]
struct ExtraInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    bash_stdout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bash_stderr: Option<String>,
}

/// The body of a response with an exception.
#[derive(Debug, Serialize)]
struct ExceptionBody {
    swerexception: Exception,
}

/// The body of a refused request, as FastAPI writes it.
#[derive(Debug, Serialize)]
struct RefusedBody<'a> {
    detail: &'a str,
}

/// An error of this dialect.
#[derive(Debug)]
pub(crate) enum SwerexError {
    /// What the client raises.
    Raised(Box<Exception>),
    /// A request that the server refuses.
    Refused(ApiError),
}

impl SwerexError {
    pub(super) fn raise(class_path: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let extra_info = ExtraInfo::default();
        Self::Raised(Box::new(Exception { message, class_path, traceback: "", extra_info }))
    }

    pub(super) fn unsupported(message: &str) -> Self {
        Self::raise("swerex.exceptions.SwerexException", message)
    }

    pub(super) fn timeout(message: String) -> Self {
        Self::raise("swerex.exceptions.CommandTimeoutError", message)
    }

    pub(super) fn failed(message: String) -> Self {
        Self::raise("swerex.exceptions.NonZeroExitCodeError", message)
    }

    /// A command that bash cannot parse, and what bash said.
    pub(super) fn syntax(message: String, stdout: String, stderr: String) -> Self {
        let extra_info = ExtraInfo { bash_stdout: Some(stdout), bash_stderr: Some(stderr) };
        let class_path = "swerex.exceptions.BashIncorrectSyntaxError";
        Self::Raised(Box::new(Exception { message, class_path, traceback: "", extra_info }))
    }

    /// An error of a file or program, as Python's own functions raise it.
    pub(super) fn about(name: &str, error: impl Into<FileFailure>) -> Self {
        let FileFailure { reason, error } = error.into();
        let class_path = match reason {
            Some(RefusalReason::NotFound) => "builtins.FileNotFoundError",
            Some(RefusalReason::Denied) => "builtins.PermissionError",
            Some(RefusalReason::WrongKind) => "builtins.IsADirectoryError",
            Some(RefusalReason::Exists) => "builtins.FileExistsError",
            _ => return Self::Refused(error),
        };
        let shown: String = name.chars().take(200).collect();
        Self::raise(class_path, format!("{}: '{shown}'", error.message))
    }
}

/// An error of a file or program, and its reason if the sandbox gave one.
pub(super) struct FileFailure {
    reason: Option<RefusalReason>,
    error: ApiError,
}

impl From<Error> for FileFailure {
    fn from(error: Error) -> Self {
        let reason = match &error {
            Error::Refused { reason, .. } => Some(*reason),
            _ => None,
        };
        Self { reason, error: error.into() }
    }
}

impl From<ApiError> for FileFailure {
    fn from(error: ApiError) -> Self {
        let reason = match error.code {
            "not_found" => Some(RefusalReason::NotFound),
            "denied" => Some(RefusalReason::Denied),
            "wrong_kind" => Some(RefusalReason::WrongKind),
            _ => None,
        };
        Self { reason, error }
    }
}

impl From<ApiError> for SwerexError {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl From<BadInput> for SwerexError {
    fn from(error: BadInput) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Error> for SwerexError {
    fn from(error: Error) -> Self {
        Self::Refused(error.into())
    }
}

impl IntoResponse for SwerexError {
    fn into_response(self) -> Response {
        match self {
            Self::Raised(raised) => {
                (EXCEPTION, Json(ExceptionBody { swerexception: *raised })).into_response()
            }
            Self::Refused(error) => {
                let detail = match error.hint.as_str() {
                    "" => error.message.clone(),
                    hint => format!("{}: {hint}", error.message),
                };
                // Status and headers are those of the native error.
                let (mut parts, _) = error.into_response().into_parts();
                parts.headers.remove(header::CONTENT_LENGTH);
                (parts.status, parts.headers, Json(RefusedBody { detail: &detail })).into_response()
            }
        }
    }
}
