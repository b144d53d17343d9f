//! Rules on addresses, and changes of rules while connections are open.

use crate::fixture::{VethFixture, policy, says, tries};
use isolet_jail::{VethError, VethSettings};
use isolet_kit::net::{self, HOST, OTHER, PRIVATE, PUBLIC};

/// Promises: Q4.
#[test]
fn rules_hold_by_address_and_port_and_name_what_they_refuse() {
    let fixture = VethFixture::new();
    let (veth, network) =
        fixture.claim(&["198.51.100.0/24:80", "203.0.113.0/24"], &["203.0.113.20:443"]);
    let places = [(&*PUBLIC.to_string(), 80), (&*PUBLIC.to_string(), 443)];
    let more = [(&*OTHER.to_string(), 80), (&*OTHER.to_string(), 443)];
    let said = says(&network, &tries(&[places, more].concat()));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], format!("{HOST} {PUBLIC}"));
    assert!(lines[1].starts_with("ConnectionRefused"), "{said}");
    assert_eq!(lines[2], format!("{HOST} {OTHER}"));
    assert!(lines[3].starts_with("ConnectionRefused"), "{said}");
    let denials = fixture.denials();
    let rules: Vec<_> = denials.iter().map(|it| (it.host.clone(), it.rule.as_str())).collect();
    assert_eq!(rules, [(PUBLIC.to_string(), "default"), (OTHER.to_string(), "203.0.113.20:443")]);

    fixture
        .client
        .set_policy(veth.id, &policy(&["198.51.100.10:443"], &[]))
        .expect("the rules are changed");
    let said = says(&network, &tries(&[places, more].concat()));
    let open: Vec<bool> = said.lines().map(|line| line.starts_with(&HOST.to_string())).collect();
    assert_eq!(open, [false, true, false, false], "{said}");
}

/// Connections that a change of rules ends.
const LOADS: usize = 4;

/// Promises: Q4.
#[test]
fn removing_a_rule_ends_open_connections() {
    let fixture = VethFixture::new();
    let (veth, network) = fixture.claim(&["198.51.100.10"], &[]);
    let mut runs = net::background(
        &network,
        &format!(
            "import socket, threading\ndef load():\n    \
             it = socket.create_connection(('{PUBLIC}', 81))\n    seen = 0\n    try:\n        \
             while True:\n            data = it.recv(1 << 16)\n            seen += len(data)\n            \
             if seen > 1 << 20 and seen - len(data) <= 1 << 20: print('runs\\n', end='')\n            \
             if not data: break\n    except OSError as error:\n        print(type(error).__name__ + '\\n', end='')\n\
             for _ in range({LOADS}): threading.Thread(target=load).start()"
        ),
    );
    (0..LOADS).for_each(|_| assert_eq!(runs.line(), "runs"));
    fixture
        .client
        .set_policy(veth.id, &policy(&["203.0.113.20"], &[]))
        .expect("the rules are changed");
    // Also a connection that has just received data.
    (0..LOADS).for_each(|_| assert_eq!(runs.line(), "ConnectionResetError"));
    runs.end();
}

#[test]
fn denials_are_reported_and_names_need_the_egress_proxy() {
    let fixture = VethFixture::new();
    let (veth, network) = fixture.claim(&[], &[]);
    let said = says(&network, &tries(&[(&PUBLIC.to_string(), 80)]));
    assert!(said.starts_with("ConnectionRefused"), "{said}");
    assert_eq!(fixture.denials()[0].rule, "default");
    assert!(!fixture.client.names);
    let refused = fixture.client.set_policy(veth.id, &policy(&["example.com"], &[]));
    assert!(matches!(refused, Err(VethError::Refused(reason)) if reason.contains("not available")));
}

/// Promises: Q5.
#[test]
fn the_operator_can_open_a_private_network() {
    let opened = vec![(PRIVATE, 32)];
    let fixture = VethFixture::with(VethSettings { opened, ..VethSettings::default() });
    let (veth, network) = fixture.claim(&["*"], &[]);
    let program = tries(&[(&PRIVATE.to_string(), 80)]);
    assert_eq!(says(&network, &program), format!("{HOST} {PRIVATE}"));
    // Rules also apply to the opened network.
    fixture
        .client
        .set_policy(veth.id, &policy(&["*"], &["10.0.0.0/8"]))
        .expect("the rules are changed");
    assert!(says(&network, &program).starts_with("ConnectionRefused"));
    assert_eq!(fixture.denials()[0].rule, "10.0.0.0/8");
}

/// Promises: Q4.
#[test]
fn the_longest_rules_fit_and_are_changed_at_once() {
    let fixture = VethFixture::new();
    let texts: Vec<String> =
        (0..256).map(|at| format!("198.{}.{}.0/24:{}", at % 7, at, 1 + at % 9)).collect();
    let rules: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (veth, network) = fixture.claim(&rules, &["*:25"]);
    for _ in 0..3 {
        fixture
            .client
            .set_policy(veth.id, &policy(&rules[..128], &rules[64..]))
            .expect("the rules are changed");
        fixture.client.set_policy(veth.id, &policy(&rules, &[])).expect("the rules are changed");
    }
    fixture.client.set_policy(veth.id, &policy(&["*"], &[])).expect("the rules are changed");
    let said = says(&network, &tries(&[(&PUBLIC.to_string(), 80)]));
    assert_eq!(said, format!("{HOST} {PUBLIC}"));
}

/// Promises: Q11.
#[test]
fn connections_are_bounded_and_the_address_range_is_configurable() {
    let range = [10, 99, 0, 0].into();
    let settings = VethSettings { range, connections_max: 20, ..VethSettings::default() };
    let fixture = VethFixture::with(settings);
    let (veth, network) = fixture.claim(&["*"], &[]);
    assert_eq!(veth.address.octets()[..2], [10, 99]);
    let program = format!(
        "import socket\nheld = []\ntry:\n    for _ in range(40):\n        \
         held.append(socket.create_connection(('{PUBLIC}', 80), timeout=3))\nexcept OSError:\n    pass\n\
         print(len(held))"
    );
    assert_eq!(says(&network, &program), "20");
    assert_eq!(fixture.denials()[0].rule, "limit");
    // Another sandbox has a limit of its own.
    let (_, other) = fixture.claim(&["*"], &[]);
    assert_eq!(says(&other, &tries(&[(&PUBLIC.to_string(), 80)])), format!("{HOST} {PUBLIC}"));
}
