//! Network profiles: named sets of egress rules. Some are built in, the operator can add some for
//! all tenants, and a tenant can store its own.

use crate::model::error::Error;
use crate::model::network::{Network, checked};
use serde::{Deserialize, Serialize};

/// Name of the profile without a network.
pub const NONE: &str = "none";
/// Maximum number of profiles of one tenant.
pub const PROFILES_MAX: usize = 100;
/// Maximum length of a description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;
/// Maximum length of a name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Package registries of common languages and systems. This is the only place that names them.
const REGISTRIES: [&str; 18] = [
    // pip
    "pypi.org:443",
    "files.pythonhosted.org:443",
    // npm
    "registry.npmjs.org:443",
    // cargo
    "crates.io:443",
    "index.crates.io:443",
    "static.crates.io:443",
    // apt
    "deb.debian.org:80",
    "deb.debian.org:443",
    "security.debian.org:80",
    "security.debian.org:443",
    "archive.ubuntu.com:80",
    "archive.ubuntu.com:443",
    "*.archive.ubuntu.com:80",
    "*.archive.ubuntu.com:443",
    "security.ubuntu.com:80",
    "security.ubuntu.com:443",
    "ports.ubuntu.com:80",
    "ports.ubuntu.com:443",
];

/// A named set of egress rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The name, unique within the tenant: `[a-z0-9][a-z0-9_-]*`, at most 64 bytes.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// Allowed destinations: host names, `*.` and a host name, addresses, networks (`10.0.0.0/8`)
    /// or `*`, each with an optional `:PORT`.
    pub allow: Vec<String>,
    /// Denied destinations, in the same format.
    pub deny: Vec<String>,
}

/// The profiles of every server, [`NONE`] first.
#[must_use]
pub fn built_in() -> [Profile; 4] {
    let profile = |name: &str, description: &str, allow: &[&str], deny: &[&str]| {
        let texts = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        let name = name.to_owned();
        let description = description.to_owned();
        Profile { name, description, allow: texts(allow), deny: texts(deny) }
    };
    [
        profile(NONE, "Loopback only.", &[], &["*"]),
        profile("locked-down", "Nothing is allowed; denied connections are reported.", &[], &[]),
        profile(
            "packages",
            "The public registries of pip, npm, cargo and apt, by their names.",
            &REGISTRIES,
            &[],
        ),
        profile("unrestricted", "Everything but what is closed to every sandbox.", &["*"], &[]),
    ]
}

impl Profile {
    /// Checks the name and the rules.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub fn check(&self) -> Result<(), Error> {
        let bad = |field, reason: &str| Err(Error::BadField { field, reason: reason.to_owned() });
        if !named(&self.name) {
            return bad("name", "must match [a-z0-9][a-z0-9_-]{0,63}");
        }
        if built_in().iter().any(|own| own.name == self.name) {
            let reason =
                format!("`{}` is everybody's and stays as it is; choose another", self.name);
            return bad("name", &reason);
        }
        if self.description.len() > DESCRIPTION_BYTES_MAX {
            return bad("description", "at most 1024 bytes");
        }
        checked("allow", &self.allow)?;
        checked("deny", &self.deny)?;
        Network::rules(&self.allow, &self.deny).map(drop)
    }
}

fn named(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let first = name.bytes().next().is_some_and(letter);
    first
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| letter(byte) || matches!(byte, b'_' | b'-'))
}

/// The network policy for a mode or profile name in the configuration. `own` are the operator's
/// profiles.
///
/// # Errors
/// [`Error::BadField`] for an unknown profile.
pub fn network(name: &str, own: &[Profile]) -> Result<Network, Error> {
    match name {
        "none" => Ok(Network::none()),
        "open" => Ok(Network::open()),
        name => match built_in().iter().chain(own).find(|profile| profile.name == name) {
            Some(profile) => Network::of(profile),
            None => {
                let reason = format!("no network profile {name}; none and open are no profiles");
                Err(Error::BadField { field: "network.default", reason })
            }
        },
    }
}

/// The error for a profile that does not exist.
#[must_use]
pub fn no(name: &str) -> Error {
    Error::NoProfile(name.chars().take(NAME_BYTES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::network::Mode;
    use isolet_wire::network::RULES_MAX;

    /// Promises: D6.
    #[test]
    fn a_profile_is_bounded() {
        let profile = |name: &str| Profile { name: name.to_owned(), ..Profile::default() };
        assert!(profile("a-b_1").check().is_ok());
        for bad in ["", "none", "packages", "A", "-a", "a/b", "..", "ä", &"a".repeat(65)] {
            assert!(profile(bad).check().is_err(), "{bad}");
        }
        let many: Vec<String> = (0..=RULES_MAX).map(|n| format!("a{n}.example")).collect();
        assert!(Profile { allow: many, ..profile("a") }.check().is_err());
        assert!(Profile { deny: vec!["http://a".to_owned()], ..profile("a") }.check().is_err());
        let long = Profile { description: "x".repeat(DESCRIPTION_BYTES_MAX + 1), ..profile("a") };
        assert!(long.check().is_err());
    }

    /// Promises: D6.
    #[test]
    fn everybodys_profiles_are_what_they_say() {
        let of = |name: &str| network(name, &[]).unwrap();
        assert_eq!(of("none"), Network::none());
        assert_eq!((of("open"), of("unrestricted").mode()), (Network::open(), Mode::Open));
        let locked = of("locked-down");
        assert_eq!(
            (locked.mode(), locked.allow().len(), locked.profile()),
            (Mode::Rules, 0, Some("locked-down"))
        );
        assert_eq!(of("packages").allow(), REGISTRIES, "each is a rule as it says itself");
        assert!(network("never-was", &[]).is_err());
        let own = Profile { name: "web".into(), allow: vec!["*:443".into()], ..Profile::default() };
        assert_eq!(network("web", &[own]).unwrap().allow(), ["*:443"]);
    }
}
