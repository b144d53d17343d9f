//! Changes that others make to pairs, rules and processes, and how they are repaired (F30).

use crate::fixture::{VethFixture, policy, says, tries};
use isolet_jail::{VethClient, VethEvent};
use isolet_kit::net::{self, HOST, PRIVATE, PUBLIC};
use isolet_kit::{SOON, process, wait_until};

fn reaches(network: &std::os::fd::OwnedFd) -> bool {
    says(network, &tries(&[(&PUBLIC.to_string(), 80)])) == format!("{HOST} {PUBLIC}")
}

/// Promises: Q7.
#[test]
fn a_flushed_table_opens_nothing_and_is_recreated() {
    let fixture = VethFixture::new();
    let (_, network) = fixture.claim(&["*"], &[]);
    assert!(reaches(&network));
    net::run("nft", "flush ruleset");
    // Closed addresses stay closed, before the repair and after it.
    let said = says(&network, &tries(&[(&PRIVATE.to_string(), 80), (&HOST.to_string(), 7300)]));
    assert!(said.lines().all(|line| line.starts_with("ConnectionRefused")), "{said}");
    let event = fixture.wait(|event| matches!(event, VethEvent::Repaired(_)));
    assert!(
        matches!(&event, VethEvent::Repaired(description) if description.contains("ip isolet")),
        "{event:?}"
    );
    assert!(reaches(&network));
}

/// Promises: Q7.
#[test]
fn flushed_gateway_rules_let_nothing_out_and_are_recreated() {
    let fixture = VethFixture::new();
    let (_, network) = fixture.claim(&["198.51.100.10"], &[]);
    net::inside(&fixture.gateway_netns(), "nft", "flush ruleset");
    let event = fixture.wait(|event| matches!(event, VethEvent::Repaired(_)));
    assert!(
        matches!(&event, VethEvent::Repaired(description) if description.contains("inet isolet")),
        "{event:?}"
    );
    assert!(reaches(&network));
    let said = says(&network, &tries(&[(&PUBLIC.to_string(), 81), (&PRIVATE.to_string(), 80)]));
    assert!(
        said.lines().nth(1).is_some_and(|line| line.starts_with("ConnectionRefused")),
        "{said}"
    );
}

/// Promises: Q7.
#[test]
fn a_renamed_or_removed_uplink_is_reported_and_repaired() {
    let fixture = VethFixture::new();
    let (_, network) = fixture.claim(&["*"], &[]);
    for command in ["link set isolet0 down", "link set isolet0 name other0", "link del isolet0"] {
        if command.contains("name") {
            net::ip("link set isolet0 down");
        }
        net::ip(command);
        wait_until("the uplink is repaired", SOON, || reaches(&network).then_some(()));
        if !command.contains("down") {
            let event = fixture.wait(|event| matches!(event, VethEvent::Repaired(_)));
            assert!(
                matches!(&event, VethEvent::Repaired(it) if it.contains("isolet0")),
                "{event:?}"
            );
        }
    }
}

/// Promises: Q6.
#[test]
fn a_restarted_server_finds_its_veths_and_connections_go_on() {
    let mut fixture = VethFixture::new();
    let (veth, network) = fixture.claim(&["*"], &[]);
    let mut runs = net::background(
        &network,
        &format!(
            "import socket\nit = socket.create_connection(('{PUBLIC}', 81))\nfor _ in range(400):\n    \
             left = 1 << 20\n    while left: left -= len(it.recv(left))\n    \
             if _ in (1, 399): print(_)"
        ),
    );
    assert_eq!(runs.line(), "1");
    let owner = fixture.owner();
    let boot = fixture.client.boot;
    fixture.reconnect();
    assert_eq!((fixture.owner(), fixture.client.boot), (owner, boot));
    assert_eq!(fixture.client.list().expect("the pairs are listed"), [veth]);
    assert_eq!(runs.line(), "399");
    assert!(reaches(&network));
}

