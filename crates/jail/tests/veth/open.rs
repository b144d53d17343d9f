//! Open egress: everything except this machine and its neighbours.

use crate::fixture::{VethFixture, says, tries};
use isolet_jail::VethEvent;
use isolet_kit::net::{self, HOST, METADATA, OTHER, PRIVATE, PUBLIC};
use isolet_kit::{SOON, wait_until};

/// Promises: Q1.
#[test]
fn open_reaches_the_internet_by_tcp_udp_and_ping_from_the_hosts_address() {
    let fixture = VethFixture::new();
    let (_, network) = fixture.claim(&["*"], &[]);
    let places = [(&*PUBLIC.to_string(), 80), (&*OTHER.to_string(), 443)];
    let said = says(&network, &tries(&places));
    assert_eq!(said, format!("{HOST} {PUBLIC}\n{HOST} {OTHER}"));
    let udp = format!(
        "import socket\nit = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nit.settimeout(20)\n\
         it.sendto(b'well', ('{PUBLIC}', 82))\nprint(it.recv(99).decode())"
    );
    assert_eq!(says(&network, &udp), format!("{HOST} well"));
    let ping = format!(
        "import socket\nit = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)\n\
         it.settimeout(20)\nit.sendto(bytes([8, 0, 0, 0, 0, 0, 0, 1]) + b'x' * 3000, ('{PUBLIC}', 0))\n\
         print(len(it.recv(9999)))"
    );
    // Longer than one packet, so it is fragmented.
    assert_eq!(says(&network, &ping), "3008");
    let counters = fixture
        .client
        .counters(fixture.client.list().expect("the pairs are listed")[0].id)
        .expect("counts");
    assert!(counters.out_bytes > 3000 && counters.back_bytes > 3000, "{counters:?}");
    assert_eq!(fixture.denials(), []);
}

/// Docker changes the host's firewall in this way.
/// Promises: Q17.
#[test]
fn a_host_firewall_that_drops_packets_is_reported_with_the_remedy() {
    let mut fixture = VethFixture::new();
    assert_eq!(fixture.client.warnings, [""; 0]);
    let rules = "add table ip filter; add chain ip filter DOCKER-USER; \
        add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }; \
        add rule ip filter FORWARD jump DOCKER-USER";
    net::nft(rules);
    let (_, network) = fixture.claim(&["*"], &[]);
    let place = PUBLIC.to_string();
    let said = says(&network, &tries(&[(&place, 80)]));
    assert!(said.contains("TimeoutError"), "{said}");
    fixture.reconnect();
    let warnings = fixture.client.warnings.join("\n");
    let opens = "iptables -I DOCKER-USER -i isolet0 -j ACCEPT; iptables -I DOCKER-USER -o isolet0 -j ACCEPT";
    assert!(warnings.contains("FORWARD (table ip filter)"), "{warnings}");
    assert!(warnings.contains(opens), "{warnings}");
    // The effect of these two commands.
    net::nft(
        "insert rule ip filter DOCKER-USER iifname isolet0 accept; insert rule ip filter DOCKER-USER oifname isolet0 accept",
    );
    assert_eq!(says(&network, &tries(&[(&place, 80)])), format!("{HOST} {PUBLIC}"));
    fixture.reconnect();
    assert_eq!(fixture.client.warnings, [""; 0]);
    net::nft(
        "add table inet wall; add chain inet wall through { type filter hook forward priority 5; policy drop; }",
    );
    fixture.reconnect();
    let warnings = fixture.client.warnings.join("\n");
    let opens = "nft insert rule inet wall through iifname isolet0 accept; nft insert rule inet wall through oifname isolet0 accept";
    assert!(warnings.contains(opens), "{warnings}");
    opens.split("; ").for_each(|line| drop(net::run("nft", line.trim_start_matches("nft "))));
    assert_eq!(says(&network, &tries(&[(&place, 80)])), format!("{HOST} {PUBLIC}"));
}

/// Promises: Q2.
#[test]
fn the_host_its_neighbours_and_other_sandboxes_are_closed_and_denials_reported() {
    let fixture = VethFixture::new();
    let (_, network) = fixture.claim(&["*"], &[]);
    let (other, held) = fixture.claim(&["*"], &[]);
    // A server listens at each of these addresses.
    let _server = std::net::TcpListener::bind("0.0.0.0:7300").expect("listens");
    let _inside = net::background(
        &held,
        "import socket\nit = socket.create_server(('0.0.0.0', 80))\nprint('ready')\nit.accept()",
    );
    let places = [
        (HOST.to_string(), 7300, "host"),
        (PRIVATE.to_string(), 80, "private"),
        (METADATA.to_string(), 80, "link-local"),
        (other.address.to_string(), 80, "private"),
        ("10.231.0.1".to_owned(), 22, "private"),
        ("10.231.0.1".to_owned(), 15001, "private"),
        ("255.255.255.255".to_owned(), 80, "reserved"),
        ("0.0.0.1".to_owned(), 80, "this network"),
    ];
    let tried: Vec<_> = places.iter().map(|(host, port, _)| (host.as_str(), *port)).collect();
    let said = says(&network, &tries(&tried));
    for (line, (host, port, _)) in said.lines().zip(&places) {
        assert!(line.contains("Error") || line.contains("timeout"), "{host}:{port}: {line}");
    }
    assert_eq!(said.lines().count(), places.len(), "{said}");
    let denials = fixture.denials();
    for (host, port, reason) in &places[..6] {
        let found = denials.iter().find(|it| it.host == *host && it.port == Some(*port));
        let found = found.unwrap_or_else(|| panic!("{host}:{port} in {denials:?}"));
        assert_eq!(
            (found.rule.as_str(), found.protocol.as_str()),
            (*reason, "tcp"),
            "{host}:{port}"
        );
        assert!(found.times >= 1);
    }
    // A denied connection is refused at once, without a timeout.
    assert!(said.starts_with("ConnectionRefusedError"), "{said}");
}

