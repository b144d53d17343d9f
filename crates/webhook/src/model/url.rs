//! The URL of a receiver.

use crate::error::Error;
use crate::model::address::AddressRules;
use hyper::Uri;
use hyper::http::uri::Scheme;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The longest URL, in bytes.
const URL_BYTES_MAX: usize = 2048;

/// The URL of a receiver: `http` or `https`, without a user and a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct TargetUrl {
    text: String,
    /// The host without brackets.
    host: String,
    port: u16,
    is_https: bool,
    /// Path and query.
    path: String,
}

impl TargetUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let bad = |reason: &str| Error::BadField { field: "url", reason: reason.to_owned() };
        if text.len() > URL_BYTES_MAX {
            return Err(bad("at most 2048 bytes"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains(['#', '\\', '"']) {
            return Err(bad("visible ASCII characters without a fragment (`#`)"));
        }
        let uri: Uri =
            text.parse().map_err(|_| bad("is no URL such as https://example.com/hook"))?;
        let is_https = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(bad("must begin with https:// or http://")),
        };
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        if authority.contains('@') {
            return Err(bad("must not contain a user or a password"));
        }
        let host = uri.host().unwrap_or_default();
        let port = match authority.strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
            Some(text) => text.parse().ok().filter(|port: &u16| *port > 0),
            None => Some(if is_https { 443 } else { 80 }),
        };
        let port = port.ok_or_else(|| bad("the port must be from 1 to 65535"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.contains('%') {
            return Err(bad("names no host"));
        }
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        Ok(Self {
            text: text.to_owned(),
            host: host.to_owned(),
            port,
            is_https,
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        })
    }

    /// Refuses a URL whose host is an address that is closed. Names are checked when they are resolved.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub(crate) fn check(&self, rules: &AddressRules) -> Result<(), Error> {
        let literal: Option<IpAddr> = self.host.parse().ok();
        match literal.and_then(|address| rules.closed(address)) {
            None => Ok(()),
            Some(reason) => Err(Error::BadField {
                field: "url",
                reason: format!(
                    "the address {} is {reason}, and the server sends to public addresses only; \
                     the operator can allow it with [webhooks] allow_networks",
                    self.host
                ),
            }),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The value of the header `Host`.
    pub(crate) fn host_header(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let default = if self.is_https { 443 } else { 80 };
        if self.port == default { host } else { format!("{host}:{}", self.port) }
    }
}

impl TryFrom<String> for TargetUrl {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<TargetUrl> for String {
    fn from(url: TargetUrl) -> Self {
        url.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_what_a_request_needs() {
        let url = TargetUrl::parse("https://Hooks.example/a?b=c").unwrap();
        assert_eq!((url.host(), url.port(), url.is_https()), ("Hooks.example", 443, true));
        assert_eq!((url.path(), url.host_header().as_str()), ("/a?b=c", "Hooks.example"));
        let url = TargetUrl::parse("http://[::1]:8080").unwrap();
        assert_eq!((url.host(), url.path()), ("::1", "/"));
        assert_eq!(url.host_header(), "[::1]:8080");
        assert_eq!(TargetUrl::parse("https://a?x=1").unwrap().path(), "/?x=1");
    }

    #[test]
    fn other_urls_are_refused() {
        for bad in [
            "",
            "a",
            "/a",
            "ftp://a/",
            "https://",
            "https:///a",
            "https://u:p@a/",
            "https://a/#b",
            "https://a b/",
            "https://a:0/",
            "https://a:99999/",
            "https://a:/",
            "file:///etc/passwd",
            "https://ü/",
            "https://a\r\nX: y/",
        ] {
            assert!(TargetUrl::parse(bad).is_err(), "{bad}");
        }
        assert!(TargetUrl::parse(&format!("https://a/{}", "x".repeat(2048))).is_err());
    }

    #[test]
    fn a_closed_address_is_refused_when_the_url_names_it() {
        let rules = AddressRules::default();
        for bad in [
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://169.254.169.254/latest",
            "http://[::ffff:10.0.0.1]/",
        ] {
            let error = TargetUrl::parse(bad).unwrap().check(&rules).unwrap_err().to_string();
            assert!(error.contains("allow_networks"), "{error}");
        }
        assert!(TargetUrl::parse("https://example.com/").unwrap().check(&rules).is_ok());
    }
}
