//! Rules with names: the egress proxy is started, configured, queried, and started again.

use crate::fixture::{VethFixture, policy, says, tries};
use isolet_jail::{VethEvent, VethSettings};
use isolet_kit::net::PUBLIC;
use isolet_kit::{SOON, process, wait_until};
use std::os::fd::OwnedFd;

fn fixture() -> VethFixture {
    let resolvers = vec![(PUBLIC, 53).into()];
    let settings = VethSettings { resolvers, ..VethSettings::default() };
    VethFixture::beside(settings, &["isolet-egress-proxy"])
}

/// The last line of a page, whose host name the gateway's resolver resolves.
fn page(network: &OwnedFd, name: &str) -> String {
    says(network, &PAGE.replace("NAME", name))
}

const PAGE: &str = r#"
import socket
name = 'NAME'
ask = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ask.settimeout(3)
labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.'))
ask.sendto(b'\0\7\1\0\0\1\0\0\0\0\0\0' + labels + b'\0\0\1\0\1', ('10.231.0.1', 53))
try:
    answer = ask.recv(999)
    if answer[7] == 0:
        print('no address', answer[3] & 15)
    else:
        it = socket.create_connection((socket.inet_ntoa(answer[-4:]), 8080), timeout=3)
        it.sendall(f'GET / HTTP/1.1\r\nHost: {name}:8080\r\nConnection: close\r\n\r\n'.encode())
        text = b''
        while (more := it.recv(999)): text += more
        print(text.decode().strip().splitlines()[-1])
except OSError as error:
    print(type(error).__name__)
"#;

/// `/etc/resolv.conf` of a sandbox is written before the address range is known.
/// Promises: Q10.
#[test]
fn names_are_answered_where_sandboxes_have_other_addresses() {
    let resolvers = vec![(PUBLIC, 53).into()];
    // Also where the operator opens the network that contains the resolver's address.
    for opened in [vec![], vec![([10, 0, 0, 0].into(), 8)]] {
        let range = [172, 20, 0, 0].into();
        let resolvers = resolvers.clone();
        let settings = VethSettings { resolvers, range, opened, ..VethSettings::default() };
        let fixture = VethFixture::beside(settings, &["isolet-egress-proxy"]);
        let (veth, network) = fixture.claim(&["named.test"], &[]);
        assert_eq!(veth.address.octets()[..2], [172, 20]);
        assert_eq!(page(&network, "named.test"), format!("named.test:8080 {PUBLIC}"));
        assert!(page(&network, "other.test").starts_with("no address"));
        let by_tcp = says(&network, &tries(&[("10.231.0.1", 53), ("172.20.0.1", 53)]));
        let lines: Vec<&str> = by_tcp.lines().collect();
        assert!(!lines[0].contains("Refused") && lines[1].contains("Refused"), "{by_tcp}");
    }
}

/// Promises: Q10.
#[test]
fn only_allowed_names_are_reached() {
    let fixture = fixture();
    assert!(fixture.client.names);
    let (veth, network) = fixture.claim(&["named.test"], &[]);
    assert_eq!(page(&network, "named.test"), format!("named.test:8080 {PUBLIC}"));
    let refused = page(&network, "other.test");
    assert!(refused.starts_with("no address"), "{refused}");
    let denials = fixture.denials();
    assert!(denials.iter().any(|it| it.host == "other.test"), "{denials:?}");
    // The address itself is not allowed, although the name resolves to it.
    let raw = says(&network, &tries(&[(&PUBLIC.to_string(), 82)]));
    assert!(raw.contains("Error") || raw == "open", "{raw}");
    fixture
        .client
        .set_policy(veth.id, &policy(&["other.test"], &[]))
        .expect("the rules are changed");
    assert_eq!(page(&network, "other.test"), format!("other.test:8080 {PUBLIC}"));
    assert!(page(&network, "named.test").starts_with("no address"));
    // Open: every name is allowed, but no neighbour of this machine.
    fixture.client.set_policy(veth.id, &policy(&["*"], &[])).expect("the rules are changed");
    assert_eq!(page(&network, "named.test"), format!("named.test:8080 {PUBLIC}"));
    assert!(!page(&network, "private.test").contains("10.9.9.9"));
}

/// Promises: Q10.
#[test]
fn the_egress_proxy_is_unprivileged_and_started_again_when_killed() {
    let fixture = fixture();
    let (_, network) = fixture.claim(&["named.test"], &[]);
    let owner = fixture.owner();
    let proxy = || isolet_kit::veth::egress_proxy(owner);
    let first = wait_until("it runs", SOON, proxy);
    let status = wait_until("it has installed its filter", SOON, || {
        let status =
            std::fs::read_to_string(format!("/proc/{first}/status")).expect("the process runs");
        status.contains("Seccomp:\t2").then_some(status)
    });
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("it is there");
        line.split_whitespace().nth(1).expect("a value").to_owned()
    };
    assert_ne!(field("Uid:"), "0");
    assert_eq!((field("CapEff:"), field("NoNewPrivs:")), ("0000000000000000".into(), "1".into()));
    process::kill(first);
    fixture.wait(|event| matches!(event, VethEvent::ProxyRestarted));
    wait_until("names are resolved again", SOON, || {
        (page(&network, "named.test") == format!("named.test:8080 {PUBLIC}")).then_some(())
    });
    assert!(proxy().is_some_and(|now| now != first));
}
