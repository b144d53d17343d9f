//! Network profiles: named rules. Some are built in, some are the operator's for every tenant, and
//! the rest belong to one tenant.

use crate::model::{
    error::Error,
    network::{Network, checked},
};
use serde::{Deserialize, Serialize};

/// The profile of loopback only.
pub const NONE: &str = "none";
/// Profiles that one tenant keeps.
pub const PROFILES_MAX: usize = 100;
/// The longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Where packages of common languages and systems come from. The one place that names them.
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

/// Those that every server has, [`NONE`] first.
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
        profile("locked-down", "Nothing is allowed; what is tried is told.", &[], &[]),
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
    /// Whether its name and its rules are such, and within their bounds.
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

/// The network that a configuration's word or profile stands for, before there is a server.
///
/// # Errors
/// [`Error::BadField`] for a profile that is neither everybody's nor among these.
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

pub(crate) fn no(name: &str) -> Error {
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
