//! Rules on addresses, and their change while something runs.

use crate::given::{Given, policy, says, tries};
use isolet_jail::{VethError, VethSettings};
use isolet_kit::net::{self, HOST, OTHER, PRIVATE, PUBLIC};

/// Promises: Q4.
#[test]
fn rules_hold_by_address_and_port_and_name_what_they_refuse() {
    let given = Given::new();
    let (link, network) =
        given.take(&["198.51.100.0/24:80", "203.0.113.0/24"], &["203.0.113.20:443"]);
    let places = [(&*PUBLIC.to_string(), 80), (&*PUBLIC.to_string(), 443)];
    let more = [(&*OTHER.to_string(), 80), (&*OTHER.to_string(), 443)];
    let said = says(&network, &tries(&[places, more].concat()));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], format!("{HOST} {PUBLIC}"));
    assert!(lines[1].starts_with("ConnectionRefused"), "{said}");
    assert_eq!(lines[2], format!("{HOST} {OTHER}"));
    assert!(lines[3].starts_with("ConnectionRefused"), "{said}");
    let told = given.refusals();
    let rules: Vec<_> = told.iter().map(|it| (it.host.clone(), it.rule.as_str())).collect();
    assert_eq!(rules, [(PUBLIC.to_string(), "default"), (OTHER.to_string(), "203.0.113.20:443")]);

    given.links.set_policy(link.id, &policy(&["198.51.100.10:443"], &[])).expect("other rules");
    let said = says(&network, &tries(&[places, more].concat()));
    let open: Vec<bool> = said.lines().map(|line| line.starts_with(&HOST.to_string())).collect();
    assert_eq!(open, [false, true, false, false], "{said}");
}

/// Connections that are cut.
const LOADS: usize = 4;

/// Promises: Q4.
#[test]
fn a_rule_that_is_taken_away_cuts_what_runs() {
    let given = Given::new();
    let (link, network) = given.take(&["198.51.100.10"], &[]);
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
    given.links.set_policy(link.id, &policy(&["203.0.113.20"], &[])).expect("other rules");
    // One that had just answered what came before its end, too.
    (0..LOADS).for_each(|_| assert_eq!(runs.line(), "ConnectionResetError"));
    runs.end();
}

#[test]
fn what_nobody_allows_is_refused_and_told_and_names_are_not_to_be_had_without_the_edge() {
    let given = Given::new();
    let (link, network) = given.take(&[], &[]);
    let said = says(&network, &tries(&[(&PUBLIC.to_string(), 80)]));
    assert!(said.starts_with("ConnectionRefused"), "{said}");
    assert_eq!(given.refusals()[0].rule, "default");
    assert!(!given.links.names);
    let refused = given.links.set_policy(link.id, &policy(&["example.com"], &[]));
    assert!(matches!(refused, Err(VethError::Refused(why)) if why.contains("not available")));
}

/// Promises: Q5.
#[test]
fn whoever_runs_the_server_opens_a_private_network() {
    let opened = vec![(PRIVATE, 32)];
    let given = Given::with(VethSettings { opened, ..VethSettings::default() });
    let (link, network) = given.take(&["*"], &[]);
    let program = tries(&[(&PRIVATE.to_string(), 80)]);
    assert_eq!(says(&network, &program), format!("{HOST} {PRIVATE}"));
    // Rules hold there too.
    given.links.set_policy(link.id, &policy(&["*"], &["10.0.0.0/8"])).expect("other rules");
    assert!(says(&network, &program).starts_with("ConnectionRefused"));
    assert_eq!(given.refusals()[0].rule, "10.0.0.0/8");
}

/// Promises: Q4.
#[test]
fn the_longest_rules_fit_and_are_changed_at_once() {
    let given = Given::new();
    let texts: Vec<String> =
        (0..256).map(|at| format!("198.{}.{}.0/24:{}", at % 7, at, 1 + at % 9)).collect();
    let rules: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (link, network) = given.take(&rules, &["*:25"]);
    for _ in 0..3 {
        given.links.set_policy(link.id, &policy(&rules[..128], &rules[64..])).expect("other rules");
        given.links.set_policy(link.id, &policy(&rules, &[])).expect("other rules");
    }
    given.links.set_policy(link.id, &policy(&["*"], &[])).expect("open");
    let said = says(&network, &tries(&[(&PUBLIC.to_string(), 80)]));
    assert_eq!(said, format!("{HOST} {PUBLIC}"));
}

/// Promises: Q11.
#[test]
fn a_sandbox_has_so_many_connections_at_once_and_addresses_where_told() {
    let range = [10, 99, 0, 0].into();
    let settings = VethSettings { range, connections_max: 20, ..VethSettings::default() };
    let given = Given::with(settings);
    let (link, network) = given.take(&["*"], &[]);
    assert_eq!(link.address.octets()[..2], [10, 99]);
    let program = format!(
        "import socket\nheld = []\ntry:\n    for _ in range(40):\n        \
         held.append(socket.create_connection(('{PUBLIC}', 80), timeout=3))\nexcept OSError:\n    pass\n\
         print(len(held))"
    );
    assert_eq!(says(&network, &program), "20");
    assert_eq!(given.refusals()[0].rule, "limit");
    // Another has its own.
    let (_, other) = given.take(&["*"], &[]);
    assert_eq!(says(&other, &tries(&[(&PUBLIC.to_string(), 80)])), format!("{HOST} {PUBLIC}"));
}
