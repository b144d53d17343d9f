//! Injected credentials, as clients request, see and change them. A description never contains the
//! value.

use crate::model::error::Error;
use isolet_wire::credential::headers::{HeaderRole, role};
use isolet_wire::credential::{CREDENTIALS_BYTES_MAX, CREDENTIALS_MAX, Credential, Secret};
use isolet_wire::network::{NetworkDestination, Policy, Rule, RuleTarget, Verdict};
use serde::{Deserialize, Serialize};

/// Maximum length of a value, in bytes, so that it fits into the head of a request.
pub const VALUE_BYTES_MAX: usize = 8 * 1024;
/// Maximum length of a header name, in bytes.
pub const HEADER_BYTES_MAX: usize = 128;
/// Allowed length of a placeholder, in bytes. A shorter one could occur by accident.
pub const PLACEHOLDER_BYTES: std::ops::RangeInclusive<usize> = 4..=256;

/// The description of a credential, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedCredential {
    /// The host name, or `*.` and a host name, with or without a port.
    pub host: String,
    /// The header in lower case; `None` means every header that contains the placeholder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The text that the value replaces; `None` means that the whole header is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<String>,
}

/// A credential with its value. The value is never logged or returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialSpec {
    /// The host and the header or placeholder, without the value.
    #[serde(flatten)]
    pub credential: InjectedCredential,
    /// The value, which no log and no answer contains.
    pub value: Secret,
}

/// Selects credentials to remove; a field that is `None` matches any value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRemoval {
    /// The host of the credential's description.
    pub host: String,
    /// The header of the credential's description.
    pub header: Option<String>,
    /// The placeholder of the credential's description.
    pub placeholder: Option<String>,
}

fn bad(field: &'static str, reason: &str) -> Error {
    Error::BadField { field, reason: reason.to_owned() }
}

/// Whether a text consists of the characters of a header name.
fn token(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn host(text: &str) -> Result<String, Error> {
    let rule = Rule::parse(text).ok().filter(|rule| rule.place.is_name());
    let rule = rule.ok_or_else(|| {
        bad("credentials.host", "must be the name of a host, or *. and one, with or without :PORT")
    })?;
    Ok(rule.to_string())
}

impl CredentialSpec {
    /// Checks a credential. Errors do not repeat the input because any part of it may be the
    /// secret.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub fn new(
        host_text: &str,
        header: Option<String>,
        placeholder: Option<String>,
        value: String,
    ) -> Result<Self, Error> {
        let header = header.map(|header| header.to_ascii_lowercase());
        if let Some(header) = &header {
            if header.is_empty() || header.len() > HEADER_BYTES_MAX || !token(header) {
                return Err(bad("credentials.header", "must be the name of a header"));
            }
            if role(header) == HeaderRole::Framing {
                let reason = "this header says how a request is read or to whom it goes";
                return Err(bad("credentials.header", reason));
            }
        }
        let stands = |text: &String| {
            PLACEHOLDER_BYTES.contains(&text.len()) && text.bytes().all(|it| it.is_ascii_graphic())
        };
        if placeholder.as_ref().is_some_and(|text| !stands(text)) {
            let reason = "must be 4 to 256 visible ASCII characters without spaces";
            return Err(bad("credentials.placeholder", reason));
        }
        if header.is_none() && placeholder.is_none() {
            return Err(bad("credentials", "give header, placeholder or both"));
        }
        let fits = (1..=VALUE_BYTES_MAX).contains(&value.len());
        let shown = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
        if !fits || value.trim() != value || !value.bytes().all(shown) {
            let reason = "must be 1 to 8192 ASCII characters as a header can have them, with no space at either end";
            return Err(bad("credentials.value", reason));
        }
        let credential = InjectedCredential { host: host(host_text)?, header, placeholder };
        Ok(Self { credential, value: Secret::new(value) })
    }

    fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let InjectedCredential { host, header, placeholder } = &self.credential;
        host.len() + text(header) + text(placeholder) + self.value.reveal().len()
    }

    /// The credential for the egress proxy; `None` if the host from another version is not a valid
    /// rule.
    pub(crate) fn credential(&self) -> Option<Credential> {
        let InjectedCredential { host, header, placeholder } = self.credential.clone();
        let to = Rule::parse(&host).ok().filter(|rule| rule.place.is_name())?;
        Some(Credential { to, header, placeholder, value: self.value.clone() })
    }
}

