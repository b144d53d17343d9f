//! Credentials of a sandbox, which are injected into its requests here and never enter the sandbox.

pub(crate) mod authority;
pub(crate) mod upstream_tls;

use crate::header_size::{HEAD_BYTES_MAX, header_bytes};
use authority::CertificateAuthority;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use isolet_wire::credential::headers::{HeaderRole, role};
use isolet_wire::credential::{CREDENTIALS_BYTES_MAX, CREDENTIALS_MAX, Credential};
use std::sync::Arc;

/// The longest headers of a request with its credentials: the longest head that is read, with every
/// credential of a sandbox once. Longer ones repeat a placeholder, of which 4 bytes may stand for
/// 8 KiB.
pub(crate) const HEADERS_BYTES_MAX: usize = HEAD_BYTES_MAX + CREDENTIALS_BYTES_MAX;

/// The headers would be longer than [`HEADERS_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the headers are longer than {HEADERS_BYTES_MAX} bytes with their credentials")]
pub(crate) struct HeadersTooLong;

/// The credentials of one sandbox.
#[derive(Debug, Default, Clone)]
pub(crate) struct InjectedCredentials {
    credentials: Vec<Credential>,
    /// Signs the certificates with which the proxy terminates TLS for the hosts.
    pub(crate) authority: Option<Arc<CertificateAuthority>>,
}

impl InjectedCredentials {
    pub(crate) fn new(
        mut credentials: Vec<Credential>,
        authority: Option<Arc<CertificateAuthority>>,
    ) -> Self {
        credentials.truncate(CREDENTIALS_MAX);
        Self { credentials, authority }
    }

    /// Whether a credential applies to requests to this host.
    pub(crate) fn apply_to(&self, host: &str, port: u16, tls: bool) -> bool {
        self.credentials.iter().any(|credential| credential.applies_to(host, port, tls))
    }

    /// Injects the credentials for this host into a request's headers.
    ///
    /// # Errors
    /// [`HeadersTooLong`]; some credentials may be injected by then, and the request must be
    /// dropped.
    pub(crate) fn inject(
        &self,
        headers: &mut HeaderMap,
        host: &str,
        port: u16,
        tls: bool,
    ) -> Result<(), HeadersTooLong> {
        for credential in
            self.credentials.iter().filter(|credential| credential.applies_to(host, port, tls))
        {
            let header = credential.header.as_ref().map(|header| header.parse::<HeaderName>());
            match (header, &credential.placeholder) {
                (Some(Ok(header)), None) => set_header(headers, header, credential),
                (Some(Ok(header)), Some(placeholder)) => {
                    let matches = |name: &HeaderName| {
                        *name == header && role(name.as_str()) != HeaderRole::Framing
                    };
                    replace_all(headers, matches, placeholder, credential)?;
                }
                (None, Some(placeholder)) => {
                    let free = |name: &HeaderName| role(name.as_str()) == HeaderRole::Free;
                    replace_all(headers, free, placeholder, credential)?;
                }
                // An invalid header name, or neither a header nor a placeholder.
                (Some(Err(_)), _) | (None, None) => {}
            }
        }
        if header_bytes(headers) > HEADERS_BYTES_MAX { Err(HeadersTooLong) } else { Ok(()) }
    }
}

/// Sets a header to the value of the credential, and replaces an earlier value.
fn set_header(headers: &mut HeaderMap, header: HeaderName, credential: &Credential) {
    if role(header.as_str()) == HeaderRole::Framing {
        return;
    }
    if let Some(value) = sensitive(credential.value.reveal().as_bytes().to_vec()) {
        headers.insert(header, value);
    }
}

/// Replaces a placeholder in all headers that `matches` selects.
fn replace_all(
    headers: &mut HeaderMap,
    matches: impl Fn(&HeaderName) -> bool,
    placeholder: &str,
    credential: &Credential,
) -> Result<(), HeadersTooLong> {
    let mut total = header_bytes(headers);
    for (name, value) in headers.iter_mut().filter(|(name, _)| matches(name)) {
        let others = total - value.len();
        let value_bytes_max = HEADERS_BYTES_MAX.checked_sub(others).ok_or(HeadersTooLong)?;
        replace(name, value, placeholder, credential, value_bytes_max)?;
        total = others + value.len();
    }
    Ok(())
}

