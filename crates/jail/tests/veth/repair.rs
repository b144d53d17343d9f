//! What others do to links, rules and processes, and what comes of it (F30).

use crate::given::{Given, policy, says, tries};
use isolet_jail::{VethClient, VethEvent};
use isolet_kit::net::{self, HOST, PRIVATE, PUBLIC};
use isolet_kit::{SOON, process, wait_until};

fn reaches(network: &std::os::fd::OwnedFd) -> bool {
    says(network, &tries(&[(&PUBLIC.to_string(), 80)])) == format!("{HOST} {PUBLIC}")
}

/// Promises: Q7.
#[test]
fn a_flushed_table_opens_nothing_is_named_and_made_anew() {
    let given = Given::new();
    let (_, network) = given.take(&["*"], &[]);
    assert!(reaches(&network));
    net::run("nft", "flush ruleset");
    // Whatever comes first: what was closed stays closed.
    let said = says(&network, &tries(&[(&PRIVATE.to_string(), 80), (&HOST.to_string(), 7300)]));
    assert!(said.lines().all(|line| line.starts_with("ConnectionRefused")), "{said}");
    let news = given.wait(|news| matches!(news, VethEvent::Repaired(_)));
    assert!(matches!(&news, VethEvent::Repaired(what) if what.contains("ip isolet")), "{news:?}");
    assert!(reaches(&network));
}

/// Promises: Q7.
#[test]
fn rules_flushed_between_let_nothing_out_and_are_made_anew() {
    let given = Given::new();
    let (_, network) = given.take(&["198.51.100.10"], &[]);
    net::inside(&given.between(), "nft", "flush ruleset");
    let news = given.wait(|news| matches!(news, VethEvent::Repaired(_)));
    assert!(matches!(&news, VethEvent::Repaired(what) if what.contains("inet isolet")), "{news:?}");
    assert!(reaches(&network));
    let said = says(&network, &tries(&[(&PUBLIC.to_string(), 81), (&PRIVATE.to_string(), 80)]));
    assert!(
        said.lines().nth(1).is_some_and(|line| line.starts_with("ConnectionRefused")),
        "{said}"
    );
}

/// Promises: Q7.
#[test]
fn a_renamed_or_removed_uplink_is_named_and_put_back() {
    let given = Given::new();
    let (_, network) = given.take(&["*"], &[]);
    for what in ["link set isolet0 down", "link set isolet0 name other0", "link del isolet0"] {
        if what.contains("name") {
            net::ip("link set isolet0 down");
        }
        net::ip(what);
        wait_until("it is as it was", SOON, || reaches(&network).then_some(()));
        if !what.contains("down") {
            let news = given.wait(|news| matches!(news, VethEvent::Repaired(_)));
            assert!(matches!(&news, VethEvent::Repaired(it) if it.contains("isolet0")), "{news:?}");
        }
    }
}

/// Promises: Q6.
#[test]
fn a_killed_server_finds_its_links_and_what_runs_goes_on() {
    let mut given = Given::new();
    let (link, network) = given.take(&["*"], &[]);
    let mut runs = net::background(
        &network,
        &format!(
            "import socket\nit = socket.create_connection(('{PUBLIC}', 81))\nfor _ in range(400):\n    \
             left = 1 << 20\n    while left: left -= len(it.recv(left))\n    \
             if _ in (1, 399): print(_)"
        ),
    );
    assert_eq!(runs.line(), "1");
    let keeper = given.keeper();
    let boot = given.links.boot;
    given.again();
    assert_eq!((given.keeper(), given.links.boot), (keeper, boot));
    assert_eq!(given.links.list().expect("lists"), [link]);
    assert_eq!(runs.line(), "399");
    assert!(reaches(&network));
}

/// Promises: Q7.
#[test]
fn a_killed_owner_of_links_is_found_and_sandboxes_are_linked_anew() {
    let mut given = Given::new();
    let (_, network) = given.take(&["*"], &[]);
    process::kill(given.keeper());
    given.wait(|news| *news == VethEvent::Ended);
    assert!(given.links.has_ended());
    assert!(given.links.settle().is_err());
    // Nothing leaves meanwhile.
    assert!(!reaches(&network));
    given.again();
    let link =
        given.links.attach("sandbox", &policy(&["*"], &[]), std::os::fd::AsFd::as_fd(&network));
    let link = link.expect("linked anew");
    assert!(reaches(&network));
    // And once more, where it has one.
    let again =
        given.links.attach("sandbox", &policy(&["*"], &[]), std::os::fd::AsFd::as_fd(&network));
    assert_ne!(again.expect("linked anew").id, link.id);
    assert!(reaches(&network));
    assert_eq!(given.links.list().expect("lists").len(), 1);
}

/// An owner of links was killed while its namespace was still held (by its edge, which had not yet
/// ended): the link to the host stayed, and the next owner took it for a stranger's.
/// Promises: Q7.
#[test]
fn a_link_that_a_killed_owner_left_is_known_and_removed() {
    let mut given = Given::new();
    let (_, network) = given.take(&["*"], &[]);
    let held = given.between();
    process::kill(given.keeper());
    given.wait(|news| *news == VethEvent::Ended);
    given.again();
    let space = std::os::fd::AsFd::as_fd(&network);
    given.links.attach("sandbox", &policy(&["*"], &[]), space).expect("linked anew");
    assert!(reaches(&network));
    drop(held);
}

/// Promises: Q8.
#[test]
fn nobody_needs_it_and_it_ends_without_a_trace() {
    let given = Given::new();
    let keeper = given.keeper();
    let (_, network) = given.take(&["*"], &[]);
    let Given { links, config, .. } = &given;
    assert!(VethClient::is_running(config));
    links.release(links.list().expect("lists")[0].id).expect("released");
    drop(network);
    given.links.disconnect();
    wait_until("it ends", SOON, || (!process::alive(keeper)).then_some(()));
    wait_until("its link is gone", SOON, || net::links("isolet0").is_empty().then_some(()));
    assert!(!net::run("nft", "list ruleset").contains("isolet"));
}

/// Promises: Q11.
#[test]
fn a_set_that_somebody_emptied_is_filled_by_the_next_change() {
    let given = Given::new();
    let (link, network) = given.take(&["198.51.100.10"], &[]);
    let (_, other) = given.take(&["*"], &[]);
    for set in ["direct", "addresses", "open"] {
        net::inside(&given.between(), "nft", &format!("flush set inet isolet {set}"));
    }
    assert!(!reaches(&network));
    given.links.set_policy(link.id, &policy(&["198.51.100.0/24"], &[])).expect("other rules");
    assert!(reaches(&network) && reaches(&other));
}

/// Addresses of links that the server had released stayed in the packet filter's sets until another
/// link came or went by itself.
#[test]
fn what_a_released_link_had_in_the_sets_goes_soon() {
    let given = Given::new();
    let (link, _network) = given.take(&["198.51.100.10"], &[]);
    let name = format!("\"l{}\"", link.id);
    let held = || net::inside(&given.between(), "nft", "list ruleset").contains(&name);
    assert!(held(), "it is in a set");
    given.links.release(link.id).expect("it is released");
    isolet_kit::wait_until("nothing of it is in a set", isolet_kit::SOON, || {
        (!held()).then_some(())
    });
}
