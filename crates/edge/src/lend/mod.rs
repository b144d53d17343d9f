//! Credentials that are lent to a link: put into requests here, so that they never are inside.

pub(crate) mod authority;
pub(crate) mod outside;

use authority::Authority;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use isolet_wire::lend::{CREDENTIALS_MAX, Credential};
use std::sync::Arc;

/// What a link is lent.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lent {
    credentials: Vec<Credential>,
    /// Who speaks TLS with the sandbox in the hosts' place.
    pub(crate) authority: Option<Arc<Authority>>,
}

impl Lent {
    pub(crate) fn new(mut credentials: Vec<Credential>, authority: Option<Arc<Authority>>) -> Self {
        credentials.truncate(CREDENTIALS_MAX);
        Self { credentials, authority }
    }

    /// Whether requests to this host are to have something.
    pub(crate) fn to(&self, host: &str, port: u16, tls: bool) -> bool {
        self.credentials.iter().any(|one| one.holds(host, port, tls))
    }

    /// Puts it in.
    pub(crate) fn put(&self, headers: &mut HeaderMap, host: &str, port: u16, tls: bool) {
        for one in self.credentials.iter().filter(|one| one.holds(host, port, tls)) {
            let header = one.header.as_ref().map(|header| header.parse::<HeaderName>());
            match (header, &one.placeholder) {
                (Some(Ok(header)), None) => {
                    if let Some(value) = secret(one.value.reveal().as_bytes().to_vec()) {
                        headers.insert(header, value);
                    }
                }
                (Some(Ok(header)), Some(placeholder)) => {
                    let values = headers.iter_mut().filter(|(name, _)| **name == header);
                    values.for_each(|(name, value)| replace(name, value, placeholder, one));
                }
                (None, Some(placeholder)) => {
                    headers
                        .iter_mut()
                        .for_each(|(name, value)| replace(name, value, placeholder, one));
                }
                // A name that is none, or nothing to look for.
                (Some(Err(_)), _) | (None, None) => {}
            }
        }
    }
}

fn secret(value: Vec<u8>) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_maybe_shared(hyper::body::Bytes::from(value)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn replace(name: &HeaderName, value: &mut HeaderValue, placeholder: &str, one: &Credential) {
    let Ok(text) = value.to_str() else { return };
    if placeholder.is_empty() {
        return;
    }
    let with = |text: &str| text.replace(placeholder, one.value.reveal());
    let basic = (*name == AUTHORIZATION).then(|| text.strip_prefix("Basic ")).flatten();
    let within = basic.and_then(|it| String::from_utf8(BASE64_STANDARD.decode(it).ok()?).ok());
    let changed = match within {
        // A name and a password, as git and curl send them.
        Some(pair) if pair.contains(placeholder) => {
            format!("Basic {}", BASE64_STANDARD.encode(with(&pair)))
        }
        _ if text.contains(placeholder) => with(text),
        _ => return,
    };
    if let Some(changed) = secret(changed.into_bytes()) {
        *value = changed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::lend::Secret;
    use isolet_wire::network::Rule;

    fn lent(header: Option<&str>, placeholder: Option<&str>) -> Lent {
        let one = Credential {
            to: Rule::parse("api.example").expect("a rule"),
            header: header.map(str::to_owned),
            placeholder: placeholder.map(str::to_owned),
            value: Secret::new("hunter2".to_owned()),
        };
        Lent::new(vec![one], None)
    }

    fn put(lent: &Lent, host: &str, headers: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a value"));
        }
        lent.put(&mut map, host, 443, true);
        let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
        map.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_header_is_set_whatever_it_was() {
        let lent = lent(Some("X-Api-Key"), None);
        let twice = [("x-api-key", "mine"), ("x-api-key", "too")];
        assert_eq!(put(&lent, "api.example", &twice), [pair("x-api-key", "hunter2")]);
        assert_eq!(put(&lent, "api.example", &[]), [pair("x-api-key", "hunter2")]);
        assert!(put(&lent, "evil.example", &[]).is_empty());
    }

    #[test]
    fn a_placeholder_is_replaced_where_it_stands() {
        let of_any = lent(None, Some("ISOLET_KEY"));
        let headers = [("authorization", "Bearer ISOLET_KEY"), ("x-other", "a ISOLET_KEY b")];
        let expected = [pair("authorization", "Bearer hunter2"), pair("x-other", "a hunter2 b")];
        assert_eq!(put(&of_any, "api.example", &headers), expected);
        assert_eq!(put(&of_any, "evil.example", &headers)[0].1, "Bearer ISOLET_KEY");
        let of_one = lent(Some("Authorization"), Some("ISOLET_KEY"));
        assert_eq!(put(&of_one, "api.example", &headers)[1].1, "a ISOLET_KEY b");
        let basic = format!("Basic {}", BASE64_STANDARD.encode("me:ISOLET_KEY"));
        let expected = format!("Basic {}", BASE64_STANDARD.encode("me:hunter2"));
        let headers = [("authorization", basic.as_str())];
        assert_eq!(put(&of_one, "api.example", &headers)[0].1, expected);
    }

    #[test]
    fn what_is_lent_is_shown_nowhere() {
        assert!(!format!("{:?}", lent(Some("a"), None)).contains("hunter2"));
    }
}
