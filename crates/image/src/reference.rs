//! Image references: `[registry/]path[:tag][@sha256:…]`, completed as Docker completes them.
//!
//! The parser is not that of `oci-spec` (0.10), which
//! - answers "invalid reference format" to nearly everything, where a client must hear which part is
//!   wrong;
//! - refuses registries with an IPv6 address, and accepts ports such as 0 and 99999;
//! - accepts letters of any alphabet in a tag, a path with capital letters (`A/b`), and digests with
//!   capital digits or of other algorithms than SHA-256;
//! - keeps the case of a registry's name, and a tag beside a digest. Names are recorded in a form that
//!   has neither.
//!
//! This one accepts separators in a path that no registry does, such as `a_.b`. A test compares both.

use std::fmt;

/// The registry of a name without one.
const DOCKER: &str = "docker.io";
/// The host that serves [`DOCKER`].
const DOCKER_HOST: &str = "registry-1.docker.io";
/// Maximum length of a reference, in bytes.
const BYTES_MAX: usize = 512;
/// Maximum length of a tag, in bytes, as in the OCI distribution specification.
const TAG_BYTES_MAX: usize = 128;

/// A text that is not a valid image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid image reference: {reason}")]
pub struct BadReference {
    text: String,
    reason: &'static str,
}

/// Which image of a repository is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Version {
    Tag(String),
    Digest(Digest),
}

/// A SHA-256 digest, held as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

/// A complete reference: registry, repository, and a tag or digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    registry: String,
    path: String,
    version: Version,
}

impl Digest {
    /// Parses `sha256:` and 64 lower-case digits. Returns `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let right = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        right.then(|| Self(hex.to_owned()))
    }

    /// Computes the digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self::from_hash(sha2::Sha256::digest(bytes).as_slice())
    }

    pub(crate) fn from_hash(hash: &[u8]) -> Self {
        Self(hex::encode(hash))
    }

    /// The 64 digits without `sha256:`.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl Reference {
    /// Parses a reference, and fills in the default registry, `library/` and `latest`. A tag beside a
    /// digest is ignored.
    ///
    /// # Errors
    /// [`BadReference`] says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, BadReference> {
        let bad = |reason| BadReference { text: text.chars().take(200).collect(), reason };
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(bad("it must have 1 to 512 bytes"));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                let digest = Digest::parse(digest);
                (
                    name,
                    Some(digest.ok_or_else(|| bad("a digest is sha256: and 64 digits of 0-9a-f"))?),
                )
            }
            None => (text, None),
        };
        let colon = name.rfind(':').filter(|at| !name[*at..].contains('/'));
        let (name, tag) = match colon {
            Some(at) => (&name[..at], Some(&name[at + 1..])),
            None => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(bad(
                "a tag has 1 to 128 characters of A-Za-z0-9._- and does not begin with . or -",
            ));
        }
        let (registry, path) = match name.split_once('/') {
            Some((first, rest)) if is_registry(first) => (first, rest),
            _ => (DOCKER, name),
        };
        let registry = if registry == "index.docker.io" { DOCKER } else { registry };
        if !is_host(registry) {
            return Err(bad("a registry is a host name, optionally with a port"));
        }
        let path = match registry {
            DOCKER if !path.contains('/') => format!("library/{path}"),
            _ => path.to_owned(),
        };
        if !path.split('/').all(is_part) {
            return Err(bad(
                "a path consists of a-z0-9, with . _ - between them, separated by slashes",
            ));
        }
        let version = match digest {
            Some(digest) => Version::Digest(digest),
            None => Version::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self { registry: registry.to_ascii_lowercase(), path, version })
    }

    /// The registry as users write it: `docker.io`, `ghcr.io`, `localhost:5000`.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The host, and port if any, that serves the registry.
    #[must_use]
    pub fn host(&self) -> &str {
        if self.registry == DOCKER { DOCKER_HOST } else { &self.registry }
    }

    /// The repository's path within the registry.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The digest, unless the reference has a tag.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }

    /// The last part of the URL of the manifest.
    #[must_use]
    pub(crate) fn tag_or_digest(&self) -> String {
        match &self.version {
            Version::Tag(tag) => tag.clone(),
            Version::Digest(digest) => digest.to_string(),
        }
    }

    /// A reference to this digest in the same repository.
    #[must_use]
    pub fn at(&self, digest: &Digest) -> Self {
        Self { version: Version::Digest(digest.clone()), ..self.clone() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.digest().is_some() { '@' } else { ':' };
        write!(f, "{}/{}{between}{}", self.registry, self.path, self.tag_or_digest())
    }
}

