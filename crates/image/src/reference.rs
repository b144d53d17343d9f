//! The name of an image: `[registry/]path[:tag][@sha256:…]`, completed as Docker does it.

use std::fmt;

/// The registry of a name without one.
const DOCKER: &str = "docker.io";
/// Where that one answers.
const DOCKER_HOST: &str = "registry-1.docker.io";
/// A longer name is none.
const BYTES_MAX: usize = 512;
/// As registries bound a tag.
const TAG_BYTES_MAX: usize = 128;

/// A text that names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} names no image: {reason}")]
pub struct BadReference {
    text: String,
    reason: &'static str,
}

/// What is asked for of a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Version {
    Tag(String),
    Digest(Digest),
}

/// A SHA-256 digest, as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

/// A whole reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    registry: String,
    path: String,
    version: Version,
}

impl Digest {
    /// Of `sha256:` and 64 digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let right = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        right.then(|| Self(hex.to_owned()))
    }

    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self::from_hash(sha2::Sha256::digest(bytes).as_slice())
    }

    pub(crate) fn from_hash(hash: &[u8]) -> Self {
        Self(hex::encode(hash))
    }

    /// The 64 digits alone.
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
    /// Reads a name and fills in what it leaves out. A digest goes before a tag beside it.
    ///
    /// # Errors
    /// [`BadReference`] with what is wrong.
    pub fn parse(text: &str) -> Result<Self, BadReference> {
        let bad = |reason| BadReference { text: text.chars().take(200).collect(), reason };
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(bad("1 to 512 characters"));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                let digest = Digest::parse(digest);
                (name, Some(digest.ok_or_else(|| bad("a digest is sha256: and 64 digits 0-9a-f"))?))
            }
            None => (text, None),
        };
        let colon = name.rfind(':').filter(|at| !name[*at..].contains('/'));
        let (name, tag) = match colon {
            Some(at) => (&name[..at], Some(&name[at + 1..])),
            None => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(bad("a tag is 1 to 128 of A-Za-z0-9._- and begins with none of .-"));
        }
        let (registry, path) = match name.split_once('/') {
            Some((first, rest)) if is_registry(first) => (first, rest),
            _ => (DOCKER, name),
        };
        let registry = if registry == "index.docker.io" { DOCKER } else { registry };
        if !is_host(registry) {
            return Err(bad("a registry is a host name with or without a port"));
        }
        let path = match registry {
            DOCKER if !path.contains('/') => format!("library/{path}"),
            _ => path.to_owned(),
        };
        if !path.split('/').all(is_part) {
            return Err(bad("a path is parts of a-z0-9 with . _ - between, and slashes"));
        }
        let version = match digest {
            Some(digest) => Version::Digest(digest),
            None => Version::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self { registry: registry.to_ascii_lowercase(), path, version })
    }

    /// The registry as it is named: `docker.io`, `ghcr.io`, `localhost:5000`.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Host and port that answer for it.
    #[must_use]
    pub fn host(&self) -> &str {
        if self.registry == DOCKER { DOCKER_HOST } else { &self.registry }
    }

    /// The repository within it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The digest that it insists on.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }

    /// Tag or digest, as a registry is asked.
    #[must_use]
    pub(crate) fn tag_or_digest(&self) -> String {
        match &self.version {
            Version::Tag(tag) => tag.clone(),
            Version::Digest(digest) => digest.to_string(),
        }
    }

    /// The same repository at a digest.
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
    fn a_name_is_made_whole() {
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
    fn what_names_no_image_is_refused() {
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
}
