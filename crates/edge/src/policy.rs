//! What becomes of a connection: pure, so that every way round the rules can be written down.

use isolet_wire::network::{PROTOCOL, Place, Policy, Rule, To, Verdict};
use std::net::{Ipv4Addr, SocketAddrV4};

/// What a connection has shown of the host that it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown<'a> {
    /// The name that TLS or HTTP asks for.
    Name(&'a str),
    /// TLS that names nobody.
    Nameless,
    /// TLS that may hide the name that counts.
    Hidden,
    /// HTTP that asks for an address.
    Address(Ipv4Addr),
    /// Another protocol: it shows nothing.
    Nothing,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// Dial the address that was asked for.
    Straight,
    /// Dial an address that was answered for this name; straight if that is what was asked for.
    ByName(String),
    /// Refuse, by this rule or for this reason.
    Refuse(String),
}

/// Ports on which only TLS and HTTP are carried by the name of a host: one address serves many
/// names there.
const WEB: [u16; 2] = [80, 443];

/// Judges a connection to `to`; `names` are those that the address was answered for.
#[must_use]
pub(crate) fn judge(policy: &Policy, to: SocketAddrV4, shown: Shown<'_>, names: &[String]) -> Way {
    let about = |name| To { name, address: Some(*to.ip()), port: Some(to.port()) };
    match shown {
        Shown::Name(name) => match policy.judge(&about(Some(name))) {
            Verdict::Allowed(rule) if rule.place.is_name() => Way::ByName(name.to_owned()),
            Verdict::Allowed(_) => Way::Straight,
            Verdict::Refused(rule) => Way::Refuse(said(rule)),
        },
        // Somebody who serves many addresses would listen to what it says, not to where it came.
        Shown::Address(said) if said != *to.ip() => Way::Refuse("other host".to_owned()),
        Shown::Address(_) => by_address(policy, &about(None), None),
        Shown::Nameless => by_address(policy, &about(None), Some("no name")),
        Shown::Hidden => by_address(policy, &about(None), Some("hidden name")),
        Shown::Nothing => unnamed(policy, to, names),
    }
}

/// By the address alone; `lacks` is why that is not enough where names are denied, or a name
/// would have been allowed.
fn by_address(policy: &Policy, to: &To<'_>, lacks: Option<&str>) -> Way {
    let names_denied = policy.deny.iter().any(|rule| rule.place.is_name());
    match (policy.judge(to), lacks) {
        (Verdict::Allowed(rule), Some(lacks)) if rule.place == Place::Any && names_denied => {
            Way::Refuse(lacks.to_owned())
        }
        (Verdict::Allowed(_), _) => Way::Straight,
        (Verdict::Refused(None), Some(lacks)) => Way::Refuse(lacks.to_owned()),
        (Verdict::Refused(rule), _) => Way::Refuse(said(rule)),
    }
}

/// A protocol that shows no name: what counts is the name that its address was answered for.
fn unnamed(policy: &Policy, to: SocketAddrV4, names: &[String]) -> Way {
    let about = |name| To { name, address: Some(*to.ip()), port: Some(to.port()) };
    let verdicts = || names.iter().map(|name| policy.judge(&about(Some(name))));
    if let Some(rule) = verdicts().find_map(|verdict| match verdict {
        Verdict::Refused(Some(rule)) => Some(rule),
        _ => None,
    }) {
        return Way::Refuse(rule.to_string());
    }
    match policy.judge(&about(None)) {
        Verdict::Allowed(_) => return Way::Straight,
        Verdict::Refused(Some(rule)) => return Way::Refuse(rule.to_string()),
        Verdict::Refused(None) => {}
    }
    let with_port = policy.allow.iter().filter(|rule| rule.port.is_some()).cloned().collect();
    let with_port = Policy { allow: with_port, deny: Vec::new() };
    let allowed = |policy: &Policy| {
        let mut each = names.iter().map(|name| policy.judge(&about(Some(name))));
        each.any(|verdict| matches!(verdict, Verdict::Allowed(_)))
    };
    let web = WEB.contains(&to.port());
    if allowed(&with_port) && !web {
        return Way::Straight;
    }
    let reason = match allowed(policy) {
        false => "default",
        // No rule with a name opens that.
        true if web => "no name",
        true => PROTOCOL,
    };
    Way::Refuse(reason.to_owned())
}

/// Whether a protocol that shows no name may be spoken with this address at all.
#[must_use]
pub(crate) fn may_be_unnamed(policy: &Policy, to: SocketAddrV4, names: &[String]) -> bool {
    matches!(judge(policy, to, Shown::Nothing, names), Way::Straight)
}

