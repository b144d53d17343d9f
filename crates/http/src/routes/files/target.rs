//! The sandbox, session and path in a request to the files API. Paths are bytes.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::input::{PATH_BYTES_MAX, bad_id};
use crate::foundation::query::decode_path;
use axum::extract::{FromRequestParts, OriginalUri};
use axum::http::Uri;
use axum::http::request::Parts;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Sandbox, SandboxId, SessionId};

/// The directory that relative paths begin in.
pub(crate) const HOME: &[u8] = b"/workspace";

/// The sandbox, session and path of a request.
pub(crate) struct FileTarget {
    sandbox: SandboxId,
    session: Option<SessionId>,
    path: Option<Vec<u8>>,
    /// The URI of the request, for links to further pages.
    pub(super) uri: Uri,
}

impl FileTarget {
    /// The id of what the files belong to, as it stands before `/files`.
    pub(super) fn parent(&self) -> &str {
        self.sandbox.as_str()
    }

    /// How a request that only reads opens the sandbox: a failed sandbox can still be read, any
    /// other is created if it does not exist.
    pub(crate) fn reading(&self, app: &App, caller: &Caller) -> CreateMode {
        match app.service.failed(&caller.tenant, &self.sandbox) {
            true => CreateMode::Read,
            false => CreateMode::Create,
        }
    }

    /// Files of a session that was found, when the URI names no sandbox.
    pub(crate) fn in_session(
        uri: Uri,
        sandbox: SandboxId,
        session: SessionId,
    ) -> Result<Self, ApiError> {
        let (_, path) = split(&uri)?;
        Ok(Self { sandbox, session: Some(session), path, uri })
    }

    /// The path in the URI.
    pub(crate) fn path(&self) -> Result<&[u8], ApiError> {
        self.path.as_deref().ok_or_else(|| ApiError::bad_request("path: is needed"))
    }

    fn of(uri: Uri) -> Result<Self, ApiError> {
        let (ids, path) = split(&uri)?;
        let mut ids = ids.split('/').skip(3).step_by(2);
        let mut id = || {
            let bytes = decode_path(ids.next()?)?;
            String::from_utf8(bytes).ok()
        };
        let sandbox = SandboxId::parse(&id().unwrap_or_default()).map_err(bad_id)?;
        let named = uri.path().split('/').nth(4) == Some("sessions");
        let session = named.then(|| SessionId::parse(&id().unwrap_or_default()).map_err(bad_id));
        Ok(Self { sandbox, session: session.transpose()?, path, uri })
    }
}

/// Splits a URI into the part before `/files` and the path after it.
fn split(uri: &Uri) -> Result<(&str, Option<Vec<u8>>), ApiError> {
    let none = || ApiError::bad_request("the path contains a malformed % escape");
    let (before, path) = parted(uri.path()).ok_or_else(none)?;
    let path = path.map(|path| decode_path(path).ok_or_else(none)).transpose()?;
    Ok((before, path.map(|path| checked("path", &path)).transpose()?))
}

/// Words and ids alternate in a URI, and an id may be `files` too, so only words are compared.
fn parted(address: &str) -> Option<(&str, Option<&str>)> {
    let mut from = 0;
    for (nth, part) in address.split('/').enumerate() {
        let end = from + part.len();
        if part == "files" && nth >= 4 && nth % 2 == 0 {
            let path = address.get(end + 1..).filter(|path| !path.is_empty());
            return Some((&address[..from - 1], path));
        }
        from = end + 1;
    }
    None
}

impl<S: Send + Sync> FromRequestParts<S> for FileTarget {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Ok(OriginalUri(uri)) = OriginalUri::from_request_parts(parts, state).await;
        Self::of(uri)
    }
}

/// Whether a request creates the sandbox and the session that it names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CreateMode {
    /// 404 when they do not exist.
    Never,
    /// Like `Never`, but files of a failed sandbox can still be read.
    Read,
    /// Creates the sandbox and the session if they do not exist.
    Create,
}

