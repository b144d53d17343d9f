//! The ranges of the packet filter allow exactly what the rules allow.

use super::*;
use isolet_wire::network::{NetworkDestination, Verdict};
use proptest::prelude::*;

fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).expect(text)).collect();
    Policy { allow: rules(allow), deny: rules(deny) }
}

fn holds(ranges: &[AllowedRange], address: Ipv4Addr, port: u16) -> bool {
    ranges.iter().any(|range| {
        (range.first..=range.last).contains(&address)
            && range.ports.iter().any(|(first, last)| (*first..=*last).contains(&port))
    })
}

#[test]
fn a_mode_follows_from_the_rules() {
    for (allow, deny, expected) in [
        (&[][..], &[][..], PolicyMode::Closed),
        (&["*"], &[], PolicyMode::Open),
        (&["*"], &["1.2.3.4"], PolicyMode::Addresses),
        (&["1.2.3.4"], &[], PolicyMode::Addresses),
        (&["example.com"], &[], PolicyMode::Names),
        (&["*"], &["example.com"], PolicyMode::Names),
        (&[], &["example.com"], PolicyMode::Closed),
    ] {
        assert_eq!(policy_mode(&policy(allow, deny)), expected, "{allow:?} {deny:?}");
    }
}

#[test]
fn with_denied_names_everything_else_goes_through_the_proxy() {
    assert!(allowed_ranges(&policy(&["*"], &["example.com"])).is_empty());
    let ranges = allowed_ranges(&policy(&["*", "1.2.3.0/24"], &["example.com"]));
    assert_eq!(ranges.len(), 1);
    assert!(ranges[0].all_ports() && ranges[0].last == Ipv4Addr::new(1, 2, 3, 255));
}

fn rule() -> impl Strategy<Value = Rule> {
    let address = (0_u8..4, 0_u8..4, 24_u8..=32).prop_map(|(third, fourth, bits)| {
        Rule::parse(&format!("9.9.{third}.{}/{bits}", fourth * 64)).expect("a rule").place
    });
    let place = prop_oneof![1 => Just(RuleTarget::Any), 6 => address];
    let port = prop_oneof![Just(None), (1_u16..4).prop_map(Some), Just(Some(65_535))];
    (place, port).prop_map(|(place, port)| Rule { place, port })
}

proptest! {
    /// Promises: Q4.
    #[test]
    fn ranges_allow_what_rules_allow_and_do_not_overlap(
        allow in prop::collection::vec(rule(), 0..6),
        deny in prop::collection::vec(rule(), 0..6),
    ) {
        let policy = Policy { allow, deny };
        let ranges = allowed_ranges(&policy);
        for pair in ranges.windows(2) {
            prop_assert!(pair[0].last < pair[1].first);
        }
        for third in 0..5_u8 {
            for fourth in [0, 1, 63, 64, 127, 128, 192, 255] {
                for port in [1, 2, 3, 4, 80, 65_534, 65_535] {
                    let address = Ipv4Addr::new(9, 9, third, fourth);
                    let to = NetworkDestination { name: None, address: Some(address), port: Some(port) };
                    let by_rule = matches!(policy.decide(&to), Verdict::Allowed(_));
                    prop_assert_eq!(holds(&ranges, address, port), by_rule, "{}:{}", address, port);
                }
            }
        }
    }
}
