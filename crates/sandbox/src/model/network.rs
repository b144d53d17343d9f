//! The network of a sandbox, as its record stores it and its callers change it.
//!
//! [`isolet_wire::network`] defines the rules. Here they are texts, as the client wrote them, so
//! that every version can read the record. [`denied`] describes what they refused.

pub(crate) mod change;
pub(crate) mod denied;
pub mod lent;
pub mod profiles;
pub(crate) mod traffic;

pub use change::{NetworkChange, Opening};
pub use denied::{DENIED_MAX, Denied};
pub use isolet_wire::network::Refused;
pub use lent::{CredentialRemoval, CredentialSpec, InjectedCredential};
pub use traffic::Traffic;

use crate::model::error::Error;
use isolet_wire::network::{POLICY_BYTES_MAX, Policy, RULES_MAX, Rule};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
};

/// What there is of a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Loopback alone.
    #[default]
    None,
    /// Everything that is not closed whatever the rules say.
    Open,
    /// What the rules allow.
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

/// Where a sandbox may connect to. Its rules were checked, and read as they say themselves.
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

/// What a caller wants a network to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkSpec {
    /// Loopback alone.
    None,
    /// Everything that is not closed.
    Open,
    /// What these rules allow.
    Rules {
        /// What is allowed; empty: nothing.
        allow: Vec<String>,
        /// What is refused, also where `allow` has it.
        deny: Vec<String>,
    },
    /// The rules of a profile, as it is now.
    Profile(String),
}

/// What whoever runs the server has set for networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Who is asked for names; the host's own resolvers when empty.
    pub resolvers: Vec<SocketAddr>,
    /// Networks that rules may open though they are closed otherwise.
    pub opened: Vec<(Ipv4Addr, u8)>,
    /// The network of a sandbox that names none.
    pub default: Network,
    /// Profiles of every tenant, by name.
    pub profiles: BTreeMap<String, profiles::Profile>,
    /// First of the 65,536 addresses that sandboxes and their gateway have. Another holds once the
    /// process that owns links is started anew.
    pub range: Ipv4Addr,
    /// Connections of one sandbox at once.
    pub connections_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let links = isolet_wire::veth::Settings::default();
        let (resolvers, opened, default) = Default::default();
        let range = links.range;
        let connections_max = links.connections_max;
        Self { resolvers, opened, default, profiles: BTreeMap::new(), range, connections_max }
    }
}

/// The rule that holds for everything.
pub(crate) const ALL: &str = "*";

/// Rules as they say themselves, each once.
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

/// Whether a packet holds them all.
pub(crate) fn bounded(field: &'static str, allow: &[String], deny: &[String]) -> Result<(), Error> {
    let bytes: usize = allow.iter().chain(deny).map(String::len).sum();
    if bytes > POLICY_BYTES_MAX {
        let reason = format!("{bytes} bytes of rules, at most {POLICY_BYTES_MAX}");
        return Err(Error::BadField { field, reason });
    }
    Ok(())
}

impl Network {
    /// Loopback alone.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Everything that is not closed.
    #[must_use]
    pub fn open() -> Self {
        Self { mode: Mode::Open, allow: vec!["*".to_owned()], ..Self::default() }
    }

    /// What rules allow. Those that allow everything are [`Network::open`]. `*` in `deny` says what
    /// holds anyway, that all else is refused: it takes nothing from what is allowed.
    ///
    /// # Errors
    /// [`Error::BadField`]: not rules, too many, too long, or `*` in both.
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

    /// What a profile says now; changes to it later change no sandbox.
    pub(crate) fn of(profile: &profiles::Profile) -> Result<Self, Error> {
        let network = match profile.name.as_str() {
            profiles::NONE => Self::none(),
            _ => Self::rules(&profile.allow, &profile.deny)?,
        };
        Ok(Self { profile: Some(profile.name.clone()), ..network })
    }

    /// What there is of it.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What is allowed; `*` alone of one that is open.
    #[must_use]
    pub fn allow(&self) -> &[String] {
        &self.allow
    }

    /// What is refused.
    #[must_use]
    pub fn deny(&self) -> &[String] {
        &self.deny
    }

    /// The profile that its rules were taken from, unless they were changed since.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// Whether its rules let the host of a credential be reached, as far as names tell.
    #[must_use]
    pub fn allows(&self, lent: &InjectedCredential) -> bool {
        self.policy().is_some_and(|policy| lent.allowed(&policy))
    }

    /// The rules as they are carried out; `None`: there is no way out to rule. Rules that do not
    /// read allow nothing.
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

    /// What an operator's disk or another version has made of a record must not open anything.
    /// Promises: Q14.
    #[test]
    fn rules_that_do_not_read_allow_nothing() {
        let stored = serde_json::json!({"mode": "rules", "allow": ["*"], "deny": ["a b"]});
        let network: Network = serde_json::from_value(stored).unwrap();
        assert_eq!(network.policy(), Some(Policy::default()));
    }
}