/// Promises: Q2.
#[test]
fn an_address_that_the_host_gets_is_closed() {
    let fixture = VethFixture::new();
    let (_, network) = fixture.claim(&["*"], &[]);
    let program = tries(&[("198.51.100.77", 7300)]);
    net::ip("addr add 198.51.100.77/32 dev wan");
    let _server = std::net::TcpListener::bind("0.0.0.0:7300").expect("listens");
    wait_until("it is closed by name", SOON, || {
        says(&network, &program);
        fixture.denials().iter().any(|it| it.rule == "host").then_some(())
    });
}

/// Promises: Q3.
#[test]
fn forged_packets_do_not_leave() {
    let fixture = VethFixture::new();
    let (mine, network) = fixture.claim(&["*"], &[]);
    let (other, held) = fixture.claim(&["*"], &[]);
    // The program has all privileges over the sandbox's network, which no process inside has.
    let program = RAW
        .replace("MINE", &mine.address.to_string())
        .replace("OTHER", &other.address.to_string())
        .replace("PUBLIC", &PUBLIC.to_string());
    let mut seen = net::background(&held, SNIFF);
    assert_eq!(seen.line(), "ready");
    fixture.world.there("nft add table ip seen");
    fixture.world.there("nft add chain ip seen seen { type filter hook input priority -400 ; }");
    fixture.world.there("nft add rule ip seen seen ip protocol != { tcp, udp, icmp } counter drop");
    fixture.world.there("nft add rule ip seen seen ip saddr != 203.0.113.1 counter drop");
    let said = says(&network, &program);
    assert!(said.ends_with("sent"), "{said}");
    let ruleset = fixture.world.says("nft list table ip seen");
    assert_eq!(ruleset.matches("counter packets 0 ").count(), 2, "{ruleset}");
    assert_eq!(seen.line(), "nothing");
}

/// Sends packets with forged source addresses, of other protocols, of IPv6, and ARP requests.
const RAW: &str = r#"
import socket, struct
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def packet(source, to, protocol, body):
    head = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0,
        socket.inet_aton(source), socket.inet_aton(to))
    return head + body
udp = struct.pack('!HHHH', 9, 82, 12, 0) + b'ping'
for source in ('OTHER', '10.231.0.1', '203.0.113.99', 'PUBLIC', '127.0.0.1'):
    for to in ('PUBLIC', 'OTHER'):
        raw.sendto(packet(source, to, 17, udp), (to, 0))
for protocol in (47, 50, 132, 4, 41, 2):
    for to in ('PUBLIC', 'OTHER'):
        raw.sendto(packet('MINE', to, protocol, udp), (to, 0))
for to in ('OTHER',):
    raw.sendto(packet('MINE', to, 17, udp), (to, 0))
    raw.sendto(packet('MINE', to, 1, bytes([5, 1, 0, 0]) + bytes(28)), (to, 0))
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(('eth0', 0))
mine = wire.getsockname()[4]
for kind, body in ((0x0806, bytes(28)), (0x86dd, b'\x60' + bytes(39)), (0x8100, bytes(46)),
        (0x88cc, bytes(46)), (0x0800, packet('MINE', 'OTHER', 17, udp))):
    for to in (b'\xff' * 6, mine, b'\x33\x33\0\0\0\1'):
        wire.send(to + mine + struct.pack('!H', kind) + body)
print('sent')
"#;

/// Prints the first packet that arrives within two seconds.
const SNIFF: &str = r#"
import socket
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(('eth0', 0))
wire.settimeout(2)
print('ready')
try:
    while True:
        data, about = wire.recvfrom(999)
        if about[2] != 4:
            print('heard', data.hex())
            break
except TimeoutError:
    print('nothing')
"#;

/// Promises: Q8.
#[test]
fn a_veth_ends_with_its_network_namespace_and_leaves_nothing() {
    let fixture = VethFixture::new();
    let count = isolet_kit::tries(40, 200);
    for _ in 0..count {
        let (_, network) = fixture.claim(&["*"], &[]);
        drop(network);
    }
    for _ in 0..count {
        fixture.wait(|event| matches!(event, VethEvent::Gone { .. }));
    }
    assert_eq!(fixture.client.list().expect("the pairs are listed"), []);
    let netns = fixture.gateway_netns();
    wait_until("pairs and set elements are gone", SOON, || {
        // Only prepared pairs are left.
        let pairs = net::inside(&netns, "ip", "-o link").matches(": l").count();
        let table = net::inside(&netns, "nft", "list set inet isolet addresses");
        (pairs <= 8 && table.matches("10.231.").count() <= 6).then_some(())
    });
}
