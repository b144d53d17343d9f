//! The user on whose behalf a request works: `user` or `root`.
//!
//! Both are the same user of the sandbox, which has all rights in it and none outside. They differ in
//! their home directory.

use crate::dialects::e2b::connect::{Code, RpcError};
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_sandbox::absolute_path;

/// Holds the name of the user between [`move_to_header`] and the handler.
const HEADER: &str = "x-e2b-user";
/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// A user of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum User {
    #[default]
    User,
    Root,
}

impl User {
    /// # Errors
    /// For an unknown name.
    pub(super) fn parse(name: &str) -> Result<Self, RpcError> {
        match name {
            "" | "user" => Ok(Self::User),
            "root" => Ok(Self::Root),
            other => {
                let name: String = other.chars().take(64).collect();
                let message = format!("unknown user {name}; a sandbox has user and root");
                Err(RpcError::new(Code::Unauthenticated, message))
            }
        }
    }

    /// The user that the header names; `None` without the header.
    ///
    /// # Errors
    /// For an unknown name.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, RpcError> {
        let name = headers.get(HEADER).map(|name| name.to_str().unwrap_or("?"));
        name.map(Self::parse).transpose()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Root => "root",
        }
    }

    pub(super) fn home(self) -> &'static str {
        match self {
            Self::User => "/home/user",
            Self::Root => "/root",
        }
    }

    /// The absolute path that a path of a request stands for. This only considers its text: the
    /// sandbox resolves symbolic links, and everything happens inside the sandbox.
    ///
    /// # Errors
    /// For a path that is too long, contains NUL, or names the home directory of another user.
    pub(super) fn resolve(self, path: &str) -> Result<String, RpcError> {
        let bad =
            |reason: &str| Err(RpcError::new(Code::InvalidArgument, format!("path: {reason}")));
        if path.len() > PATH_BYTES_MAX || path.contains('\0') {
            return bad("at most 4096 bytes without NUL");
        }
        let path = match path.strip_prefix('~') {
            None => path.to_owned(),
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                format!("{}{rest}", self.home())
            }
            Some(_) => return bad("cannot name the home directory of another user"),
        };
        Ok(absolute_path(self.home(), &path))
    }
}

/// Replaces `Authorization: Basic USER:` by a header of this dialect.
pub(super) fn move_to_header(headers: &mut HeaderMap) {
    headers.remove(HEADER);
    let Some(value) = headers.get(header::AUTHORIZATION) else { return };
    let name = value.to_str().ok().and_then(|value| {
        let (scheme, text) = value.split_once(' ')?;
        let text =
            STANDARD.decode(text.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
        let text = String::from_utf8(text?).ok()?;
        Some(text.split(':').next().unwrap_or_default().to_owned())
    });
    if let Some(Ok(name)) = name.map(HeaderValue::try_from) {
        headers.remove(header::AUTHORIZATION);
        headers.insert(HEADER, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_in_the_home_directory() {
        let user = |path| User::User.resolve(path).unwrap();
        for (path, expected) in [
            ("a", "/home/user/a"),
            ("", "/home/user"),
            ("~", "/home/user"),
            ("~/a", "/home/user/a"),
            ("../a", "/home/a"),
            ("../../../../a", "/a"),
            ("/a/./b//c/../d/", "/a/b/d"),
            ("/", "/"),
        ] {
            assert_eq!(user(path), expected, "{path}");
        }
        assert_eq!(User::Root.resolve("a").unwrap(), "/root/a");
        for bad in ["~other/a", "a\0b", &"x".repeat(5000)] {
            assert!(User::User.resolve(bad).is_err());
        }
    }

    #[test]
    fn basic_authorization_names_the_user() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            move_to_header(&mut headers);
            let named = User::of(&headers).map(Option::unwrap_or_default);
            (named.ok(), headers.contains_key(header::AUTHORIZATION))
        };
        assert_eq!(of("Basic cm9vdDo="), (Some(User::Root), false));
        assert_eq!(of("Basic dXNlcjo="), (Some(User::User), false));
        assert_eq!(of("Basic b3RoZXI6"), (None, false));
        assert_eq!(of("Bearer x"), (Some(User::User), true));
        let mut forged = HeaderMap::new();
        forged.insert(HEADER, "root".parse().unwrap());
        move_to_header(&mut forged);
        assert_eq!(User::of(&forged).ok(), Some(None));
    }
}
