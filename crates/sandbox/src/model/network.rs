//! The network policy of a sandbox, as its record stores it and as clients change it.
//!
//! [`isolet_wire::network`] implements the rules. A record stores them as the client's text so that
//! every version can read it. [`denied`] lists what the rules denied.

pub(crate) mod change;
pub(crate) mod denied;
pub mod injected_credential;
pub mod profiles;
pub(crate) mod traffic;

pub use change::{NetworkChange, Opening};
pub use denied::{DENIED_MAX, Denied};
pub use injected_credential::{CredentialRemoval, CredentialSpec, InjectedCredential};
pub use isolet_wire::network::NetworkDenial;
pub use traffic::Traffic;

use crate::model::error::Error;
use isolet_wire::network::{POLICY_BYTES_MAX, Policy, RULES_MAX, Rule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The mode of a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Only the loopback interface.
    #[default]
    None,
    /// Every address that is not always closed.
    Open,
    /// Only the destinations that the rules allow.
    Rules,
}

impl Mode {
    /// The word for clients.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Open => "open",
            Self::Rules => "rules",
        }
    }
}

/// A network policy with checked rules in canonical form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    mode: Mode,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deny: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
}

/// A client's choice of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkSpec {
    /// Only the loopback interface.
    None,
    /// Every address that is not always closed.
    Open,
    /// Only the destinations that these rules allow.
    Rules {
        /// Allowed destinations; an empty list allows nothing.
        allow: Vec<String>,
        /// Denied destinations, which win over `allow`.
        deny: Vec<String>,
    },
    /// The current rules of the profile with this name.
    Profile(String),
}

/// The operator's network settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSettings {
    /// DNS resolvers to forward to; empty means the host's resolvers.
    pub resolvers: Vec<SocketAddr>,
    /// Networks that rules may open although they are closed by default.
    pub opened: Vec<(Ipv4Addr, u8)>,
    /// The default network of a sandbox.
    pub default: Network,
    /// The operator's profiles for all tenants, by name.
    pub profiles: BTreeMap<String, profiles::Profile>,
    /// First of the 65,536 addresses for sandboxes and their gateway. A change takes effect when
    /// the process that owns the veth pairs restarts.
    pub range: Ipv4Addr,
    /// Maximum number of connections of one sandbox at once.
    pub connections_max: u32,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        let links = isolet_wire::veth::VethSettings::default();
        let (resolvers, opened, default) = Default::default();
        let range = links.range;
        let connections_max = links.connections_max;
        Self { resolvers, opened, default, profiles: BTreeMap::new(), range, connections_max }
    }
}

/// The rule that matches every destination.
pub(crate) const ALL: &str = "*";

/// Parses rules into canonical form and removes duplicates.
pub(crate) fn checked(field: &'static str, rules: &[String]) -> Result<Vec<String>, Error> {
    if rules.len() > RULES_MAX {
        let reason = format!("at most {RULES_MAX} rules");
        return Err(Error::BadField { field, reason });
    }
    let mut all: Vec<String> = Vec::with_capacity(rules.len());
    for text in rules {
        let rule = Rule::parse(text).map_err(|error| {
            let shown: String = text.chars().take(80).collect();
            Error::BadField { field, reason: format!("{shown:?}: {error}") }
        })?;
        let text = rule.to_string();
        if !all.contains(&text) {
            all.push(text);
        }
    }
    Ok(all)
}

/// Checks that all rules fit into one packet.
pub(crate) fn bounded(field: &'static str, allow: &[String], deny: &[String]) -> Result<(), Error> {
    let bytes: usize = allow.iter().chain(deny).map(String::len).sum();
    if bytes > POLICY_BYTES_MAX {
        let reason = format!("{bytes} bytes of rules, at most {POLICY_BYTES_MAX}");
        return Err(Error::BadField { field, reason });
    }
    Ok(())
}

impl Network {
    /// A network with only the loopback interface.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A network that reaches every address that is not always closed.
    #[must_use]
    pub fn open() -> Self {
        Self { mode: Mode::Open, allow: vec!["*".to_owned()], ..Self::default() }
    }