impl CredentialRemoval {
    /// Checks which credentials to remove.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub fn new(
        text: &str,
        header: Option<String>,
        placeholder: Option<String>,
    ) -> Result<Self, Error> {
        let header = header.map(|header| header.to_ascii_lowercase());
        Ok(Self { host: host(text)?, header, placeholder })
    }

    fn means(&self, credential: &InjectedCredential) -> bool {
        let same = |mine: &Option<String>, its: &Option<String>| mine.is_none() || mine == its;
        self.host == credential.host
            && same(&self.header, &credential.header)
            && same(&self.placeholder, &credential.placeholder)
    }
}

impl InjectedCredential {
    /// Whether the credential applies to requests within TLS, so that the sandbox must trust the
    /// egress proxy's CA.
    pub(crate) fn within_tls(&self) -> bool {
        Rule::parse(&self.host).is_ok_and(|rule| rule.port != Some(80))
    }

    /// Whether the policy allows the credential's host, as far as names can tell.
    #[must_use]
    pub fn allowed(&self, policy: &Policy) -> bool {
        let Ok(rule) = Rule::parse(&self.host) else { return false };
        let below = |name: &str, of: &str| name.ends_with(of) && name != of;
        let within = |allow: &Rule| match (&allow.place, &rule.place) {
            (RuleTarget::Any | RuleTarget::Network { .. }, _) => true,
            (RuleTarget::Subdomains(one), RuleTarget::Subdomains(other)) => {
                one == other || below(one, other) || below(other, one)
            }
            (RuleTarget::Name(name), RuleTarget::Subdomains(of)) => below(name, of),
            _ => false,
        };
        let to = match &rule.place {
            RuleTarget::Name(name) => {
                NetworkDestination { name: Some(name), address: None, port: rule.port }
            }
            _ => return policy.allow.iter().any(within),
        };
        match policy.decide(&to) {
            Verdict::Allowed(_) => true,
            Verdict::Refused(Some(_)) => false,
            Verdict::Refused(None) => policy.allow.iter().any(within),
        }
    }
}