/// Finds the sandbox of a request, as its session sees it.
pub(crate) async fn open_sandbox(
    app: &App,
    caller: &Caller,
    target: &FileTarget,
    making: CreateMode,
) -> Result<Sandbox, ApiError> {
    let reach = match making {
        CreateMode::Never => Access::MustExist,
        CreateMode::Read => Access::Read,
        CreateMode::Create => Access::CreateIfMissing,
    };
    let sandbox = app.service.reach(&caller.tenant, &target.sandbox, reach).await?;
    let Some(id) = &target.session else { return Ok(sandbox) };
    if matches!(making, CreateMode::Create) {
        sandbox.session_reach(id).await?;
    }
    Ok(sandbox.within(id).await?)
}

/// Checks the length of a path.
pub(crate) fn checked(name: &str, path: &[u8]) -> Result<Vec<u8>, ApiError> {
    if path.is_empty() || path.len() >= PATH_BYTES_MAX || path.contains(&0) {
        return Err(ApiError::bad_field(name, "must be 1 to 4095 bytes without NUL"));
    }
    Ok(path.to_vec())
}

/// Parses permission bits, as `chmod` takes them.
pub(super) fn mode(name: &str, text: &str) -> Result<u32, ApiError> {
    let octal = (1..=5).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let mode = octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    mode.filter(|mode| *mode <= 0o7777).ok_or_else(|| {
        ApiError::bad_field(name, "must be octal digits, \"0\" to \"7777\", such as \"0644\"")
    })
}

/// Makes a path absolute, without a trailing slash.
pub(super) fn whole(path: &[u8]) -> Vec<u8> {
    let mut all = HOME.to_vec();
    if path.starts_with(b"/") {
        all.clear();
    }
    for part in path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
        all.push(b'/');
        all.extend_from_slice(part);
    }
    if all.is_empty() { b"/".to_vec() } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_bytes_from_the_root_on() {
        let cases = [
            ("files/a/b", "/workspace/a/b"),
            ("files//etc/hosts", "/etc/hosts"),
            ("files/%2Fetc/hosts", "/etc/hosts"),
            ("files/files/files", "/workspace/files/files"),
            ("files/.", "/workspace"),
            ("files/a+b%20c/", "/workspace/a+b c"),
            ("files/%2F", "/"),
        ];
        for (rest, expected) in cases {
            for at in [
                "/v1/sandboxes/s",
                "/v1/sandboxes/files",
                "/v1/sandboxes/filesystem",
                "/v1/sandboxes/s/sessions/t",
                "/v1/sandboxes/files/sessions/files-t",
                "/v1/sandboxes/sessions/sessions/files",
            ] {
                let target = FileTarget::of(format!("{at}/{rest}").parse().unwrap());
                let Ok(target) = target else { panic!("{rest} is refused") };
                assert_eq!(whole(target.path().unwrap()), expected.as_bytes(), "{rest}");
                assert_eq!(target.session.is_some(), at.contains("/sessions/"));
            }
        }
        let bytes = FileTarget::of(Uri::from_static("/v1/sandboxes/s/files/%ff%fe")).ok().unwrap();
        assert_eq!(bytes.path().unwrap(), b"\xff\xfe");
        for bad in
            ["s/files/%00", "s/files/%4", "s/files/%zz", "-s/files/a", "s/sessions/-/files/a"]
        {
            assert!(
                FileTarget::of(format!("/v1/sandboxes/{bad}").parse().unwrap()).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_mode_is_octal() {
        assert_eq!(mode("mode", "0644").unwrap(), 0o644);
        assert_eq!(mode("mode", "7").unwrap(), 7);
        for bad in ["", "8", "-1", "+644", "0o644", "10000", "000000644", " 644"] {
            assert!(mode("mode", bad).is_err(), "{bad}");
        }
    }
}
