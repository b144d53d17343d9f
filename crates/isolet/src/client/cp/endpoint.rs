//! The two arguments of `isolet cp`.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Where something is copied from or to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Endpoint {
    /// A path on this machine.
    Local(PathBuf),
    /// A path in a sandbox.
    Remote {
        /// The id of the sandbox.
        id: String,
        /// The path as it was typed; empty for `/workspace`.
        path: Vec<u8>,
    },
    /// Standard input or output, as a tar archive.
    Stream,
}

impl Endpoint {
    /// Parses an argument. As with Docker, a word with a colon is in a sandbox, unless it begins with `/` or `.`.
    pub(super) fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        if bytes == b"-" {
            return Ok(Self::Stream);
        }
        if bytes.is_empty() {
            return Err("a path is missing; use . for this directory".to_owned());
        }
        let colon = bytes.iter().position(|byte| *byte == b':');
        let Some(colon) = colon.filter(|_| !matches!(bytes[0], b'/' | b'.')) else {
            return Ok(Self::Local(PathBuf::from(text)));
        };
        let id = &bytes[..colon];
        let path = &bytes[colon + 1..];
        if id.contains(&b'/') {
            return Ok(Self::Local(PathBuf::from(text)));
        }
        let id = String::from_utf8_lossy(id);
        let id = crate::client::id(&id)
            .map_err(|error| format!("{error}; write a local path with a colon as ./NAME"))?;
        if path.contains(&0) {
            return Err("a path cannot contain NUL".to_owned());
        }
        Ok(Self::Remote { id, path: path.to_vec() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Remote { id, path } => {
                write!(f, "{id}:{}", OsString::from_vec(path.clone()).display())
            }
            Self::Stream => f.write_str("-"),
        }
    }
}

/// Parses an argument of the command line.
pub(super) fn endpoint() -> impl TypedValueParser<Value = Endpoint> {
    OsStringValueParser::new().try_map(|text| Endpoint::parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_separates_sandbox_and_path_as_with_docker() {
        let parse = |text: &str| Endpoint::parse(OsStr::new(text)).unwrap();
        let remote =
            |id: &str, path: &str| Endpoint::Remote { id: id.to_owned(), path: path.into() };
        assert_eq!(parse("demo:/a b"), remote("demo", "/a b"));
        assert_eq!(parse("demo:"), remote("demo", ""));
        assert_eq!(parse("demo:a:b\nc"), remote("demo", "a:b\nc"));
        assert_eq!(parse("-"), Endpoint::Stream);
        for local in ["a", "./a:b", "/a:b", "../x:y", "dir/a:b", "--"] {
            assert_eq!(parse(local), Endpoint::Local(local.into()), "{local}");
        }
        for wrong in ["", ":x", "a!:x", "C :x"] {
            assert!(Endpoint::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
