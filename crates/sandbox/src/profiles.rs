//! Network profiles that a tenant keeps: rules under a name. Sandboxes have loopback only, so none
//! but [`NONE`] can be asked for yet; what is kept waits until there is a network to rule.

use crate::{Error, Service, TenantId};
use serde::{Deserialize, Serialize};

/// The profile that every tenant has and nobody changes: loopback only.
pub const NONE: &str = "none";
/// Profiles of one tenant, `none` not counted.
pub const PROFILES_MAX: usize = 100;
/// Rules of one list.
pub const RULES_MAX: usize = 256;
/// The longest rule, in bytes: a name of a host, with a port.
pub const RULE_BYTES_MAX: usize = 260;
/// The longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Rules under a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Unique within the tenant: `[a-z0-9][a-z0-9_-]*`, at most 64 bytes.
    pub name: String,
    /// For people.
    pub description: String,
    /// Hosts, `*.` and a host, addresses, networks (`10.0.0.0/8`), or `*`; each may end with `:PORT`.
    pub allow: Vec<String>,
    /// Likewise.
    pub deny: Vec<String>,
}

impl Profile {
    fn none() -> Self {
        Self {
            name: NONE.to_owned(),
            description: "Loopback only.".to_owned(),
            allow: Vec::new(),
            deny: vec!["*".to_owned()],
        }
    }

    fn check(&self) -> Result<(), Error> {
        let bad = |field, reason: &str| Err(Error::BadField { field, reason: reason.to_owned() });
        if !named(&self.name) {
            return bad("name", "must match [a-z0-9][a-z0-9_-]{0,63}");
        }
        if self.name == NONE {
            return bad("name", "`none` is every tenant's and stays as it is; choose another");
        }
        if self.description.len() > DESCRIPTION_BYTES_MAX {
            return bad("description", "at most 1024 bytes");
        }
        for (field, rules) in [("allow", &self.allow), ("deny", &self.deny)] {
            if rules.len() > RULES_MAX {
                return bad(field, "at most 256 rules");
            }
            if let Some(wrong) = rules.iter().find(|rule| !is_rule(rule)) {
                let shown: String = wrong.chars().take(80).collect();
                let reason = format!("{shown:?} is no host, address, network or *");
                return Err(Error::BadField { field, reason });
            }
        }
        Ok(())
    }
}

fn named(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let first = name.bytes().next().is_some_and(letter);
    first
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| letter(byte) || matches!(byte, b'_' | b'-'))
}

/// A host, `*.` and a host, an address, a network, or `*`; with a port or without.
fn is_rule(rule: &str) -> bool {
    if rule.len() > RULE_BYTES_MAX {
        return false;
    }
    if is_place(rule) {
        return true;
    }
    let Some((place, port)) = rule.rsplit_once(':') else { return false };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let inner = place.strip_prefix('[').and_then(|place| place.strip_suffix(']'));
    let place = inner.filter(|place| place.contains(':')).unwrap_or(place);
    digits && port.parse::<u16>().is_ok_and(|port| port > 0) && is_place(place)
}

fn is_place(text: &str) -> bool {
    use std::net::{IpAddr, Ipv6Addr};
    if text == "*" || text.parse::<IpAddr>().is_ok() {
        return true;
    }
    if let Some((address, bits)) = text.split_once('/') {
        let most = if address.parse::<Ipv6Addr>().is_ok() { 128 } else { 32 };
        let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        return digits
            && address.parse::<IpAddr>().is_ok()
            && bits.parse::<u8>().is_ok_and(|bits| bits <= most);
    }
    let host = text.strip_prefix("*.").unwrap_or(text);
    let label = |label: &str| {
        let letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        !label.is_empty()
            && label.len() <= 63
            && letters
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // What ends with a number would be an address, and is none.
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= 253
        && host.split('.').all(label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

impl Service {
    /// A tenant's network profiles by name, `none` first.
    ///
    /// # Errors
    /// What the records refuse.
    pub async fn profiles(&self, tenant: &TenantId) -> Result<Vec<Profile>, Error> {
        let rows = self.inner.store.profiles(tenant.as_str()).await?;
        let own = rows.iter().filter_map(|(_, body)| serde_json::from_str(body).ok());
        Ok(std::iter::once(Profile::none()).chain(own).collect())
    }

    /// One of them.
    ///
    /// # Errors
    /// [`Error::NoProfile`], and what the records refuse.
    pub async fn profile(&self, tenant: &TenantId, name: &str) -> Result<Profile, Error> {
        let all = self.profiles(tenant).await?;
        let found = all.into_iter().find(|profile| profile.name == name);
        found.ok_or_else(|| no(name))
    }

    /// Keeps a profile, in place of the one of its name; `true`: there was none.
    ///
    /// # Errors
    /// [`Error::BadField`], [`Error::TooManyProfiles`], and what the records refuse.
    pub async fn put_profile(&self, tenant: &TenantId, profile: &Profile) -> Result<bool, Error> {
        profile.check()?;
        let body =
            serde_json::to_string(profile).map_err(|error| Error::Fault(error.to_string()))?;
        let (tenant, store) = (tenant.as_str(), &self.inner.store);
        let put = store.put_profile(tenant, &profile.name, body, PROFILES_MAX).await?;
        put.ok_or(Error::TooManyProfiles { max: PROFILES_MAX })
    }

    /// Forgets a profile.
    ///
    /// # Errors
    /// [`Error::NoProfile`], [`Error::BadField`] for `none`, and what the records refuse.
    pub async fn remove_profile(&self, tenant: &TenantId, name: &str) -> Result<(), Error> {
        if name == NONE {
            let reason = "`none` is every tenant's and stays".to_owned();
            return Err(Error::BadField { field: "name", reason });
        }
        let gone = self.inner.store.remove_profile(tenant.as_str(), name).await?;
        if gone { Ok(()) } else { Err(no(name)) }
    }
}

fn no(name: &str) -> Error {
    Error::NoProfile(name.chars().take(NAME_BYTES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_place_with_or_without_a_port() {
        for good in [
            "*",
            "*:443",
            "example.com",
            "*.example.com:8443",
            "xn--bcher-kva.example",
            "localhost",
            "10.0.0.0/8",
            "192.168.1.1:80",
            "::1",
            "fd00::/8",
            "[::1]:443",
        ] {
            assert!(is_rule(good), "{good}");
        }
        let long = "a.".repeat(200);
        for bad in [
            "",
            " ",
            "a b",
            "http://a",
            "a/b",
            "*a.com",
            "a.*",
            "-a.com",
            "a..b",
            "a:0",
            "a:70000",
            "a:+1",
            "300.1.1.1",
            "10.0.0.0/33",
            "10.0.0.0/",
            "a\n",
            "ä.com",
            "[a]:1",
            long.as_str(),
        ] {
            assert!(!is_rule(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_profile_is_bounded() {
        let profile = |name: &str| Profile { name: name.to_owned(), ..Profile::default() };
        assert!(profile("a-b_1").check().is_ok());
        for bad in ["", "none", "A", "-a", "a/b", "..", "ä", &"a".repeat(65)] {
            assert!(profile(bad).check().is_err(), "{bad}");
        }
        let many = Profile { allow: vec!["*".to_owned(); RULES_MAX + 1], ..profile("a") };
        assert!(many.check().is_err());
        let long = Profile { description: "x".repeat(DESCRIPTION_BYTES_MAX + 1), ..profile("a") };
        assert!(long.check().is_err());
    }
}