/// Promises: Q7.
#[test]
fn after_the_veth_owner_is_killed_sandboxes_are_attached_again() {
    let mut fixture = VethFixture::new();
    let (_, network) = fixture.claim(&["*"], &[]);
    process::kill(fixture.owner());
    fixture.wait(|event| *event == VethEvent::Ended);
    assert!(fixture.client.has_ended());
    assert!(fixture.client.settle().is_err());
    // Nothing leaves the sandbox until it is attached again. The kernel removes the namespace of the
    // owner a moment after the owner's end.
    let is_cut = (0..200).any(|_| !reaches(&network));
    assert!(is_cut, "packets leave without an owner");
    assert!(!reaches(&network));
    fixture.reconnect();
    let veth =
        fixture.client.attach("sandbox", &policy(&["*"], &[]), std::os::fd::AsFd::as_fd(&network));
    let veth = veth.expect("attached again");
    assert!(reaches(&network));
    // Attaching a sandbox that has a pair replaces the pair.
    let again =
        fixture.client.attach("sandbox", &policy(&["*"], &[]), std::os::fd::AsFd::as_fd(&network));
    assert_ne!(again.expect("attached again").id, veth.id);
    assert!(reaches(&network));
    assert_eq!(fixture.client.list().expect("the pairs are listed").len(), 1);
}

/// The process that owns the pairs was once killed while another process still held its namespace
/// (the egress proxy, which had not ended yet). The uplink stayed, and the next process did not
/// recognise it.
/// Promises: Q7.
#[test]
fn an_uplink_that_a_killed_owner_left_is_removed() {
    let mut fixture = VethFixture::new();
    let (_, network) = fixture.claim(&["*"], &[]);
    let held = fixture.gateway_netns();
    process::kill(fixture.owner());
    fixture.wait(|event| *event == VethEvent::Ended);
    fixture.reconnect();
    let netns = std::os::fd::AsFd::as_fd(&network);
    fixture.client.attach("sandbox", &policy(&["*"], &[]), netns).expect("attached again");
    assert!(reaches(&network));
    drop(held);
}

/// Promises: Q8.
#[test]
fn an_unused_veth_owner_ends_without_a_trace() {
    let fixture = VethFixture::new();
    let owner = fixture.owner();
    let (_, network) = fixture.claim(&["*"], &[]);
    let VethFixture { client, config, .. } = &fixture;
    assert!(VethClient::is_running(config));
    client
        .release(client.list().expect("the pairs are listed")[0].id)
        .expect("the pair is released");
    drop(network);
    fixture.client.disconnect();
    wait_until("the process ends", SOON, || (!process::alive(owner)).then_some(()));
    wait_until("the uplink is gone", SOON, || net::links("isolet0").is_empty().then_some(()));
    assert!(!net::run("nft", "list ruleset").contains("isolet"));
}

/// Promises: Q11.
#[test]
fn the_next_change_refills_a_flushed_set() {
    let fixture = VethFixture::new();
    let (veth, network) = fixture.claim(&["198.51.100.10"], &[]);
    let (_, other) = fixture.claim(&["*"], &[]);
    for set in ["direct", "addresses", "open"] {
        net::inside(&fixture.gateway_netns(), "nft", &format!("flush set inet isolet {set}"));
    }
    assert!(!reaches(&network));
    fixture
        .client
        .set_policy(veth.id, &policy(&["198.51.100.0/24"], &[]))
        .expect("the rules are changed");
    assert!(reaches(&network) && reaches(&other));
}

/// Addresses of released pairs once stayed in the sets of the packet filter until another pair was
/// created or removed.
#[test]
fn set_elements_of_a_released_veth_are_removed_soon() {
    let fixture = VethFixture::new();
    let (veth, _network) = fixture.claim(&["198.51.100.10"], &[]);
    let name = format!("\"l{}\"", veth.id);
    let held = || net::inside(&fixture.gateway_netns(), "nft", "list ruleset").contains(&name);
    assert!(held(), "the pair is in a set");
    fixture.client.release(veth.id).expect("the pair is released");
    isolet_kit::wait_until("the pair is in no set", isolet_kit::SOON, || (!held()).then_some(()));
}