fn is_registry(text: &str) -> bool {
    text == "localhost" || text.contains(['.', ':'])
}

/// A host name, an IPv4 address or `[IPv6]`, with or without a port.
pub(crate) fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            ("v6", if rest.is_empty() { None } else { rest.strip_prefix(':').or(Some("x")) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let label = |label: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(plain)
    };
    host.len() <= 253
        && host.split('.').all(label)
        && port.is_none_or(|port| port.len() <= 5 && port.parse::<u16>().is_ok_and(|p| p > 0))
}

fn is_tag(tag: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=TAG_BYTES_MAX).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.bytes().all(plain)
}

fn is_part(part: &str) -> bool {
    let inner = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let ends = |b: Option<u8>| b.is_some_and(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9'));
    ends(part.bytes().next())
        && ends(part.bytes().last())
        && part.bytes().all(inner)
        && !part.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_completed() {
        let hex = "a".repeat(64);
        for (text, whole) in [
            ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
            ("debian", "docker.io/library/debian:latest"),
            ("a/b", "docker.io/a/b:latest"),
            ("index.docker.io/a/b", "docker.io/a/b:latest"),
            ("ghcr.io/a/b/c:v1", "ghcr.io/a/b/c:v1"),
            ("localhost/x", "localhost/x:latest"),
            ("127.0.0.1:5000/x__y-z.w:t", "127.0.0.1:5000/x__y-z.w:t"),
            ("[::1]:5000/x", "[::1]:5000/x:latest"),
        ] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), whole);
        }
        let pinned = Reference::parse(&format!("debian:12@sha256:{hex}")).unwrap();
        assert_eq!(pinned.to_string(), format!("docker.io/library/debian@sha256:{hex}"));
        assert_eq!(pinned.host(), "registry-1.docker.io");
    }

    #[test]
    fn invalid_references_are_refused() {
        let long = "a".repeat(600);
        let short = "a".repeat(63);
        for text in [
            "",
            "A",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:.x",
            "../x",
            "a/../b",
            "a b",
            "a@sha256:12",
            "x.y:99999/a",
            "x.y:0/a",
            "http://x/y",
            "a\nb",
            "x_y.z/a",
            "[::g]:1/a",
            "a:t:u",
            "-a",
            "a/-b",
            &long,
            &format!("a@sha256:{short}A"),
            "a?b",
            "a#b",
            "u@x.y/a",
            "%2e/a",
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }
    /// How `oci-spec` completes a reference.
    fn of_oci_spec(text: &str) -> Option<String> {
        oci_spec::distribution::Reference::try_from(text).ok().map(|found| found.whole())
    }

    #[test]
    fn oci_spec_agrees_on_usual_references() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for text in [
            "debian",
            "python:3.12-slim",
            "a/b",
            "index.docker.io/a/b",
            "docker.io/debian",
            "ghcr.io/a/b/c:v1",
            "localhost/x",
            "localhost:5000/x:y",
            "127.0.0.1:5000/x__y-z.w:t",
            "test.com:5000",
            "foo/foo_bar.com:8080",
            &format!("debian@{digest}"),
            &format!("x.y:5000/a@{digest}"),
        ] {
            let found = Reference::parse(text).ok().map(|found| found.to_string());
            assert_eq!(found, of_oci_spec(text), "{text}");
            assert!(found.is_some(), "{text}");
        }
        for text in ["", "a//b", "/a", "a/", "a:", "a b", "../x", "a@sha256:12", "-a", "a?b", "A"] {
            assert!(of_oci_spec(text).is_none() && Reference::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn oci_spec_differs_where_the_head_of_this_module_says_so() {
        let digits = "a".repeat(64);
        for text in [
            "a/b:\u{fc}",
            "A/b",
            "x.y:0/a",
            "x.y:99999/a",
            &format!("a@sha256:{}", "A".repeat(64)),
            &format!("a@sha512:{digits}{digits}"),
        ] {
            assert!(of_oci_spec(text).is_some() && Reference::parse(text).is_err(), "{text}");
        }
        for text in ["[::1]:5000/x", "a_.b"] {
            assert!(of_oci_spec(text).is_none() && Reference::parse(text).is_ok(), "{text}");
        }
        for text in ["GHCR.io/a:t", &format!("ghcr.io/a:t@sha256:{digits}")] {
            assert_ne!(of_oci_spec(text).unwrap(), Reference::parse(text).unwrap().to_string());
        }
    }
}
