//! Finds the requests that are for the data plane of a sandbox, and gives them a path of their own.
//!
//! The headers `E2b-Sandbox-Id` and `E2b-Sandbox-Port`, or a host name `PORT-ID.DOMAIN`, decide, never
//! the path alone.

use crate::dialects::e2b::user;
use crate::foundation::error::ApiError;
use crate::proxy::host_name::TENANT_MARK;
use crate::proxy::target::parse_port;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Request, StatusCode, Uri};
use isolet_sandbox::SandboxId;

/// Precedes the id of the sandbox in the path of a request to its data plane.
pub(crate) const PREFIX: &str = "/v1/e2b/";
/// The port that stands for commands and files.
pub(crate) const DAEMON_PORT: u16 = 49983;
/// The port that stands for the code interpreter.
pub(crate) const INTERPRETER_PORT: u16 = 49999;

const ID_HEADER: &str = "e2b-sandbox-id";
const PORT_HEADER: &str = "e2b-sandbox-port";

/// The data plane that a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataPlane {
    pub(crate) sandbox: SandboxId,
    port: u16,
    /// Whether a host name of its own says so.
    pub(crate) by_host: bool,
}

impl DataPlane {
    /// The data plane that a request is for; `None` for any other request. `label` is the first part
    /// of a host name directly below the domain for ports.
    ///
    /// # Errors
    /// 400 for malformed headers, and for a port that a host name or a link leads to instead.
    pub(crate) fn of(label: Option<&str>, headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        if let Some(id) = single(headers, ID_HEADER)? {
            let sandbox = SandboxId::parse(id)
                .map_err(|_| ApiError::bad_field("E2b-Sandbox-Id", "is not the id of a sandbox"))?;
            let port = match single(headers, PORT_HEADER)? {
                None => Some(DAEMON_PORT),
                Some(port) => parse_port(port).ok().filter(is_own_port),
            };
            let port = port.ok_or_else(|| {
                let reason = "must be 49983 or 49999; use the host name of other ports";
                ApiError::bad_field("E2b-Sandbox-Port", reason)
            })?;
            return Ok(Some(Self { sandbox, port, by_host: false }));
        }
        Ok(label.and_then(Self::of_label))
    }

    fn of_label(label: &str) -> Option<Self> {
        let (port, id) = label.split_once('-')?;
        let port = parse_port(port).ok().filter(is_own_port)?;
        if id.contains(TENANT_MARK) {
            // The host name of a program: the access token says which tenant a data plane belongs to.
            return None;
        }
        // Host names contain no underscores.
        let id = id.strip_prefix("sb-").map_or_else(|| id.to_owned(), |rest| format!("sb_{rest}"));
        Some(Self { sandbox: SandboxId::parse(&id).ok()?, port, by_host: true })
    }

    /// Gives a request its path below [`PREFIX`], and moves the name of the user to a header that
    /// other nodes receive too.
    ///
    /// # Errors
    /// 400 when the path is too long.
    pub(crate) fn rewrite<B>(&self, request: &mut Request<B>) -> Result<(), ApiError> {
        let uri = request.uri();
        let part = if self.port == INTERPRETER_PORT { "/interpreter" } else { "" };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let text = format!("{PREFIX}{}{part}{}{query}", self.sandbox, uri.path());
        let path = PathAndQuery::try_from(text)
            .map_err(|_| ApiError::bad_request("the path is malformed or too long"))?;
        *request.uri_mut() = Uri::from(path);
        user::move_to_header(request.headers_mut());
        Ok(())
    }
}

/// 502 in the words by which clients recognise that the sandbox does not run any more.
pub(crate) fn gone(sandbox: &SandboxId) -> ApiError {
    let message = format!("The sandbox {sandbox} was not found");
    let hint = "it has ended or is paused, or the key of its access token was revoked";
    ApiError::new(StatusCode::BAD_GATEWAY, "no_sandbox", message, hint)
}

