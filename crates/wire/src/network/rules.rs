//! Egress rules and how a policy decides.

use super::addresses::{mask, within};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of rules in one list.
pub const RULES_MAX: usize = 256;
/// Maximum length of a rule, in bytes: a host name with a port.
pub const RULE_BYTES_MAX: usize = 260;
/// Maximum size of all rules of a policy as text, in bytes, so that a policy fits into a packet.
pub const POLICY_BYTES_MAX: usize = 48 * 1024;
/// Maximum length of a host name, in bytes.
pub const NAME_BYTES_MAX: usize = 253;

/// The egress rules of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Allowed destinations; an empty list allows nothing.
    pub allow: Vec<Rule>,
    /// Denied destinations, which win over `allow`.
    pub deny: Vec<Rule>,
}

/// An egress rule: a destination and its ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The hosts or addresses that the rule applies to.
    pub place: RuleTarget,
    /// The only port that the rule applies to; `None` means every port.
    pub port: Option<u16>,
}

/// The hosts or addresses that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleTarget {
    /// Every destination; `*` as text.
    Any,
    /// An address, or all addresses that share the first `bits` bits.
    Network {
        /// The first address of the network.
        address: IpAddr,
        /// Length of the prefix, 0 to 32 for IPv4 and 0 to 128 for IPv6.
        bits: u8,
    },
    /// A host name in lower case, without a trailing dot.
    Name(String),
    /// Every name below this one, but not the name itself; `*.` and the name as text.
    Subdomains(String),
}

/// The text is not a valid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no host, address, network or *, with or without :PORT")]
pub struct BadRule;

impl Rule {
    /// Parses a rule: `*`, a host name, `*.` and a host name, an address, or a network
    /// (`10.0.0.0/8`), each with or without `:PORT`. An IPv6 address with a port needs brackets.
    ///
    /// # Errors
    /// [`BadRule`] for any other text.
    pub fn parse(text: &str) -> Result<Self, BadRule> {
        if text.len() > RULE_BYTES_MAX {
            return Err(BadRule);
        }
        if let Some(place) = RuleTarget::parse(text) {
            return Ok(Self { place, port: None });
        }
        let (place, port) = text.rsplit_once(':').ok_or(BadRule)?;
        let inner = place.strip_prefix('[').and_then(|place| place.strip_suffix(']'));
        let place = inner.filter(|place| place.contains(':')).unwrap_or(place);
        let port = Some(port)
            .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|port| port.parse::<u16>().ok())
            .filter(|port| *port > 0)
            .ok_or(BadRule)?;
        let place = RuleTarget::parse(place).ok_or(BadRule)?;
        Ok(Self { place, port: Some(port) })
    }

    pub(crate) fn matches(&self, to: &NetworkDestination<'_>) -> bool {
        self.port.is_none_or(|port| Some(port) == to.port) && self.place.matches(to)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, self.port) {
            (RuleTarget::Network { address: IpAddr::V6(_), .. }, Some(port)) => {
                write!(out, "[{}]:{port}", self.place)
            }
            (place, Some(port)) => write!(out, "{place}:{port}"),
            (place, None) => write!(out, "{place}"),
        }
    }
}

impl RuleTarget {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Network { address, bits: width(address) });
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address = address.parse::<IpAddr>().ok()?;
            let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
            let bits = bits.parse().ok().filter(|bits| digits && *bits <= width(address))?;
            return Some(Self::Network { address: first(address, bits), bits });
        }
        match text.strip_prefix("*.") {
            Some(is_subdomain) => Some(Self::Subdomains(host(is_subdomain)?)),
            None => Some(Self::Name(host(text)?)),
        }
    }

    fn matches(&self, to: &NetworkDestination<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Network { address, bits } => {
                to.address.is_some_and(|it| within(IpAddr::V4(it), *address, *bits))
            }
            Self::Name(name) => to.name.is_some_and(|it| is_same_host(it, name)),
            Self::Subdomains(name) => to.name.is_some_and(|it| is_subdomain(it, name)),
        }
    }

    /// Whether the rule can only be applied if the host name of the destination is known.
    #[must_use]
    pub fn is_name(&self) -> bool {
        matches!(self, Self::Name(_) | Self::Subdomains(_))
    }
}

impl fmt::Display for RuleTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => out.write_str("*"),
            Self::Network { address, bits } if *bits == width(*address) => write!(out, "{address}"),
            Self::Network { address, bits } => write!(out, "{address}/{bits}"),
            Self::Name(name) => out.write_str(name),
            Self::Subdomains(name) => write!(out, "*.{name}"),
        }
    }
}

/// Normalises a host name to lower case without a trailing dot; `None` if the text is not a host
/// name.
#[must_use]
pub fn host(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        let letters =
            label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        !label.is_empty()
            && label.len() <= 63
            && letters
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name that ends with a number could be read as an address, so it is refused.
    let last = text.rsplit('.').next().unwrap_or_default();
    let good = text.len() <= NAME_BYTES_MAX
        && text.split('.').all(label)
        && !last.bytes().all(|byte| byte.is_ascii_digit());
    good.then(|| text.to_ascii_lowercase())
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn first(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(it) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() & keep))
        }
        IpAddr::V6(it) => IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() & mask(bits))),
    }
}

