//! The decision on a connection. It is pure, so that each attempt to bypass the rules is a test.

use isolet_wire::network::{NetworkDestination, PROTOCOL, Policy, Rule, RuleTarget, Verdict};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The host that a connection asks for, as far as its first bytes show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The SNI of TLS, or the `Host` of HTTP.
    Name(String),
    /// TLS without SNI, or HTTP without `Host`.
    NoName,
    /// TLS whose ClientHello may hide the name that counts; with the name that it shows.
    HiddenName(Option<String>),
    /// HTTP that asks for an address.
    Address(Ipv4Addr),
    /// Another protocol, which names no host; or nothing was read yet.
    Unknown,
}

/// What to do with a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Dial the address that the sandbox connected to.
    DialOriginal,
    /// Dial an address of this name: the one that the sandbox connected to, if the name was
    /// resolved to it.
    DialName(String),
    /// Deny it, by this rule or for this reason.
    Deny(String),
}

/// Ports on which TLS and HTTP always need the name of a host: one address serves many names there.
const WEB_PORTS: [u16; 2] = [80, 443];

/// Decides on a connection to `address`; `names` are those that were resolved to the address.
#[must_use]
pub(crate) fn decide(
    policy: &Policy,
    address: SocketAddrV4,
    destination: &Destination,
    names: &[String],
) -> Decision {
    let by_address = |missing| decide_by_address(policy, &request_for(address, None), missing);
    match destination {
        Destination::Name(name) => match policy.decide(&request_for(address, Some(name))) {
            Verdict::Allowed(rule) if rule.place.is_name() => Decision::DialName(name.clone()),
            Verdict::Allowed(_) => Decision::DialOriginal,
            Verdict::Refused(rule) => Decision::Deny(rule_text(rule)),
        },
        // A server with many addresses would follow the request, not the address of the connection.
        Destination::Address(asked) if asked != address.ip() => {
            Decision::Deny("other host".to_owned())
        }
        Destination::Address(_) => by_address(None),
        Destination::NoName => by_address(Some("no name")),
        Destination::HiddenName(_) => by_address(Some("hidden name")),
        Destination::Unknown => decide_unnamed(policy, address, names),
    }
}

fn request_for(address: SocketAddrV4, name: Option<&str>) -> NetworkDestination<'_> {
    NetworkDestination { name, address: Some(*address.ip()), port: Some(address.port()) }
}

/// Decides only by the address. `missing` is the reason to deny where that is not enough: a rule
/// denies some name, or only a name would have been allowed.
fn decide_by_address(
    policy: &Policy,
    to: &NetworkDestination<'_>,
    missing: Option<&str>,
) -> Decision {
    let names_denied = policy.deny.iter().any(|rule| rule.place.is_name());
    match (policy.decide(to), missing) {
        (Verdict::Allowed(rule), Some(missing))
            if rule.place == RuleTarget::Any && names_denied =>
        {
            Decision::Deny(missing.to_owned())
        }
        (Verdict::Allowed(_), _) => Decision::DialOriginal,
        (Verdict::Refused(None), Some(missing)) => Decision::Deny(missing.to_owned()),
        (Verdict::Refused(rule), _) => Decision::Deny(rule_text(rule)),
    }
}

/// Decides on a protocol that names no host, by the names that were resolved to its address.
fn decide_unnamed(policy: &Policy, address: SocketAddrV4, names: &[String]) -> Decision {
    let verdict = |name: &String| policy.decide(&request_for(address, Some(name)));
    let denied_by = names.iter().map(verdict).find_map(|verdict| match verdict {
        Verdict::Refused(Some(rule)) => Some(rule),
        _ => None,
    });
    if let Some(rule) = denied_by {
        return Decision::Deny(rule.to_string());
    }
    match policy.decide(&request_for(address, None)) {
        Verdict::Allowed(_) => return Decision::DialOriginal,
        Verdict::Refused(Some(rule)) => return Decision::Deny(rule.to_string()),
        Verdict::Refused(None) => {}
    }
    let allow = policy.allow.iter().filter(|rule| rule.port.is_some()).cloned().collect();
    let rules_with_port = Policy { allow, deny: Vec::new() };
    let allowed_by = |policy: &Policy| {
        let mut verdicts =
            names.iter().map(|name| policy.decide(&request_for(address, Some(name))));
        verdicts.any(|verdict| matches!(verdict, Verdict::Allowed(_)))
    };
    let is_web = WEB_PORTS.contains(&address.port());
    if allowed_by(&rules_with_port) && !is_web {
        return Decision::DialOriginal;
    }
    let reason = match allowed_by(policy) {
        false => "default",
        // No rule with a name allows this.
        true if is_web => "no name",
        true => PROTOCOL,
    };
    Decision::Deny(reason.to_owned())
}

/// Whether a connection to this address may speak a protocol that names no host.
#[must_use]
pub(crate) fn may_be_unnamed(policy: &Policy, address: SocketAddrV4, names: &[String]) -> bool {
    decide(policy, address, &Destination::Unknown, names) == Decision::DialOriginal
}