/// The errors of calls in a sandbox that does not run.
const NOT_RUNNING: [&str; 5] =
    ["sandbox_paused", "sandbox_failed", "sandbox_destroyed", "sandbox_slept", "no_sandbox"];

/// The answer of the data plane to a failed call outside of the Connect protocol: [`gone`] if the
/// sandbox does not run, and otherwise the failure itself.
pub(super) fn or_gone(failure: ApiError, sandbox: &SandboxId) -> ApiError {
    if NOT_RUNNING.contains(&failure.code) { gone(sandbox) } else { failure }
}

fn is_own_port(port: &u16) -> bool {
    matches!(*port, DAEMON_PORT | INTERPRETER_PORT)
}

/// The value of a header that may occur once.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut all = headers.get_all(name).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let value = value.to_str().ok().filter(|_| all.next().is_none());
    value
        .map(Some)
        .ok_or_else(|| ApiError::bad_field(name, "must be one header with visible ASCII"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn of(id: &str, port: Option<&str>) -> Result<Option<DataPlane>, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(ID_HEADER, id.parse().unwrap());
        if let Some(port) = port {
            headers.insert(PORT_HEADER, port.parse().unwrap());
        }
        DataPlane::of(None, &headers)
    }

    #[test]
    fn headers_or_a_host_name_select_the_data_plane() {
        assert_eq!(DataPlane::of(None, &HeaderMap::new()).unwrap(), None);
        let plane = of("abc", Some("49983")).unwrap().unwrap();
        assert_eq!((plane.sandbox.as_str(), plane.port, plane.by_host), ("abc", 49983, false));
        assert_eq!(of("abc", None).unwrap().unwrap().port, 49983);
        for (id, port) in [
            ("a/b", "49983"),
            ("", "49983"),
            ("a", "80"),
            ("a", "x"),
            ("a", ""),
            ("a", "+49983"),
            ("a", "049983"),
        ] {
            assert!(of(id, Some(port)).is_err(), "{id} {port}");
        }
        let mut twice = HeaderMap::new();
        twice.append(ID_HEADER, HeaderValue::from_static("a"));
        twice.append(ID_HEADER, HeaderValue::from_static("b"));
        assert!(DataPlane::of(None, &twice).is_err());
        let label = |label| DataPlane::of(Some(label), &HeaderMap::new()).unwrap();
        assert_eq!(label("49983-abc").unwrap().sandbox.as_str(), "abc");
        assert_eq!(label("49999-abc").unwrap().port, 49999);
        assert_eq!(label("49983-sb-abc").unwrap().sandbox.as_str(), "sb_abc");
        for other in [
            "3000-abc",
            "abc",
            "49983-",
            "x-abc",
            "+49983-abc",
            "049983-abc",
            "49999-abc--t0123456789abcdef",
            "49983-abc--tx",
        ] {
            assert_eq!(label(other), None, "{other}");
        }
    }

    #[test]
    fn a_sandbox_that_does_not_run_is_gone_for_its_data_plane() {
        let id = SandboxId::parse("abc").unwrap();
        let failure = |code| ApiError::new(StatusCode::CONFLICT, code, "no", "");
        for code in NOT_RUNNING {
            let answer = or_gone(failure(code), &id);
            assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
            assert!(answer.message.contains("was not found"), "{}", answer.message);
        }
        assert_eq!(or_gone(failure("wrong_kind"), &id), failure("wrong_kind"));
    }

    #[test]
    fn a_path_is_below_that_of_its_sandbox() {
        let plane = of("abc", Some("49999")).unwrap().unwrap();
        let mut request = Request::builder().uri("/execute?a=%2F").body(()).unwrap();
        plane.rewrite(&mut request).unwrap();
        assert_eq!(request.uri(), "/v1/e2b/abc/interpreter/execute?a=%2F");
    }
}