fn bare(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn is_same_host(name: &str, rule: &str) -> bool {
    bare(name).eq_ignore_ascii_case(rule)
}

fn is_subdomain(name: &str, rule: &str) -> bool {
    let name = bare(name).as_bytes();
    let Some(split) = name.len().checked_sub(rule.len() + 1) else { return false };
    split > 0 && name[split] == b'.' && name[split + 1..].eq_ignore_ascii_case(rule.as_bytes())
}

/// The destination of a connection or lookup, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkDestination<'a> {
    /// The name that was looked up, or that the connection announces.
    pub name: Option<&'a str>,
    /// The destination's IPv4 address.
    pub address: Option<Ipv4Addr>,
    /// The port. Without one, as in a lookup, every allow rule can match, but only deny rules
    /// without a port.
    pub port: Option<u16>,
}

/// The decision of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Allowed by this rule.
    Allowed(&'a Rule),
    /// Denied by this `deny` rule; `None` means that no rule allows the destination.
    Refused(Option<&'a Rule>),
}

impl Policy {
    /// A policy that allows every address that is not [`closed`](super::closed).
    #[must_use]
    pub fn open() -> Self {
        Self { allow: vec![Rule { place: RuleTarget::Any, port: None }], deny: Vec::new() }
    }

    /// Decides about one connection or lookup.
    #[must_use]
    pub fn decide(&self, to: &NetworkDestination<'_>) -> Verdict<'_> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.matches(to)) {
            return Verdict::Refused(Some(rule));
        }
        let lookup = to.port.is_none();
        let allows = |rule: &&Rule| if lookup { rule.place.matches(to) } else { rule.matches(to) };
        self.allow.iter().find(allows).map_or(Verdict::Refused(None), Verdict::Allowed)
    }

    /// Whether addresses are enough to decide, because no rule names a host.
    #[must_use]
    pub fn by_address(&self) -> bool {
        !self.allow.iter().chain(&self.deny).any(|rule| rule.place.is_name())
    }

    /// Size of all rules as text, in bytes, to compare with [`POLICY_BYTES_MAX`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.allow.iter().chain(&self.deny).map(|rule| rule.to_string().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| Rule::parse(text).expect(text)).collect()
    }

    fn to<'a>(name: Option<&'a str>, address: [u8; 4], port: u16) -> NetworkDestination<'a> {
        NetworkDestination { name, address: Some(address.into()), port: Some(port) }
    }

    #[test]
    fn a_rule_is_a_place_with_or_without_a_port_and_says_itself() {
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
            "[fd00::/8]:443",
        ] {
            assert_eq!(Rule::parse(good).expect(good).to_string(), good);
        }
        assert_eq!(Rule::parse("EXAMPLE.com.:80").expect("a rule").to_string(), "example.com:80");
        assert_eq!(Rule::parse("10.1.2.3/8").expect("a rule").to_string(), "10.0.0.0/8");
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
            "a.1",
            &long,
        ] {
            assert_eq!(Rule::parse(bad), Err(BadRule), "{bad:?}");
        }
    }

    #[test]
    fn deny_goes_before_allow_and_what_no_rule_allows_is_refused() {
        let policy = Policy {
            allow: rules(&["*.example.com", "93.184.0.0/16:443", "git.example.net:22"]),
            deny: rules(&["bad.example.com", "93.184.216.34"]),
        };
        let allowed =
            |to: NetworkDestination<'_>| matches!(policy.decide(&to), Verdict::Allowed(_));
        assert!(allowed(to(Some("www.EXAMPLE.com."), [1, 2, 3, 4], 80)));
        assert!(!allowed(to(Some("example.com"), [1, 2, 3, 4], 80)));
        assert!(!allowed(to(Some("wwwexample.com"), [1, 2, 3, 4], 80)));
        assert!(!allowed(to(Some("bad.example.com"), [1, 2, 3, 4], 80)));
        assert!(allowed(to(None, [93, 184, 1, 1], 443)));
        assert!(!allowed(to(None, [93, 184, 1, 1], 80)));
        assert!(!allowed(to(Some("www.example.com"), [93, 184, 216, 34], 443)));
        assert!(allowed(to(Some("git.example.net"), [1, 1, 1, 1], 22)));
        assert!(!allowed(to(Some("git.example.net"), [1, 1, 1, 1], 443)));
        let lookup =
            NetworkDestination { name: Some("git.example.net"), ..NetworkDestination::default() };
        assert!(allowed(lookup), "a name that is allowed for one port can be looked up");
        assert_eq!(policy.decide(&to(None, [9, 9, 9, 9], 53)), Verdict::Refused(None));
    }

    #[test]
    fn names_need_somebody_who_knows_them() {
        assert!(Policy::open().by_address());
        let named = Policy { deny: rules(&["a.example"]), ..Policy::open() };
        assert!(!named.by_address());
    }
}