/// The rule as denials name it.
#[must_use]
pub(crate) fn rule_text(rule: Option<&Rule>) -> String {
    rule.map_or_else(|| "default".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let rules = |texts: &[&str]| {
            texts.iter().map(|text| Rule::parse(text).expect(text)).collect::<Vec<_>>()
        };
        Policy { allow: rules(allow), deny: rules(deny) }
    }

    fn to(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), port)
    }

    fn name(text: &str) -> Destination {
        Destination::Name(text.to_owned())
    }

    fn denied(rule: &str) -> Decision {
        Decision::Deny(rule.to_owned())
    }

    #[test]
    fn a_name_is_checked_by_the_rules_whatever_was_resolved_to_the_address() {
        let rules = policy(&["good.example", "*.wild.example:443"], &["bad.wild.example"]);
        let good = ["good.example".to_owned()];
        let decide = |port, destination| decide(&rules, to(port), &destination, &good);
        assert_eq!(decide(443, name("good.example")), Decision::DialName("good.example".into()));
        assert_eq!(decide(443, name("evil.example")), denied("default"));
        assert_eq!(
            decide(443, name("a.wild.example")),
            Decision::DialName("a.wild.example".into())
        );
        assert_eq!(decide(80, name("a.wild.example")), denied("default"));
        assert_eq!(decide(443, name("bad.wild.example")), denied("bad.wild.example"));
        assert_eq!(decide(443, Destination::NoName), denied("no name"));
        assert_eq!(decide(443, Destination::HiddenName(None)), denied("hidden name"));
        assert_eq!(decide(80, Destination::Address(*to(80).ip())), denied("default"));
        assert_eq!(decide(22, Destination::Unknown), denied("protocol"));
    }

    #[test]
    fn addresses_that_rules_allow_need_no_name() {
        let rules = policy(&["198.51.100.0/24"], &["198.51.100.7:25"]);
        for destination in [
            Destination::NoName,
            Destination::HiddenName(None),
            Destination::Unknown,
            name("any.example"),
        ] {
            assert_eq!(
                decide(&rules, to(443), &destination, &[]),
                Decision::DialOriginal,
                "{destination:?}"
            );
            assert!(
                matches!(decide(&rules, to(25), &destination, &[]), Decision::Deny(_)),
                "{destination:?}"
            );
        }
        let other = Ipv4Addr::new(198, 51, 100, 8);
        assert_eq!(decide(&rules, to(80), &Destination::Address(other), &[]), denied("other host"));
        assert_eq!(
            decide(&rules, to(80), &Destination::Address(*to(80).ip()), &[]),
            Decision::DialOriginal
        );
    }

    #[test]
    fn where_names_are_denied_a_connection_without_one_is_denied() {
        let rules = policy(&["*"], &["bad.example"]);
        assert_eq!(decide(&rules, to(443), &Destination::NoName, &[]), denied("no name"));
        assert_eq!(
            decide(&rules, to(443), &Destination::HiddenName(None), &[]),
            denied("hidden name")
        );
        assert_eq!(decide(&rules, to(443), &name("good.example"), &[]), Decision::DialOriginal);
        assert_eq!(decide(&rules, to(443), &name("bad.example"), &[]), denied("bad.example"));
        let names = ["bad.example".to_owned()];
        assert_eq!(decide(&rules, to(22), &Destination::Unknown, &names), denied("bad.example"));
        assert_eq!(decide(&rules, to(22), &Destination::Unknown, &[]), Decision::DialOriginal);
    }

    /// Promises: Q30.
    #[test]
    fn a_denied_address_is_denied_by_its_rule_whatever_the_protocol() {
        let rules = policy(&["*:22", "git.example:22"], &["198.51.100.0/24"]);
        let git = ["git.example".to_owned()];
        for (destination, names) in [
            (Destination::Unknown, &git[..]),
            (Destination::Unknown, &[]),
            (Destination::NoName, &[]),
        ] {
            assert_eq!(
                decide(&rules, to(22), &destination, names),
                denied("198.51.100.0/24"),
                "{destination:?}"
            );
        }
    }

    #[test]
    fn other_protocols_need_a_rule_with_their_port() {
        let rules = policy(&["git.example"], &[]);
        let git = ["git.example".to_owned()];
        assert_eq!(decide(&rules, to(22), &Destination::Unknown, &git), denied("protocol"));
        let rules = policy(&["*.example:443", "git.example:22", "web.example:443"], &[]);
        assert_eq!(decide(&rules, to(22), &Destination::Unknown, &git), Decision::DialOriginal);
        assert_eq!(decide(&rules, to(22), &Destination::Unknown, &[]), denied("default"));
        assert_eq!(decide(&rules, to(23), &Destination::Unknown, &git), denied("default"));
        let web = ["web.example".to_owned()];
        assert_eq!(decide(&rules, to(443), &Destination::Unknown, &web), denied("no name"));
        assert_eq!(decide(&rules, to(443), &Destination::Unknown, &git), denied("no name"));
        assert!(may_be_unnamed(&rules, to(22), &git) && !may_be_unnamed(&rules, to(443), &web));
        let rules = policy(&["web.example", "198.51.100.7:443"], &[]);
        assert_eq!(decide(&rules, to(443), &Destination::Unknown, &web), Decision::DialOriginal);
    }
}