fn sensitive(value: Vec<u8>) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_maybe_shared(hyper::body::Bytes::from(value)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Replaces a placeholder in one header. The new value takes at most `value_bytes_max` bytes, which
/// is checked before it is allocated.
fn replace(
    name: &HeaderName,
    value: &mut HeaderValue,
    placeholder: &str,
    credential: &Credential,
    value_bytes_max: usize,
) -> Result<(), HeadersTooLong> {
    let Ok(text) = value.to_str() else { return Ok(()) };
    if placeholder.is_empty() {
        return Ok(());
    }
    let substitute = |text: &str| {
        let times = text.matches(placeholder).count();
        let bytes =
            text.len() - times * placeholder.len() + times * credential.value.reveal().len();
        (bytes <= value_bytes_max)
            .then(|| text.replace(placeholder, credential.value.reveal()))
            .ok_or(HeadersTooLong)
    };
    let basic = (*name == AUTHORIZATION).then(|| text.strip_prefix("Basic ")).flatten();
    let basic_pair = basic.and_then(|it| String::from_utf8(BASE64_STANDARD.decode(it).ok()?).ok());
    let changed = match basic_pair {
        // User name and password, as git and curl send them.
        Some(pair) if pair.contains(placeholder) => {
            format!("Basic {}", BASE64_STANDARD.encode(substitute(&pair)?))
        }
        _ if text.contains(placeholder) => substitute(text)?,
        _ => return Ok(()),
    };
    if changed.len() > value_bytes_max {
        return Err(HeadersTooLong);
    }
    if let Some(changed) = sensitive(changed.into_bytes()) {
        *value = changed;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::credential::Secret;
    use isolet_wire::network::Rule;

    fn credentials(header: Option<&str>, placeholder: Option<&str>) -> InjectedCredentials {
        let one = Credential {
            to: Rule::parse("api.example").expect("a rule"),
            header: header.map(str::to_owned),
            placeholder: placeholder.map(str::to_owned),
            value: Secret::new("hunter2".to_owned()),
        };
        InjectedCredentials::new(vec![one], None)
    }

    fn put(
        credentials: &InjectedCredentials,
        host: &str,
        headers: &[(&'static str, &str)],
    ) -> Vec<(String, String)> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a value"));
        }
        credentials.inject(&mut map, host, 443, true).expect("short");
        let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
        map.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_header_is_set_whatever_it_was() {
        let credentials = credentials(Some("X-Api-Key"), None);
        let twice = [("x-api-key", "mine"), ("x-api-key", "too")];
        assert_eq!(put(&credentials, "api.example", &twice), [pair("x-api-key", "hunter2")]);
        assert_eq!(put(&credentials, "api.example", &[]), [pair("x-api-key", "hunter2")]);
        assert!(put(&credentials, "evil.example", &[]).is_empty());
    }

    #[test]
    fn a_placeholder_is_replaced_wherever_it_occurs() {
        let of_any = credentials(None, Some("ISOLET_KEY"));
        let headers = [("authorization", "Bearer ISOLET_KEY"), ("x-other", "a ISOLET_KEY b")];
        let expected = [pair("authorization", "Bearer hunter2"), pair("x-other", "a hunter2 b")];
        assert_eq!(put(&of_any, "api.example", &headers), expected);
        assert_eq!(put(&of_any, "evil.example", &headers)[0].1, "Bearer ISOLET_KEY");
        let of_one = credentials(Some("Authorization"), Some("ISOLET_KEY"));
        assert_eq!(put(&of_one, "api.example", &headers)[1].1, "a ISOLET_KEY b");
        let basic = format!("Basic {}", BASE64_STANDARD.encode("me:ISOLET_KEY"));
        let expected = format!("Basic {}", BASE64_STANDARD.encode("me:hunter2"));
        let headers = [("authorization", basic.as_str())];
        assert_eq!(put(&of_one, "api.example", &headers)[0].1, expected);
    }

    /// A placeholder in one of these came back with the value in the server's answer.
    /// Promises: R11.
    #[test]
    fn headers_that_servers_echo_keep_their_placeholders() {
        let of_any = credentials(None, Some("ISOLET_KEY"));
        for name in ["host", "upgrade", "origin", "sec-websocket-protocol", "te", "if-match"] {
            assert_eq!(put(&of_any, "api.example", &[(name, "ISOLET_KEY")])[0].1, "ISOLET_KEY");
        }
        // Kubernetes and others read a key there: a credential that names the header is injected.
        let named = credentials(Some("Sec-WebSocket-Protocol"), Some("ISOLET_KEY"));
        let headers = [("sec-websocket-protocol", "v1, key.ISOLET_KEY")];
        assert_eq!(put(&named, "api.example", &headers)[0].1, "v1, key.hunter2");
        // The server refuses a credential that names one, and the proxy does not rely on that.
        for placeholder in [None, Some("ISOLET_KEY")] {
            let host = credentials(Some("Host"), placeholder);
            assert_eq!(put(&host, "api.example", &[("host", "ISOLET_KEY")])[0].1, "ISOLET_KEY");
        }
    }

    /// 60 KB of a placeholder of 4 bytes stood for 120 MB.
    /// Promises: R10.
    #[test]
    fn headers_with_credentials_are_bounded_before_they_are_allocated() {
        let put = |bytes: usize, headers: &[(&'static str, String)]| {
            let mut map = HeaderMap::new();
            for (name, text) in headers {
                map.append(*name, text.parse().expect("a value"));
            }
            let credentials =
                InjectedCredentials::new(vec![standing_for("KEY!", "v".repeat(bytes))], None);
            credentials.inject(&mut map, "api.example", 443, true).map(|()| header_bytes(&map))
        };
        assert_eq!(put(8192, &[("x-a", "KEY!".repeat(15_000))]), Err(HeadersTooLong));
        let most = (HEADERS_BYTES_MAX - 7) / 8192;
        assert_eq!(put(8192, &[("x-a", "KEY!".repeat(most))]), Ok(7 + most * 8192));
        assert_eq!(put(8192, &[("x-a", "KEY!".repeat(most + 1))]), Err(HeadersTooLong));
        // Together with the others, and as base64, which is a third longer.
        let other = ("x-b", "b".repeat(60_000));
        assert_eq!(put(8192, &[("x-a", "KEY!".repeat(most)), other]), Err(HeadersTooLong));
        let basic = |times: usize| {
            let pair = BASE64_STANDARD.encode("KEY!".repeat(times));
            put(8192, &[("authorization", format!("Basic {pair}"))])
        };
        assert!(basic(most * 3 / 4 - 1).is_ok() && basic(most) == Err(HeadersTooLong));
        // One value that holds the placeholder of another grows no further either.
        let one = |placeholder, value: &str| standing_for(placeholder, value.repeat(2048));
        let chain = InjectedCredentials::new(vec![one("AAAA", "BBBB"), one("BBBB", "CCCC")], None);
        let mut map = HeaderMap::new();
        map.append("x-a", "AAAA".parse().expect("a value"));
        assert_eq!(chain.inject(&mut map, "api.example", 443, true), Err(HeadersTooLong));
    }

    fn standing_for(placeholder: &str, value: String) -> Credential {
        Credential {
            to: Rule::parse("api.example").expect("a rule"),
            header: None,
            placeholder: Some(placeholder.to_owned()),
            value: Secret::new(value),
        }
    }

    /// Promises: R9.
    #[test]
    fn credentials_are_never_printed() {
        assert!(!format!("{:?}", credentials(Some("a"), None)).contains("hunter2"));
    }
}
