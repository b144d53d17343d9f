//! Errors of builds as error responses.

use crate::foundation::error::ApiError;
use axum::http::StatusCode as S;
use isolet_build::Error;

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let (status, code, hint) = match error {
            Error::Sandbox(error) => return error.into(),
            Error::BadRecipe { field, reason } => return Self::bad_field(&field, &reason),
            Error::NoBuild(_) => (
                S::NOT_FOUND,
                "no_build",
                "list the builds with GET /v1/images/builds; the server forgets the oldest",
            ),
            Error::Started(_) => {
                (S::CONFLICT, "build_started", "request another build for other steps")
            }
            Error::NoFiles(_) => (
                S::CONFLICT,
                "no_files",
                "upload them, then send the request again; the server removes the oldest uploads",
            ),
            Error::BadFiles(_) => (
                S::UNPROCESSABLE_ENTITY,
                "bad_files",
                "upload a tar archive, plain or compressed with gzip, with relative names",
            ),
            Error::FilesTooLarge { .. } => (
                S::PAYLOAD_TOO_LARGE,
                "too_large",
                "leave files out, for example with .dockerignore",
            ),
            Error::Busy(_) => {
                (S::TOO_MANY_REQUESTS, "too_many_builds", "wait until one has ended, or cancel one")
            }
            Error::Disk(_) => {
                tracing::warn!(error = %message, "cannot store a build");
                let hint = "ask the operator of this server to look at its disk";
                (S::INTERNAL_SERVER_ERROR, "builds_failed", hint)
            }
        };
        Self::new(status, code, message, hint)
    }
}
