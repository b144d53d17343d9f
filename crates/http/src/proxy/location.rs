//! Where the redirects of a program lead.
//!
//! A program that answers below this server's own origin must not lead its client, which sends its key
//! along, to other paths of this server.

use crate::proxy::headers::FORWARDED_HOST;
use crate::proxy::target::{Target, UrlKind};
use axum::http::{HeaderMap, HeaderValue, Uri, header, request};
use std::borrow::Cow;

/// What of a request decides where a redirect leads.
pub(super) struct Asked {
    /// The program's own path.
    uri: Uri,
    /// The host that the client has named.
    host: Option<HeaderValue>,
}

impl Asked {
    /// Of a request as the program receives it.
    pub(super) fn of(parts: &request::Parts) -> Self {
        Self { uri: parts.uri.clone(), host: parts.headers.get(FORWARDED_HOST).cloned() }
    }
}

/// Rewrites a redirect to an address that the program believes to be its own, and removes one that
/// leads elsewhere on this server.
pub(super) fn rewrite(headers: &mut HeaderMap, target: &Target, asked: &Asked) {
    let Some(location) = headers.get(header::LOCATION) else { return };
    let moved = match std::str::from_utf8(location.as_bytes()) {
        Ok(text) => moved(text, target, asked),
        Err(_) if target.entry.own_origin() => Moved::Unchanged,
        Err(_) => Moved::Nowhere,
    };
    match moved {
        Moved::Unchanged => {}
        Moved::Nowhere => drop(headers.remove(header::LOCATION)),
        Moved::To(text) => match HeaderValue::from_bytes(text.as_bytes()) {
            Ok(value) => drop(headers.insert(header::LOCATION, value)),
            Err(_) => drop(headers.remove(header::LOCATION)),
        },
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Moved {
    Unchanged,
    To(String),
    Nowhere,
}

fn moved(location: &str, target: &Target, asked: &Asked) -> Moved {
    let prefix = target.entry.prefix();
    let port = target.port;
    let own = ["localhost", "127.0.0.1", "[::1]"].into_iter().find_map(|host| {
        let rest = location.strip_prefix(&format!("http://{host}:{port}"))?;
        (rest.is_empty() || rest.starts_with(['/', '?', '#'])).then_some(rest)
    });
    let rooted = location.starts_with('/') && !location.starts_with("//");
    let rooted = own.or(rooted.then_some(location));
    if let UrlKind::Host { .. } = target.entry {
        return rooted.map_or(Moved::Unchanged, |rest| Moved::To(below(prefix, rest)));
    }
    if let Some(rest) = rooted {
        return Moved::To(below(prefix, &without_dots(rest)));
    }
    // Clients read a backslash as a slash, and leave tabs and spaces around out.
    let plain: String = location.trim().chars().filter(|c| *c != '\t').collect();
    let plain = plain.replace('\\', "/");
    if let Some(rest) = plain.strip_prefix("//") {
        return if is_here(rest, asked) { Moved::Nowhere } else { Moved::Unchanged };
    }
    let scheme = plain.split(['/', '?', '#']).next().unwrap_or_default().split_once(':');
    if let Some((scheme, _)) = scheme {
        let is_http = ["http", "https"].iter().any(|own| scheme.eq_ignore_ascii_case(own));
        // Without `//` it is a path on the client's own host.
        let rest = plain[scheme.len() + 1..].strip_prefix("//");
        let is_here = rest.is_none_or(|rest| is_here(rest.trim_start_matches('/'), asked));
        return if is_http && is_here { Moved::Nowhere } else { Moved::Unchanged };
    }
    if plain.starts_with('/') {
        return Moved::To(below(prefix, &without_dots(&plain)));
    }
    let path = plain.split(['?', '#']).next().unwrap_or_default();
    if path == location && !path.split('/').any(is_up) || path.is_empty() {
        return Moved::Unchanged;
    }
    let base = asked.uri.path().rsplit_once('/').map_or("", |(base, _)| base);
    Moved::To(below(prefix, &without_dots(&format!("{base}/{plain}"))))
}

/// Whether the rest of an absolute URL, behind its scheme, has the host that the client has named, or
/// none.
fn is_here(rest: &str, asked: &Asked) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let named = asked.host.as_ref().and_then(|host| host.to_str().ok());
    authority.is_empty()
        || named.is_none_or(|named| bare(named).eq_ignore_ascii_case(bare(authority)))
}

/// A host without the port that stands for its scheme.
fn bare(host: &str) -> &str {
    host.strip_suffix(":80").or_else(|| host.strip_suffix(":443")).unwrap_or(host)
}

fn below(prefix: &str, rest: &str) -> String {
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let moved = format!("{prefix}{slash}{rest}");
    // `//x` would be another host.
    if moved.starts_with("//") { format!("/.{moved}") } else { moved }
}

/// Whether a part of a path leads to the directory above it.
fn is_up(part: &str) -> bool {
    part.to_ascii_lowercase().replace("%2e", ".") == ".."
}

/// A path with its query, in which no part leads above the root.
fn without_dots(text: &str) -> Cow<'_, str> {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let (path, rest) = text.split_at(end);
    let path: String = path.chars().filter(|c| *c != '\t').collect();
    let path = path.replace('\\', "/");
    if !path.split('/').any(is_up) {
        return Cow::Owned(format!("{path}{rest}"));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').skip(1) {
        match is_up(part) {
            true => drop(parts.pop()),
            false => parts.push(part),
        }
    }
    Cow::Owned(format!("/{}{rest}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_sandbox::SandboxId;

    fn of(location: &str, path: &str) -> Moved {
        let target = Target {
            sandbox: SandboxId::parse("a").unwrap(),
            port: 8000,
            entry: UrlKind::Path("/v1/p".to_owned()),
            ends: None,
        };
        let host = Some(HeaderValue::from_static("Box.example:7300"));
        moved(location, &target, &Asked { uri: path.parse().unwrap(), host })
    }

    fn to(text: &str) -> Moved {
        Moved::To(text.to_owned())
    }

    #[test]
    fn a_redirect_stays_below_the_port() {
        for (location, path, wanted) in [
            ("next", "/a/b", Moved::Unchanged),
            ("?q", "/a/b", Moved::Unchanged),
            ("/next?a=../b", "/", to("/v1/p/next?a=../b")),
            ("http://localhost:8000/x", "/", to("/v1/p/x")),
            ("../x", "/a/b/c", to("/v1/p/a/x")),
            ("../../../../v1/sandboxes/other", "/a/b", to("/v1/p/v1/sandboxes/other")),
            ("/../../other", "/", to("/v1/p/other")),
            ("/%2E%2e/.%2E/other", "/", to("/v1/p/other")),
            ("..\\..\\other", "/", to("/v1/p/other")),
            ("/..\\other", "/", to("/v1/p/other")),
            (".\t./other", "/", to("/v1/p/other")),
            ("http://localhost:8000/../other", "/", to("/v1/p/other")),
        ] {
            assert_eq!(of(location, path), wanted, "{location}");
        }
    }

    #[test]
    fn a_redirect_to_this_server_is_removed_and_others_stay() {
        for nowhere in [
            "http://box.example:7300/v1/sandboxes/other",
            "https://BOX.example:7300",
            "//box.example:7300/v1",
            "\\\\box.example:7300/v1",
            "http:\\\\box.example:7300/v1",
            "http:/v1/sandboxes/other",
            "http://user@box.example:7300/v1",
            " http://box.example:7300/",
        ] {
            assert_eq!(of(nowhere, "/"), Moved::Nowhere, "{nowhere}");
        }
        for elsewhere in ["https://example.com/x", "//evil.example/x", "mailto:a@example.com"] {
            assert_eq!(of(elsewhere, "/"), Moved::Unchanged, "{elsewhere}");
        }
    }
}