/// How a refusal names its rule.
#[must_use]
pub(crate) fn said(rule: Option<&Rule>) -> String {
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

    fn refused(rule: &str) -> Way {
        Way::Refuse(rule.to_owned())
    }

    #[test]
    fn a_name_is_held_to_the_rules_whatever_the_address_was_answered_for() {
        let rules = policy(&["good.example", "*.wild.example:443"], &["bad.wild.example"]);
        let good = ["good.example".to_owned()];
        let judge = |port, shown| judge(&rules, to(port), shown, &good);
        assert_eq!(judge(443, Shown::Name("good.example")), Way::ByName("good.example".into()));
        assert_eq!(judge(443, Shown::Name("evil.example")), refused("default"));
        assert_eq!(judge(443, Shown::Name("a.wild.example")), Way::ByName("a.wild.example".into()));
        assert_eq!(judge(80, Shown::Name("a.wild.example")), refused("default"));
        assert_eq!(judge(443, Shown::Name("bad.wild.example")), refused("bad.wild.example"));
        assert_eq!(judge(443, Shown::Nameless), refused("no name"));
        assert_eq!(judge(443, Shown::Hidden), refused("hidden name"));
        assert_eq!(judge(80, Shown::Address(*to(80).ip())), refused("default"));
        assert_eq!(judge(22, Shown::Nothing), refused("protocol"));
    }

    #[test]
    fn addresses_that_rules_allow_need_no_name() {
        let rules = policy(&["198.51.100.0/24"], &["198.51.100.7:25"]);
        for shown in [Shown::Nameless, Shown::Hidden, Shown::Nothing, Shown::Name("any.example")] {
            assert_eq!(judge(&rules, to(443), shown, &[]), Way::Straight, "{shown:?}");
            assert!(matches!(judge(&rules, to(25), shown, &[]), Way::Refuse(_)), "{shown:?}");
        }
        let other = Ipv4Addr::new(198, 51, 100, 8);
        assert_eq!(judge(&rules, to(80), Shown::Address(other), &[]), refused("other host"));
        assert_eq!(judge(&rules, to(80), Shown::Address(*to(80).ip()), &[]), Way::Straight);
    }

    #[test]
    fn where_names_are_denied_nobody_comes_through_without_one() {
        let rules = policy(&["*"], &["bad.example"]);
        assert_eq!(judge(&rules, to(443), Shown::Nameless, &[]), refused("no name"));
        assert_eq!(judge(&rules, to(443), Shown::Hidden, &[]), refused("hidden name"));
        assert_eq!(judge(&rules, to(443), Shown::Name("good.example"), &[]), Way::Straight);
        assert_eq!(judge(&rules, to(443), Shown::Name("bad.example"), &[]), refused("bad.example"));
        let names = ["bad.example".to_owned()];
        assert_eq!(judge(&rules, to(22), Shown::Nothing, &names), refused("bad.example"));
        assert_eq!(judge(&rules, to(22), Shown::Nothing, &[]), Way::Straight);
    }

    #[test]
    fn an_address_that_is_denied_is_refused_by_its_rule_whatever_is_spoken() {
        let rules = policy(&["*:22", "git.example:22"], &["198.51.100.0/24"]);
        let git = ["git.example".to_owned()];
        for (shown, names) in
            [(Shown::Nothing, &git[..]), (Shown::Nothing, &[]), (Shown::Nameless, &[])]
        {
            assert_eq!(
                judge(&rules, to(22), shown, names),
                refused("198.51.100.0/24"),
                "{shown:?}"
            );
        }
    }

    #[test]
    fn other_protocols_need_a_rule_with_their_port() {
        let rules = policy(&["git.example"], &[]);
        let git = ["git.example".to_owned()];
        assert_eq!(judge(&rules, to(22), Shown::Nothing, &git), refused("protocol"));
        let rules = policy(&["*.example:443", "git.example:22", "web.example:443"], &[]);
        assert_eq!(judge(&rules, to(22), Shown::Nothing, &git), Way::Straight);
        assert_eq!(judge(&rules, to(22), Shown::Nothing, &[]), refused("default"));
        assert_eq!(judge(&rules, to(23), Shown::Nothing, &git), refused("default"));
        let web = ["web.example".to_owned()];
        assert_eq!(judge(&rules, to(443), Shown::Nothing, &web), refused("no name"));
        assert_eq!(judge(&rules, to(443), Shown::Nothing, &git), refused("no name"));
        assert!(may_be_unnamed(&rules, to(22), &git) && !may_be_unnamed(&rules, to(443), &web));
        let rules = policy(&["web.example", "198.51.100.7:443"], &[]);
        assert_eq!(judge(&rules, to(443), Shown::Nothing, &web), Way::Straight);
    }
}