    /// A network with rules. Rules that allow everything give [`Network::open`]. A `*` in `deny` is
    /// allowed and has no effect, because destinations without a rule are denied anyway.
    ///
    /// # Errors
    /// [`Error::BadField`] for invalid rules, too many or too long rules, or `*` in both lists.
    pub fn rules(allow: &[String], deny: &[String]) -> Result<Self, Error> {
        let allow = checked("network.allow", allow)?;
        let mut deny = checked("network.deny", deny)?;
        bounded("network", &allow, &deny)?;
        let all = allow.iter().any(|rule| rule == ALL);
        if all && deny.iter().any(|rule| rule == ALL) {
            let reason = "* is in allow and in deny: leave it out of one".to_owned();
            return Err(Error::BadField { field: "network", reason });
        }
        deny.retain(|rule| rule != ALL);
        let open = all && deny.is_empty();
        Ok(if open { Self::open() } else { Self { mode: Mode::Rules, allow, deny, profile: None } })
    }

    /// A network with the current rules of a profile. Later changes of the profile do not affect
    /// it.
    pub(crate) fn of(profile: &profiles::Profile) -> Result<Self, Error> {
        let network = match profile.name.as_str() {
            profiles::NONE => Self::none(),
            _ => Self::rules(&profile.allow, &profile.deny)?,
        };
        Ok(Self { profile: Some(profile.name.clone()), ..network })
    }

    /// The mode of this network.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Allowed destinations; only `*` in the mode `open`.
    #[must_use]
    pub fn allow(&self) -> &[String] {
        &self.allow
    }

    /// Destinations that are denied, as rules in their text form.
    #[must_use]
    pub fn deny(&self) -> &[String] {
        &self.deny
    }

    /// The profile that the rules came from, unless they have changed since.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// Whether the rules allow a credential's host, as far as names can tell.
    #[must_use]
    pub fn allows(&self, credential: &InjectedCredential) -> bool {
        self.policy().is_some_and(|policy| credential.allowed(&policy))
    }

    /// The parsed rules; `None` if there is no network. A rule that cannot be parsed allows
    /// nothing.
    pub(crate) fn policy(&self) -> Option<Policy> {
        let read = |rules: &[String]| rules.iter().map(|rule| Rule::parse(rule)).collect();
        match self.mode {
            Mode::None => None,
            Mode::Open => Some(Policy::open()),
            Mode::Rules => Some(match (read(&self.allow), read(&self.deny)) {
                (Ok(allow), Ok(deny)) => Policy { allow, deny },
                _ => Policy::default(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rules: &[&str]) -> Vec<String> {
        rules.iter().map(|rule| (*rule).to_owned()).collect()
    }

    /// Promises: Q14.
    #[test]
    fn rules_are_kept_as_they_say_themselves_each_once() {
        let allow = texts(&["EXAMPLE.com.", "example.com", "10.1.2.3/8:80"]);
        let network = Network::rules(&allow, &[]).unwrap();
        assert_eq!(network.allow(), ["example.com", "10.0.0.0/8:80"]);
        assert_eq!(network.mode(), Mode::Rules);
        assert_eq!(Network::rules(&texts(&["*"]), &[]).unwrap(), Network::open());
        assert_eq!(Network::rules(&texts(&["*"]), &texts(&["a.b"])).unwrap().mode(), Mode::Rules);
        assert_eq!(Network::rules(&[], &[]).unwrap().policy(), Some(Policy::default()));
        let only = Network::rules(&texts(&["a.b"]), &texts(&["*", "c.d"])).unwrap();
        assert_eq!((only.allow(), only.deny()), (&texts(&["a.b"])[..], &texts(&["c.d"])[..]));
    }

    /// Promises: Q14.
    #[test]
    fn what_is_no_rule_is_refused_with_its_field() {
        let field = |made: Result<Network, Error>| match made {
            Err(Error::BadField { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(field(Network::rules(&texts(&["http://a"]), &[])), "network.allow");
        assert_eq!(field(Network::rules(&[], &texts(&["a b"]))), "network.deny");
        assert_eq!(field(Network::rules(&texts(&["*"]), &texts(&["*"]))), "network");
        let many: Vec<String> = (0..=RULES_MAX).map(|n| format!("a{n}.example")).collect();
        assert_eq!(field(Network::rules(&many, &[])), "network.allow");
        let label = "x".repeat(60);
        let long: Vec<String> =
            (0..RULES_MAX).map(|n| format!("{label}.{label}.{label}.{n:03}a.example")).collect();
        assert_eq!(field(Network::rules(&long, &long)), "network");
    }

    /// A record that was damaged on disk or written by another version must not open anything.
    /// Promises: Q14.
    #[test]
    fn rules_that_do_not_read_allow_nothing() {
        let stored = serde_json::json!({"mode": "rules", "allow": ["*"], "deny": ["a b"]});
        let network: Network = serde_json::from_value(stored).unwrap();
        assert_eq!(network.policy(), Some(Policy::default()));
    }
}