/// The credentials after a change. A new one replaces the one with the same host, header and
/// placeholder.
pub(crate) fn changed(
    all: &[CredentialSpec],
    add: &[CredentialSpec],
    remove: &[CredentialRemoval],
) -> Result<Vec<CredentialSpec>, Error> {
    let mut new: Vec<CredentialSpec> = all.to_vec();
    new.retain(|one| !remove.iter().any(|gone| gone.means(&one.credential)));
    for one in add {
        match new.iter_mut().find(|old| old.credential == one.credential) {
            Some(old) => *old = one.clone(),
            None => new.push(one.clone()),
        }
    }
    if new.len() > CREDENTIALS_MAX {
        let reason = format!("at most {CREDENTIALS_MAX} of a sandbox");
        return Err(Error::BadField { field: "credentials", reason });
    }
    let bytes: usize = new.iter().map(CredentialSpec::bytes).sum();
    if bytes > CREDENTIALS_BYTES_MAX {
        let reason = format!("{bytes} bytes, at most {CREDENTIALS_BYTES_MAX} of a sandbox");
        return Err(Error::BadField { field: "credentials", reason });
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(
        host: &str,
        header: Option<&str>,
        placeholder: Option<&str>,
    ) -> Result<CredentialSpec, Error> {
        let text = |text: Option<&str>| text.map(str::to_owned);
        CredentialSpec::new(host, text(header), text(placeholder), "hunter2-value".to_owned())
    }

    /// Promises: Q20.
    #[test]
    fn what_cannot_be_lent_is_refused_and_its_value_is_not_told() {
        let key = Some("X-Api-Key");
        for (made, field) in [
            (one("*", key, None), "credentials.host"),
            (one("10.0.0.1", key, None), "credentials.host"),
            (one("http://a.example", key, None), "credentials.host"),
            (one("a.example", None, None), "credentials"),
            (one("a.example", Some("a b"), None), "credentials.header"),
            (one("a.example", Some("Host"), None), "credentials.header"),
            (one("a.example", Some("Transfer-Encoding"), None), "credentials.header"),
            (one("a.example", Some("Sec-WebSocket-Key"), Some("A_KEY")), "credentials.header"),
            (one("a.example", None, Some("KEY")), "credentials.placeholder"),
            (one("a.example", None, Some("a key")), "credentials.placeholder"),
        ] {
            match made {
                Err(error @ Error::BadField { .. }) => {
                    let said = format!("{error} {error:?}");
                    assert!(said.contains(field) && !said.contains("hunter2"), "{said}");
                }
                other => panic!("{other:?} instead of {field}"),
            }
        }
        for value in ["", " a", "a\n", "ä", &"x".repeat(VALUE_BYTES_MAX + 1)] {
            let made = CredentialSpec::new("a.example", Some("x".into()), None, value.to_owned());
            let error = made.expect_err(value).to_string();
            assert!(error.contains("credentials.value"), "{error}");
        }
        let good = one("API.example:8443", key, None).unwrap();
        assert_eq!(good.credential.host, "api.example:8443");
        assert_eq!(good.credential.header.as_deref(), Some("x-api-key"));
        assert!(!format!("{good:?}").contains("hunter2"));
    }

    #[test]
    fn the_same_place_is_lent_anew_and_what_is_removed_is_gone() {
        let first = one("a.example", Some("X-Key"), None).unwrap();
        let other = one("a.example", None, Some("A_KEY")).unwrap();
        let mut replaced = first.clone();
        replaced.value = Secret::new("another".to_owned());
        let all = changed(&[first], &[other.clone(), replaced.clone()], &[]).unwrap();
        assert_eq!(all, [replaced.clone(), other.clone()]);
        let gone = CredentialRemoval::new("A.example", Some("X-KEY".into()), None).unwrap();
        assert_eq!(changed(&all, &[], &[gone]).unwrap(), [other]);
        let every = CredentialRemoval::new("a.example", None, None).unwrap();
        assert!(changed(&all, &[], &[every]).unwrap().is_empty());
        let many: Vec<_> = (0..=CREDENTIALS_MAX)
            .map(|n| one(&format!("a{n}.example"), Some("x"), None).unwrap())
            .collect();
        assert!(changed(&[], &many, &[]).is_err());
        let long = |n: usize| {
            let value = "x".repeat(VALUE_BYTES_MAX);
            CredentialSpec::new(&format!("a{n}.example"), Some("x".into()), None, value).unwrap()
        };
        assert!(changed(&[], &(0..8).map(long).collect::<Vec<_>>(), &[]).is_err());
    }

    /// Promises: Q22.
    #[test]
    fn it_is_told_whether_a_rule_lets_its_host_be_reached() {
        let policy = |allow: &[&str], deny: &[&str]| {
            let rules = |texts: &[&str]| {
                texts.iter().map(|text| Rule::parse(text).expect(text)).collect::<Vec<_>>()
            };
            Policy { allow: rules(allow), deny: rules(deny) }
        };
        let allowed = |host: &str, policy: &Policy| {
            one(host, Some("x"), None).unwrap().credential.allowed(policy)
        };
        let some = policy(&["a.example:443", "*.b.example"], &["bad.b.example"]);
        for (host, expected) in [
            ("a.example", true),
            ("a.example:443", true),
            ("a.example:80", false),
            ("x.b.example", true),
            ("bad.b.example", false),
            ("*.b.example", true),
            ("*.example", true),
            ("c.example", false),
            ("*.c.example", false),
        ] {
            assert_eq!(allowed(host, &some), expected, "{host}");
        }
        assert!(allowed("any.example", &Policy::open()));
        assert!(!allowed("any.example", &policy(&[], &[])));
    }
}
